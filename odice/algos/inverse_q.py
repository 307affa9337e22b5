"""Inverse soft Q-learning as a frame: from an expert's transitions to a Q whose soft-greedy policy imitates them.

    Q    under a gradient rule   E_D[l V(s) + lam alpha f*((gamma m V(s') - Q(s, a)) / alpha)]        (`core.qdice`)
    pi   minimizes               E_{s ~ D, a ~ pi}[T log pi(a|s) - Q(s, a)]

Of a finite set of actions, pi is softmax(Q / T) itself and nothing has to be learnt for it; V is then exact.

One update, in this order: actions of pi at s and s'; the gradient of Q under the rule; Adam on Q; the policy with the
new Q; Qbar <- Polyak. Rewards are never read. IQ-Learn is this frame with the semi-gradient, OQ-DICE with the
orthogonal one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from odice.algos.health import WILD_REWARDS
from odice.algos.validation import not_negative, positive, require, validate
from odice.core import qdice
from odice.core.critics import Critic, sac_policy_loss
from odice.core.discriminator import interpolate
from odice.core.gradients import Rule
from odice.core.learner import Learned, Learner
from odice.core.networks import Init
from odice.core.optim import polyak
from odice.core.policies import CategoricalPolicy, SquashedPolicy
from odice.types import Algo, Batch, Metrics, Spec


@dataclass(frozen=True)
class InverseConfig:
    """What the members of the family share. Defaults follow IQ-Learn's MuJoCo scripts."""

    divergence: str = "chi"
    """f: `chi` is IQ-Learn's R + R^2 / (4 alpha); any other name of `odice list` is the non-negative conjugate, among
    them `hellinger`, `kl`, `kl-normalized` (its kl_fix), `kl-dv` (kl2) and `jensen-shannon` (js)."""
    alpha: float = 0.5
    """alpha: strength of f, alpha f*(R / alpha); rewards of `chi` settle at 2 alpha (IQ-Learn: 0.5; 1 for the other
    divergences)."""
    temperature: float = 0.01
    """T: weight of the policy's entropy, fixed (IQ-Learn: 0.01; Ant 0.001)."""
    gradient_penalty: float = 0.0
    """Weight of (||grad Q|| - 1)^2 between logged and policy's actions (IQ-Learn: 10 where it is on). Continuous
    actions only."""
    discount: float = 0.99
    """gamma: discount of the next state's value."""
    polyak: float = 0.005
    """tau: share of the online Q that enters the target after each update."""
    twin: bool = False
    """Two Q networks; targets and the policy take their minimum. Continuous actions only."""
    critic_hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers of Q (IQ-Learn: 256, 256)."""
    policy_hidden: tuple[int, ...] = (256, 256)
    """Widths of the policy's hidden layers (IQ-Learn: 256, 256)."""
    critic_lr: float = 3e-4
    """Adam's learning rate for Q (IQ-Learn: 3e-4)."""
    policy_lr: float = 3e-5
    """Adam's learning rate for the policy (IQ-Learn's MuJoCo scripts: 3e-5)."""
    init: Init = "orthonormal"
    """Initialization of all networks: orthogonal with gain 1 and zero biases (IQ-Learn)."""
    batch_size: int = 256
    """Transitions per update (IQ-Learn: 256)."""
    diagnose: bool = False
    """Log the two gradients' norms, cosine, projection and Theorem 2's bound on eta."""

    def __post_init__(self):
        validate(self)
        positive(self, "alpha", "temperature")
        not_negative(self, "gradient_penalty")
        qdice.reward_divergence(self.divergence, self.alpha)


DECLARED: dict[str, Any] = {
    "imitates": True,
    "diagnose": "diagnose",
    "when_diverged": ("lower", "critic_lr"),
    "health": (WILD_REWARDS,),
}
"""What every algorithm of this frame declares to the registry."""


class State(NamedTuple):
    critic: Learned[Critic]
    target: Critic
    policy: Learned[SquashedPolicy] | CategoricalPolicy
    """A softmax of Q is not learned by itself."""
    step: Int[Array, ""]


def acting(state: State) -> SquashedPolicy | CategoricalPolicy:
    """The policy of a state."""
    return state.policy if isinstance(state.policy, CategoricalPolicy) else state.policy.params


def softmax_policy(policy: CategoricalPolicy, critic: Critic, temperature: float) -> CategoricalPolicy:
    """softmax(Q / T) as a policy: Q's own network, with T in its last layer."""
    network = jax.tree.map(lambda leaf: leaf[0], critic.heads)
    last = lambda net: (net.weights[-1], net.biases[-1])
    network = eqx.tree_at(last, network, tuple(leaf / temperature for leaf in last(network)))
    return eqx.tree_at(lambda p: p.logits, policy, network)


def inverse(cfg: InverseConfig, objective: qdice.Objective, rule: Rule, spec: Spec, name: str) -> Algo:
    """The algorithm that a config, an objective and a gradient rule make."""
    require(
        not (spec.discrete and (cfg.twin or cfg.gradient_penalty > 0)),
        f"{name} has twin=True and gradient_penalty for continuous actions only, and these data have {spec.action_dim} "
        "discrete ones; leave both at their defaults.",
    )
    critic_learner, policy_learner = Learner(cfg.critic_lr), Learner(cfg.policy_lr)

    def init(key) -> State:
        key_critic, key_policy = jax.random.split(key)
        critic = Critic(key_critic, spec, cfg.critic_hidden, heads=2 if cfg.twin else 1, init=cfg.init)
        if spec.discrete:
            policy = softmax_policy(CategoricalPolicy(key_policy, spec, cfg.critic_hidden), critic, cfg.temperature)
        else:
            network = SquashedPolicy(key_policy, spec, cfg.policy_hidden, spread="tanh", init=cfg.init)
            policy = policy_learner.init(network)
        return State(
            critic=critic_learner.init(critic),
            target=jax.tree.map(jnp.copy, critic),  # its own buffers: the loop donates the state
            policy=policy,
            step=jnp.zeros((), jnp.int32),
        )

    def learn_critic(state: State, batch: Batch, keys) -> tuple[Learned[Critic], Metrics]:
        critic, drawn = state.critic.params, qdice.draw_both(acting(state), keys[0], batch)
        args = (critic, state.target, batch, drawn, cfg.diagnose)
        result, here, residual = qdice.critic_gradient(rule, objective, *args)
        gradient = result.gradient
        metrics = {
            "critic_loss": result.losses["forward"] + result.losses["rest"],
            "critic_mean": jnp.mean(here.q),
            "value_mean": jnp.mean(here.v),
            "advantage_mean": jnp.mean(here.q - here.v),
            "reward_mean": -jnp.mean(residual),
            "reward_std": jnp.std(residual),
        }
        if cfg.gradient_penalty > 0 and drawn.here.action is not None:
            points = interpolate(keys[1], (batch.obs, batch.action), (batch.obs, drawn.here.action[0]))
            loss, slope = jax.value_and_grad(qdice.gradient_penalty)(critic, points)
            gradient = jax.tree.map(lambda g, p: g + cfg.gradient_penalty * p, gradient, slope)
            metrics["gradient_penalty"] = loss
        if cfg.diagnose and result.diagnostics is not None:
            metrics |= result.diagnostics._asdict()
        return critic_learner.step(state.critic, gradient), metrics

    def learn_policy(state: State, critic: Critic, batch: Batch, key):
        if isinstance(state.policy, CategoricalPolicy):
            policy = softmax_policy(state.policy, critic, cfg.temperature)
            log_p = jax.nn.log_softmax(policy.logits(batch.obs), axis=-1)
            return policy, {"entropy": -jnp.mean(jnp.sum(jnp.exp(log_p) * log_p, axis=-1))}
        (loss, log_pi), gradient = jax.value_and_grad(sac_policy_loss, has_aux=True)(
            state.policy.params, critic, cfg.temperature, batch.obs, key
        )
        return policy_learner.step(state.policy, gradient), {"policy_loss": loss, "entropy": -log_pi}

    def update(state: State, batch: Batch, key) -> tuple[State, Metrics]:
        *keys, key_policy = jax.random.split(key, 3)
        critic, metrics = learn_critic(state, batch, keys)
        policy, more = learn_policy(state, critic.params, batch, key_policy)
        target = polyak(critic.params, state.target, cfg.polyak)
        return State(critic, target, policy, state.step + 1), metrics | more

    return Algo(init, update, acting)
