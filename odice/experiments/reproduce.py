"""The runs of a study (`studies`) on its logs (`study_logs`), with published settings.

On D4RL's files, settings and protocol are the preset's. On the local suite they are those of the D4RL data set that a
log resembles, with what `LOCAL` says for all algorithms alike.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from odice.algos import algorithms, entry
from odice.errors import OdiceError, unknown_name
from odice.experiments.studies import Column, Study
from odice.experiments.study_logs import StudyLog
from odice.presets import PRESETS, preset
from odice.sweeps.runs import OPTIONS, SweepRun, make_runs, setting_names

LOCAL_STEPS, LOCAL_SEEDS = 100_000, (0, 1, 2)
EVALUATIONS = 20
"""Evaluations of a run that is shorter than published: the last ten, which count, are then its second half."""
LOCAL: dict[str, Any] = {
    "normalize_obs": True,
    "convention": "bootstrap",
    "value_lr": 3e-4,
    "critic_lr": 3e-4,
    "policy_lr": 3e-4,
}
"""On the local suite, for every algorithm that has the setting: normalized observations (cloning failed on raw ones,
docs/research/public_agents.md), every step whose next state is known, and one rate, because these runs are shorter than
those of the paper."""
SAME_LAMBDA = ("sdice", "vdice-true")
"""They have no published lambda: they get O-DICE's, so that the gradient rule alone differs."""
EPISODES = {"maze": 20, "hospital": 100}
"""Word in a log's name -> episodes per evaluation; elsewhere 10. A stay in the hospital is short, and ends in +-1."""


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
    """Return the runs of a study.

    Two columns with the same settings share their runs.

    Args:
        study: The study.
        sources: Its logs.
        algos: Algorithms instead of the study's; empty for the study's own.
        options: The user's choices.
        out: The folder of the runs.

    Returns:
        The runs, the place of each in the study's table, and a sentence for each combination that does not exist.
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
    valid = OPTIONS.union(*map(setting_names, names))
    # Settings of other algorithms are left out with a note, so that one --set serves studies that share runs.
    others = {*options.settings} & set().union(*map(setting_names, algorithms()))
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
    """Return `count` seeds: the published ones, then the smallest others; or those from `first` on."""
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
    own = {axis: values for axis, values in axes.items() if axis in setting_names(algo) | OPTIONS}
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
    fields = setting_names(algo)
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
