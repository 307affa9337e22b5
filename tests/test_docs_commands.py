"""The commands of the pages are run, in one process, on small stand-ins for the files that they name.

What trains for long gets `--dry-run`: the data are read and every setting is resolved, only no updates are timed.
`decide` trains one small candidate, `demo` 20 updates. What needs a cluster is listed in `ELSEWHERE`;
tests/test_docs.py checks the flags of those, and each has tests of its own. The same holds for blocks of Python.
"""

import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import h5py
import numpy as np
import polars
import pytest

import odice
from odice.algos.bc import BCConfig
from odice.cli.main import main
from odice.collection import forecast as collection_forecast
from odice.data.preprocess import Fitted
from odice.decision import candidates
from odice.envs import ogbench
from odice.experiments import demo
from odice.sweeps import forecast as sweeps_forecast
from odice.training import forecast
from odice.training.loop import initial_state
from tests.d4rl_files import write_all
from tests.data import test_ogbench
from tests.data.test_minari_envs import record
from tests.test_docs import TEXT, TUTORIALS, blocks, commands

KINDS = ("README.md", "docs/index.md", "docs/start/", "docs/howto/", "docs/reference/", "docs/explanation/")
KINDS += ("docs/algorithms/",)
ELSEWHERE = re.compile(r".*--ray|decide (one-step|randomized|outcomes|panel)\.csv|theory --seed")
"""Ray needs a cluster. tests/decision/test_howto.py runs four pages of `decide`, tests/cli/test_theory.py `theory`."""
SKIPPED = re.compile(r"Driver")
"""Starts processes; tests/sweeps runs it."""
STANDINS = {
    r"=LOG.hdf5": "=hopper.hdf5",
    r"\bLOG\b": "log.parquet",
    r"\bRUN\b": "runs/a",
    r"\bSOURCE\b": "log.parquet",
    r"\bTRIAL\b": "log.parquet",
    r"/shared/": "",
    r"/fast/log.store": "log.parquet.store",
    r"s3://bucket/": "",
    r"(decide|demo|toy) (.*)--out [\w/]+": r"\1 \2--out \1",
    r"decide \S+": "decide cases.csv --yes",
    r"reproduce (.*)--data-dir \w+": r"reproduce \1--data-dir D4RL",
    r"--suite-dir DIR": "",
    r"--suite local": "--suite local --suite-dir local",
    r"--data-dir OGBENCH": "--data-dir ogbench --env none",
    r"--devices \d": "--devices 1",
    r"--rows 100000": "--rows 1000",
    r"collect (.*--policy .*)--steps \d+": r"collect \1--steps 200",
    r"collect (.*)--out ": r"collect \1--out made-",
    r"runs/x\b": "runs/a",
    r"\$SLURM_ARRAY_TASK_ID": "1",
    r"\$algo": "bc",
    r"\$episode": "1",
    r"~/d4rl": "d4rl",
    r"--(episodes|seeds) \w+": r"--\1 2",
    r"runs/\*": "runs/a runs/b",
    r"evaluate runs/a$": "evaluate runs/hopper",
    r"runs/a (.*--which (best|selected))": r"runs/hopper \1",
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
    trains = words[0] in ("train", "imitate", "sweep", "toy", "reproduce") or words[:2] == ["suite", "make"]
    trains |= words[:2] == ["data", "collect"] and "--policy" not in words
    if "--stream" in words:
        words += ["--policy-hidden", "8", "--steps", "20", "--out", f"runs/from/{words[2]}"]
    elif trains and "--dry-run" not in words:
        words += ["--dry-run"]
    if words[0] in ("train", "imitate", "sweep") and not {"--algo", "--preset"} & set(words):
        words += ["--algo", "bc"]  # auto measures the log, for seconds
    if words[0] == "demo":
        words += ["--steps", "20"]
    if words[0] == "evaluate" and "--data" not in words:
        words += ["--max-steps", "20"] + ([] if "--episodes" in words else ["--episodes", "2"])
    return words


def runnable(name: str) -> list[str]:
    names = [" ".join(words) for words in commands(name)]
    whole = lambda command: "--data" in command or not re.match(r"(train|imitate|sweep)\b", command)
    mention = re.compile(r"(?!list)(data )?[a-z]+( --[\w-]+)*$|data collect --recipe \w+$|.* --data$")
    return [command for command in dict.fromkeys(names) if whole(command) and not mention.match(command)]


def table() -> polars.DataFrame:
    """60 episodes of 8 steps, with two columns of costs."""
    rng = np.random.default_rng(0)
    obs, action, steps = rng.normal(size=(480, 2)), rng.uniform(-1, 1, 480), np.arange(480)
    columns = {"episode": steps // 8, "step": steps % 8, "obs_0": obs[:, 0], "obs_1": obs[:, 1], "action": action}
    columns |= {"reward": np.exp(-np.abs(action - obs[:, 0])) / 8, "terminated": steps % 8 == 7}
    return polars.DataFrame(columns | {"damage": rng.random(480), "delay": rng.random(480)})


def cases() -> polars.DataFrame:
    """500 patients, one treatment each."""
    rng = np.random.default_rng(0)
    age, pulse, treat = rng.integers(20, 90, 500), rng.normal(80, 10, 500), rng.random(500) < 0.5
    ward = np.array(["B", "north"])[rng.integers(0, 2, 500)]
    recovered = (rng.random(500) < np.where(treat == (age > 50), 0.8, 0.3)).astype(float)
    columns = {"age": age, "ward": ward, "pulse": pulse.round(1), "treatment": np.where(treat, "treat", "wait")}
    return polars.DataFrame(columns | {"recovered": recovered})


@pytest.fixture(scope="module")
def workshop(tmp_path_factory) -> Path:
    """A folder with the logs and runs that the pages name."""
    folder = tmp_path_factory.mktemp("workshop")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        log = table()
        log.write_parquet("log.parquet")
        log.write_csv("log.csv")
        log.head(160).write_csv("trial.csv")
        cases().write_csv("cases.csv")
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
        write_all(Path("D4RL"), ["hopper-medium-v2", "antmaze-umaze-v2"])
        shutil.copytree("D4RL", "d4rl")
        Path("local").mkdir()
        Path("ogbench").mkdir()
        test_ogbench.write(Path("ogbench"), "antmaze-large-navigate-v0")
        patch.setenv("MINARI_DATASETS_PATH", str(folder / "minari"))
        hopper.save("mujoco/hopper/medium-v0")
        maze = record(folder / "minari/D4RL/pointmaze/umaze-v2", "PointMaze_UMaze-v3")
        with h5py.File(maze / "data/main_data.hdf5", "r+") as file:
            file["episode_0/rewards"][-1] = 1.0
        for name in ("hopper-medium-replay", "pointmaze-medium-diverse", "hopper-expert"):
            hopper.save(f"local/{name}-local.hdf5")
            Path(f"local/{name}-local.json").write_text("{}")
        names = ("hopper", "walker", "maze", "expert", "random", "hopper-expert", "hopper-medium-replay-local")
        for name in (
            *names,
            "log",
            "hopper-medium-replay",
            "hopper_medium-v2",
            "d4rl/hopper_medium-v2",
            "d4rl/hopper_expert-v2",
        ):
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
        shutil.copytree("runs/hopper/policy/last", "runs/hopper/policy/selected")
        odice.Policy.load("runs/a/policy/last").save("policy")
        roles = 'observation = ["age", "ward", "pulse"]\naction = "treatment"\nreward = "recovered"\none_step = true\n'
        Path("cases.toml").write_text(roles)
        run = odice.train("cases.csv", schema="cases.toml", env="none", out="runs/cases", **tiny)
        run.policy.save("decision/policy")
    return folder


@pytest.fixture
def at_small_budgets(workshop, monkeypatch):
    monkeypatch.chdir(workshop)
    monkeypatch.setenv("ODICE_DATA", str(workshop / "d4rl"))
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(workshop / "minari"))
    # A dry run times updates of its algorithm, and first compiles them: tests/cli/test_dry_run.py does that.
    monkeypatch.setattr(forecast, "time_updates", lambda *_, **__: forecast.Timed(rate=100.0, start=1.0, state=1000))
    monkeypatch.setattr(sweeps_forecast, "forecast", lambda _: forecast.Forecast(1, 1.0, 0.0, 0))
    monkeypatch.setattr(collection_forecast, "_learning", lambda *_: (1.0, 0.0))
    monkeypatch.setattr(collection_forecast, "PROBE_SECONDS", 0.0)
    monkeypatch.setattr(collection_forecast, "MAZE_STEPS", 100)
    monkeypatch.setattr(demo, "DATA", "hopper.parquet")
    monkeypatch.setattr(demo, "SETTINGS", {"algo": "bc", "policy_hidden": (8,)})
    monkeypatch.setattr(demo, "EPISODES", 2)
    monkeypatch.setattr(candidates, "CANDIDATES", {"clone": {"algo": "bc-10", "policy_hidden": (8,), "steps": 20}})
    monkeypatch.setattr(candidates, "cores", lambda: 1)
    goals = ogbench.Goals(place=ogbench.Place(0, np.array([2.0, 0.0]), 0.5))
    monkeypatch.setattr(ogbench, "task_goals", lambda env_id: goals)  # the package is not installed for the tests


DONE: set[tuple[str, ...]] = set()
"""Commands that have run: several pages have the same."""


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in TEXT if n.startswith((*KINDS, "packaging/")) and runnable(n)])
def test_commands_run(name, at_small_budgets, capsys):
    for command in runnable(name):
        words = small(command)
        if not ELSEWHERE.match(command) and tuple(words) not in DONE:
            code = main(words)
            assert code == 0, f"odice {command}\n{capsys.readouterr().err}"
            DONE.add(tuple(words))


def briefly(train: Callable, folder: Path) -> Callable:
    """`odice.train` or `odice.imitate` for 20 updates, on the stand-ins."""

    def run(data, data_dir=None, **settings):
        budget = {"steps": 20, "eval_every": 10, "eval_episodes": 1, "batch_size": 16, "quiet": True, "out": folder}
        return train("log.parquet" if data == "log.parquet" else "hopper.parquet", **settings | budget)

    return run


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in TEXT if n.startswith(KINDS[1:]) and n not in TUTORIALS and blocks(n)])
def test_python_runs(name, at_small_budgets, monkeypatch, tmp_path):
    monkeypatch.setattr(odice, "train", briefly(odice.train, tmp_path / "run"))
    monkeypatch.setattr(odice, "imitate", briefly(odice.imitate, tmp_path / "imitate"))
    collect = odice.collect
    how = lambda policy: {"policy": policy} if policy else {"recipe": "random"}
    few = lambda env, recipe=None, policy=None, **_: collect(env, **how(policy), steps=200, quiet=True)
    monkeypatch.setattr(odice, "collect", few)
    names = given("estimate" in name)
    data = names["data"]
    if "serve" in name:
        assert main(["export", "runs/cases", "--onnx", "policy.onnx"]) == 0
    for code in blocks(name):
        if not SKIPPED.search(code):
            names["data"] = data  # blocks that load one show ways to do so
            exec(code.replace("~/d4rl", "d4rl"), names)


def given(table_page: bool) -> dict[str, Any]:
    """What blocks use without having made it."""
    data = odice.load("log.parquet" if table_page else "hopper.hdf5")
    policy = odice.Policy.load("runs/a/policy/last" if table_page else "my-policy")
    algo = odice.algorithms()["bc"].build(BCConfig(policy_hidden=(8,)), data.spec)
    log = table()
    return {
        "odice": odice,
        "np": np,
        "policy": policy,
        "data": data,
        "medium": data,
        "expert": data,
        "observation": np.zeros(2),
        "obs": np.zeros(11),
        "action": np.zeros(3),
        "algo": algo,
        "state": initial_state(algo, 0),
        "fitted": Fitted(),
        "make_my_env": lambda: gymnasium.make("Hopper-v5"),
        "s": log["obs_0", "obs_1"].to_numpy(),
        "a": log["action"].to_numpy()[:, None],
        "r": log["reward"].to_numpy(),
        "d": log["terminated"].to_numpy(),
        "t": np.zeros(480, bool),
    }
