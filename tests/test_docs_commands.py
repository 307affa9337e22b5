"""The commands of the pages are run, in one process, on small stand-ins for the files that they name.

Training commands get `--dry-run`: the data are read and every setting is resolved. What would take minutes, a network
or a cluster is listed in `ELSEWHERE`; tests/test_docs.py checks the flags of those, and each has tests of its own. The
same holds for blocks of Python.
"""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars
import pytest

import odice
from odice.cli.main import main
from odice.training import forecast
from tests.test_docs import TEXT, TUTORIALS, blocks, commands

KINDS = ("README.md", "docs/index.md", "docs/start/", "docs/howto/", "docs/reference/", "docs/explanation/")
KINDS += ("docs/algorithms/",)
ELSEWHERE = re.compile(
    r"(demo|toy|theory|decide|trial|reproduce|suite make|data collect|bench)\b"
    r"|.*(mujoco/|D4RL|antmaze-|--ray|--log wandb|/fast|s3://|decision/|--help|--which selected|--devices \d|--stream)"
    r"|(data inspect|list)$"
)
SKIPPED = re.compile(r"decision/|onnxruntime|Driver|from_network|odice\.collect|mujoco/")
"""Blocks that train a behavior, use a network, or need the files of another page."""
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
    r"data schema flights.csv": "data schema flights.csv --out proposed.toml",
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
        flight = {"flight": "episode", "height": "obs_0", "speed": "obs_1", "thrust": "action", "score": "reward"}
        flights = log.select("step", crashed="terminated", **flight).with_columns(
            wind_x=1.0 * polars.col("step"), fuel=polars.col("thrust").abs(), landed_by_operator=False
        )
        flights.with_columns(thrust=polars.col("thrust") / 2 + 0.5).write_csv("flights.csv")
        Path("flights").mkdir()
        log.write_csv("flights/part.csv")
        Path("flights.toml").write_text(re.findall(r"```toml\n(.*?)```", TEXT["docs/howto/tables.md"], re.DOTALL)[0])
        shown = {"device": ["desktop", "phone", "tablet"] * 160, "country": ["DE", "FR"] * 240}
        shown |= {"age_days": log["step"], "impressions": log["step"] // 2, "last_click": [None, 1.0] * 240}
        ads = log.select("episode", "reward", "terminated").with_columns(
            **{k: polars.Series(v) for k, v in shown.items()}
        )
        ads = ads.with_columns(ad=polars.Series(["banner", "story", "video", "story"] * 120))
        ads.write_csv("ads.csv")
        ads.head(80).write_csv("later.csv")
        columns = "device", "country", "age_days", "impressions", "last_click"
        Path("ads.toml").write_text(f'observation = {list(columns)}\naction = "ad"\nmissing = "impute"\n')
        Path("settings.toml").write_text("steps = 20\n")
        arrays = {"observations": log["obs_0", "obs_1"].to_numpy(), "actions": log["action"].to_numpy()[:, None]}
        np.savez("log.npz", **arrays, rewards=log["reward"].to_numpy(), terminals=log["terminated"].to_numpy())
        hopper = odice.load("bundled/hopper-replay")
        hopper = hopper.select(np.flatnonzero(hopper.lengths > 300)[:9])
        Path("d4rl").mkdir()
        names = ("hopper", "walker", "maze", "expert", "random", "hopper-expert", "hopper-medium-replay-local")
        for name in (*names, "log", "hopper_medium-v2", "d4rl/hopper_medium-v2", "d4rl/hopper_expert-v2"):
            hopper.save(f"{name}.hdf5")
        hopper.save("hopper.parquet")
        tiny = {"algo": "bc", "steps": 20, "policy_hidden": (8,), "quiet": True}
        for run in ("runs/a", "runs/b"):
            odice.train("log.parquet", env="none", out=run, **tiny)
        log.with_columns(action=polars.col("step") % 3).write_parquet("ward.parquet")
        odice.train("ward.parquet", env="none", discrete=True, out="runs/ward", **tiny)
        odice.train("ads.csv", schema="ads.toml", env="none", out="runs/ads/odice/seed-0", **tiny)
        once = {"eval_every": 10, "eval_episodes": 1}
        odice.train("hopper.hdf5", env="Hopper-v5", out="runs/hopper", **once, **tiny).policy.save("my-policy")
        odice.Policy.load("runs/a/policy/last").save("policy")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in TEXT if n.startswith(KINDS) and runnable(n)])
def test_commands_run(name, workshop, monkeypatch, capsys):
    monkeypatch.chdir(workshop)
    monkeypatch.setenv("ODICE_DATA", str(workshop / "d4rl"))
    # A dry run times updates of its algorithm, and first compiles them: tests/cli/test_dry_run.py does that.
    monkeypatch.setattr(forecast, "time_updates", lambda *_, **__: forecast.Timed(rate=100.0, start=1.0, state=1000))
    for command in runnable(name):
        if not ELSEWHERE.match(command):
            code = main(small(command))
            assert code == 0, f"odice {command}\n{capsys.readouterr().err}"


def briefly(train: Callable, folder: Path) -> Callable:
    """`odice.train` or `odice.imitate` for 20 updates, on the stand-ins."""

    def run(data, data_dir=None, **settings):
        budget = {"steps": 20, "eval_every": 10, "eval_episodes": 1, "batch_size": 16, "quiet": True, "out": folder}
        return train("log.parquet" if data == "log.parquet" else "hopper.parquet", **settings | budget)

    return run


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in TEXT if n.startswith(KINDS[1:]) and n not in TUTORIALS and blocks(n)])
def test_python_runs(name, workshop, monkeypatch, tmp_path):
    monkeypatch.chdir(workshop)
    monkeypatch.setattr(odice, "train", briefly(odice.train, tmp_path / "run"))
    monkeypatch.setattr(odice, "imitate", briefly(odice.imitate, tmp_path / "imitate"))
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(workshop / "minari"))
    table_page = "estimate" in name
    data = odice.load("log.parquet" if table_page else "hopper.hdf5")
    policy = odice.Policy.load("runs/a/policy/last" if table_page else "my-policy")
    names = {"odice": odice, "policy": policy, "data": data, "medium": data, "expert": data}
    names |= {"observation": np.zeros(2), "obs": np.zeros(11), "action": np.zeros(3)}
    for code in blocks(name):
        if not SKIPPED.search(code):
            exec(code, names)
