"""Demonstrations and imperfect data: the frame of DemoDICE, SMODICE and LobsDICE, and the lower level of RGM.

With U the union of both, x = r + gamma m V(s') - V(s) and r = log d_expert / d_U of a discriminator c
(`core.discriminator`):

    V    minimizes  (1 - gamma) E_p0[V(s0)] + beta E_U[f*(x / beta)] + g E[||grad V||^2]        (true gradient)
    pi   minimizes  -E_U[w log pi(a|s)] + exp(e) E_{a ~ pi}[log pi(a|s)],      w = f*'(x / beta)

The discriminator sees s, (s, a) or (s, s'). Its gradient penalty is taken between demonstrations and union;
DemoDICE and LobsDICE take it of r, not of c, and between rows of the union too. V's is taken at the union's states and
between both, here and next.

For KL the middle term is beta log E_U[exp(x / beta)], and w is exp(x / beta) divided by its mean over the batch. s0 are
first states of episodes of U. The entropy's weight e is learnt so that the policy's entropy is H; it may be left out.

One update: all gradients at the old networks, then every step. With `discriminator_steps` the discriminator alone
learns for so many updates, and is fixed afterwards, while V and pi learn.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from odice.algos.health import UNION
from odice.algos.validation import not_negative, require, validate
from odice.core.critics import Critic
from odice.core.discriminator import Points, classification_loss, grad_norm, interpolate, log_odds
from odice.core.divergences import divergence
from odice.core.extraction import effective_sample_size, weighted_cloning
from odice.core.learner import Learned, Learner
from odice.core.networks import Ensemble, Init, value_network
from odice.core.policies import CategoricalPolicy, SquashedPolicy, TanhPolicy, draw
from odice.core.vdice import residual
from odice.types import Algo, Batch, Metrics, Spec


@dataclass(frozen=True)
class UnionConfig:
    """What all of them share."""

    discriminator_penalty: float = 10.0
    """k: weight of (||grad c|| - 1)^2."""
    discount: float = 0.99
    """gamma: discount of the next state's value."""
    value_penalty: float = 0.0
    """g: weight of ||grad V||^2."""
    value_weight_decay: float = 0.0
    """Coupled L2 decay of V."""
    entropy: bool = False
    """Hold the entropy of the policy at H."""
    target_entropy: float | None = None
    """H; None is minus the action's dimension, and of a finite set half of the largest entropy there is."""
    discriminator_hidden: tuple[int, ...] = (256, 256)
    """Widths of the discriminator's hidden layers."""
    value_hidden: tuple[int, ...] = (256, 256)
    """Widths of V's hidden layers."""
    policy_hidden: tuple[int, ...] = (256, 256)
    """Widths of the policy's hidden layers."""
    discriminator_lr: float = 3e-4
    """Adam's learning rate for the discriminator."""
    value_lr: float = 3e-4
    """Adam's learning rate for V."""
    policy_lr: float = 3e-4
    """Adam's learning rate for the policy and its entropy's weight."""
    init: Init = "torch"
    """Initialization of all networks."""
    batch_size: int = 512
    """Transitions per update, as many of the demonstrations again, and as many first states."""

    def __post_init__(self):
        validate(self)
        not_negative(self, "discriminator_penalty", "value_penalty")


@dataclass(frozen=True)
class KLUnionConfig(UnionConfig):
    """What DemoDICE and LobsDICE share. Defaults follow their official code."""

    alpha: float = 0.0
    """alpha: how much the policy is held to the union; larger is nearer to cloning all of it (official: DemoDICE 0,
    LobsDICE 0.1)."""
    smooth: float = 1e-3
    """Holds r between -6.9 and 13.8: -log(1 / (sigmoid(c) + smooth) - 1 + smooth) (official: 1e-3). 0 leaves it
    free."""
    discriminator_penalty: float = 0.1
    """k: weight of (||grad r|| - 1)^2 (official: 0.1)."""
    value_penalty: float = 1e-4
    """g: weight of ||grad V||^2 (official: 1e-4)."""
    bootstrap_terminals: bool = False
    """V(s') counts after a terminal too (official: there is no mask). s' is then what the data have there."""
    init: Init = "he"
    """Initialization of all networks (official: he_normal)."""

    def __post_init__(self):
        super().__post_init__()
        not_negative(self, "alpha")
        require(0 <= self.smooth < 1, f"smooth must lie in [0, 1), got {self.smooth}.")


class Frame(NamedTuple):
    """In what the algorithms differ."""

    inputs: Literal["state", "action", "next"]
    """What the discriminator sees: s, (s, a) or (s, s')."""
    smooth: float
    """What holds the reward back at both ends (`discriminator.log_odds`)."""
    beta: float
    divergence: Literal["kl-dv", "half-pearson"]
    discriminator_steps: int = 0
    """Updates in which the discriminator alone learns, and after which it does not; 0 learns all in every update."""
    activation: Callable[[Array], Array] = jax.nn.relu
    """Of the discriminator."""
    discriminator_init: Init | None = None
    """How the discriminator starts, if not as the others."""
    penalize_reward: bool = False
    """The discriminator's penalty is on r, and between rows of the union too; off, on c and between the two samples."""
    last_bias: bool = True
    """Whether the outputs of c and V have biases."""
    bootstrap_terminals: bool = False
    """V(s') counts after a terminal too: m = 1."""
    deterministic: bool = False
    """One action per state, cloned by its squared distance, instead of a distribution."""
    policy_steps: int = 0
    """The policy's learning rate falls to 0 along a cosine over this many updates; 0 keeps it."""


class Actor(NamedTuple):
    """The policy and the logarithm of its entropy's weight."""

    policy: SquashedPolicy | CategoricalPolicy | TanhPolicy
    log_entropy: Float[Array, ""]


class State(NamedTuple):
    discriminator: Learned[Critic | Ensemble | Pairs]
    value: Learned[Ensemble]
    actor: Learned[Actor]
    step: Int[Array, ""]
    correction: Learned[Critic] | None = None
    """What RGM adds to the rewards."""


class Pairs(eqx.Module):
    """A discriminator of (s, s')."""

    network: Ensemble

    def __call__(self, obs: Float[Array, "b obs"], next_obs: Float[Array, "b obs"]) -> Float[Array, "heads b"]:
        return self.network(jnp.concatenate([obs, next_obs], axis=-1))


def following(frame: Frame, batch: Batch) -> Float[Array, "b obs"]:
    """s', and s again where the episode ended: what is recorded there is arbitrary."""
    if frame.bootstrap_terminals:
        return batch.next_obs
    return jnp.where(batch.terminated[:, None], batch.obs, batch.next_obs)


def discriminator_inputs(frame: Frame, batch: Batch) -> tuple[Array, ...]:
    """What the discriminator sees."""
    if frame.inputs == "next":
        return batch.obs, following(frame, batch)
    return (batch.obs,) if frame.inputs == "state" else (batch.obs, batch.action)


def make_discriminator(cfg: UnionConfig, frame: Frame, spec: Spec, key) -> Critic | Ensemble | Pairs:
    """The network that tells demonstrations from the union."""
    options = {"heads": 1, "init": frame.discriminator_init or cfg.init, "activation": frame.activation}
    options |= {"last_bias": frame.last_bias}
    if frame.inputs == "next":
        return Pairs(value_network(key, Spec(2 * spec.obs_dim, 0), cfg.discriminator_hidden, **options))
    make = value_network if frame.inputs == "state" else Critic
    return make(key, spec, cfg.discriminator_hidden, **options)


def penalty_points(frame: Frame, ours: Points, theirs: Points, key) -> Points:
    """Where the discriminator's slope is held at 1."""
    between = interpolate(key, ours, theirs)
    if not frame.penalize_reward:
        return between
    order = jax.random.permutation(jax.random.fold_in(key, 1), theirs[0].shape[0])
    among = interpolate(key, tuple(part[order] for part in theirs), theirs)
    return tuple(jnp.concatenate(both) for both in zip(between, among, strict=True))


def discriminator_loss(cfg: UnionConfig, frame: Frame, network, batch: Batch, key):
    """Classification and penalty; and the mean log odds of the two samples."""
    assert batch.expert is not None
    ours, theirs = discriminator_inputs(frame, batch.expert), discriminator_inputs(frame, batch)
    expert, union = network(*ours), network(*theirs)
    sloped = (lambda *at: log_odds(network(*at), frame.smooth)) if frame.penalize_reward else network
    penalty = jnp.mean(jnp.square(grad_norm(sloped, penalty_points(frame, ours, theirs, key)) - 1))
    metrics = {
        "discriminator_loss": classification_loss(expert, union),
        "reward_expert": jnp.mean(log_odds(expert, frame.smooth)),
        "reward_union": jnp.mean(log_odds(union, frame.smooth)),
    }
    return metrics["discriminator_loss"] + cfg.discriminator_penalty * penalty, metrics


def value_loss(cfg: UnionConfig, frame: Frame, value: Ensemble, reward: Float[Array, " b"], batch: Batch, key):
    """The dual objective; and the residual x and V(s) of the batch."""
    assert batch.initial_obs is not None
    assert batch.expert is not None
    v = value(batch.obs)
    mask = jnp.ones_like(batch.mask) if frame.bootstrap_terminals else batch.mask
    x = residual(v, value(batch.next_obs), reward, mask, cfg.discount)
    dual = frame.beta * jnp.mean(divergence(frame.divergence).conjugate(x / frame.beta))
    loss = (1 - cfg.discount) * jnp.mean(value(batch.initial_obs)) + dual
    if cfg.value_penalty > 0:
        pairs = [(batch.expert.obs, batch.obs), (following(frame, batch.expert), following(frame, batch))]
        points = [interpolate(key, (ours,), (theirs,))[0] for ours, theirs in pairs]
        slopes = grad_norm(value, (jnp.concatenate([batch.obs, *points]),))
        loss += cfg.value_penalty * jnp.mean(jnp.square(slopes))
    return loss, (x[0], v[0])


def policy_loss(cfg: UnionConfig, policy, log_entropy, weight: Float[Array, " b"], batch: Batch, key):
    """Weighted cloning of the union with its entropy term; and the mean of log pi over the policy's own actions."""
    loss = weighted_cloning(policy, weight, batch.obs, batch.action)
    if not cfg.entropy:
        return loss, jnp.zeros(())
    draws = draw(policy, key, batch.obs, 1)
    log_pi = jnp.mean(jnp.sum(draws.prob * draws.log_prob, axis=0))
    return loss + jnp.exp(log_entropy) * log_pi, log_pi


class UnionParts(NamedTuple):
    """The parts of an algorithm of this frame."""

    init: Callable[..., State]
    learn_discriminator: Callable[..., tuple[State, Metrics]]
    """(state, batch, key)"""
    learn_policy: Callable[..., tuple[State, Metrics]]
    """(state, batch, reward, key): V, pi and its entropy's weight, for these rewards."""


def union_parts(cfg: UnionConfig, frame: Frame, spec: Spec) -> UnionParts:
    """The steps that a config and a frame make."""
    discriminator_learner = Learner(cfg.discriminator_lr)
    value_learner = Learner(cfg.value_lr, cfg.value_weight_decay)
    actor_learner = Learner(cfg.policy_lr, cosine_steps=frame.policy_steps)
    most = math.log(spec.action_dim) / 2 if spec.discrete else -float(spec.action_dim)
    target_entropy = most if cfg.target_entropy is None else cfg.target_entropy

    def init(key) -> State:
        key_discriminator, key_value, key_policy = jax.random.split(key, 3)
        discriminator = make_discriminator(cfg, frame, spec, key_discriminator)
        value = value_network(key_value, spec, cfg.value_hidden, heads=1, init=cfg.init, last_bias=frame.last_bias)
        kind = CategoricalPolicy if spec.discrete else TanhPolicy if frame.deterministic else SquashedPolicy
        actor = Actor(kind(key_policy, spec, cfg.policy_hidden, init=cfg.init), jnp.zeros(()))
        return State(
            discriminator_learner.init(discriminator),
            value_learner.init(value),
            actor_learner.init(actor),
            jnp.zeros((), jnp.int32),
        )

    def learn_discriminator(state: State, batch: Batch, key) -> tuple[State, Metrics]:
        loss = lambda network: discriminator_loss(cfg, frame, network, batch, key)
        (_, metrics), gradient = jax.value_and_grad(loss, has_aux=True)(state.discriminator.params)
        return state._replace(discriminator=discriminator_learner.step(state.discriminator, gradient)), metrics

    def learn_policy(state: State, batch: Batch, reward: Float[Array, " b"], key) -> tuple[State, Metrics]:
        key_value, key_policy = jax.random.split(key)
        loss = lambda value: value_loss(cfg, frame, value, reward, batch, key_value)
        (v_loss, (x, v)), gradient = jax.value_and_grad(loss, has_aux=True)(state.value.params)
        value, actor = value_learner.step(state.value, gradient), state.actor.params
        weight = jax.lax.stop_gradient(divergence(frame.divergence).weight(x / frame.beta))
        own = lambda policy: policy_loss(cfg, policy, actor.log_entropy, weight, batch, key_policy)
        (cloning, log_pi), gradient = jax.value_and_grad(own, has_aux=True)(actor.policy)
        held = -(log_pi + target_entropy) if cfg.entropy else jnp.zeros(())
        metrics = {
            "value_loss": v_loss,
            "value_mean": jnp.mean(v),
            "residual_mean": jnp.mean(x),
            "weight_max": jnp.max(weight),
            "weight_ess": effective_sample_size(weight),
            "policy_loss": cloning,
        }
        if cfg.entropy:
            metrics |= {"entropy": -log_pi, "entropy_weight": jnp.exp(actor.log_entropy)}
        return state._replace(value=value, actor=actor_learner.step(state.actor, Actor(gradient, held))), metrics

    return UnionParts(init, learn_discriminator, learn_policy)


def in_two_stages(steps: int, first, then):
    """`first` for so many updates, then `then` for the others; both report always. Each is (state, batch, key) ->
    (state, metrics), and the state counts its steps."""

    def still(learn):
        """What `learn` would report, without learning."""
        return lambda state, batch, key: (state, learn(state, batch, key)[1])

    def update(state, batch: Batch, key):
        key_first, key_then = jax.random.split(key)
        alone = state.step < steps
        new, metrics = jax.lax.cond(alone, first, still(first), state, batch, key_first)
        new, more = jax.lax.cond(alone, still(then), then, new, batch, key_then)
        return new._replace(step=state.step + 1), metrics | more

    return update


def union_algorithm(cfg: UnionConfig, frame: Frame, spec: Spec) -> Algo:
    """The algorithm that a config and a frame make: its reward is the discriminator's log odds."""
    parts = union_parts(cfg, frame, spec)

    def learn_policy(state: State, batch: Batch, key) -> tuple[State, Metrics]:
        reward = log_odds(state.discriminator.params(*discriminator_inputs(frame, batch))[0], frame.smooth)
        return parts.learn_policy(state, batch, reward, key)

    def jointly(state: State, batch: Batch, key) -> tuple[State, Metrics]:
        key_discriminator, key_policy = jax.random.split(key)
        first, metrics = parts.learn_discriminator(state, batch, key_discriminator)
        then, more = learn_policy(state, batch, key_policy)
        return then._replace(discriminator=first.discriminator, step=state.step + 1), metrics | more

    update = jointly
    if frame.discriminator_steps:
        update = in_two_stages(frame.discriminator_steps, parts.learn_discriminator, learn_policy)
    return Algo(parts.init, update, lambda state: state.actor.params.policy, initial_states=True, expert=True)


def kl_union(cfg: KLUnionConfig, inputs: Literal["action", "next"], spec: Spec) -> Algo:
    """DemoDICE or LobsDICE, by what the discriminator sees."""
    frame = Frame(
        inputs,
        cfg.smooth,
        1.0 + cfg.alpha,
        "kl-dv",
        penalize_reward=True,
        last_bias=False,
        bootstrap_terminals=cfg.bootstrap_terminals,
    )
    return union_algorithm(cfg, frame, spec)


DECLARED: dict[str, Any] = {
    "imitates": True,
    "value": lambda state: state.value.params,
    "when_diverged": ("lower", "value_lr"),
    "health": UNION,
}
"""What every algorithm of this frame declares to the registry."""
