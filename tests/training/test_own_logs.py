"""A person's own log, from the table to the policy: columns, rewards, which steps count, and what the terminal says."""

from __future__ import annotations

import io
import json
import tomllib

import gymnasium
import numpy as np
import pytest
import rich.console
import tomlkit

import odice
from odice.cli.main import main
from odice.data.build import from_steps
from odice.data.transitions import why_left_out
from odice.errors import OdiceError
from odice.training.progress import Display, last_row, seeds_line
from odice.training.run import Run
from odice.training.settings import resolve
from tests.worlds import ads, hospital, write

SMALL = {"algo": "bc", "steps": 40, "eval_every": 20, "checkpoint_every": 40, "policy_hidden": (8, 8), "batch_size": 16}
COLUMNS = {
    "observation_columns": hospital.VITALS,
    "action_columns": ("treatment",),
    "reward_column": "outcome",
    "episode_column": "patient",
    "step_column": "hour",
    "terminated_column": "stay_over",
}


def test_the_flags_of_inspect_work_in_train_and_give_the_same_data(tmp_path, capsys):
    log = write(hospital.make_log(0, 60), tmp_path / "ward.csv")
    flags = [
        *("--observation-columns", ",".join(hospital.VITALS), "--action-columns", "treatment"),
        *("--reward-column", "outcome", "--episode-column", "patient", "--terminated-column", "stay_over"),
    ]
    assert main(["data", "inspect", str(log), *flags, "--json"]) == 0
    seen = json.loads(capsys.readouterr().out)["summary"]
    settings = ["--algo", "bc", "--steps", "20", "--policy-hidden", "8", "8", "--batch-size", "16", "--quiet"]
    assert main(["train", "--data", str(log), *flags, *settings, "--out", str(tmp_path / "run")]) == 0
    assert Run.open(tmp_path / "run").config["data"]["fingerprint"] == seen["fingerprint"]


def test_a_schema_is_written_corrected_and_used(tmp_path, capsys):
    log = write(ads.make_log(0, 200), tmp_path / "ads.csv")
    assert main(["data", "schema", str(log)]) == 0
    assert "check" not in capsys.readouterr().out
    file = tmp_path / "ads.toml"
    text = file.read_text()
    assert "3 words: desktop, phone, tablet" in text
    schema = tomllib.loads(text)
    assert (schema["action"], schema["reward"], schema["episode"]) == (["creative"], "revenue_eur", "session_id")
    schema["observation"] = list(ads.NAMES)
    file.write_text(tomlkit.dumps(schema))
    data = odice.load(log, schema=file)
    assert data.spec.obs_dim == 3 + 4 + 3
    assert data.meta.choices == ads.CREATIVES
    assert main(["data", "schema", str(log)]) == 2  # it exists, and may hold somebody's work


def test_a_usual_table_needs_no_correction(tmp_path, capsys):
    table = {"episode": [0, 0], "obs_0": [0.0, 1], "obs_1": [0.0, 1], "action": [0, 1], "reward": [0.0, 1]}
    log = write({**table, "terminated": [False, True]}, tmp_path / "usual.csv")
    assert main(["data", "schema", str(log)]) == 0
    assert "complete" in capsys.readouterr().out
    assert odice.load(log, schema=tmp_path / "usual.toml").fingerprint == odice.load(log).fingerprint


def test_a_policy_from_words_acts_on_words(tmp_path):
    log = write(ads.make_log(0, 300), tmp_path / "ads.csv")
    roles = {f"{role}_column": ads.COLUMNS[role] for role in ("reward", "episode", "terminated")}
    run = odice.train(
        log,
        observation_columns=ads.NAMES,
        action_columns=("creative",),
        **roles,
        **SMALL,
        out=tmp_path / "run",
        quiet=True,
    )
    row = {"device": "phone", "country": "DE", "age_days": 3, "impressions": 0, "last_click": 0}
    assert run.policy.choices[int(run.policy(row))] in ads.CREATIVES
    assert run.policy(row) == run.policy([0, 1, 0, 1, 0, 0, 0, 3, 0, 0])


def test_rewards_are_scaled_and_shifted_after_the_map():
    plan = resolve("x", reward="minus-1", reward_scale=10.0, reward_shift=0.5)
    fitted = plan.preprocess
    assert (fitted.reward_scale, fitted.reward_shift) == (10.0, -9.5)  # 10 (r - 1) + 0.5
    assert resolve("x").preprocess == resolve("x", reward_scale=1.0).preprocess
    assert resolve("x", reward_scale=2.0).identity() != resolve("x").identity()
    with pytest.raises(OdiceError, match="reward_scale must be a finite number"):
        resolve("x", reward_scale=float("inf"))


def test_steps_whose_next_state_is_known_count_unless_a_preset_is_chosen():
    assert resolve("x").options.convention == "bootstrap"
    assert resolve("hopper-medium-v2", preset="paper").options.convention == "qlearning"
    assert resolve("x", convention="qlearning").options.convention == "qlearning"


def test_what_is_left_out_is_said(tmp_path, capsys):
    """Six steps in three episodes: one ends, two are cut; of the cut ones one has its final observation."""
    rows = {"observations": np.arange(6.0)[:, None], "actions": np.zeros((6, 1)), "rewards": np.arange(6.0)}
    flags = {"terminated": np.array([0, 1, 0, 0, 0, 0]), "truncated": np.array([0, 0, 0, 1, 0, 1])}
    known = np.array([1, 1, 1, 1, 1, 0])
    data = from_steps(**rows, **flags, next_observations=np.arange(6.0)[:, None] + 1, next_known=known)
    assert why_left_out(data, "bootstrap") == (
        "1 of 6 steps is left out: the log ends there, and what came next was not recorded"
    )
    assert why_left_out(data, "qlearning").startswith("2 of 6 steps are left out: 2 at time limits (")
    assert why_left_out(data.select([0]), "bootstrap") is None
    assert "and the last step of the data" in why_left_out(data.select([1, 0]), "qlearning")
    ward = write(
        {**hospital.make_log(0, 30), "stay_over": np.zeros(len(hospital.make_log(0, 30)["hour"]), bool)},
        tmp_path / "w.csv",
    )
    with pytest.warns(UserWarning, match="end with neither"):
        odice.train(ward, **COLUMNS, **SMALL, out=tmp_path / "run", allow=("all",))
    assert "30 of" in (said := capsys.readouterr().out)
    assert "are left out: the log ends there" in said


# --- what a person sees -----------------------------------------------------------------------------------------------


class Still(gymnasium.Env):
    """Eight numbers that never change, five choices, four steps."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (8,), np.float32)
    action_space = gymnasium.spaces.Discrete(5)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 4
        return np.zeros(8, np.float32), {}

    def step(self, action):
        self.left -= 1
        return np.zeros(8, np.float32), 1.0, False, self.left == 0, {}


@pytest.mark.parametrize("env", [Still, lambda: Still()], ids=["class", "function"])
def test_train_takes_an_environments_class_or_a_function(env, tmp_path):
    run = odice.train(hospital.dataset(0, 60), env=env, eval_episodes=2, **SMALL, out=tmp_path / "run", quiet=True)
    assert run.result["last"]["mean"] == 4.0
    assert run.evaluations["step"].to_list() == [20, 40]


def test_an_environment_of_this_program_is_not_sent_to_processes(tmp_path):
    data = hospital.dataset(0, 60)
    with pytest.raises(OdiceError, match="own/Still-v0 is an object of this program"):
        odice.train(data, env=Still, seeds=2, parallel="processes", **SMALL, out=tmp_path / "run")
    with pytest.raises(OdiceError, match="env is a int"):
        odice.train(data, env=3, **SMALL, out=tmp_path / "run")
    joint = odice.train(
        data, env=Still, seeds=2, parallel="vmap", eval_episodes=1, **SMALL, out=tmp_path / "two", quiet=True
    )
    assert joint.over_seeds() == "2 of 2 seeds finished: last return 4 on average, from 4 to 4"
    assert joint.summary().splitlines()[-1] == joint.over_seeds()


def test_the_first_line_has_no_rate_and_the_second_one_has(monkeypatch, capsys):
    now = [100.0]
    monkeypatch.setattr("odice.training.progress.time.monotonic", lambda: now[0])
    with Display(1000) as display:
        assert display._line() == "reading the data, compiling ... 0m00s"
        now[0] = 175.0
        assert display._line() == "reading the data, compiling ... 1m15s"
        display.tick(50)
        now[0] = 185.0
        display.tick(150)
    assert capsys.readouterr().out.splitlines() == [
        "step 50/1,000  ready after 1m15s",
        "step 150/1,000  10 updates/s  1m25s left",
    ]


def test_a_notebook_has_one_line_that_is_rewritten(monkeypatch, capsys):
    monkeypatch.setattr("odice.training.progress.in_notebook", lambda: True)
    now = [0.0]
    monkeypatch.setattr("odice.training.progress.time.monotonic", lambda: now[0])
    with Display(1000) as display:
        for step in (50, 150, 250):
            display.tick(step)
            now[0] += 1.0
        display.note("evaluated")
    shown = capsys.readouterr().out
    assert shown.count("\n") == 1
    assert shown.startswith("\rstep 50/1,000  ready after 0m00s\rstep 150/1,000  100 updates/s")
    assert shown.endswith("\revaluated\n")


def test_the_live_line_is_in_the_terminal_of_the_run(monkeypatch):
    """And not where rich's shared console, which another part of the program may have used before, writes."""

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    elsewhere, here = io.StringIO(), Terminal()
    monkeypatch.setattr(rich, "_console", rich.console.Console(file=elsewhere))
    monkeypatch.setattr("sys.stdout", here)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    with Display(1000) as display:
        display.tick(50)
        display.note("evaluated")
    assert "step 50/1,000" in here.getvalue()
    assert "evaluated\n" in here.getvalue()
    assert not elsewhere.getvalue()


def test_seeds_of_other_processes_are_read_from_their_folders(tmp_path):
    one, two, three = (tmp_path / f"seed-{i}" for i in range(3))
    for folder in (one, two):
        folder.mkdir()
    (one / "metrics.jsonl").write_text('{"step": 1000}\n{"step": 2000}\n{"step": 30')  # the last row is being written
    (one / "evaluations.jsonl").write_text('{"step": 2000, "mean": 12.0, "score": null}\n')
    (two / "result.json").write_text("{}")
    assert last_row(one / "metrics.jsonl") == {"step": 2000}
    assert seeds_line([one, two, three], 5000) == "seed-0 2,000/5,000 return 12.0   seed-1 done   seed-2 starting"
