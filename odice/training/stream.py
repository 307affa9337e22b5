"""The inner loop for data on disk: the same updates as `odice.training.loop`, with batches gathered on the host.

The rows of a batch are known before the update runs, because they depend only on (seed, step). So while the compiled
program works through one chunk, a thread gathers the batches of the next.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from odice.core.sampling import CHOSEN, INITIAL, sample_apart, sample_batches, seed_keys
from odice.data.store import Streamed
from odice.training.devices import SEED, Devices, put
from odice.training.loop import block_length, run_updates
from odice.types import Algo, Batch, Metrics


class StreamedChunk:
    """`chunk(state, source, seed, first_step) -> (state, metrics)`: as `make_chunk`, with a `Streamed` as the source.

    Bit for bit the result of the chunk in memory. It prefetches: calling it again with the next `first_step` (and the
    same seed) finds its batches ready. With `seeds=True` state and seed carry a leading axis. With `devices` each gets
    its share of every batch.
    """

    def __init__(
        self, algo: Algo, batch_size: int, length: int, *, seeds: bool = False, devices: Devices | None = None
    ):
        def steps_from(first_step):
            steps = jnp.asarray(first_step, jnp.int32) + jnp.arange(length, dtype=jnp.int32)
            return steps.reshape(-1, block_length(length))

        def rows(seed, first_step, size: int, episodes: int, chosen: int):
            _, loop_key = seed_keys(seed)
            steps = steps_from(first_step)

            def apart(count: int, stream: int):
                return jax.vmap(lambda block: sample_apart(loop_key, block, batch_size, count, stream))(steps)

            return (
                jax.vmap(lambda block: sample_batches(loop_key, block, batch_size, size))(steps),
                apart(episodes, INITIAL) if algo.initial_states else None,
                apart(chosen, CHOSEN) if chosen else None,
            )

        def chunk(state, batches: Batch, seed, first_step):
            _, loop_key = seed_keys(seed)

            def block(state, item):
                return run_updates(algo, loop_key, state, *item)

            state, metrics = jax.lax.scan(block, state, (steps_from(first_step), batches))
            return state, jax.tree.map(jnp.mean, metrics)

        if seeds:
            one_seed = rows

            def rows(seed, first_step, size: int, episodes: int, chosen: int):
                return jax.vmap(lambda each: one_seed(each, first_step, size, episodes, chosen))(seed)

            chunk = jax.vmap(chunk, in_axes=(0, 0, 0, None), spmd_axis_name=SEED if devices else None)
        self._length = length
        self._where = devices.batches(seeds) if devices else None
        self._rows = jax.jit(rows, static_argnames=("size", "episodes", "chosen"))
        self._run = jax.jit(chunk, donate_argnums=0, out_shardings=devices.state(seeds) if devices else None)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="odice-prefetch")
        self._ahead: tuple[tuple, Future[Batch]] | None = None

    def __call__(self, state: Any, source: Streamed, seed: Any, first_step: Any) -> tuple[Any, Metrics]:
        wanted = self._key(source, seed, int(first_step))
        if self._ahead is None or self._ahead[0] != wanted:
            self._ahead = (wanted, self._gather(source, seed, int(first_step)))
        batches = self._ahead[1].result()
        following = int(first_step) + self._length
        self._ahead = (self._key(source, seed, following), self._gather(source, seed, following))
        return self._run(state, batches, seed, first_step)

    def _gather(self, source: Streamed, seed: Any, first_step: int) -> Future[Batch]:
        # Asked for before the chunk that is about to run: on an accelerator it would otherwise wait behind it.
        counts = {"size": source.size, "episodes": source.n_episodes}
        rows = self._rows(seed, first_step, **counts, chosen=0 if source.chosen is None else len(source.chosen))
        return self._pool.submit(lambda: put(source.gather(*jax.device_get(rows)), self._where))

    def _key(self, source: Streamed, seed: Any, first_step: int) -> tuple:
        return id(source), np.asarray(seed).tobytes(), first_step

    def wait(self) -> None:
        """Until the batches of the next chunk lie ready."""
        if self._ahead is not None:
            jax.block_until_ready(self._ahead[1].result())

    def close(self) -> None:
        """Stop prefetching."""
        self._ahead = None
        self._pool.shutdown(wait=True, cancel_futures=True)
