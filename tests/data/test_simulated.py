"""The readers on steps of simulated robots, written in D4RL's HDF5 layout."""

import gymnasium
import h5py
import numpy as np
import pytest

import odice
from odice.data.transitions import to_transitions

pytestmark = pytest.mark.filterwarnings("ignore::odice.data.dataset.UnfinishedEpisodeWarning")  # the file just stops
FIELDS = ("observations", "actions", "rewards", "terminals", "timeouts")


def simulate(env_id: str, steps: int, limit: int) -> dict[str, np.ndarray]:
    """Random actions in a simulator, flat as D4RL stores them: no final observation of an episode."""
    env = gymnasium.make(env_id, max_episode_steps=limit)
    env.action_space.seed(0)
    rows: dict[str, list] = {name: [] for name in FIELDS}
    obs, _ = env.reset(seed=0)
    for _ in range(steps):
        action = env.action_space.sample()
        next_obs, reward, terminated, truncated, _ = env.step(action)
        for name, value in zip(FIELDS, (obs, action, reward, terminated, truncated and not terminated), strict=True):
            rows[name].append(value)
        obs = env.reset()[0] if terminated or truncated else next_obs
    env.close()
    return {
        name: np.array(values, bool if name in ("terminals", "timeouts") else np.float32)
        for name, values in rows.items()
    }


@pytest.fixture(scope="module", params=[("Hopper-v5", 700, 15), ("HalfCheetah-v5", 250, 60)], ids=lambda p: p[0])
def made(request, tmp_path_factory):
    raw = simulate(*request.param)
    path = tmp_path_factory.mktemp("simulated") / "robot.hdf5"
    with h5py.File(path, "w") as file:
        for name, values in raw.items():
            file[name] = values
    return path, raw


def test_the_simulated_episodes_end_in_both_ways():
    raw = simulate("Hopper-v5", 700, 15)
    assert raw["terminals"].any()
    assert raw["timeouts"].any()


def test_rows_and_numbers_are_those_of_the_file(made):
    path, raw = made
    data = odice.load(path)
    assert np.array_equal(data.step_observations(), raw["observations"])
    assert data.terminated.sum() == raw["terminals"].sum()
    assert data.truncated.sum() == raw["timeouts"].sum() + (not raw["terminals"][-1] and not raw["timeouts"][-1])
    kept = ~raw["timeouts"]
    kept[-1] = False
    transitions = to_transitions(data)
    assert transitions.size == kept.sum()
    assert np.array_equal(transitions.action, raw["actions"][kept])
    assert np.array_equal(transitions.reward, raw["rewards"][kept])
    batch = transitions.batch(np.arange(transitions.size))
    follows = raw["observations"][np.flatnonzero(kept) + 1]
    alive = ~raw["terminals"][kept]
    assert np.array_equal(batch.next_obs[alive], follows[alive])


def test_every_format_keeps_it(made, tmp_path):
    data = odice.load(made[0])
    for name in ("copy.hdf5", "copy.parquet"):
        assert odice.load(data.save(tmp_path / name)).fingerprint == data.fingerprint
    assert odice.load(data.save(tmp_path / "copy-v0", "minari")).fingerprint == data.fingerprint
