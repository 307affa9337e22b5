"""The paper's tables and figures as matrices of runs: which logs, which algorithms, with which published settings.

| study         | what it trains                                                                   |
|---------------|----------------------------------------------------------------------------------|
| `table1`      | the paper's algorithms on its 15 D4RL data sets; O-DICE by text and by code      |
| `table2`      | imitation of one expert trajectory: BC, ValueDICE, IQ-Learn, O-DICE              |
| `figure3`     | EQL, S-DICE and O-DICE: the worst episode, and the feature product over training |
| `curves`      | S-DICE and O-DICE: learning curves                                               |
| `sensitivity` | O-DICE over lambda and eta, S-DICE over lambda                                   |

Figure 2 needs no runs: it is the toy world (`odice toy`). On D4RL's files, settings and protocol are the preset's. On
the local suite they are those of the D4RL data set that a log resembles, with what `LOCAL` says for all algorithms
alike; its logs have `-local` in their names, and no published number belongs to them.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from odice.algos import algorithms, entry
from odice.d4rl import ANTMAZE_DATA, LOCOMOTION_DATA, REFERENCES, address, file_names
from odice.errors import OdiceError, unknown_name
from odice.experiments.suite import SUFFIX, SUITE, Choices, SuiteFolder
from odice.experiments.suite import chosen as suite_names
from odice.presets import PRESETS, preset
from odice.presets.imitation import SEEDS as IMITATION_SEEDS
from odice.presets.imitation import TRAJECTORIES
from odice.sweeps.runs import NOT_VARIED, SweepRun, make_runs
from odice.training.options import RunOptions

EXPERTS = ("hopper-expert-v2", "walker2d-expert-v2")
LOCAL_EXPERTS = {"hopper-expert": "Hopper-v5", "walker2d-expert": "Walker2d-v5", "halfcheetah-expert": "HalfCheetah-v5"}
"""Experts' logs in the folder of the local suite, and their environments."""
LAMBDAS, ETAS = (0.4, 0.5, 0.6, 0.7, 0.8), (0.2, 0.4, 0.6, 0.8, 1.0)
PAPER_SEEDS = (0, 1, 2, 3, 4)
"""The paper has five; its released code names seed 0 for reinforcement learning."""
LOCAL_STEPS, LOCAL_SEEDS = 100_000, (0, 1, 2)
EVALUATIONS = 20
"""Evaluations of a run that is shorter than published: the last ten, which count, are then its second half."""


class Column(NamedTuple):
    """A column of a table: an algorithm, and what distinguishes it from another column of the same algorithm."""

    algo: str
    variant: str = ""
    """In the folder's name and in the table's head; the algorithm's first column has none."""
    preset: str | None = None
    """Instead of the chosen preset."""
    settings: Mapping[str, Any] = {}
    protocol: str | None = None
    """The algorithm of the preset `paper` whose length and evaluation hold instead of this one's own."""

    @property
    def method(self) -> str:
        return f"{self.algo}{VARIANT}{self.variant}" if self.variant else self.algo


VARIANT = "@"
"""Between an algorithm and its variant in the name of a folder."""
CHI_SQUARE = Column("fdvl", settings={"divergence": "pearson"})
"""The paper's f-DVL; f-DVL's own command for AntMaze has total variation."""
PAPER_LAMBDA = 0.6
"""The released code's default, which S-DICE may have been run with: the paper gives none for it."""
TABLE1 = (
    *map(Column, ("td3-bc", "cql", "iql", "eql", "optidice")),
    Column("optidice", "paper-protocol", protocol="odice"),
    CHI_SQUARE,
    Column("sdice"),
    Column("sdice", f"lam-{PAPER_LAMBDA}", settings={"lam": PAPER_LAMBDA}),
    Column("odice"),
    Column("odice", "reference", preset="reference"),
)
TABLE2 = (*map(Column, ("bc", "value-dice", "iq-learn", "odice")), Column("odice", "reference", preset="reference"))
LOCAL_TABLE1 = tuple(map(Column, ("bc", "bc-10", "td3-bc", "iql", "sql", "vdice-true", "sdice", "odice")))


class Study(NamedTuple):
    """What is compared."""

    columns: tuple[Column, ...]
    data: tuple[str, ...] = LOCOMOTION_DATA + ANTMAZE_DATA
    local_columns: tuple[Column, ...] | None = None
    imitation: bool = False
    axes: Mapping[str, Sequence[Any]] = {}
    seeds: tuple[int, ...] = PAPER_SEEDS


STUDIES = {
    "table1": Study(TABLE1, local_columns=LOCAL_TABLE1),
    "table2": Study(TABLE2, EXPERTS, local_columns=TABLE2[:-1], imitation=True, seeds=IMITATION_SEEDS),
    "figure3": Study(tuple(map(Column, ("eql", "sdice", "odice")))),
    "curves": Study(tuple(map(Column, ("sdice", "odice")))),
    "sensitivity": Study(tuple(map(Column, ("sdice", "odice"))), axes={"lam": LAMBDAS, "eta": ETAS}),
}

LOCAL: dict[str, Any] = {
    "normalize_obs": True,
    "convention": "bootstrap",
    "value_lr": 3e-4,
    "critic_lr": 3e-4,
    "policy_lr": 3e-4,
}
"""On the local suite, for every algorithm that has the setting: normalized observations (cloning failed on raw ones,
docs/research/public_agents.md), every step whose next state is known, and one rate, because these runs are
shorter than those of the paper."""
LIKE = {
    **{f"{robot}-{kind}": f"{robot}-medium-replay-v2"
       for robot in ("hopper", "halfcheetah", "walker2d") for kind in ("medium-replay", "full-replay")},
    **{f"{robot}-{size}-diverse": f"antmaze-{size}-diverse-v2"
       for robot in ("pointmaze", "antmaze") for size in ("umaze", "medium", "large")},
    "antmaze-umaze": "antmaze-umaze-v2",
    "antmaze-medium-play": "antmaze-medium-play-v2",
}  # fmt: skip
"""Log of the suite -> the D4RL data set whose published settings it gets. The others get a preset's general ones."""
SAME_LAMBDA = ("sdice", "vdice-true")
"""They have no published lambda: they get O-DICE's, so that the gradient rule alone differs."""
EPISODES = {"maze": 20, "hospital": 100}
"""Word in a log's name -> episodes per evaluation; elsewhere 10. A stay in the hospital is short, and ends in +-1."""


class StudyLog(NamedTuple):
    """One log of a study."""

    name: str
    """Its folder's name, and what tables call it."""
    data: str
    """What `odice train --data` takes."""
    like: str | None
    """The D4RL data set whose row of a preset holds."""
    options: Mapping[str, Any] = {}
    local: bool = False
    discrete: bool = False


OPTIONS = {field.name for field in dataclasses.fields(RunOptions)} - set(NOT_VARIED)
"""Options of the runs of a study."""


def _fields(algo: str) -> set[str]:
    return {field.name for field in dataclasses.fields(entry(algo).config)}


# --- which logs -------------------------------------------------------------------------------------------------------


def d4rl_sources(study: Study, names: Sequence[str], folder: str | Path | None) -> tuple[list[StudyLog], list[str]]:
    """The data sets of a study that are in the folder, and a sentence for each that is missing."""
    logs, missing = [], []
    for name in names or study.data:
        if name not in REFERENCES:
            raise unknown_name("D4RL data set", name, study.data)
        path = next(
            (p for each in file_names(name) if folder and (p := Path(folder).expanduser() / each).is_file()), None
        )
        if path is None:
            missing.append(how_to_get(name, folder))
        elif made := _made_here(path):
            missing.append(f"{name}: {path} is not D4RL's file but {made}; put D4RL's there")
        elif study.imitation:
            logs += [
                StudyLog(f"{name}-traj-{i + 1}", name, name, {"data_dir": str(folder), "episode": (episode,)})
                for i, episode in enumerate(TRAJECTORIES)
            ]
        else:
            logs.append(StudyLog(name, name, name, {"data_dir": str(folder)}))
    return logs, missing


def how_to_get(name: str, folder: str | Path | None) -> str:
    """Where a D4RL file is to be had, and where to put it."""
    return f"{name}: download {address(name) or file_names(name)[-1]} into {folder or 'a folder (--data-dir)'}"


def _made_here(path: Path) -> str | None:
    """The history of a file that odice collected itself; None for any other file."""
    import h5py

    try:
        with h5py.File(path, "r") as file:
            attributes = json.loads(str(file.attrs.get("odice", "{}")))
    except (OSError, ValueError):
        return None  # the reader will say what is wrong with it
    history = attributes.get("history") if isinstance(attributes, dict) else None
    first = str(history[0]) if isinstance(history, list) and history else ""
    return first[:200] if first.startswith("collected in") else None


def own_log(text: str) -> tuple[str, str] | None:
    """`NAME=PATH` as the name of a log and its file; None for the name of one of the suite."""
    name, given, path = text.partition("=")
    if not given:
        return None
    if not name or not path or "/" in name:
        raise OdiceError(f"--logs takes names, or NAME=PATH for a log of yours; got {text!r}.")
    file = Path(path).expanduser()
    if not file.is_file():
        raise OdiceError(f"--logs {text}: there is no file {file}.")
    return name.removesuffix(SUFFIX), str(file)


def local_sources(names: Sequence[str], folder: Path) -> tuple[list[StudyLog], list[str]]:
    """The logs of the suite that are made, and how to make the others. A log of the user's own gets the settings of the
    D4RL data set that has its name, if there is one."""
    logs, missing = [], []
    place = SuiteFolder(folder)
    own = [log for log in map(own_log, names) if log]
    for name, path in own:
        like = f"{name}-v2" if f"{name}-v2" in REFERENCES else LIKE.get(name)
        logs.append(StudyLog(f"{name}{SUFFIX}", path, like, local=True))
    if names and len(own) == len(names):
        return logs, missing
    for name in suite_names([name for name in names if "=" not in name]):
        if place.facts(name) is None:
            missing.append(f"{name}{SUFFIX}: odice suite make {name} --out {folder}")
            continue
        discrete = isinstance(SUITE[name].recipe, Choices)
        logs.append(StudyLog(f"{name}{SUFFIX}", str(place.file(name)), LIKE.get(name), local=True, discrete=discrete))
    return logs, missing


def local_experts(names: Sequence[str], folder: Path) -> tuple[list[StudyLog], list[str]]:
    """Four trajectories of each expert's log in the suite's folder, and how to make the logs that are not there."""
    logs, missing = [], []
    for text in names or LOCAL_EXPERTS:
        name, path = own_log(text) or (text.removesuffix(SUFFIX), None)
        if path is None and name not in LOCAL_EXPERTS:
            raise unknown_name("expert's log", name, LOCAL_EXPERTS)
        file = Path(path) if path else SuiteFolder(folder).file(name)
        if file.is_file():
            logs += [
                StudyLog(f"{name}{SUFFIX}-traj-{i + 1}", str(file), f"{name}-v2", {"episode": (episode,)}, local=True)
                for i, episode in enumerate(TRAJECTORIES)
            ]
        else:
            make = f"odice data collect --env {LOCAL_EXPERTS[name]} --recipe expert --out {file}"
            missing.append(f"{name}{SUFFIX}: {make}, or put an expert's log there")
    return logs, missing


# --- which runs -------------------------------------------------------------------------------------------------------


class StudyOptions(NamedTuple):
    """The user's choices; None is the study's own."""

    preset: str = "paper"
    steps: int | None = None
    seeds: int | None = None
    first_seed: int | None = None
    eval_every: int | None = None
    eval_episodes: int | None = None
    axes: Mapping[str, Sequence[Any]] = {}
    settings: Mapping[str, Any] = {}
    """Run options and settings for all runs, over everything else."""


def study_runs(
    study: Study, sources: Sequence[StudyLog], algos: Sequence[str], options: StudyOptions, out: Path
) -> tuple[list[SweepRun], list[StudyRun], list[str]]:
    """Every run of a study, the place of each in its table, and a sentence for each combination that there is not.

    Two columns with the same settings share their runs.
    """
    runs: dict[str, SweepRun] = {}
    places: list[StudyRun] = []
    notes: list[str] = []
    local = any(source.local for source in sources)
    columns = study.local_columns if local and study.local_columns else study.columns
    if algos:
        columns = [column for algo in algos for column in _columns_of(algo, columns)]
    columns = [column for column in columns if column.preset is None or column.preset != options.preset]
    names = list(dict.fromkeys(column.algo for column in columns))
    axes = {axis: values for axis, values in {**study.axes, **options.axes}.items() if axis not in options.settings}
    valid = OPTIONS.union(*map(_fields, names))
    others = {*options.settings} & set().union(*map(_fields, algorithms()))  # one --set for studies that share runs
    for key in {*options.axes, *options.settings} - valid - others:
        raise unknown_name(f"setting of {', '.join(names)}", key, valid)
    notes += [f"{key} is no setting of {', '.join(names)}." for key in options.settings if key in others - valid]
    seeds = seeds_of(options.seeds, LOCAL_SEEDS if local and not study.imitation else study.seeds, options.first_seed)
    for source, column in product(sources, columns):
        if source.discrete and not entry(column.algo).discrete:
            notes.append(f"{column.algo} has no form for the discrete actions of {source.name}.")
            continue
        for run in _column_runs(source, column, study, axes, options, seeds, out):
            method = run.group.split("/")[1]
            same = runs.setdefault(_key(run), run)
            places.append(StudyRun(source.name, method, same.path))
    return list(runs.values()), places, notes


class StudyRun(NamedTuple):
    """A run of a study: its data set, its method and its folder."""

    data: str
    method: str
    path: Path


def seeds_of(count: int | None, published: Sequence[int], first: int | None = None) -> list[int]:
    """So many seeds: the published ones, then the smallest others; or those from `first` on."""
    if first is not None:
        return list(range(first, first + (count or len(published))))
    if count is None:
        return list(published)
    others = (seed for seed in range(count + len(published)) if seed not in published)
    return [*published, *others][:count]


def _columns_of(algo: str, columns: Sequence[Column]) -> list[Column]:
    """The columns that a study has for an algorithm, else a plain one."""
    return [column for column in columns if column.algo == algo] or [Column(algo)]


def _key(run: SweepRun) -> str:
    """What two runs that are the same one have in common."""
    options = run.settings.options
    return json.dumps([options.seed, str(options.data), options.algo, run.identity], sort_keys=True)


def _column_runs(
    source: StudyLog,
    column: Column,
    study: Study,
    axes: Mapping[str, Sequence[Any]],
    options: StudyOptions,
    seeds: Sequence[int],
    out: Path,
) -> Iterator[SweepRun]:
    """The runs of a column on one data set."""
    algo = column.algo
    name = preset_of(algo, column.preset or options.preset, study.imitation)
    given = run_settings(source, column, name, study, options)
    own = {axis: values for axis, values in axes.items() if axis in _fields(algo) | OPTIONS}
    given = {key: value for key, value in given.items() if key not in own}
    data = [f"{source.name}={source.data}"]
    for seed in seeds:
        for run in make_runs(out, data, [algo], 1, seed, axes=own, preset=name, **given):
            yield _moved(run, out, column) if column.variant else run


def _moved(run: SweepRun, out: Path, column: Column) -> SweepRun:
    """The same run in the folder of its column."""
    data, method, seed = run.name.split("/")
    method = method.replace(column.algo, column.method, 1)
    name = f"{data}/{method}/{seed}"
    options = dataclasses.replace(run.settings.options, out=str(out / name))
    return SweepRun(name, run.settings._replace(options=options))


def preset_of(algo: str, chosen: str, imitation: bool = False) -> str | None:
    """The chosen preset, or the next that has settings for the algorithm; None for odice's own."""
    if chosen == "own":
        return None
    for name in dict.fromkeys((chosen, *PRESETS)):
        try:
            preset(name, algo, imitation=imitation)
        except OdiceError:
            continue
        return name
    return None


def run_settings(
    source: StudyLog, column: Column, name: str | None, study: Study, options: StudyOptions
) -> dict[str, Any]:
    """The settings of a run of a study, over its preset."""
    algo = column.algo
    fields = _fields(algo)
    published = preset(name, algo, source.like, imitation=study.imitation) if name else None
    given: dict[str, Any] = {**source.options, "keep": 1}
    if study.imitation:
        given["imitation"] = True
    if entry(algo).value is not None and entry(algo).diagnose:
        given["diagnostics"] = True
    if source.local and published:  # a preset does not know the log by its name
        protocol = published.protocol
        given |= {**published.values(), "reward": protocol.reward}
        given |= {} if protocol.clip_actions is None else {"clip_actions": protocol.clip_actions}
        if not study.imitation:  # which normalizes and counts steps by a protocol of its own
            given |= {key: value for key, value in LOCAL.items() if key in fields or key in OPTIONS}
    if algo in SAME_LAMBDA and published and not study.imitation:
        given["lam"] = preset("paper", "odice", source.like).values().get("lam", published.values().get("lam"))
    given |= column.settings
    steps, every = options.steps or (LOCAL_STEPS if source.local else None), None
    if column.protocol and steps is None:
        protocol = preset("paper", column.protocol, source.like).protocol
        steps, every = protocol.steps, protocol.eval_every
        given["eval_episodes"] = protocol.eval_episodes
    if steps is not None:
        given["steps"] = steps
        usual = published.protocol.eval_every if published else steps
        given["eval_every"] = every or max(1, min(usual, steps // EVALUATIONS))
        if "warmup_steps" in fields and published and (warmup := published.values().get("warmup_steps")):
            given["warmup_steps"] = max(1, warmup * steps // published.protocol.steps)  # the same share of the run
    if source.local:
        given["eval_episodes"] = next((count for word, count in EPISODES.items() if word in source.name), 10)
    wanted = {"eval_every": options.eval_every, "eval_episodes": options.eval_episodes}
    wanted |= {key: value for key, value in options.settings.items() if key in fields or key in OPTIONS}
    return {**given, **{key: value for key, value in wanted.items() if value is not None}}
