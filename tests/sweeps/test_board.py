"""What a person sees of a sweep: a live table or plain lines, the time that is left, and the summary."""

import io
import re
import time

import pytest

from odice.sweeps.board import Board, Speed, summary
from odice.sweeps.driver import Attempt, Driver, Outcome
from odice.sweeps.runs import make_runs, step
from tests.sweeps.test_driver import Scripts, finish, runs_in

pytestmark = pytest.mark.fast


def at(run, *steps):
    run.path.mkdir(parents=True, exist_ok=True)
    (run.path / "metrics.jsonl").write_text("".join(f'{{"step": {n}}}\n' for n in steps) + '{"step": 9')


def test_the_step_is_the_last_whole_row(tmp_path):
    run = runs_in(tmp_path, 1)[0]
    assert step(run) == 0
    at(run, 10, 20)
    assert step(run) == 20


def test_time_left(tmp_path):
    bc = make_runs(tmp_path, ["log.npz"], ["bc", "iql"], seeds=2, steps=100)
    process = None
    speed = Speed()
    assert speed.left(bc, [], 2, now=0.0) is None
    at(bc[0], 100)
    speed.add(Attempt(bc[0], process, 0.0, 0), now=10.0)  # bc: 10 updates/s
    assert speed.left([], [], 2, now=10.0) == 0
    assert speed.left(bc[1:], [], 1, now=10.0) == pytest.approx(30)  # iql counts as the others
    assert speed.left(bc[1:], [], 2, now=10.0) == pytest.approx(15)
    assert speed.left(bc[1:2], [], 2, now=10.0) == pytest.approx(10)  # one run is not done by two
    at(bc[2], 40, 60)  # iql went from 40 to 60 in 4 s: 5 updates/s, 40 left; the other one 100 left
    running = [Attempt(bc[2], process, 10.0, 40)]
    assert speed.left(bc[2:], running, 1, now=14.0) == pytest.approx(40 / 5 + 100 / 5)


def test_the_summary_is_the_mean_over_seeds(tmp_path):
    runs = make_runs(tmp_path, ["one.npz"], ["bc", "iql", "odice"], seeds=2, steps=100)
    finish(runs[0], {"mean": 10.0, "score": 1.0})
    finish(runs[1], {"mean": 13.0, "score": 2.0})
    finish(runs[2], {"mean": 7.0})
    finish(runs[4])
    finish(runs[5])
    head, *lines = [line.split("  ") for line in summary(runs).splitlines()]
    values = [[part.strip() for part in line if part] for line in lines]
    assert values == [
        ["one/bc", "2", "11.5 ± 2.12", "1.5 ± 0.707"],
        ["one/iql", "1 of 2", "7", "-"],
        ["one/odice", "2", "no environment", "-"],
    ]
    assert head[0].startswith("runs")


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("quiet", [False, True])
def test_the_live_table(tmp_path, monkeypatch, quiet):
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("odice.sweeps.board.REFRESH_SECONDS", 0.0)
    runs = runs_in(tmp_path, 4)
    at(runs[1], 40)
    attempt = Attempt(runs[1], None, time.monotonic() - 4, 0)
    outcomes = {runs[0].name: Outcome("finished")}
    with Board(quiet) as board:
        board.begin(runs, 2, outcomes)
        board.progress([attempt])
        if board._live is not None:
            board._live.refresh()
        outcomes[runs[2].name] = Outcome("failed", -9, "last words")
        board.ended(Attempt(runs[2], None, time.monotonic(), 0), outcomes[runs[2].name], False)
    text = terminal.getvalue()
    if quiet:
        assert text == ""
        return
    assert "4 runs, 1 of them finished already; 2 at a time" in text
    assert re.search(r"1 of 4 runs finished, 1 running, 0m1\ds left", text)  # 260 updates at 10/s by two
    assert re.search(r"log/bc/seed-1 +40 +100 +(9|10)\b", text)
    assert "failed    log/bc/seed-2 (killed by signal 9)" in text
    assert "last words" in text


def test_plain_lines_elsewhere(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("odice.sweeps.board.REFRESH_SECONDS", 0.0)
    monkeypatch.setattr("odice.sweeps.board.PLAIN_SECONDS", 0.0)
    Scripts(monkeypatch, {1: ["echo why; exit 7"]})
    with Board() as board:
        Driver(runs_in(tmp_path, 2), 1, 1, board).run()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "2 runs; 1 at a time"
    assert "started   log/bc/seed-0" in lines
    assert "finished  log/bc/seed-0 (1 of 2)" in lines
    assert "failed    log/bc/seed-1 (exit code 7), to be tried again" in lines
    assert "failed    log/bc/seed-1 (exit code 7)" in lines
    assert "    why" in lines
    assert any(line.startswith("1 of 2 runs finished") for line in lines)
