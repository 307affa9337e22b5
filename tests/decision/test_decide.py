"""From a table to a decision: what is written, what is said, and that nothing unsafe is advised."""

import json

import numpy as np
import polars as pl
import pytest

import odice
from odice.cli.main import main
from odice.decision.page import advice
from odice.errors import OdiceError

SMALL = {"policy_hidden": (16, 16), "batch_size": 64}
CANDIDATES = {"clone": {"algo": "bc", **SMALL}, "best": {"algo": "bc-10", **SMALL}}


def shop(path, episodes=240, seed=0):
    """Offers `a` and `b` by a coin; `b` sells to customers with a high score, `a` to the others."""
    rng = np.random.default_rng(seed)
    rows = []
    for customer in range(episodes):
        for week in range(2):
            score = rng.normal()
            offer = rng.choice(["a", "b"])
            revenue = float(rng.random() < (0.9 if (score > 0) == (offer == "b") else 0.1))
            closed = int(week == 1)
            rows.append((customer, week, round(score, 3), offer, revenue, 0.1 * (offer == "b"), closed))
    names = ["customer_id", "week", "score", "offer", "revenue", "cost", "closed"]
    pl.DataFrame(rows, schema=names, orient="row").write_csv(path)
    return path


@pytest.fixture(scope="module")
def decided(tmp_path_factory):
    folder = tmp_path_factory.mktemp("decision")
    lines = []
    log = shop(folder / "shop.csv")
    decision = odice.decide(log, out=folder / "out", steps=300, candidates=CANDIDATES, say=lines.append)
    return log, decision, lines


def test_everything_is_in_one_folder_and_in_words(decided):
    _, decision, lines = decided
    page, facts = decision.page.read_text(), json.loads((decision.page.parent / "decision.json").read_text())
    assert facts["advice"] == decision.advice
    assert {item["name"] for item in facts["ranked"]} == set(CANDIDATES)
    for words in ("What the log is", "What the policy would change", "What it would earn", "What could be wrong"):
        assert words in page
    assert "Where <b>score" in page
    assert "choice 0" not in page  # words are shown as the log has them
    assert "Today an episode costs" in page
    assert decision.advice in page
    assert any(line.startswith("training 1 of 2") for line in lines)
    assert any(line.split()[:2] == ["customer_id", "episode"] for line in lines)
    assert "<script" not in page


def test_the_same_call_continues_and_decides_the_same(decided):
    log, decision, _ = decided
    lines = []
    again = odice.decide(log, out=decision.page.parent, steps=300, candidates=CANDIDATES, say=lines.append)
    assert again.to_dict() == decision.to_dict()
    assert any("schema.toml" in line for line in lines)  # what a person may have corrected is kept


def test_the_policy_was_judged_by_episodes_it_did_not_learn_from(decided):
    _, decision, _ = decided
    assert decision.estimates.episodes == round(0.3 * 240)
    assert "held out" in decision.estimates.judged_by


def test_what_health_refuses_is_never_advised(decided):
    _, decision, _ = decided
    assert advice(decision.judgment, "do not deploy")[0] == "go on as before"


def test_the_command_asks_before_it_trains_on_a_guess(tmp_path, capsys, monkeypatch):
    log = tmp_path / "log.csv"
    table = pl.read_csv(shop(tmp_path / "shop.csv", 40)).rename({"offer": "colour"})
    table.write_csv(log)
    assert main(["decide", str(log), "--out", str(tmp_path / "out")]) == 2
    captured = capsys.readouterr()
    assert "In doubt: colour is taken as the action" in captured.err
    assert "--yes" in captured.err
    assert not (tmp_path / "out" / "candidates").exists()


def test_a_table_without_an_action_or_a_reward_is_one_sentence(tmp_path):
    log = tmp_path / "log.csv"
    log.write_text("x,y\n1,2\n3,5\n")
    with pytest.raises(OdiceError, match="no column looks like the"):
        odice.decide(log, out=tmp_path / "out")


def test_a_hostile_name_stays_text(tmp_path):
    log = tmp_path / "log.csv"
    table = pl.read_csv(shop(tmp_path / "shop.csv", 80)).rename({"score": "<script>alert(1)</script>"})
    table.with_columns(pl.col("offer").replace({"b": "<img src=x>"})).write_csv(log)
    decision = odice.decide(log, out=tmp_path / "out", steps=20, candidates={"clone": CANDIDATES["clone"]})
    page = decision.page.read_text()
    assert "<script>alert" not in page
    assert "<img" not in page
    assert "&lt;script&gt;" in page
