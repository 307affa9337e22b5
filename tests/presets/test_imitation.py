"""What the presets say of imitation, against the facts of the paper and the released code."""

import pytest

import odice
from odice.algos import algorithms
from odice.presets.imitation import SEEDS, TABLES, TRAJECTORIES

EVERY = [(name, algo) for name, tables in TABLES.items() for algo in tables]


@pytest.mark.parametrize(("name", "algo"), EVERY)
def test_every_table_builds_and_names_its_sources(name, algo):
    assert algorithms()[algo].imitates
    for data in (None, "hopper-expert-v2", "walker2d-expert-v2"):
        made = odice.preset(name, algo, data, imitation=True)
        algorithms()[algo].config(**made.values())
        assert all(setting.source for setting in made.settings.values())
        assert made.protocol.source
        assert made.protocol.reward == ("standard" if algorithms()[algo].reads_rewards else "zero")
        assert made.protocol.convention == "bootstrap"


@pytest.mark.parametrize(
    ("data", "decay"), [("hopper-expert-v2", 1e-5), ("walker2d-expert-v2", 1e-3), ("mine-v0", 1e-5)]
)
def test_the_released_code(data, decay):
    made = odice.preset("reference", "odice", data, imitation=True)
    values = made.values()
    assert values["policy_weight_decay"] == decay
    assert (values["lam"], values["eta"], values["tanh_mean"]) == (0.4, 1.0, True)
    assert (values["value_lr"], values["policy_lr"]) == (1e-4, 1e-4)
    assert (values["policy_hidden"], values["twin"], values["layer_norm"]) == ((1024, 1024), True, False)
    assert made.protocol.final_obs == "next-reset"
    assert (made.protocol.steps, made.protocol.eval_every, made.protocol.eval_episodes) == (500_000, 5_000, 10)
    clone = odice.preset("reference", "bc", data, imitation=True).values()
    shared = ("policy_hidden", "policy_lr", "policy_weight_decay", "tanh_mean")
    assert {key: clone[key] for key in shared} == {key: values[key] for key in shared}


def test_the_papers_text():
    made = odice.preset("paper", "odice", "hopper-expert-v2", imitation=True)
    values = made.values()
    assert (values["lam"], values["eta"], values["policy_hidden"], values["twin"]) == (0.4, 1.0, (256, 256), False)
    assert "policy_weight_decay" not in values
    assert made.protocol.final_obs == "recorded"


def test_the_paper_compares_with_three_others_on_four_trajectories():
    for algo in ("bc", "value-dice", "iq-learn"):
        assert odice.preset("paper", algo, "walker2d-expert-v2", imitation=True).protocol.steps == 1_000_000
    clone, own = (odice.preset("paper", algo, imitation=True).values() for algo in ("bc", "odice"))
    assert (clone["policy_hidden"], clone["policy_lr"], clone["policy"]) == ((256, 256), own["policy_lr"], "gaussian")
    assert (TRAJECTORIES, SEEDS) == ((1, 10, 20, 30), (0, 10, 100))  # the released script's loops


def test_official_codes_with_imperfect_data():
    for algo in ("demo-dice", "lobs-dice"):
        made = odice.preset("reference", algo, imitation=True)
        assert made.values() == {"bootstrap_terminals": True}
        assert not made.protocol.absorbing
    assert not odice.preset("reference", "smodice", imitation=True).protocol.absorbing


def test_only_the_reference_of_the_v_form_keeps_the_corrupted_transition():
    kept = {pair for pair in EVERY if TABLES[pair[0]][pair[1]].protocol.final_obs == "next-reset"}
    assert kept == {("reference", algo) for algo in ("bc", "odice", "sdice", "vdice-true")}


def test_without_a_preset_every_imitator_has_the_protocol():
    for name, entry in algorithms().items():
        if entry.imitates:
            reward = odice.preset("imitation", name, imitation=True).protocol.reward
            assert reward == ("standard" if entry.reads_rewards else "zero")
    absorbing = {name for name, e in algorithms().items() if e.imitates and _absorbs(name)}
    assert absorbing == {"value-dice", "demo-dice", "lobs-dice", "smodice", "rgm"}


def _absorbs(name):
    return odice.preset("imitation", name, imitation=True).protocol.absorbing


def test_reinforcement_learning_is_as_it_was():
    assert odice.preset("reference", "odice", "hopper-medium-v2").protocol.final_obs == "recorded"
    with pytest.raises(odice.OdiceError, match="Unknown preset 'imitation'"):
        odice.preset("imitation", "odice")
