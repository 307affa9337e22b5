"""The commands of the pages are run, in one process, on small stand-ins for the files that they name.

Training commands get `--dry-run`: the data are read and every setting is resolved. What would take minutes, a network
or a cluster is listed in `ELSEWHERE`; tests/test_docs.py checks the flags of those, and each has tests of its own. The
same holds for blocks of Python.
"""

import re
import shlex
from pathlib import Path

import numpy as np
import polars
import pytest

import odice
from odice.cli.main import main
from tests.test_docs import TEXT, TUTORIALS, blocks, commands

KINDS = ("README.md", "docs/index.md", "docs/start/", "docs/howto/", "docs/reference/", "docs/explanation/")
ELSEWHERE = re.compile(
    r"(demo|toy|theory|decide|trial|reproduce|suite make|data collect|bench)\b"
    r"|.*(mujoco/|D4RL|antmaze-|--ray|--log wandb|flights|/fast|s3://|decision/|--help|--which selected)"
    r"|(data inspect|list)$"
)
TRAINS = re.compile(
    r"flights|decision/|runs/ads|ads\.toml|onnxruntime|collect_maze|Driver|from_network|odice\.(collect|imitate|train)"
)
"""Blocks that train for long, or need the files of another page."""
STANDINS = {
    r"\bLOG\b": "log.parquet",
    r"\bRUN\b": "runs/a",
    r"\bSOURCE\b": "log.parquet",
    r"/shared/": "",
    r"\$SLURM_ARRAY_TASK_ID": "1",
    r"\$algo": "bc",
    r"\$episode": "1",
    r"~/d4rl": "d4rl",
    r"--(episodes|seeds) \w+": r"--\1 2",
    r"runs/\*": "runs/a runs/b",
    r"evaluate runs/a$": "evaluate runs/hopper",
    r"runs/a (.*--which best)": r"runs/hopper \1",
    r"runs/first --out report": "runs --out report",
    r"data schema log.csv": "data schema log.csv --out other.toml",
    r"runs/suite/": "",
    r"--rows \d+": "--rows 2000",
    r" > .*": "",
    r"\.\.\.": "",
}


def small(command: str) -> list[str]:
    """The command on the stand-ins, with a small budget."""
    for name, standin in STANDINS.items():
        command = re.sub(name, standin, command)
    words = shlex.split(command)
    if words[0] in ("train", "imitate", "sweep"):
        words += [] if "--dry-run" in words else ["--dry-run"]
        words += [] if {"--algo", "--preset"} & set(words) else ["--algo", "bc"]  # auto measures the log, for seconds
    if words[0] == "evaluate" and "--data" not in words:
        words += ["--max-steps", "20"] + ([] if "--episodes" in words else ["--episodes", "2"])
    return words


def runnable(name: str) -> list[str]:
    names = [" ".join(words) for words in commands(name)]
    whole = lambda command: "--data" in command or not re.match(r"(train|imitate|sweep)\b", command)
    mention = re.compile(r"\w+( --[\w-]+)*$|.* --data$")
    return [command for command in dict.fromkeys(names) if whole(command) and not mention.match(command)]


def table() -> polars.DataFrame:
    """60 episodes of 8 steps, with two columns of costs."""
    rng = np.random.default_rng(0)
    obs, action, steps = rng.normal(size=(480, 2)), rng.uniform(-1, 1, 480), np.arange(480)
    columns = {"episode": steps // 8, "step": steps % 8, "obs_0": obs[:, 0], "obs_1": obs[:, 1], "action": action}
    columns |= {"reward": -np.abs(action - obs[:, 0]), "terminated": steps % 8 == 7}
    return polars.DataFrame(columns | {"damage": rng.random(480), "delay": rng.random(480)})


@pytest.fixture(scope="module")
def workshop(tmp_path_factory) -> Path:
    """A folder with the logs and runs that the pages name."""
    folder = tmp_path_factory.mktemp("workshop")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        log = table()
        log.write_parquet("log.parquet")
        log.write_csv("log.csv")
        Path("logs").mkdir()
        log.write_parquet("logs/part.parquet")
        Path("log.toml").write_text('episode = "episode"\nreward = "reward"\n')
        Path("settings.toml").write_text("steps = 20\n")
        arrays = {"observations": log["obs_0", "obs_1"].to_numpy(), "actions": log["action"].to_numpy()[:, None]}
        np.savez("log.npz", **arrays, rewards=log["reward"].to_numpy(), terminals=log["terminated"].to_numpy())
        hopper = odice.load("bundled/hopper-replay")
        hopper = hopper.select(np.flatnonzero(hopper.lengths > 300)[:9])
        Path("d4rl").mkdir()
        names = ("hopper", "walker", "maze", "expert", "random", "hopper-expert", "hopper-medium-replay-local")
        for name in (*names, "hopper_medium-v2", "d4rl/hopper_medium-v2", "d4rl/hopper_expert-v2"):
            hopper.save(f"{name}.hdf5")
        hopper.save("hopper.parquet")
        tiny = {"algo": "bc", "steps": 20, "policy_hidden": (8,), "quiet": True}
        for run in ("runs/a", "runs/b"):
            odice.train("log.parquet", env="none", out=run, **tiny)
        log.with_columns(action=polars.col("step") % 3).write_parquet("ward.parquet")
        odice.train("ward.parquet", env="none", discrete=True, out="runs/ward", **tiny)
        once = {"eval_every": 10, "eval_episodes": 1}
        odice.train("hopper.hdf5", env="Hopper-v5", out="runs/hopper", **once, **tiny).policy.save("my-policy")
        odice.Policy.load("runs/a/policy/last").save("policy")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in TEXT if n.startswith(KINDS) and runnable(n)])
def test_commands_run(name, workshop, monkeypatch, capsys):
    monkeypatch.chdir(workshop)
    monkeypatch.setenv("ODICE_DATA", str(workshop / "d4rl"))
    for command in runnable(name):
        if not ELSEWHERE.match(command):
            code = main(small(command))
            assert code == 0, f"odice {command}\n{capsys.readouterr().err}"


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in TEXT if n.startswith(KINDS[2:]) and n not in TUTORIALS and blocks(n)])
def test_python_runs(name, workshop, monkeypatch):
    monkeypatch.chdir(workshop)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(workshop / "minari"))
    table_page = "estimate" in name
    data = odice.load("log.parquet" if table_page else "hopper.hdf5")
    policy = odice.Policy.load("runs/a/policy/last" if table_page else "my-policy")
    names = {"odice": odice, "policy": policy, "data": data, "medium": data, "expert": data}
    names |= {"observation": np.zeros(2), "obs": np.zeros(11), "action": np.zeros(3)}
    for code in blocks(name):
        if not TRAINS.search(code) and "mujoco/" not in code:
            exec(code, names)
