"""`odice.train`: from data to a run directory, and from an interrupted run to the result it would have had."""

from __future__ import annotations

import dataclasses
import inspect
import json
import shlex
import sys
import time
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

import jax

from odice import __version__
from odice.data.readers.files import short_name
from odice.data.store import Streamed
from odice.envs.make import own_env
from odice.errors import OdiceError
from odice.files import checksum, refuse_link
from odice.training.compilation import use_cache
from odice.training.devices import Devices, choose_devices, unused_accelerator
from odice.training.directory import RunDirectory, differences
from odice.training.evaluations import BackgroundEvaluator
from odice.training.hosts import any_process, check_same, first_then_others, is_child, joined, run_child
from odice.training.interrupt import Stop
from odice.training.loop import Loop, make_chunk
from odice.training.options import RunOptions
from odice.training.prepare import Prepared, check_expert, prepare
from odice.training.processes import train_processes
from odice.training.progress import Display, live, seeds_line
from odice.training.provenance import git_revision, versions
from odice.training.recorder import Context, Recorder
from odice.training.run import Run
from odice.training.settings import DEFAULT, Settings, resolve
from odice.training.stream import StreamedChunk


def train(data: Any, **options: Any) -> Run:
    """Train an algorithm on a data set; the same as `odice train`.

    A run that was interrupted in the same folder is continued; one that is finished is given back.

    Args:
        data: Anything `odice.load` takes.
        **options: Options of the run and settings of the algorithm, by name. The ones that matter most:

            - `algo`: a name of `odice.algorithms()`; "auto" unless a preset is chosen.
            - `preset`: published settings, "paper", "reference" or "corl".
            - `steps`: gradient updates; 10,000 with "auto", else 20,000, unless the preset says otherwise.
            - `seed`, `seeds`: the first seed, and how many.
            - `out`: the run's folder; `runs/DATA/ALGO/seed-N` by default.
            - `env`: where to evaluate: a name, an environment's class, a function that makes one, or "none". By
              default the one that the data name.
            - `eval_every`, `eval_episodes`: updates between evaluations, and how long each is.
            - `holdout`: share of episodes kept out of training; a tenth by default, if there are 50 or more.
            - `schema`: a file that names the columns of a table.
            - `config`: a JSON or TOML file with any of these.

            Every other one is explained by `odice train --help-all` and in `odice.training.options.RunOptions`; the
            settings of an algorithm (`lam`, `eta`, ...) by its config (`odice.algorithms()[name].config`).

    Returns:
        The finished run; with `seeds`, one whose `seeds` are the single runs.
    """
    env = options.get("env")
    if env is not None and not isinstance(env, str):
        options["env"] = own_env(env)
        if options.get("seeds") and in_processes(options.get("parallel", "auto")):
            raise OdiceError(
                f"{options['env']} is an object of this program, which the processes of several seeds do not know; add "
                "parallel='vmap', or register it in a module and name that with plugin."
            )
    return train_settings(resolve(data, **options))


train.__signature__ = inspect.Signature(  # every option by name, in help() and in editors
    [
        inspect.Parameter("data", inspect.Parameter.POSITIONAL_OR_KEYWORD),
        *(
            inspect.Parameter(item.name, inspect.Parameter.KEYWORD_ONLY, default=item.default)
            for item in dataclasses.fields(RunOptions)
            if item.name != "data"
        ),
        inspect.Parameter("settings", inspect.Parameter.VAR_KEYWORD),
    ]
)


def train_settings(settings: Settings) -> Run:
    """Run what was decided: one seed, several in processes, or several in one `vmap`."""
    options = settings.options
    if options.coordinator and not is_child():
        run_child(settings)
        folder = folder_of(settings)
        return Run.open(folder) if (folder / "config.json").exists() else Run(folder, {})
    if options.seeds is None:
        return _train([settings])[0]
    each = [one_seed(settings, options.seed + i) for i in range(options.seeds)]
    for one in each:
        refuse_link(folder_of(one))  # these folders odice names; the user names the one that holds them
    if options.devices is None and in_processes(options.parallel):
        folders = [folder_of(one) for one in each]
        watched = not options.quiet and sys.stdout.isatty()
        with live(lambda: seeds_line(folders, options.steps or 0)) if watched else nullcontext():
            train_processes(each)
        runs = [Run.open(folder) for folder in folders]
    else:
        runs = _train(each)
    run = Run(runs[0].path.parent, {}, tuple(runs))
    if not options.quiet:
        print(run.over_seeds(), flush=True)
    return run


def in_processes(parallel: str) -> bool:
    """Whether several seeds are trained in a process each."""
    return parallel == "processes" or (parallel == "auto" and jax.default_backend() == "cpu")


def one_seed(settings: Settings, seed: int) -> Settings:
    """The settings of one of several seeds, in its own folder."""
    parent = Path(settings.options.out) if settings.options.out else folder_of(settings).parent
    options = dataclasses.replace(settings.options, seed=seed, seeds=None, out=str(parent / f"seed-{seed}"))
    return settings._replace(options=options)


def folder_of(settings: Settings) -> Path:
    """The run's folder: the one that was given, else one named after the data, the algorithm and the seed."""
    options = settings.options
    if options.out:
        return Path(options.out)
    name = short_name(options.data) if isinstance(options.data, str | Path) else "data"
    if options.imitation:
        few = "-".join(map(str, options.episode[:4])) + ("-etc" if len(options.episode) > 4 else "")
        name += f"-episode-{few}" if options.episode else "-imitation"
    return Path("runs") / name / options.algo / f"seed-{options.seed}"


def _train(seeds: list[Settings]) -> list[Run]:
    """Train one seed, or several in one `vmap`; they differ in seed and folder only."""
    options = seeds[0].options
    use_cache()
    with ExitStack() as stack:
        if options.coordinator:
            seeds = [stack.enter_context(joined(seeds[0]))]
            options = seeds[0].options
        devices = choose_devices(
            "all" if options.coordinator else options.devices, seeds[0].config.batch_size, len(seeds)
        )
        directories = [stack.enter_context(RunDirectory(folder_of(each))) for each in seeds]
        display = stack.enter_context(Display(options.steps or 0, quiet=options.quiet))
        if options.resume and not all((each.path / "config.json").exists() for each in directories):
            raise OdiceError(f"{directories[0].path} holds no run to resume; leave out --resume to start one.")
        # a store that is made for --stream is made once
        prepared = first_then_others(lambda: prepare(seeds[0])) if options.stream else prepare(seeds[0])
        evaluator = prepared.about.evaluator
        evaluations = None
        if evaluator and jax.process_index() == 0:
            evaluations = BackgroundEvaluator(
                evaluator,
                options.eval_episodes or 10,
                max_seconds=options.eval_seconds,
                allow_import=prepared.settings.may_import,
                plugins=options.plugin,
            )
            stack.callback(evaluations.close)
        elif evaluator:
            stack.callback(evaluator.close)
        algo = prepared.settings.algorithm.build(prepared.settings.config, prepared.spec, again=True)
        notes = [*prepared.about.notes, check_expert(algo, prepared.settings), evaluator and evaluator.task.note]
        for each, directory in zip(seeds, directories, strict=True):
            _claim(directory, each.options.seed, prepared, devices, display)
        finished = [Run(directory.path, result) for directory in directories if (result := directory.result)]
        if any_process(len(finished) == len(seeds)):
            for run in finished:
                display.note(f"{run.path}: already {run.summary()}; nothing to do")
            return finished
        if prepared.settings.sources["algo"] == DEFAULT:
            display.note(f"algorithm: {options.algo}, the default (choose another with --algo)")
        for note in filter(None, notes):
            display.note(note)
        if unused := unused_accelerator():
            display.warn(unused)
        context = Context(prepared, algo, evaluations, display, stack.enter_context(Stop()))
        recorders = []
        for each, directory in zip(seeds, directories, strict=True):
            recorders.append(Recorder(context, directory, each.options.seed))
            stack.callback(recorders[-1].close)
        chunk = StreamedChunk if isinstance(prepared.source, Streamed) else make_chunk
        runs = Loop(context, recorders, chunk, devices).run()
        _announce(runs, prepared, display)
        return runs


def _claim(directory: RunDirectory, seed: int, prepared: Prepared, devices: Devices | None, display: Display) -> None:
    """Write what the run is to its folder, or check that the run there is the same one."""
    settings, facts = prepared.settings, prepared.about.facts
    env = prepared.about.evaluator and prepared.about.evaluator.env_id
    identity = {**settings.identity(), "seed": seed, "env": env, "data": facts["fingerprint"]}
    if suboptimal := facts.get("suboptimal"):
        identity["suboptimal"] = suboptimal["fingerprint"]
    if held := facts.get("held_out_episodes"):
        identity["held_out_episodes"] = held
    check_same(checksum(json.loads(json.dumps(identity))))
    known = {**versions(), "devices": devices.size if devices else 1}
    record = {
        "odice": __version__,
        "versions": known,
        "git": git_revision(),
        "data": facts,
        "preprocess": prepared.fitted.to_dict(),
        "preset": settings.preset and {"name": settings.preset.name, "row": settings.preset.data},
        "sources": dict(settings.sources),
        "backend": jax.default_backend(),
        "command": sys.argv,
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    if directory.claim(identity, record):
        before = {"devices": 1, **directory.read("config.json").get("versions", {})}
        if changes := differences(before, json.loads(json.dumps(known))):
            display.note(
                f"other versions than at the start, so results may differ in the last bits: {'; '.join(changes)}"
            )


def _announce(runs: list[Run], prepared: Prepared, display: Display) -> None:
    """Say how the runs ended."""
    options = prepared.settings.options
    for run in runs:
        display.note(run.summary())
        if not run.result["last"] and not options.imitation:
            command = "odice.estimate(run.policy, data)"  # where the data are objects
            if isinstance(options.data, str | Path):
                command = shlex.join(["odice", "evaluate", str(run.path), "--data", str(options.data)])
            display.note(f"how good it is, by the log alone: {command}")
        best = (run.result["best"] or {}).get("health", {})
        for path, health in ((run.path, run.result["health"]), (run.path / "policy" / "best", best)):
            if health.get("verdict") == "do not deploy":
                display.warn(f"{path}: {health['says']}")
