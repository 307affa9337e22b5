"""Recipes: what is in the data, that they say how they were made, and what is refused."""

import re

import jax
import numpy as np
import pytest

import odice
from odice.collection import recipes
from odice.collection.behavior import Trained
from odice.collection.behavior_folder import Stage
from odice.collection.recipes import collect
from odice.collection.sac import SACConfig, sac
from odice.data.doctor import inspect
from odice.envs.small import LQR, PARKING
from odice.errors import OdiceError
from odice.policy.policy import Policy
from odice.types import Spec
from tests.collection.test_behavior import SMALL, small


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A behavior of 300 steps, whose policies count as medium as soon as they are evaluated."""
    place = tmp_path_factory.mktemp("behavior") / "run"
    small(place, target=-1e9)
    return place


def make(recipe, folder, **options):
    settings = {"target": -1e9, "training": SMALL, "behavior": folder, "budget": 300, "quiet": True}
    return collect(LQR, recipe, **settings | options)


def test_random_data_are_uniform_and_reproducible():
    first, again = (collect(LQR, "random", steps=1030, seed=3, quiet=True) for _ in range(2))
    assert first.fingerprint == again.fingerprint
    assert first.fingerprint != collect(LQR, "random", steps=1030, seed=4, quiet=True).fingerprint
    assert first.n_steps == 1030
    assert first.lengths.tolist() == [50] * 20 + [30]
    assert first.truncated.all()
    assert first.final_known.all()
    np.testing.assert_allclose(np.quantile(first.actions, [0, 0.25, 0.5, 0.75, 1]), [-1, -0.5, 0, 0.5, 1], atol=0.1)
    assert (first.meta.env_id, first.meta.action_low, first.meta.action_high) == (LQR, (-1.0,), (1.0,))


def test_random_data_follow_the_dynamics():
    """Every next observation is the environment's answer to the action that is written down."""
    from odice.envs.small import LinearQuadratic

    data = collect(LQR, "random", steps=200, quiet=True)
    for episode in data:
        after, cost = LinearQuadratic().step(episode.observations[:-1].astype(float), episode.actions.astype(float))
        np.testing.assert_allclose(episode.observations[1:], after, atol=1e-6)
        np.testing.assert_allclose(episode.rewards, -cost, rtol=1e-4, atol=1e-6)


def test_episodes_that_last_long_are_not_left_out():
    """In Parking episodes end at any time; the first to start are kept, not the first to end."""
    data = collect(PARKING, "random", steps=600, seed=1, quiet=True)
    assert data.n_steps == 600
    assert (data.lengths[:-1] == 100).any() or data.terminated[:-1].all()
    assert not data.terminated[-1] or data.rewards[-1] in (-1.0, -200.0)
    assert [f.code for f in inspect(data).errors] == []


def test_medium_replay_is_the_replay_up_to_then(folder):
    data = make("medium-replay", folder)
    assert data.n_steps == 120  # the first evaluation, which already counts
    assert "the replay of 120 steps of SAC, 60 of them random" in data.meta.history
    assert any("SAC passed it at step 120" in line for line in data.meta.history)
    assert make("full-replay", folder).n_steps == 300
    assert make("full-replay", folder, budget=240).n_steps == 240


def test_a_replay_can_be_thinned_by_whole_episodes(folder):
    """Episodes last 50 steps, in three environments of 100 steps: 130 are two whole ones and a part of a third."""
    data = make("full-replay", folder, steps=130)
    assert data.lengths.tolist() == [50, 50, 30]
    whole = {tuple(episode.rewards) for episode in make("full-replay", folder)}
    assert all(tuple(episode.rewards) in whole for episode in list(data)[:2])


def test_medium_expert_is_half_and_half(folder):
    data = make("medium-expert", folder, steps=100)
    assert data.n_steps == 100
    drawn = [line for line in data.meta.history if line.startswith("50 steps drawn")]
    assert [re.search(r"at step (\d+)", line).group(1) for line in drawn] == ["120", "300"]
    np.testing.assert_array_equal(data.rewards[:50], make("medium", folder, steps=50).rewards)
    np.testing.assert_array_equal(data.rewards[50:], make("expert", folder, steps=50).rewards)


def test_the_history_names_recipe_seed_versions_and_returns(folder, tmp_path):
    data = make("expert", folder, steps=100, out=tmp_path / "expert.parquet")
    history = "\n".join(odice.load(tmp_path / "expert.parquet").meta.history)
    assert f"collected in {LQR} with the recipe expert, seed 0" in history
    assert f"odice {odice.__version__}; python" in history
    assert "numpy " + np.__version__ in history
    assert f"mean {data.returns.mean():.1f}, least {data.returns.min():.1f}, best {data.returns.max():.1f}" in history


def test_a_target_that_was_not_reached_is_said():
    policy = sac(SACConfig(critic_hidden=(), policy_hidden=()), Spec(2, 1)).init(jax.random.key(0)).policy
    trained = Trained(300, np.zeros((300, 9), np.float32), policy, None, Stage(180, -5.0, policy), 7.5, [(180, -5.0)])
    assert recipes._medium(trained).step == 180
    description = (
        "a return of 7.5 counts as medium, which SAC did not reach in 300 steps; its best was -5.0 at step 180"
    )
    assert recipes._describe(trained) == description


def test_a_policy_from_outside(folder):
    saved = folder / "policy" / "last"
    data = collect(LQR, policy=saved, steps=60, quiet=True)
    np.testing.assert_allclose(data.actions, Policy.load(saved)(data.step_observations()), atol=1e-5)
    still = collect(LQR, policy=lambda obs: np.zeros((len(obs), 1)), steps=60, quiet=True)
    assert not still.actions.any()
    with pytest.raises(OdiceError, match=r"wrong gave actions of shape \(2,\)"):
        collect(LQR, policy=wrong, steps=60, quiet=True)


def wrong(obs):
    return np.zeros(2)


def test_an_environment_may_be_a_function():
    from tests.collection.test_vector_env import Counter

    data = collect(Counter, "random", steps=40, quiet=True)
    assert data.meta.env_id is None
    assert (data.actions >= 0).all()
    assert data.actions.max() > 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("CartPole-v1", "random"), "collecting needs a box"),
        (("Hoper-v5", "random"), "Did you mean 'Hopper-v5'"),
        ((LQR, "medum"), "Did you mean 'medium'"),
        ((LQR,), "either a recipe or a policy"),
        ((PARKING, "medium"), "No expert's return is known .* --target"),
    ],
)
def test_what_cannot_be_collected_is_refused_in_a_sentence(arguments, message):
    with pytest.raises(OdiceError, match=message):
        collect(*arguments, quiet=True)


def test_a_policy_that_is_gone_is_refused(folder):
    with pytest.raises(OdiceError, match="has learned for 300 steps already"):
        make("expert", folder, budget=240)


def test_a_budget_below_the_first_evaluation_is_refused(tmp_path):
    with pytest.raises(OdiceError, match="raise --budget beyond the warm-up"):
        make("medium", tmp_path / "new", budget=90)


def test_a_budget_between_two_chunks_ends_with_a_whole_one(folder):
    """Trainings of 280 and 300 steps both end after ten chunks of 30, so the expert of either is there."""
    assert make("expert", folder, budget=280, steps=60).n_steps == 60


def test_an_expert_that_was_never_evaluated_is_said(tmp_path):
    data = make("expert", tmp_path / "new", budget=90, steps=60)
    assert "at step 90 (not evaluated)" in "; ".join(data.meta.history)
