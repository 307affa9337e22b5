"""The presets against the published tables."""

import csv
from importlib import import_module
from pathlib import Path

import pytest

import odice
from odice.algos import algorithms, entry
from odice.data.preprocess import REWARD_MAPS
from odice.presets import PRESETS
from odice.presets.baselines import DATA
from odice.presets.paper import LAMBDA_ETA
from odice.training.settings import resolve

TABLE = Path(__file__).parents[1] / "published" / "paper_hparams.csv"


def test_paper_numbers_by_hand():
    hopper = odice.preset("paper", "odice", "hopper-medium-v2")
    assert hopper.values() | {"lam": 0.6, "eta": 1.0, "value_lr": 1e-4, "twin": False} == hopper.values()
    assert hopper.protocol.eval_every == 5_000
    maze = odice.preset("paper", "odice", "antmaze-large-diverse-v2")
    assert (maze.values()["lam"], maze.values()["eta"]) == (0.8, 0.8)
    assert (maze.protocol.eval_episodes, maze.protocol.reward) == (50, "minus-3")


def test_reference_differs_where_the_code_does():
    values = odice.preset("reference", "odice", "walker2d-medium-replay-v2").values()
    assert values["policy_hidden"] == (1024, 1024)
    assert values["policy_weight_decay"] == 1e-4
    assert values["twin"]
    assert values["layer_norm"]
    assert not odice.preset("reference", "odice", "antmaze-large-play-v2").values()["twin"]


def test_against_the_transcribed_table():
    for row in csv.DictReader(TABLE.read_text().splitlines()):
        if row["setting"] != "RL":
            continue
        paper = odice.preset("paper", "odice", row["dataset"]).values()
        code = odice.preset("reference", "odice", row["dataset"])
        assert paper["lam"] == code.values()["lam"] == float(row["lambda_paper"])
        assert paper["eta"] == code.values()["eta"] == float(row["eta_paper"])
        assert code.values()["layer_norm"] == (row["layer_norm_code"] == "True")
        assert code.values()["twin"] == (row["twin_v_code"] == "True")
        assert code.values()["value_lr"] == float(row["value_lr_code"])
        assert code.values()["policy_weight_decay"] == float(row["policy_weight_decay_code"])
        assert code.protocol.eval_every == int(row["eval_period_code"])
        assert code.protocol.eval_episodes == int(row["eval_episodes_code"])


def test_the_official_codes_of_iql_and_td3_bc_do_what_their_papers_say():
    for algo in ("iql", "td3-bc"):
        for data in DATA:
            paper, code = (odice.preset(name, algo, data) for name in ("paper", "reference"))
            assert paper.values() == {key: code.values()[key] for key in paper.values()}
            assert paper.protocol.reward == code.protocol.reward
    assert odice.preset("paper", "iql", "antmaze-umaze-v2").values()["beta"] == 10.0


def test_the_data_sets_are_those_of_the_table():
    assert set(DATA) == set(LAMBDA_ETA)


GENERAL = {"algae-dice", "copti-dice", "cors-dice"}
"""Whose official codes know nothing of D4RL: no rows."""
EVERY = [(name, algo) for name in sorted(PRESETS) for algo in sorted(import_module(f"odice.presets.{name}").TABLES)]


@pytest.mark.parametrize(("name", "algo"), EVERY)
def test_every_preset_builds_and_names_its_sources(name, algo):
    for data in (None, "hopper-medium-v2", "antmaze-umaze-v2"):
        made = odice.preset(name, algo, data)
        algorithms()[algo].config(**made.values())
        assert all(setting.source for setting in made.settings.values())
        assert made.data == (None if algo in GENERAL else data)
        assert made.protocol.source
        assert made.protocol.reward in REWARD_MAPS
    if algo in GENERAL:
        assert not import_module(f"odice.presets.{name}").TABLES[algo].rows
        return
    others = {"maze2d-umaze-v1"} if (name, algo) == ("reference", "optidice") else set()
    assert set(import_module(f"odice.presets.{name}").TABLES[algo].rows) == set(DATA) | others


def test_what_the_official_commands_say():
    """READMEs of f-DVL and OptiDICE, and XQL's scripts of each data set."""
    at = lambda algo, data: odice.preset("reference", algo, data).values()
    moving, maze = (at("fdvl", data) for data in ("halfcheetah-medium-expert-v2", "antmaze-large-play-v2"))
    assert (moving["divergence"], moving["lam"], moving["random_actions"]) == ("pearson", 1.0, 1)
    assert (maze["divergence"], maze["lam"], maze["temperature"]) == ("total-variation", 0.8, 10.0)
    assert "random_actions" not in maze
    moving, maze = (at("xql", data) for data in ("hopper-medium-expert-v2", "antmaze-large-play-v2"))
    assert (moving["beta"], moving["exponent_cap"], moving["random_actions"]) == (2.0, 7.0, 1)
    assert (maze["beta"], maze["exponent_cap"], maze["batch_size"]) == (0.6, 5.0, 1024)
    assert at("xql", "antmaze-medium-diverse-v2")["value_updates"] == 4
    assert at("xql", "halfcheetah-medium-v2")["action_noise"] == 0.1
    assert at("xql", "hopper-medium-replay-v2")["batch_size"] == 256
    umaze = at("optidice", "maze2d-umaze-v1")
    assert (umaze["extraction"], umaze["e_loss"], umaze["alpha"]) == ("projection", "mse", 0.001)


def test_what_the_flags_of_algae_dice_and_copti_dice_say():
    algae, copti = (odice.preset("reference", algo) for algo in ("algae-dice", "copti-dice"))
    assert algae.values() | {"alpha": 0.01, "exponent": 1.5, "policy_delay": 2, "online_share": 0.05} == algae.values()
    assert algae.protocol.steps == 500_000
    assert copti.values() | {"discount": 0.995, "bound_radius": 0.01, "batch_size": 1024} == copti.values()
    cors = odice.preset("reference", "cors-dice")
    assert cors.values() | {"alpha": 1.0, "state_lr": 3e-5, "policy_weight": "linear"} == cors.values()
    assert "cost_limit" not in cors.values()  # the official one is a budget per episode


def test_what_the_files_of_diffusion_dice_say():
    """Numbers of its configs, flags and pretrain_behavior.py, typed again from them."""
    at = lambda name: odice.preset("reference", "diffusion-dice", name).values()
    scales = [at(f"hopper-medium{part}-v2")["guidance"] for part in ("", "-replay", "-expert")]
    assert scales == [4.0, 4.0, 2.0]
    assert [at(f"antmaze-{part}-v2")["guidance"] for part in ("umaze-diverse", "medium-play", "large-play")] == [
        1,
        2,
        4,
    ]
    for name, ensemble, copies in (("walker2d-medium-v2", 10, 16), ("antmaze-umaze-v2", 0, 32)):
        assert (at(name)["critic_ensemble"], at(name)["noised_copies"]) == (ensemble, copies)
    shared = {"alpha": 0.5, "candidates": 1, "weight_decay": 1e-4, "batch_size": 512, "score_lr": 1e-4}
    shared |= {"guidance_hidden": (256,) * 4, "solver_steps": 15, "polyak": 0.005, "value_lr": 3e-4}
    assert at("hopper-medium-v2") | shared == at("hopper-medium-v2")
    protocol = odice.preset("reference", "diffusion-dice", "antmaze-umaze-v2").protocol
    assert (protocol.reward, protocol.eval_every, protocol.eval_episodes) == ("minus-1", 40_000, 50)


def test_corls_configs_of_rebrac_and_awac():
    """Numbers of CORL's files, typed again from them."""
    at = lambda algo, name: odice.preset("corl", algo, name)
    hopper, maze = at("rebrac", "hopper-medium-replay-v2"), at("rebrac", "antmaze-large-play-v2")
    assert (hopper.values()["policy_penalty"], hopper.values()["critic_penalty"]) == (0.05, 0.5)
    assert (hopper.values()["batch_size"], hopper.values()["critic_lr"]) == (1024, 1e-3)
    assert (maze.values()["policy_penalty"], maze.values()["critic_penalty"]) == (0.002, 0.001)
    assert (maze.values()["discount"], maze.values()["critic_lr"], maze.values()["policy_lr"]) == (0.999, 5e-5, 3e-4)
    assert (maze.protocol.reward, maze.protocol.eval_episodes, maze.protocol.normalize_obs) == ("times-100", 100, False)
    assert at("awac", "walker2d-medium-v2").values()["beta"] == 0.3333
    assert at("awac", "antmaze-umaze-v2").values()["beta"] == 0.1
    assert at("awac", "antmaze-umaze-v2").protocol.reward == "minus-1"


def test_unknown_data_gets_the_general_values():
    made = odice.preset("reference", "odice", "my-robot-v0")
    assert made.data is None
    assert made.values()["lam"] == 0.6


BASELINES = TABLE.with_name("hparams_by_algorithm.csv")


def test_baselines_against_the_transcribed_table():
    rewards = {"none": "none", "scaled": "return-range-b", "r-1": "minus-1", "10r-5": "times-10-minus-5"}
    for row in csv.DictReader(BASELINES.read_text().splitlines()):
        code = lambda algo, name=row["dataset"]: odice.preset("reference", algo, name).values()
        corl = lambda algo, name=row["dataset"]: odice.preset("corl", algo, name)
        for algo in ("sql", "eql"):
            assert code(algo)["alpha"] == float(row[f"{algo}_alpha"])
            assert code(algo)["value_lr"] == code(algo)["policy_lr"] == float(row["ivr_lr"])
        assert (code("iql")["expectile"], code("iql")["beta"]) == (float(row["iql_expectile"]), float(row["iql_beta"]))
        assert code("fdvl")["temperature"] == float(row["dvl_temperature_awr"])
        assert code("td3-bc")["alpha"] == corl("td3-bc").values()["alpha"] == float(row["td3bc_alpha"])
        iql = corl("iql").values()
        assert iql["expectile"] == float(row["corl_iql_expectile"])
        assert iql["beta"] == float(row["corl_iql_beta"])
        assert iql["polyak"] == float(row["corl_iql_target_tau"])
        assert iql.get("deterministic", False) == (row["corl_iql_deterministic"] == "True")
        assert corl("iql").protocol.reward == rewards[row["corl_iql_reward_norm"]]
        cql = corl("cql").values()
        assert cql["cql_weight"] == float(row["corl_cql_weight"])
        assert cql["policy_lr"] == float(row["corl_cql_policy_lr"])
        assert cql.get("lagrange_gap") == (None if row["corl_cql_lagrange_gap"] == "off" else 0.8)
        assert cql.get("max_backup", False) == (row["corl_cql_max_backup"] == "True")
        assert cql.get("clip_min") == (None if row["corl_cql_clip_diff_min"] == "-inf" else -200.0)
        assert corl("cql").protocol.reward == rewards[row["corl_cql_reward"]]
        assert corl("cql").protocol.normalize_obs == (row["corl_cql_state_norm"] == "True")


@pytest.mark.parametrize("algo", ["odice", "sdice", "vdice-true"])
@pytest.mark.parametrize("name", ["paper", "reference"])
@pytest.mark.parametrize("data", ["hopper-medium-v2", "antmaze-large-play-v2", "my-robot-v0"])
def test_published_settings_are_the_papers(name, algo, data):
    plan = resolve(data, preset=name, algo=algo)
    result = plan.config
    row = odice.preset(name, algo, data)
    assert result.lam == row.values().get("lam", 0.6)
    assert result.polyak == 0.005
    assert result.value_lr == (1e-4 if name == "paper" else 2e-4)
    assert plan.options.reward == row.protocol.reward != "return-spread"
    assert plan.options.steps == 1_000_000


def test_without_a_preset_the_log_decides():
    plan = resolve("hopper-medium-v2")
    assert plan.options.algo == "auto"
    assert plan.options.reward == "return-spread"
    assert plan.config.value_start is None  # until the log is read
    assert plan.config.cosine_steps == plan.options.steps
    assert resolve("x", lam=0.7, reward="none").config.lam == 0.7
    assert resolve("x", algo="iql").options.reward == "none"


@pytest.mark.parametrize("algo", ["odice", "sdice", "vdice-true"])
def test_the_papers_algorithms_have_their_defaults_without_a_preset(algo):
    plan = resolve("x", algo=algo)
    assert plan.config == entry(algo).config()
    assert plan.options.reward == "none"


def test_a_preset_and_demonstrations_mean_the_papers_algorithm():
    assert resolve("x", preset="paper").options.algo == "odice"
    assert resolve("x", imitation=True).options.algo == "odice"
    assert resolve("x", preset="paper").sources["algo"] == "default"
    assert resolve("x", algo="auto").sources["algo"] == "given"
