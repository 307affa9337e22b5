"""The spread of V in a maze (`benchmarks/value_spread.py`), beside the same numbers from numpy alone."""

import h5py
import numpy as np
import pytest

import odice
from tests.d4rl_files import write
from tests.scripts import load_script

NETWORK = {"value_hidden": (4,), "policy_hidden": (4,), "batch_size": 8, "value_lr": 0.01}


@pytest.fixture(scope="module")
def script():
    return load_script("value_spread")


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return write(tmp_path_factory.mktemp("d4rl"), "antmaze-umaze-v2")


@pytest.fixture(scope="module")
def run(log, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "odice"
    return odice.train(
        str(log), algo="odice", steps=4, env="none",
        normalize_obs=True, holdout=0.0, allow=("all",), quiet=True, out=str(out), **NETWORK
    )  # fmt: skip


def test_groups_of_the_u_maze_are_its_corridors(script):
    xy = np.array([[0.0, 0.0], [4.0, 1.9], [9.0, -1.0], [8.0, 2.1], [8.0, 5.9], [8.0, 6.1], [0.0, 8.0], [-2.3, 9.0]])
    assert script.moves_to_goal(xy, "umaze").tolist() == [6, 5, 4, 3, 3, 2, 0, 0]
    first, turn, last = script.groups(script.moves_to_goal(xy, "umaze"), [4, 3, 0])
    assert [int(part.sum()) for part in (first, turn, last)] == [3, 2, 3]


def test_spread_and_share_of_each_group(script):
    value, weight = np.array([1.0, 3.0, 5.0, 5.0, 7.0]), np.array([1.0, 0.0, 2.0, 1.0, 0.0])
    spread, share = script.measure(value, weight, script.groups(np.array([5, 6, 3, 0, 2]), [4, 3, 0]))
    assert spread == [1.0, 0.0, 1.0]
    assert share == [0.25, 0.5, 0.25]
    assert script.measure(value, 0 * weight, [value > 0]) == ([np.std(value)], [0.0])


@pytest.mark.long
def test_spread_and_weight_of_a_run(script, run, log):
    share, rows = script.rows(run, None, [4, 3, 0], "umaze")
    assert [row.step for row in rows] == [4]
    with h5py.File(log) as file:
        obs, reward, terminal, timeout = (
            np.asarray(file[name]) for name in ("observations", "rewards", "terminals", "timeouts")
        )
    fitted, y = run.config["preprocess"], obs[:, 1]
    used = terminal | ~timeout  # a row that is cut by time has no next state
    seen = (obs - np.array(fitted["obs_mean"])) / np.array(fitted["obs_scale"])
    *_, (_, state) = script.states(run, *shapes(script, run))
    head = state.value.params.heads

    def value(x):
        hidden = np.maximum(x @ np.asarray(head.weights[0][0]) + np.asarray(head.biases[0][0]), 0.0)
        return (hidden @ np.asarray(head.weights[1][0]) + np.asarray(head.biases[1][0]))[:, 0]

    v = value(seen)
    weight = np.clip(reward + 0.99 * (1 - terminal) * np.roll(v, -1) - v, 0, 100)[used]
    parts = [part[used] for part in (y < 2, (y >= 2) & (y < 6), y >= 6)]
    np.testing.assert_allclose(share, [part.mean() for part in parts])
    np.testing.assert_allclose(rows[0].spread, [v[used][part].std() for part in parts], rtol=1e-4)
    np.testing.assert_allclose(rows[0].mean, v[used].mean(), rtol=1e-4)
    expected = [weight[part].sum() / weight.sum() for part in parts]
    np.testing.assert_allclose(rows[0].share, expected, rtol=1e-4)


def shapes(script, run):
    made = script.prepared(run, None)
    algo = made.settings.algorithm.build(made.settings.config, made.spec)
    like = script.jax.eval_shape(lambda: script.initial_state(algo, 0))
    return like, script.jax.eval_shape(algo.policy, like)


@pytest.mark.long
def test_refuses_another_log(script, run, tmp_path):
    other = write(tmp_path, "antmaze-umaze-v2", seed=1)
    with pytest.raises(odice.OdiceError, match="another log"):
        script.rows(run, str(other), [4, 3, 0], "umaze")


@pytest.mark.long
def test_asks_for_the_maze_where_the_run_names_none(script, run):
    with pytest.raises(odice.OdiceError, match="--maze"):
        script.rows(run, None, [4, 3, 0])
