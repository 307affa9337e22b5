"""The compiled loop: batches are a function of (seed, step), seeds do not see each other, nothing recompiles."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from odice.algos import algorithms, make
from odice.core.sampling import sample_rows, seed_keys, step_keys
from odice.training.loop import initial_state, make_chunk
from odice.types import Spec, Transitions

SPEC = Spec(4, 2)
pytestmark = pytest.mark.usefixtures("full_optimization")
SMALL = {"value_hidden": (16, 16), "policy_hidden": (16,)}


def make_small(name):
    """Any algorithm, with narrow networks."""
    names = [field.name for field in dataclasses.fields(algorithms()[name].config)]
    settings = {field: (16,) for field in names if field.endswith("_hidden")}
    return make(name, SPEC, **settings, init="torch")  # orthogonal matrices take seconds to compile


@pytest.fixture(scope="module")
def transitions():
    rng = np.random.default_rng(0)
    n = 300
    return Transitions(
        obs=jnp.asarray(rng.normal(size=(n + 1, 4)), jnp.float32),
        index=jnp.arange(n),
        next_index=jnp.arange(n) + 1,
        action=jnp.asarray(rng.uniform(-1, 1, (n, 2)), jnp.float32),
        reward=jnp.asarray(rng.normal(size=n), jnp.float32),
        terminated=jnp.asarray(rng.random(n) < 0.05),
        initial=jnp.arange(0, n, 30),
    )


def leaves(state):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(state)]


def test_a_run_is_the_same_in_one_chunk_or_in_pieces(transitions):
    algo = make("odice", SPEC, **SMALL)
    at_once, _ = make_chunk(algo, 32, 12)(initial_state(algo, 7), transitions, 7, 0)
    piece = make_chunk(algo, 32, 4)
    state = initial_state(algo, 7)
    for first in (0, 4, 8):
        state, _ = piece(state, transitions, 7, first)
    for a, b in zip(leaves(at_once), leaves(state), strict=True):
        np.testing.assert_array_equal(a, b)


def test_batches_are_those_of_a_plain_python_loop(transitions):
    """The scan against an unrolled loop over `update`, with rows drawn outside of it."""
    algo = make("odice", SPEC, **SMALL)
    scanned, metrics = make_chunk(algo, 16, 3)(initial_state(algo, 3), transitions, 3, 100)
    state, losses = initial_state(algo, 3), []
    _, loop_key = seed_keys(3)
    for step in (100, 101, 102):
        rows_key, update_key = step_keys(loop_key, jnp.int32(step))
        rows = np.asarray(sample_rows(rows_key, 16, 300))
        state, m = algo.update(state, transitions.batch(jnp.asarray(rows)), update_key)
        losses.append(float(m["value_loss"]))
    for a, b in zip(leaves(scanned), leaves(state), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(metrics["value_loss"], np.mean(losses), rtol=1e-4)


def test_rows_cover_the_data_and_differ_between_steps_and_seeds():
    rows = lambda seed, step: np.asarray(sample_rows(step_keys(seed_keys(seed)[1], jnp.int32(step))[0], 4000, 50))
    first = rows(0, 0)
    assert set(first) == set(range(50))
    np.testing.assert_allclose(np.bincount(first, minlength=50) / 4000, 1 / 50, atol=0.01)
    assert not np.array_equal(first, rows(0, 1))
    assert not np.array_equal(first, rows(1, 0))
    np.testing.assert_array_equal(first, rows(0, 0))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["odice", pytest.param("td3-bc", marks=pytest.mark.long)])  # contract test: all
def test_seeds_by_vmap_equal_single_runs(name, transitions):
    algo = make_small(name)
    seeds = jnp.asarray([5, 6, 7])
    joint = jax.vmap(lambda seed: initial_state(algo, seed))(seeds)
    joint, metrics = make_chunk(algo, 32, 20, seeds=True)(joint, transitions, seeds, 0)
    single = make_chunk(algo, 32, 20)
    programs = single._cache_size()
    for i, seed in enumerate([5, 6, 7]):
        alone, alone_metrics = single(initial_state(algo, seed), transitions, seed, 0)
        for a, b in zip(leaves(joint), leaves(alone), strict=True):
            np.testing.assert_allclose(a[i], b, rtol=1e-3, atol=1e-5)
        for metric, value in alone_metrics.items():
            np.testing.assert_allclose(metrics[metric][i], value, rtol=1e-3, atol=1e-5, err_msg=metric)
    assert not np.allclose(leaves(joint)[0][0], leaves(joint)[0][1])
    assert single._cache_size() <= programs + 1  # compiled once for all seeds


def test_training_changes_the_policy_and_lowers_the_loss(transitions):
    algo = make("vdice-true", SPEC, **SMALL, value_lr=1e-3)  # the one rule that descends its own loss
    chunk = make_chunk(algo, 64, 100)
    state = initial_state(algo, 0)
    state, first = chunk(state, transitions, 0, 0)
    for i in range(1, 5):
        state, last = chunk(state, transitions, 0, 100 * i)
    assert last["value_loss"] < first["value_loss"]
