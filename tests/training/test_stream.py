"""Training from disk is training in memory, bit for bit."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from odice.algos import make
from odice.data.build import from_steps
from odice.data.meta import Meta
from odice.data.preprocess import Preprocess, fit
from odice.data.store import Streamed, write_store
from odice.data.transitions import to_transitions
from odice.training.loop import initial_state, make_chunk
from odice.training.stream import StreamedChunk

pytestmark = pytest.mark.usefixtures("full_optimization")
SMALL = {"value_hidden": (16, 16), "policy_hidden": (16,)}


@pytest.fixture(scope="module")
def data():
    rng, n = np.random.default_rng(0), 700
    return from_steps(
        rng.normal(size=(n, 4)),
        rng.uniform(-2, 2, (n, 2)),
        rng.normal(size=n),
        terminated=np.arange(n) % 37 == 36,
        truncated=np.arange(n) % 50 == 49,
        next_observations=None,
        meta=Meta(action_low=(-2.0, -2.0), action_high=(2.0, 2.0)),
    )


def asking_for_initial_states(algo):
    """The same algorithm, with initial states in its batches: their mean enters a metric and the value parameters."""

    def update(state, batch, key):
        state, metrics = algo.update(state, batch, key)
        mean = jnp.mean(batch.initial_obs)
        params = jax.tree.map(lambda leaf: leaf + 1e-3 * mean, state.value.params)
        value = dataclasses.replace(state.value, params=params)
        return state._replace(value=value), {**metrics, "initial": mean}

    return algo._replace(update=update, initial_states=True)


def train(chunk, algo, source, seeds, spec):
    state = (
        initial_state(algo, seeds)
        if isinstance(seeds, int)
        else jax.vmap(lambda seed: initial_state(algo, seed))(seeds)
    )
    metrics = []
    for first in (0, 5, 10):
        state, result = chunk(state, source, seeds, first)
        metrics.append(result)
    return [np.asarray(leaf) for leaf in jax.tree.leaves((state, metrics))]


@pytest.mark.parametrize(
    ("seeds", "convention"), [(3, "qlearning"), pytest.param([3, 8], "bootstrap", marks=pytest.mark.slow)]
)
def test_streamed_training_equals_training_in_memory(data, tmp_path, seeds, convention):
    many = not isinstance(seeds, int)
    seeds = jnp.asarray(seeds) if many else seeds
    wanted = Preprocess("episodes", 0.5, -0.25, normalize_obs=True, clip_actions=1 - 1e-5)
    store = write_store(data, tmp_path / "store")
    fitted = fit(wanted, data, convention)
    assert fit(wanted, store, convention) == fitted
    algo = make("odice", data.spec, **SMALL)
    algo = asking_for_initial_states(algo) if many else algo
    in_memory = jax.device_put(to_transitions(fitted.apply(data), convention))
    expected = train(make_chunk(algo, 32, 5, seeds=many), algo, in_memory, seeds, data.spec)
    streamed = Streamed(store, convention, fitted)
    assert streamed.size == in_memory.size
    chunk = StreamedChunk(algo, 32, 5, seeds=many)
    run = train(chunk, algo, streamed, seeds, data.spec)
    chunk.close()
    for one, two in zip(run, expected, strict=True):
        assert np.array_equal(one, two)


def test_rows_that_are_drawn_apart_are_the_same_from_disk(data):
    paper = make("odice", data.spec, **SMALL)
    algo = paper._replace(update=lambda state, batch, key: paper.update(state, batch.chosen, key))
    rows = np.array([5, 5, 9, 40], np.int32)
    in_memory = jax.device_put(to_transitions(data)._replace(chosen=rows))
    chunk = StreamedChunk(algo, 32, 4)
    one, _ = chunk(initial_state(algo, 0), Streamed(data, chosen=rows), 0, 0)
    two, _ = make_chunk(algo, 32, 4)(initial_state(algo, 0), in_memory, 0, 0)
    assert all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True))
    chunk.close()


def test_prefetching_never_serves_the_batches_of_another_step_or_seed(data):
    algo = make("odice", data.spec, **SMALL)
    source, chunk = Streamed(data), StreamedChunk(algo, 32, 4)
    in_memory, reference = jax.device_put(to_transitions(data)), make_chunk(algo, 32, 4)
    for seed, first in ((0, 0), (1, 4), (1, 0), (1, 4), (0, 400)):
        one, _ = chunk(initial_state(algo, 0), source, seed, first)
        two, _ = reference(initial_state(algo, 0), in_memory, seed, first)
        assert all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True))
    chunk.close()
