"""The local suite: named logs that anybody can make, without a download and with the same bytes.

    FOLDER/NAME-local.hdf5         a log; it names the environment that belongs to it
    FOLDER/NAME-local.json         what is in it, its checksum, and what it cost
    FOLDER/behaviors/ENV/          a learner's training, from which its replays are cut

A replay is the history of one learner, so the medium and the full replay of a robot come from one training, and are
made by one process. That process has one core and one thread: with more, sums are made in another order. All is a
function of seeds, so a log that was interrupted and made again is the same file; on another kind of processor or with
other versions of jax or MuJoCo the last bits may differ, and then so do the logs of learners.

`-local` is in every name, because none of this is D4RL's data: scores are not comparable with published ones.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from odice.collection.behavior import Training
from odice.collection.discrete import (
    ACROBOT,
    CARTPOLE,
    FEW_GOOD,
    HABITS,
    SWINGS,
    acrobot_log,
    cartpole_log,
    hospital_log,
)
from odice.collection.planner.mazes import collect_maze
from odice.collection.recipes import collect
from odice.collection.sac import SACConfig
from odice.data.dataset import Dataset
from odice.envs.hospital import HOSPITAL
from odice.errors import OdiceError, exit_code, unknown_name
from odice.files import complete_file, read_json, refuse_links_below
from odice.machine import cores
from odice.training.pool import run_workers

SUFFIX = "-local"
"""In the name of every file, so that every result on such a log shows it."""
FOLDER = Path("runs", "suite")
FACTS_BYTES = 1 << 20
BUDGET = 200_000
"""Steps of a learner's training."""
TRAINING = Training(
    sac=SACConfig(batch_size=128, critic_hidden=(128, 128), policy_hidden=(128, 128)), checkpoint_every=10_000
)
"""SAC with half the usual batch and width: nearly all of a training's time goes into updates, and this is a sixth."""


@dataclass(frozen=True)
class ReplayLog:
    """A learner's own history, up to its medium policy or to the end of its budget."""

    env: str
    recipe: Literal["medium-replay", "full-replay"]
    budget: int = BUDGET
    training: Training = field(default_factory=lambda: TRAINING)

    def make(self, place: SuiteFolder) -> Dataset:
        options = {"budget": self.budget, "training": self.training, "quiet": place.quiet}
        return collect(self.env, self.recipe, behavior=place.behavior(self.env), **options)

    @property
    def group(self) -> str:
        return self.env


@dataclass(frozen=True)
class MazeWalks:
    """Walks of a planner in a maze."""

    env: str
    steps: int

    def make(self, place: SuiteFolder) -> Dataset:
        return collect_maze(self.env, self.steps)

    @property
    def group(self) -> str:
        return self.env


@dataclass(frozen=True)
class Choices:
    """Episodes with discrete actions."""

    env: str
    episodes: int
    habits: tuple[float, ...] = HABITS
    """Of those who balance the pole or swing it up."""

    def make(self, place: SuiteFolder) -> Dataset:
        if self.env == HOSPITAL:
            return hospital_log(self.episodes)
        log = cartpole_log if self.env == CARTPOLE else acrobot_log
        return log(self.episodes, habits=self.habits)

    @property
    def group(self) -> str:
        return self.env


class SuiteLog(NamedTuple):
    """A log of the suite."""

    about: str
    recipe: ReplayLog | MazeWalks | Choices
    minutes: float
    """Of one core, about, on the machine of docs/research/suite.md."""


ANTS = {
    "antmaze-umaze": "from the start to the goal",
    "antmaze-umaze-diverse": "from anywhere to anywhere",
    "antmaze-medium-play": "from anywhere to one of four cells",
    "antmaze-medium-diverse": "from anywhere to anywhere",
}


def _suite() -> dict[str, SuiteLog]:
    logs: dict[str, SuiteLog] = {}
    for robot, env in (("hopper", "Hopper-v5"), ("halfcheetah", "HalfCheetah-v5"), ("walker2d", "Walker2d-v5")):
        until = f"what one SAC learner saw in {env} until its policy was medium"
        logs[f"{robot}-medium-replay"] = SuiteLog(until, ReplayLog(env, "medium-replay"), 15)
        full = f"what the same learner saw in its {BUDGET:,} steps"
        logs[f"{robot}-full-replay"] = SuiteLog(full, ReplayLog(env, "full-replay"), 5)
    for size in ("umaze", "medium", "large"):
        about = "a ball walks from anywhere to anywhere; the reward is at one goal"
        logs[f"pointmaze-{size}-diverse"] = SuiteLog(about, MazeWalks(f"pointmaze-{size}-diverse", 200_000), 1)
    for name, about in ANTS.items():
        logs[name] = SuiteLog(f"D4RL's ant in D4RL's maze, {about}", MazeWalks(name, 200_000), 2)
    logs["hospital"] = SuiteLog("five treatments, one outcome per stay; half right", Choices(HOSPITAL, 1000), 0.1)
    logs["cartpole-mixture"] = SuiteLog(
        "ten habits of balancing a pole, eight of them bad", Choices(CARTPOLE, 1000), 0.1
    )
    few = "one habit that is right more often than not, among ten: most steps are wrong"
    logs["cartpole-few-good"] = SuiteLog(few, Choices(CARTPOLE, 3000, FEW_GOOD), 0.1)
    swings = "ten habits of swinging two links up, six of them bad: most steps are wrong"
    logs["acrobot-few-good"] = SuiteLog(swings, Choices(ACROBOT, 200, SWINGS), 0.2)
    return logs


SUITE = _suite()


@dataclass(frozen=True)
class SuiteFolder:
    """The folder of the logs, and the options with which they are made."""

    folder: Path = FOLDER
    quiet: bool = False

    def behavior(self, env: str) -> Path:
        path = self.folder / "behaviors" / env.replace("/", "-")
        refuse_links_below(self.folder, path)
        return path

    def file(self, name: str) -> Path:
        return self.folder / f"{name}{SUFFIX}.hdf5"

    def facts(self, name: str) -> dict[str, Any] | None:
        """What is known of a log that was made; None if it was not."""
        path = self.file(name).with_suffix(".json")
        return read_json(path, FACTS_BYTES) if path.exists() and self.file(name).exists() else None


def chosen(names: Sequence[str]) -> list[str]:
    """Return the names of logs without the suffix; of all logs where none is named."""
    chosen_names = [name.removesuffix(SUFFIX) for name in names] or list(SUITE)
    for name in chosen_names:
        if name not in SUITE:
            raise unknown_name("log of the suite", name, SUITE)
    return list(dict.fromkeys(chosen_names))


def make_suite(names: Sequence[str], place: SuiteFolder, workers: int | None = None) -> list[str]:
    """Make the logs that are missing, and return their names. Each learner has a process on a core of its own."""
    missing = [name for name in chosen(names) if place.facts(name) is None]
    groups: dict[str, list[str]] = {}
    for name in missing:
        groups.setdefault(SUITE[name].recipe.group, []).append(name)
    job = {**dataclasses.asdict(place), "folder": str(place.folder.resolve())}
    commands = {
        " and ".join(members): ["-m", "odice.experiments.suite", json.dumps({"names": members, "place": job})]
        for members in groups.values()
    }
    codes = run_workers(commands, workers or cores(), where=f"{place.folder} has all there is", pinned=True)
    if failed := [name for name, code in codes.items() if code]:
        raise OdiceError(
            f"{len(failed)} of the suite's learners failed: {'; '.join(failed)}; their messages are above."
        )
    return missing


def make_log(name: str, log: SuiteLog, place: SuiteFolder) -> Dataset:
    """Make one log and write it with its facts."""
    began = time.process_time()
    dataset = log.recipe.make(place)
    path = dataset.save(place.file(name))
    returns = dataset.returns
    facts = {
        "steps": dataset.n_steps,
        "episodes": dataset.n_episodes,
        "returns": {"mean": float(returns.mean()), "least": float(returns.min()), "best": float(returns.max())},
        "fingerprint": dataset.fingerprint,
        "sha256": file_checksum(path),
        "bytes": path.stat().st_size,
        "processor_seconds": round(time.process_time() - began, 1),  # since it was last continued
        "history": list(dataset.meta.history),
    }
    with complete_file(path.with_suffix(".json")) as temporary:
        temporary.write_text(json.dumps(facts, indent=1) + "\n", "utf-8")
    return dataset


def file_checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main(argument: str) -> int:
    """A worker: make the logs of one learner, one after the other."""
    job: Mapping[str, Any] = json.loads(argument)

    def work() -> None:
        place = SuiteFolder(**{**job["place"], "folder": Path(job["place"]["folder"])})
        for name in job["names"]:
            made = make_log(name, SUITE[name], place)
            print(f"{place.file(name)}: {made.n_episodes:,} episodes, {made.n_steps:,} steps", flush=True)

    return exit_code(work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
