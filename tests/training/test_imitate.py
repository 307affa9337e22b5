"""Imitation runs: no rewards, the chosen episodes alone, their own normalizer, and one sentence for what cannot be."""

import json

import numpy as np
import pytest

import odice
from odice.data.dataset import UnfinishedEpisodeWarning
from odice.errors import OdiceError
from odice.training.prepare import prepare
from odice.training.settings import resolve
from tests.training.line import SMALL, line_log

RUN = {"steps": 40, "eval_every": 20, "quiet": True, "env": "none", "allow": ["all"]}
CLONE = {"algo": "bc", "policy_hidden": (16,), "batch_size": 16}


def imitate(out, data=None, **options):
    return odice.imitate(line_log() if data is None else data, out=out, **(RUN | CLONE | options))


@pytest.fixture(scope="module")
def cloned(tmp_path_factory):
    return imitate(tmp_path_factory.mktemp("bc") / "run", episode=[3, 1])


def config(run):
    return json.loads((run.path / "config.json").read_text())


def test_only_the_chosen_episodes_are_learnt_from(cloned, tmp_path):
    log = line_log()
    chosen = np.r_[60:80, 20:40]
    alone = {name: column[chosen] for name, column in log.items()}
    assert imitate(tmp_path / "run", alone).result["state_sha256"] == cloned.result["state_sha256"]
    assert config(cloned)["config"]["episode"] == [3, 1]
    facts = cloned.policy.about["data"]
    assert (facts["episode"], facts["episodes"], facts["steps"]) == ([3, 1], 2, 40)
    returns = [log["rewards"][60:80].sum(), log["rewards"][20:40].sum()]
    np.testing.assert_allclose(facts["demonstrated_returns"], returns, atol=1e-3)


def test_observations_are_normalized_by_the_demonstrations(cloned):
    # Episodes 3 and 1 were cut and their last next state is unknown, so 19 steps of each count.
    seen = line_log()["observations"][np.r_[60:79, 20:39]]
    assert cloned.policy.about["data"]["transitions"] == 38
    np.testing.assert_allclose(cloned.policy.obs_mean, seen.mean(0), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(cloned.policy.obs_scale, seen.std(0) + 1e-3, rtol=1e-4)


@pytest.mark.parametrize("name", ["odice"])
def test_rewards_are_not_read(name, tmp_path):
    log = line_log()
    other = log | {"rewards": -3 * log["rewards"] + 1}
    runs = [
        imitate(tmp_path / str(i), data, algo=name, episode=[2], **(SMALL | {"batch_size": 16}))
        for i, data in enumerate((log, other))
    ]
    assert runs[0].result["state_sha256"] == runs[1].result["state_sha256"]
    assert config(runs[0])["config"]["settings"]["lam"] == 0.4
    assert config(runs[0])["config"]["settings"]["tanh_mean"] is True
    assert runs[0].policy.layout.output == "tanh"


def test_the_same_command_continues_and_another_episode_is_refused(cloned):
    assert imitate(cloned.path, episode=[3, 1]).result == cloned.result
    with pytest.raises(OdiceError, match=r"another configuration.*episode"):
        imitate(cloned.path, episode=[3, 5])
    with pytest.raises(OdiceError, match=r"another configuration.*imitation"):
        odice.train(line_log(), out=cloned.path, **(RUN | CLONE))


def test_by_default_a_run_is_named_after_its_episodes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = imitate(None, episode=1)
    assert str(run.path) == "runs/data-episode-1/bc/seed-0"


def test_the_reference_preset_repeats_the_corrupted_transition():
    options = {"imitation": True, "preset": "reference", "episode": [1]} | RUN | CLONE
    values = [prepare(resolve(line_log(), **options, **more)).source.size for more in ({}, {"final_obs": "recorded"})]
    assert values == [20, 19]


@pytest.mark.slow
def test_absorbing_states_stay_inside_the_run(tmp_path):
    nets = {"critic_hidden": (16,), "policy_hidden": (16,), "batch_size": 16}
    run = odice.imitate(line_log(), out=tmp_path / "run", algo="value-dice", episode=[0, 1], **RUN, **nets)
    # Episode 0 terminates after 20 steps and stays for one more; episode 1 is cut, and its last step is left out.
    assert run.policy.about["data"]["transitions"] == 21 + 19
    assert run.policy.about["preprocess"]["absorbing"] is True
    assert run.policy.obs_dim == 4
    assert run.policy(np.zeros(4)).shape == (2,)


@pytest.mark.long
@pytest.mark.parametrize("name", ["demo-dice", "smodice"])
def test_demonstrations_with_suboptimal_data(name, tmp_path):
    nets = {"discriminator_hidden": (16,), "value_hidden": (16,), "policy_hidden": (16,), "batch_size": 16}
    nets |= {"discriminator_steps": 10} if name == "smodice" else {}
    options = {"algo": name, "episode": [0], "suboptimal": line_log(seed=1), **RUN, **nets}
    run = odice.imitate(line_log(), out=tmp_path / "run", **options)
    facts = run.policy.about["data"]
    assert (facts["episodes"], facts["demonstrations"]) == (13, 1)
    with pytest.raises(OdiceError, match=r"another configuration.*suboptimal"):
        odice.imitate(line_log(), out=run.path, **(options | {"suboptimal": line_log(seed=2)}))
    both = odice.imitate(line_log(), out=tmp_path / "two", seeds=2, parallel="processes", **options)
    assert both.seeds[0].result["state_sha256"] == run.result["state_sha256"]


@pytest.mark.filterwarnings("ignore::odice.data.dataset.UnfinishedEpisodeWarning")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"episode": [12]}, "no episode 12; --episode takes 0 to 11, whose returns are"),
        ({"episode": [2], "batch_size": 64}, "20 transitions, fewer than one batch of 64.*--batch-size to 20 or less"),
        (
            {"algo": "td3-bc"},
            "td3-bc learns from rewards.*imitate with one of: bc, demo-dice, iq-learn, lobs-dice, odice",
        ),
        ({"algo": "demo-dice"}, "demo-dice learns from demonstrations and suboptimal data.*--suboptimal SOURCE"),
        ({"algo": "value-dice", "data": line_log(discrete=True)}, "value-dice needs continuous actions"),
        ({"reward": "minus-1"}, "without rewards, but --reward is 'minus-1'"),
        ({"top_returns": 0.5}, "top_returns chooses episodes by their rewards"),
        ({"stream": True}, "leave out --stream"),
        ({"absorbing": True, "convention": "qlearning"}, "need --convention bootstrap"),
        ({"preset": "corl"}, "'corl' has no settings to imitate with"),
    ],
)
def test_what_cannot_be_is_one_sentence_and_leaves_nothing(tmp_path, options, message):
    options = {"batch_size": 16, "algo": "bc"} | RUN | options
    with pytest.raises(OdiceError, match=message):
        odice.imitate(options.pop("data", line_log()), out=tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


def test_a_log_without_ends_has_no_episodes_to_choose(tmp_path):
    nowhere = np.zeros(240, bool)
    with (
        pytest.warns(UnfinishedEpisodeWarning),
        pytest.raises(OdiceError, match="nothing marks where an episode ends"),
    ):
        imitate(tmp_path / "run", line_log() | {"terminals": nowhere, "timeouts": nowhere}, episode=[0])


@pytest.mark.parametrize("options", [{"episode": [1]}, {"suboptimal": "x.npz"}, {"absorbing": True}])
def test_options_of_imitation_mean_nothing_elsewhere(options):
    with pytest.raises(OdiceError, match="belong to imitation"):
        resolve("x.npz", **options)


def test_cloning_the_union_says_that_it_cannot_tell(tmp_path, capsys):
    imitate(tmp_path / "run", suboptimal=line_log(seed=1), episode=[0], quiet=False)
    said = capsys.readouterr()
    assert "bc learns from demonstrations and suboptimal data alike" in said.out + said.err


@pytest.mark.filterwarnings("ignore::odice.data.dataset.UnfinishedEpisodeWarning")
def test_suboptimal_data_with_other_words(tmp_path):
    """The demonstrations never take `a`, the suboptimal data never `c`: one policy, with a name for every action."""
    from odice.policy import open_policy

    for name, words in (("expert", "bc"), ("others", "ab")):
        rows = [f"{i // 20},{i % 7},{words[i % 2]},0" for i in range(200)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["episode,obs_x,action,reward", *rows]) + "\n")
    options = {"suboptimal": str(tmp_path / "others.csv"), "out": tmp_path / "run", "quiet": True, "allow": ("all",)}
    settings = {"algo": "bc", "steps": 200, "batch_size": 32, "policy_hidden": (16,), "env": "none"}
    odice.imitate(str(tmp_path / "expert.csv"), **options, **settings)
    policy = open_policy(tmp_path / "run")
    assert policy.choices == ("b", "c", "a")
    assert policy.action_dim == 3
