"""ValueDICE: imitation by distribution matching (Kostrikov, Nachum, Tompson, ICLR 2020), offline: the true gradient of
Q-form DICE.

The KL divergence between the visitations of the policy and the expert, in its Donsker-Varadhan form, with Q = -nu of
the paper:

    J = log E_expert[exp(R)] + (1 - gamma) E[Q(s, a0)],      R = gamma m Q(s', a') - Q(s, a),   a0 ~ pi(s), a' ~ pi(s')
    Q    minimizes   J + c E[(||grad_(s, a) Q|| - 1)^2]          J's minimum is -KL(d_pi || d_expert)
    pi   maximizes   J - o sum_layers ||offdiag(W' W)||^2

Both with all of J's gradient: no target network, nothing stopped. The states of the data stand for those where episodes
start. The log mean exp is computed with its maximum subtracted. exp(R) / E[exp(R)] is the density ratio d_pi /
d_expert, so -R, the recovered reward, is log d_expert / d_pi up to a constant.

On a finite sample the minimum over Q is -infinity as soon as the policy leaves the expert's actions: the gradient
penalty is what makes the problem well posed. It is taken between (s, a) and a shuffled batch of (s', a'), a' ~ pi:
without a replay buffer there is no other second point (as the offline fork gkswamy98/valuedice has it).

A constant added to Q changes nothing in J (where no row is terminated), so the last layer of Q has no bias.

One update: the policy's actions; both gradients at the old networks; Adam on Q and on pi.

Differs from the official code (google-research/value_dice):
- fully offline: no replay buffer, so no mixing with it (beta = 0) and no exploration;
- terminated rows are masked. The official code knows only absorbing states; with these in the data (`absorbing`) no row
  is terminated;
- Adam's epsilon is 1e-8, not Keras's 1e-7; batches are drawn with replacement.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from odice.algos.health import FEW_RATIOS
from odice.algos.registry import register
from odice.algos.validation import not_negative, validate
from odice.core import qdice
from odice.core.critics import Critic
from odice.core.discriminator import Points, interpolate
from odice.core.divergences import divergence
from odice.core.extraction import effective_sample_size
from odice.core.gradients import true
from odice.core.learner import Learned, Learner
from odice.core.networks import MLP, Init
from odice.core.policies import SquashedPolicy
from odice.types import Algo, Batch, Metrics, Spec


@dataclass(frozen=True)
class ValueDICEConfig:
    """ValueDICE. Defaults follow the official code."""

    gradient_penalty: float = 10.0
    """c: weight of the gradient penalty (official: 10)."""
    orthogonal_penalty: float = 1e-4
    """o: weight of the policy's orthogonal regularizer, which keeps its layers' columns apart (official: 1e-4)."""
    discount: float = 0.99
    """gamma: discount of the next state's value (official: 0.99)."""
    critic_hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers of Q (official: 256, 256)."""
    policy_hidden: tuple[int, ...] = (256, 256)
    """Widths of the policy's hidden layers (official: 256, 256)."""
    critic_lr: float = 1e-3
    """Adam's learning rate for Q (official: 1e-3)."""
    policy_lr: float = 1e-5
    """Adam's learning rate for the policy (official: 1e-5)."""
    init: Init = "orthonormal"
    """Initialization of both networks: orthogonal with gain 1 and zero biases (official)."""
    batch_size: int = 256
    """Transitions per update (official: 256)."""
    diagnose: bool = False
    """Log the two gradients' norms, cosine, projection and Theorem 2's bound on eta."""

    def __post_init__(self):
        validate(self)
        not_negative(self, "gradient_penalty", "orthogonal_penalty")


class State(NamedTuple):
    critic: Learned[Critic]
    policy: Learned[SquashedPolicy]
    step: Int[Array, ""]


def orthogonal_penalty(network: MLP) -> Float[Array, ""]:
    """sum over layers of ||offdiag(W' W)||^2: how far the columns of each layer are from orthogonal, whatever their
    lengths."""
    products = [weight.T @ weight for weight in network.weights]
    return sum((jnp.sum(jnp.square(p - jnp.diag(jnp.diag(p)))) for p in products), start=jnp.zeros(()))


def penalty_points(batch: Batch, drawn: qdice.Drawn, key) -> Points:
    """Where the gradient penalty is taken: between (s, a) and (s', a') of another row."""
    assert drawn.there.action is not None
    key_rows, key_share = jax.random.split(key)
    # The next observation of a terminated row is arbitrary: its own end takes that place.
    ended = batch.terminated[:, None]
    obs = jnp.where(ended, batch.obs, batch.next_obs)
    action = jnp.where(ended, batch.action, jax.lax.stop_gradient(drawn.there.action[0]))
    rows = jax.random.permutation(key_rows, obs.shape[0])
    return interpolate(key_share, (batch.obs, batch.action), (obs[rows], action[rows]))


@register(
    "value-dice",
    ValueDICEConfig,
    imitates=True,
    discrete=False,
    diagnose="diagnose",
    when_diverged=("lower", "critic_lr"),
    health=(FEW_RATIOS,),
)
def value_dice(cfg: ValueDICEConfig, spec: Spec) -> Algo:
    """ValueDICE: imitation by matching the expert's visitation, the true gradient of Q-form DICE."""
    objective = qdice.Objective(divergence("kl-dv"), cfg.discount, temperature=0.0, linear=1.0 - cfg.discount)
    critic_learner, policy_learner = Learner(cfg.critic_lr), Learner(cfg.policy_lr)

    def init(key) -> State:
        key_critic, key_policy = jax.random.split(key)
        critic = Critic(key_critic, spec, cfg.critic_hidden, heads=1, init=cfg.init, last_bias=False)
        policy = SquashedPolicy(key_policy, spec, cfg.policy_hidden, spread="tanh", init=cfg.init)
        return State(critic_learner.init(critic), policy_learner.init(policy), jnp.zeros((), jnp.int32))

    def policy_loss(policy: SquashedPolicy, critic: Critic, batch: Batch, key):
        """-J, whose gradient reaches the policy through both of its actions."""
        drawn = qdice.draw_both(policy, key, batch)
        here = qdice.evaluate(critic, batch, drawn.here, 0.0)
        v_next = qdice.soft_value(critic, drawn.there, batch.next_obs, 0.0)
        penalty = orthogonal_penalty(policy.network)
        dual = qdice.value(objective, here, v_next, batch.mask)
        return cfg.orthogonal_penalty * penalty - dual, (penalty, -jnp.mean(drawn.here.log_prob))

    def update(state: State, batch: Batch, key) -> tuple[State, Metrics]:
        key_draw, key_penalty = jax.random.split(key)
        pi, q = state.policy.params, state.critic.params
        drawn = qdice.draw_both(pi, key_draw, batch)
        args = (q, None, batch, drawn, cfg.diagnose)
        result, here, residual = qdice.critic_gradient(true, objective, *args)
        points = penalty_points(batch, drawn, key_penalty)
        penalty, slope = jax.value_and_grad(qdice.gradient_penalty)(q, points)
        gradient = jax.tree.map(lambda g, p: g + cfg.gradient_penalty * p, result.gradient, slope)
        critic = critic_learner.step(state.critic, gradient)

        (_, (apart, entropy)), gradient = jax.value_and_grad(policy_loss, has_aux=True)(pi, q, batch, key_draw)
        policy = policy_learner.step(state.policy, gradient)
        metrics = {
            "dual": result.losses["forward"] + result.losses["rest"],
            "gradient_penalty": penalty,
            "critic_mean": jnp.mean(here.q),
            "value_mean": jnp.mean(here.v),
            "advantage_mean": jnp.mean(here.q - here.v),
            "reward_std": jnp.std(residual),
            "ratio_ess": effective_sample_size(objective.divergence.weight(residual)[0]),
            "orthogonal_penalty": apart,
            "entropy": entropy,
        }
        if cfg.diagnose and result.diagnostics is not None:
            metrics |= result.diagnostics._asdict()
        return State(critic, policy, state.step + 1), metrics

    return Algo(init, update, lambda state: state.policy.params)
