"""An actor-critic on a growing replay: many updates in one compiled call, and actions that explore."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from odice.collection.sac import SACConfig, State
from odice.core.policies import SquashedPolicy
from odice.core.sampling import sample_batches, seed_keys
from odice.training.loop import run_updates
from odice.types import Batch, Metrics, Spec

Learn = Callable[..., tuple[State, Metrics]]


@cache
def make_learn(cfg: SACConfig, spec: Spec, length: int) -> Learn:
    """Return `learn(state, rows, filled, seed, first_step)`: `length` updates on batches from the first `filled` rows.

    It donates the state, and returns the new one and metrics averaged over the updates. The compiled program is cached.
    """
    algo = cfg.build(spec)

    def learn(state: State, rows: Float[Array, "capacity width"], filled, seed, first_step):
        _, loop_key = seed_keys(seed)
        steps = jnp.asarray(first_step, jnp.int32) + jnp.arange(length, dtype=jnp.int32)
        chosen = sample_batches(loop_key, steps, cfg.batch_size, filled)
        state, metrics = run_updates(algo, loop_key, state, steps, to_batch(rows[chosen], spec))
        return state, jax.tree.map(jnp.mean, metrics)

    return jax.jit(learn, donate_argnums=0)


@jax.jit
def explore(policy: SquashedPolicy, obs: Float[Array, "envs obs"], seed: int, step: Int[Array, ""]):
    """Sample an action for each environment, as a function of the policy, the observations, the seed and the step."""
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), step), 1)
    return policy.sample(key, obs).action


def to_batch(rows: Float[Array, "*n width"], spec: Spec) -> Batch:
    """Rows of a replay (`replay.pack`) as a batch."""
    o, a = spec.obs_dim, spec.action_dim
    return Batch(
        obs=rows[..., :o],
        action=rows[..., o : o + a],
        reward=rows[..., o + a],
        next_obs=rows[..., o + a + 1 : 2 * o + a + 1],
        terminated=rows[..., 2 * o + a + 1] > 0,
    )
