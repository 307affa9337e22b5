"""The training loop: many updates in one compiled program, and what happens between two of them.

Batch rows are a pure function of (seed, step). So a resumed run sees the batches an uninterrupted one would have seen,
and N seeds under one `vmap` see the batches of N separate runs.

The loop hands the compiled program chunks of `chunk_steps` updates and records the metrics of one chunk while the next
one runs. Between two chunks it may evaluate (in the background), checkpoint, or stop. What is computed does not depend
on any of that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from signal import SIGTERM
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

from odice.caching import kept
from odice.core.diagnostics import feature_products
from odice.core.sampling import CHOSEN, EXPERT, INITIAL, sample_apart, sample_batches, sample_rows, seed_keys, step_keys
from odice.data.dataset import Dataset
from odice.data.transitions import to_transitions
from odice.errors import Diverged, Interrupted, OdiceError
from odice.training.devices import SEED, Devices, put
from odice.training.holdout import gather, holdout_measures
from odice.training.hosts import any_process, from_first
from odice.training.recorder import Context, Recorder
from odice.training.run import Run
from odice.types import Algo, Batch, Metrics, Transitions

SAMPLE = 256
"""Transitions of the fixed sample for diagnostics, the same in every run on the data."""


def initial_state(algo: Algo, seed: int | Int[Array, ""]) -> Any:
    """The state before the first update."""
    return algo.init(seed_keys(seed)[0])


def batches(
    data: Transitions | Dataset, batch_size: int, *, steps: int, seed: int = 0, first_step: int = 0
) -> Iterator[tuple[Batch, PRNGKeyArray]]:
    """The batches of a run, one by one, each with the key of its update: for a loop of your own.

    They are the batches that `odice.train` sees with this seed.

    Args:
        data: A data set, which is taken as it is, without preprocessing, or its transitions.
        batch_size: Transitions per batch.
        steps: How many batches.
        seed: That of the run.
        first_step: The number of the first batch in the run.
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
    """Take one update for each of `steps`, in a scan; gives the last state and the metrics of every update.

    Args:
        algo: The algorithm.
        loop_key: The run's key, from which the key of each update follows.
        state: Before the first of them.
        steps: Their numbers.
        batches: Their batches, along a leading axis. Where these come from does not change the compiled program.
    """

    def one(state, item):
        step, batch = item
        return algo.update(state, batch, step_keys(loop_key, step)[1])

    return jax.lax.scan(one, state, (steps, batches))


def block_length(length: int, most: int = 64) -> int:
    """In how many updates at a time a chunk gathers its batches: the largest fitting divisor, so that memory stays
    small."""
    fitting = [size for size in range(most // 4, most + 1) if length % size == 0]
    return fitting[-1] if fitting else length


@kept
def first_state(algo: Algo, seeds: bool, where: Any) -> Callable[[Any], Any]:
    """`initial_state` as a program, placed `where`: of a seed, or of each of several."""
    initial = partial(initial_state, algo)
    return jax.jit(jax.vmap(initial) if seeds else initial, out_shardings=where)


Chunk = Callable[[Any, Transitions, Any, Any], tuple[Any, Metrics]]


@kept
def make_chunk(
    algo: Algo, batch_size: int, length: int, *, seeds: bool = False, devices: Devices | None = None
) -> Chunk:
    """`chunk(state, transitions, seed, first_step) -> (state, metrics)`: `length` updates, metrics averaged over them.

    The state is donated: use the one that comes back. Batches are gathered before the updates that use them, not
    inside: a compiler may fuse a gather into the arithmetic and change its last bits, and then training from disk would
    differ. The same arguments give the same program, so that it is traced once in a process.

    Args:
        algo: The algorithm.
        batch_size: Transitions per update.
        length: Updates per call.
        seeds: Whether state and seed carry a leading axis; all seeds then advance in one `vmap`.
        devices: Each gathers and works on its share of every batch.
    """

    def chunk(state, transitions: Transitions, seed, first_step):
        _, loop_key = seed_keys(seed)

        split = devices.split if devices else lambda rows: rows

        def block(state, steps):
            batches = transitions.batch(split(sample_batches(loop_key, steps, batch_size, transitions.size)))
            if algo.initial_states:
                first = transitions.initial
                if first is None:
                    raise ValueError("the algorithm asks for initial states, but the transitions do not name them")
                chosen = first[split(sample_apart(loop_key, steps, batch_size, first.shape[0], INITIAL))]
                batches = batches._replace(initial_obs=transitions.obs[chosen])
            if algo.expert:
                expert = transitions.expert
                if expert is None:
                    raise ValueError("the algorithm asks for demonstrations, but the transitions do not name them")
                chosen = expert[split(sample_apart(loop_key, steps, batch_size, expert.shape[0], EXPERT))]
                batches = batches._replace(expert=transitions.batch(chosen))
            if (rows := transitions.chosen) is not None:
                rows = rows[split(sample_apart(loop_key, steps, batch_size, rows.shape[0], CHOSEN))]
                batches = batches._replace(chosen=transitions.batch(rows))
            return run_updates(algo, loop_key, state, steps, split(batches))

        steps = jnp.asarray(first_step, jnp.int32) + jnp.arange(length, dtype=jnp.int32)
        state, metrics = jax.lax.scan(block, state, steps.reshape(-1, block_length(length)))
        return state, jax.tree.map(jnp.mean, metrics)

    if seeds:
        chunk = jax.vmap(chunk, in_axes=(0, None, 0, None), spmd_axis_name=SEED if devices else None)
    return jax.jit(chunk, donate_argnums=0, out_shardings=devices.state(seeds) if devices else None)


# --- a run ------------------------------------------------------------------------------------------------------------


class Loop:
    """The updates of one seed, or of several in one `vmap`, from where they are to the end.

    Args:
        context: What the run shares with its recorders.
        recorders: One for each seed; they write what the loop computes.
        make_chunk: Makes the compiled program for so many updates.
        devices: Where it runs, if not on the default device.
    """

    def __init__(
        self,
        context: Context,
        recorders: list[Recorder],
        make_chunk: Callable[..., Any],
        devices: Devices | None = None,
    ):
        self._prepared, self._algo, _, self._display, self._stop = context
        self._devices = devices
        self._settings = self._prepared.settings
        self._recorders, self._make_chunk = recorders, make_chunk
        self._many = len(recorders) > 1
        seeds = [recorder.seed for recorder in recorders]
        self._seed = jnp.asarray(seeds) if self._many else seeds[0]
        self._chunks: dict[int, Any] = {}
        self._sample = None
        if self._settings.options.diagnostics:
            rows = np.random.default_rng(0).integers(0, self._prepared.source.size, SAMPLE)
            self._sample = gather(self._prepared.source, rows)
        self._where = devices.state(self._many) if devices else None
        self._source: Any = self._prepared.source
        if isinstance(self._source, Transitions):
            self._source = put(self._source, devices and devices.everywhere)
        self._waiting: list[tuple[int, int, Any]] = []

    def run(self) -> list[Run]:
        """Train to the end, or until a signal asks for an end (`Interrupted`); gives the finished runs."""
        options, steps = self._settings.options, self._settings.options.steps or 0
        self.step, self.state = self._start()
        if any_process(self._stop.requested):  # nothing has been done since the checkpoint
            raise self._interrupted()
        try:
            while self.step < steps and self._alive() and not self._enough():
                self._advance(min(self._settings.chunk_steps, steps - self.step))
                # read once: a signal after this waits for the next chunk
                at_end, stopping = self.step == steps, any_process(self._stop.requested)
                evaluate = self.step % (options.eval_every or steps) == 0 or at_end
                save = self._saved + options.checkpoint_every <= self.step or at_end or stopping
                if evaluate or save:
                    self._boundary(evaluate, save)
                if self._enough() and self._saved < self.step:
                    self._boundary(evaluate=False, save=True)
                if not at_end and (stopping or (evaluate and any_process(self._left_due()))):
                    raise self._interrupted()
            return self._finish()
        except OSError as error:
            raise OdiceError(
                f"{self._recorders[0].directory.path}: the run cannot go on at step {self.step:,} ({error}); its "
                "checkpoints are intact. When the cause is removed, run the same command again to continue."
            ) from error
        finally:
            for chunk in self._chunks.values():
                if hasattr(chunk, "close"):
                    chunk.close()

    def _start(self) -> tuple[int, Any]:
        """The state to go on from: the newest checkpoint that all seeds have, or the first state."""

        first = first_state(self._algo, self._many, self._where)
        like = jax.eval_shape(first, self._seed)  # traced once, for the shapes and for the state
        if self._many:
            like = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), like)
        restored = [recorder.restore(like) for recorder in self._recorders]
        while len({one.step if one else 0 for one in restored}) > 1:
            at_most = min(one.step if one else 0 for one in restored)
            restored = [recorder.restore(like, at_most) for recorder in self._recorders]
        for recorder, checkpoint in zip(self._recorders, restored, strict=True):
            recorder.begin(checkpoint)
        self._saved = int(from_first(np.int32(restored[0].step if restored[0] else 0)))
        if not self._saved:
            return 0, first(self._seed)
        self._display.note(f"continuing {self._recorders[0].directory.path} from step {self._saved:,}")
        states = [one.arrays["state"] for one in restored if one] or [None]  # only the first process has any
        state = jax.tree.map(lambda *leaves: np.stack(leaves), *states) if self._many else states[0]
        return self._saved, put(from_first(state, like), self._where)

    def _advance(self, length: int) -> None:
        """Start the next chunk, and record the one before while it runs."""
        if length not in self._chunks:
            batch_size = self._settings.config.batch_size
            self._chunks[length] = self._make_chunk(
                self._algo, batch_size, length, seeds=self._many, devices=self._devices
            )
        self.state, metrics = self._chunks[length](self.state, self._source, self._seed, self.step)
        self.step += length
        self._waiting.append((self.step, length, metrics))
        if len(self._waiting) > 1:
            self._record(self._waiting.pop(0), [{}] * len(self._recorders))
            for _, recorder in self._alive():
                recorder.get_ready()

    def _record(self, chunk: tuple[int, int, Any], extras: list[dict[str, float]]) -> None:
        step, length, metrics = chunk
        metrics = jax.device_get(metrics)
        for i, recorder in self._alive():
            own = {name: value[i] if self._many else value for name, value in metrics.items()}
            with self._may_diverge(recorder):
                recorder.record(step, length, own, extras[i])

    def _boundary(self, evaluate: bool, save: bool) -> None:
        """Bring the host up to date with the device, then evaluate and save."""
        states = self._host_states()
        extras = [self._diagnose(state) if evaluate else {} for state in states]
        while self._waiting:
            self._record(self._waiting.pop(0), extras)
        for i, recorder in self._alive() if evaluate else ():
            with self._may_diverge(recorder):
                recorder.estimate(self.step, self._algo.policy(states[i]))
                recorder.evaluate(self.step, self._algo.policy(states[i]))
        if not save and not self._left_due():
            return
        for i, recorder in self._alive():
            with self._may_diverge(recorder):
                recorder.save(self.step, states[i])
        self._saved = self.step

    def _diagnose(self, state: Any) -> dict[str, float]:
        """How the policy and V do on held-out transitions; with --diagnostics also the feature products."""
        value = self._settings.algorithm.value
        network = None if value is None else value(state)
        measures = holdout_measures(self._algo.policy(state), network, self._prepared.probe, self._settings.discount)
        if self._sample is None or network is None:
            return measures
        return measures | {name: float(number) for name, number in feature_products(network, self._sample).items()}

    def _finish(self) -> list[Run]:
        if any_process(not all(recorder.settle() for _, recorder in self._alive())):
            raise self._interrupted()
        states = self._host_states()
        runs = [Run(one.directory.path, one.finish(self.step, states[i])) for i, one in self._alive()]
        for failure in [recorder.failure for recorder in self._recorders if recorder.failure]:
            raise failure
        return runs

    def _host_states(self) -> list[Any]:
        host = jax.device_get(self.state)
        if not self._many:
            return [host]
        return [jax.tree.map(lambda leaf, i=i: leaf[i], host) for i in range(len(self._recorders))]

    def _alive(self) -> list[tuple[int, Recorder]]:
        return [(i, recorder) for i, recorder in enumerate(self._recorders) if recorder.failure is None]

    def _enough(self) -> bool:
        """Whether every seed has lost its patience; those of one `vmap` stop at the same step."""
        return all(recorder.enough for _, recorder in self._alive())

    def _left_due(self) -> bool:
        """Whether a signal came while an evaluation should have started: then this step must be saved."""
        return any(recorder.due is not None for _, recorder in self._alive())

    @contextmanager
    def _may_diverge(self, recorder: Recorder) -> Iterator[None]:
        """A seed that diverges stops alone; the others of its `vmap` go on."""
        try:
            yield
        except Diverged as error:
            if not self._many:
                raise
            recorder.failure = error

    def _interrupted(self) -> Interrupted:
        where = f"in {self._recorders[0].directory.path}" if jax.process_index() == 0 else "with the first process"
        at = f"at step {self.step:,}; the checkpoint is {where}. Run the same command again to continue."
        return Interrupted(
            f"stopped {at}" if self.step else "stopped before the first update; run the same command again to start.",
            self._stop.signal or SIGTERM,  # another process of the run was asked to stop
        )
