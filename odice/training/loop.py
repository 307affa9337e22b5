"""The inner loop: many updates in one compiled program.

Batch rows are a pure function of (seed, step). So a resumed run sees the batches an uninterrupted one would have seen,
and N seeds under one `vmap` see the batches of N separate runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray

from odice.core.sampling import EXPERT, INITIAL, sample_apart, sample_batches, sample_rows, seed_keys, step_keys
from odice.data.dataset import Dataset
from odice.data.transitions import to_transitions
from odice.types import Algo, Batch, Metrics, Transitions


def initial_state(algo: Algo, seed: int | Int[Array, ""]) -> Any:
    """The state before the first update."""
    return algo.init(seed_keys(seed)[0])


def batches(
    data: Transitions | Dataset, batch_size: int, *, steps: int, seed: int = 0, first_step: int = 0
) -> Iterator[tuple[Batch, PRNGKeyArray]]:
    """The batches of a run, one by one, each with the key of its update: for a loop of your own.

    They are the batches that `odice.train` sees with this seed. A `Dataset` is taken as it is, without preprocessing.
    """
    source = jax.device_put(to_transitions(data, "bootstrap") if isinstance(data, Dataset) else data)
    _, loop_key = seed_keys(seed)

    @jax.jit
    def one(step):
        rows_key, update_key = step_keys(loop_key, step)
        return source.batch(sample_rows(rows_key, batch_size, source.size)), update_key

    for step in range(first_step, first_step + steps):
        yield one(jnp.int32(step))


def run_updates(algo: Algo, loop_key: PRNGKeyArray, state: Any, steps: Int[Array, " k"], batches: Batch):
    """Updates on batches that lie ready, one for each step: the same compiled body wherever they come from."""

    def one(state, item):
        step, batch = item
        return algo.update(state, batch, step_keys(loop_key, step)[1])

    return jax.lax.scan(one, state, (steps, batches))


def block_length(length: int, most: int = 64) -> int:
    """In how many updates at a time a chunk gathers its batches: the largest fitting divisor, so that memory stays
    small."""
    fitting = [size for size in range(most // 4, most + 1) if length % size == 0]
    return fitting[-1] if fitting else length


Chunk = Callable[[Any, Transitions, Any, Any], tuple[Any, Metrics]]


def make_chunk(algo: Algo, batch_size: int, length: int, *, seeds: bool = False) -> Chunk:
    """`chunk(state, transitions, seed, first_step) -> (state, metrics)`: `length` updates, metrics averaged over them.

    The state is donated: use the one that comes back. With `seeds=True` state and seed carry a leading axis and
    all seeds advance in one `vmap`. Batches are gathered before the updates that use them, not inside: a compiler may
    fuse a gather into the arithmetic and change its last bits, and then training from disk would differ.
    """

    def chunk(state, transitions: Transitions, seed, first_step):
        _, loop_key = seed_keys(seed)

        def block(state, steps):
            batches = transitions.batch(sample_batches(loop_key, steps, batch_size, transitions.size))
            if algo.initial_states:
                first = transitions.initial
                if first is None:
                    raise ValueError("the algorithm asks for initial states, but the transitions do not name them")
                chosen = first[sample_apart(loop_key, steps, batch_size, first.shape[0], INITIAL)]
                batches = batches._replace(initial_obs=transitions.obs[chosen])
            if algo.expert:
                expert = transitions.expert
                if expert is None:
                    raise ValueError("the algorithm asks for demonstrations, but the transitions do not name them")
                chosen = expert[sample_apart(loop_key, steps, batch_size, expert.shape[0], EXPERT)]
                batches = batches._replace(expert=transitions.batch(chosen))
            return run_updates(algo, loop_key, state, steps, batches)

        steps = jnp.asarray(first_step, jnp.int32) + jnp.arange(length, dtype=jnp.int32)
        state, metrics = jax.lax.scan(block, state, steps.reshape(-1, block_length(length)))
        return state, jax.tree.map(jnp.mean, metrics)

    mapped = jax.vmap(chunk, in_axes=(0, None, 0, None)) if seeds else chunk
    return jax.jit(mapped, donate_argnums=0)
