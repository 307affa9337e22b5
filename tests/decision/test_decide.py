"""From a table to a decision: what is written, what is said, and that nothing unsafe is advised."""

import html
import json
import os
import re
import shlex
import signal
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

import odice
from odice.cli.main import main
from odice.decision.advice import advice
from odice.decision.decide import _preference
from odice.decision.judge import Effect, judge
from odice.decision.page import _about, _possible, _row
from odice.errors import Interrupted, OdiceError
from odice.evaluation.ope.intervals import Interval
from odice.training.interrupt import Stop

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
    folder = tmp_path_factory.mktemp("a decision")  # a name that a shell would take apart
    lines = []
    log = shop(folder / "shop.csv")
    decision = odice.decide(log, out=folder / "out", steps=300, candidates=CANDIDATES, workers=1, say=lines.append)
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
    assert any(line.startswith("trained 1 of 2: clone (took") for line in lines)
    assert any(line.split()[:2] == ["customer_id", "episode"] for line in lines)
    assert "<script" not in page


def test_a_bound_stands_in_place_of_the_range():
    """The range has two sides and reaches below a bound of the same error rate; together they would contradict."""
    gain = Effect("score", Interval(10.0, 9.0, 11.0, 9.2), Interval(2.0, -0.3, 4.0, 0.1), ("fqe",))
    assert _row(gain)["change"] == "+2 (−0.3 to +4)"
    assert _row(gain, 0.1)["change"] == "+2 (at least +0.1)"
    assert _row(gain._replace(supported=False), 0.1)["change"] == "+2 (not confirmed)"


def test_the_page_says_how_many_episodes_were_left_out(tmp_path):
    log = shop(tmp_path / "shop.csv")
    table = pl.read_csv(log)
    table.with_columns(pl.when(pl.int_range(480) == 3).then(None).otherwise("revenue").alias("revenue")).write_csv(log)
    roles = {"observation": "score", "action": "offer", "reward": "revenue", "episode": "customer_id"}
    data = odice.load(log, **roles, terminated="closed", skip_incomplete=True)
    assert "1 of 240 episodes lack an action, a reward or a cost and are left out." in _about(data, "revenue", None)


def test_the_same_call_continues_and_decides_the_same(decided):
    log, decision, _ = decided
    lines = []
    again = odice.decide(log, out=decision.page.parent, steps=300, candidates=CANDIDATES, say=lines.append)
    assert again.to_dict() == decision.to_dict()
    assert "trained already: clone, best" in lines
    assert any("schema.toml" in line for line in lines)  # what a person may have corrected is kept


def test_an_interrupt_while_judging_loses_nothing(decided, monkeypatch):
    """As a notebook's stop button does it."""
    log, decision, _ = decided
    call = lambda: odice.decide(log, out=decision.page.parent, steps=300, candidates=CANDIDATES, quiet=True)
    with monkeypatch.context() as patch:
        patch.setattr("odice.decision.decide.select", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            call()
    assert call().to_dict() == decision.to_dict()


def test_a_corrected_schema_trains_anew_beside_what_is_there(decided, tmp_path):
    """What was trained from other columns is neither used nor overwritten."""
    log, _, _ = decided
    one, options = tmp_path / "out", {"steps": 20, "candidates": {"clone": CANDIDATES["clone"]}, "workers": 1}
    odice.decide(log, out=one, **options)
    schema = one / "schema.toml"
    before = (one / "candidates" / "clone" / "result.json").read_bytes()
    schema.write_text(schema.read_text().replace('reward = "revenue"', 'reward = "revenue - cost"'))
    odice.decide(log, out=one, say=(lines := []).append, **options)
    assert any(line.startswith("what is in") and "trained now as clone-2" in line for line in lines)
    assert (one / "candidates" / "clone" / "result.json").read_bytes() == before
    assert (one / "candidates" / "clone-2" / "result.json").exists()


def test_the_policy_was_judged_by_episodes_it_did_not_learn_from(decided):
    _, decision, _ = decided
    assert decision.estimates.episodes == round(0.3 * 240)
    assert "held out" in decision.estimates.judged_by


@pytest.mark.parametrize(("limit", "kept", "told"), [(9.0, "kept", None), (0.001, "broken", "go on as before")])
def test_a_limit_on_the_cost_is_part_of_the_answer(decided, limit, kept, told):
    log, decision, _ = decided
    data = odice.load(log, schema=decision.schema)
    policy = odice.Policy.load(decision.policy)
    judgment = judge(policy, data, decision.estimates, limit=limit)
    assert judgment.keeps_limit == kept
    assert judgment.cost.today.mean == pytest.approx(0.1, abs=0.03)  # half of two offers at 0.1
    if told and decision.advice != "go on as before":
        assert advice(judgment)[0] == told
        assert "cost too much" in advice(judgment)[1]


def test_a_limit_needs_a_cost(tmp_path):
    log = tmp_path / "log.csv"
    pl.read_csv(shop(tmp_path / "shop.csv", 40)).drop("cost").write_csv(log)
    with pytest.raises(OdiceError, match="a cost limit needs a cost"):
        odice.decide(log, out=tmp_path / "out", cost_limit=1.0)


def test_the_run_remembers_its_schema(decided, capsys, tmp_path):
    """The command that a run prints at its end works as it is, and leaves its answer for a report."""
    log, decision, _ = decided
    run = decision.page.parent / "candidates" / "clone"
    assert main(["evaluate", str(run), "--data", str(log), "--page", str(tmp_path / "page.html")]) == 0
    assert "a bound on one side" in capsys.readouterr().out
    page = (tmp_path / "page.html").read_text()
    assert "Should we use this policy?" in page
    assert "Where <b>score" in page
    assert "<script" not in page
    assert main(["report", str(run)]) == 0
    said = capsys.readouterr().out
    assert "not evaluated" not in said
    assert "by the log" in said
    estimates = odice.estimate(odice.Policy.load(run / "policy" / "last"), log)
    again = odice.estimate(odice.Policy.load(run / "policy" / "last"), log, schema=decision.schema)
    assert estimates.verdict == again.verdict
    two = [str(decision.page.parent / "candidates" / name) for name in ("clone", "best")]
    assert main(["select", *two, "--data", str(log), "--page", str(tmp_path / "select.html")]) == 0
    assert "Policies that were compared" in (tmp_path / "select.html").read_text()


def test_the_commands_of_the_page_work_when_pasted(decided, tmp_path, monkeypatch, capsys):
    _, decision, _ = decided
    monkeypatch.chdir(tmp_path)
    shop(tmp_path / "TRIAL.csv", 60, seed=1)
    shop(tmp_path / "CONTROL.csv", 60, seed=2)  # where the log is too short to compare with
    commands = [html.unescape(text) for text in re.findall(r"<code>(odice .*?)</code>", decision.page.read_text())]
    assert [command.split()[1] for command in commands] == ["export", "trial"]
    for command in commands:
        assert main(shlex.split(command)[1:]) == 0, command
    assert (tmp_path / "policy.onnx").exists()
    assert re.search(r"the policy was followed in \d+%", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("returns", "least", "most"),
    [
        ([-7.8000001, 0.0, 30.1000004], -15.4, 37.7),  # few are at the ends: more is possible
        ([0.0, 1.0] * 100, 0.0, 1.0),  # many are: these are bounds
        ([1_234_560.6, 1_234_999.9] * 10, 1_234_560, 1_235_000),
        ([0.0] * 200 + [3.0], 0.0, 3.6),
    ],
)
def test_the_range_of_a_trial_holds_every_return(returns, least, most):
    few = np.array(returns if len(returns) > 3 else np.linspace(returns[0], returns[-1], 301))
    ends = _possible(few)
    assert ends == pytest.approx((least, most), rel=1e-9)
    assert float(f"{ends[0]:.10g}") <= few.min()
    assert float(f"{ends[1]:.10g}") >= few.max()


def test_the_schema_repeats_the_session(decided, tmp_path):
    log, decision, _ = decided
    again = odice.decide(
        log, schema=decision.schema, out=tmp_path / "again", steps=300, candidates=CANDIDATES, workers=1
    )
    same = {"policy", "schema"}
    one, two = ({k: v for k, v in each.to_dict().items() if k not in same} for each in (decision, again))
    assert one == two


def test_the_policy_acts_on_rows_and_its_card_names_them(decided):
    _, decision, _ = decided
    policy = odice.Policy.load(decision.policy)
    choice = policy.choose({"score": 2.0})
    assert choice.action in ("a", "b")
    assert choice.decision == "act"
    far = policy.choose({"score": 500.0})
    assert far.decision == "fall back"
    assert "the log has" in far.why[0]
    assert [each.action for each in policy.choose(pl.DataFrame({"score": [2.0, 2.0]}))] == [choice.action] * 2
    assert policy.guard.explain({"score": 500.0}) == list(far.why)
    card = (decision.policy / "README.md").read_text()
    for words in ("one of 2: a, b", "| observation | score; 1 numbers", "| score |", "more than the log, estimated"):
        assert words in card
    code = card.split("```python\n")[1].split("```")[0].replace("PATH/TO/THIS/FOLDER", str(decision.policy))
    exec(code, names := {})  # what the card says works when pasted
    assert names["choice"].decision == "act"


def test_what_health_refuses_is_never_advised(decided):
    _, decision, _ = decided
    assert advice(decision.judgment, "do not deploy")[0] == "go on as before"


def test_what_health_refuses_comes_after_what_it_passes():
    item = lambda answer, refused: SimpleNamespace(verdict=SimpleNamespace(answer=answer), refused=refused)
    items = [item("cannot tell", True), item("cannot tell", False), item("better", True), item("better", False)]
    order = sorted(items, key=lambda one: _preference(one, None), reverse=True)
    assert order == [items[3], items[1], items[0], items[2]]


def test_a_signal_that_comes_as_a_candidate_ends_stops_the_command(tmp_path, monkeypatch):
    """The run that was under way finishes; the next one does not start, and the same call continues."""
    log = shop(tmp_path / "shop.csv", 60)
    calls = []

    def train(data, out, **options):
        calls.append(out)
        Path(out).mkdir(parents=True)
        with Stop():  # as a run listens
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr("odice.decision.candidates.train", train)
    with pytest.raises(Interrupted, match=r"stopped after clone. Run the same command again"):
        odice.decide(log, out=tmp_path / "out", steps=20, candidates=CANDIDATES, workers=1)
    assert len(calls) == 1


def test_a_person_answers_in_a_terminal(tmp_path, monkeypatch, capsys):
    answers = iter(["shop", "score", ""])
    monkeypatch.setattr("builtins.input", lambda prompt: next(answers))
    monkeypatch.setattr("sys.stdin", type("Terminal", (), {"isatty": lambda self: True})())
    log = tmp_path / "log.csv"
    pl.read_csv(shop(tmp_path / "shop.csv", 40)).rename({"offer": "colour"}).drop("closed").write_csv(log)
    monkeypatch.setattr("odice.decision.decide.checked", lambda *_: (_ for _ in ()).throw(OdiceError("enough")))
    assert main(["decide", str(log), "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr()
    assert "Unknown column 'shop'" in said.out
    assert 'action = ["score"]' in (tmp_path / "out" / "schema.toml").read_text()


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
    decision = odice.decide(log, out=tmp_path / "out", steps=20, candidates={"clone": CANDIDATES["clone"]}, workers=1)
    page = decision.page.read_text()
    assert "<script>alert" not in page
    assert "<img" not in page
    assert "&lt;script&gt;" in page
