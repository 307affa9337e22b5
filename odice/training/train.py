"""`odice.train`: from data to a run directory, and from an interrupted run to the result it would have had.

The loop hands the compiled program chunks of `chunk_steps` updates and takes in the metrics of one chunk while the next
one runs. Between two chunks it may evaluate (in the background), checkpoint, or stop because it was asked to. What is
computed does not depend on any of that.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from odice import __version__
from odice.core.diagnostics import feature_products
from odice.data.store import Streamed
from odice.envs.make import own_env
from odice.errors import Diverged, Interrupted, OdiceError
from odice.files import refuse_link
from odice.training.compilation import use_cache
from odice.training.directory import RunDirectory, differences
from odice.training.evaluations import BackgroundEvaluator
from odice.training.holdout import look
from odice.training.interrupt import Stop
from odice.training.loop import initial_state, make_chunk
from odice.training.options import RunOptions
from odice.training.plan import Plan, make_plan
from odice.training.prepare import Prepared, check_expert, decided_by_log, may_import, open_evaluator, prepare, sample
from odice.training.progress import Display, live, seeds_line
from odice.training.provenance import git_revision, versions
from odice.training.run import Run
from odice.training.seed_run import SeedRun
from odice.training.stream import StreamedChunk
from odice.types import Algo


def train(data: Any, **options: Any) -> Run:
    """Train an algorithm on a data set; the same as `odice train`.

    `data` is anything `odice.load` takes; `env` may also be an environment's class, or a function that makes one.
    `options` are the fields of `odice.training.options.RunOptions` (algo, preset, env, steps, seed, out ...) and the
    settings of the algorithm (lam, eta ...). Gives the finished run; with `seeds`, one whose
    `seeds` are the single runs. A run that was interrupted in the same folder is continued; one that is finished is
    given back.
    """
    env = options.get("env")
    if env is not None and not isinstance(env, str):
        options["env"] = own_env(env)
        if options.get("seeds") and _in_processes(options.get("parallel", "auto")):
            raise OdiceError(
                f"{options['env']} is an object of this program, which the processes of several seeds do not know; add "
                "parallel='vmap', or register it in a module and name that with plugin."
            )
    return train_plan(make_plan(data, **options))


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


def train_plan(plan: Plan) -> Run:
    """Run what was decided: one seed, several in processes, or several in one `vmap`."""
    options = plan.options
    if options.seeds is None:
        return _train([plan])[0]
    plans = [one_seed(plan, options.seed + i) for i in range(options.seeds)]
    for each in plans:
        refuse_link(_folder(each))  # these folders odice names; the user names the one that holds them
    if _in_processes(options.parallel):
        from odice.training.processes import train_processes

        folders = [_folder(each) for each in plans]
        watched = not options.quiet and sys.stdout.isatty()
        with live(lambda: seeds_line(folders, options.steps or 0)) if watched else nullcontext():
            train_processes(plans)
        runs = [Run.open(folder) for folder in folders]
    else:
        runs = _train(plans)
    together = Run(runs[0].path.parent, {}, tuple(runs))
    if not options.quiet:
        print(together.over_seeds(), flush=True)
    return together


def _in_processes(parallel: str) -> bool:
    return parallel == "processes" or (parallel == "auto" and jax.default_backend() == "cpu")


def one_seed(plan: Plan, seed: int) -> Plan:
    """The plan of one of several seeds, in its own folder."""
    parent = Path(plan.options.out) if plan.options.out else _folder(plan).parent
    options = dataclasses.replace(plan.options, seed=seed, seeds=None, out=str(parent / f"seed-{seed}"))
    return plan._replace(options=options)


def _folder(plan: Plan) -> Path:
    options = plan.options
    if options.out:
        return Path(options.out)
    name = Path(options.data).stem if isinstance(options.data, str | Path) else "data"
    if options.imitation:
        few = "-".join(map(str, options.episode[:4])) + ("-etc" if len(options.episode) > 4 else "")
        name += f"-episode-{few}" if options.episode else "-imitation"
    return Path("runs") / name / options.algo / f"seed-{options.seed}"


# --- the run ----------------------------------------------------------------------------------------------------------


def _train(plans: list[Plan]) -> list[Run]:
    """Train these seeds together; they differ in seed and folder only."""
    plan = plans[0]
    use_cache()
    with ExitStack() as stack:
        directories = [stack.enter_context(RunDirectory(_folder(each))) for each in plans]
        display = stack.enter_context(Display(plan.options.steps or 0, quiet=plan.options.quiet))
        if plan.options.resume and not all((d.path / "config.json").exists() for d in directories):
            raise OdiceError(f"{directories[0].path} holds no run to resume; leave out --resume to start one.")
        prepared = prepare(plan)
        plans = [decided_by_log(each, prepared) for each in plans]
        plan = plans[0]
        algo = plan.algorithm.build(plan.settings, prepared.spec)
        alike = check_expert(algo, plan)
        evaluations = None
        if evaluator := open_evaluator(plan, prepared):
            evaluations = BackgroundEvaluator(
                evaluator,
                plan.options.eval_episodes or 10,
                max_seconds=plan.options.eval_seconds,
                allow_import=may_import(plan, prepared.env_id),
                plugins=plan.options.plugin,
            )
            stack.callback(evaluations.close)
        for each, directory in zip(plans, directories, strict=True):
            _claim(directory, each, prepared, display)
        finished = [Run(directory.path, result) for directory in directories if (result := directory.result)]
        if len(finished) == len(plans):
            for run in finished:
                display.note(f"{run.path}: already {run.summary()}; nothing to do")
            return finished
        if plan.default_algo:
            display.note(f"algorithm: {plan.options.algo}, the default (choose another with --algo)")
        notes = [*prepared.notes, alike, evaluator.task.note if evaluator else None]
        for note in filter(None, notes):
            display.note(note)
        stop, seed_runs = stack.enter_context(Stop()), []
        for each, directory in zip(plans, directories, strict=True):
            seed_runs.append(SeedRun(directory, each.options.seed, each, prepared, algo, evaluations, display, stop))
            stack.callback(seed_runs[-1].close)
        return Loop(plan, prepared, algo, seed_runs, display, stop).run()


class Loop:
    """The updates of one or several seeds, from where they are to the end."""

    def __init__(
        self, plan: Plan, prepared: Prepared, algo: Algo, seed_runs: list[SeedRun], display: Display, stop: Stop
    ):
        self._algo = algo
        self._plan, self._prepared, self._display, self._stop = plan, prepared, display, stop
        self._seed_runs = seed_runs
        self._together = len(seed_runs) > 1
        seeds = [each.seed for each in seed_runs]
        self._seed = jnp.asarray(seeds) if self._together else seeds[0]
        self._chunks: dict[int, Any] = {}
        self._sample = sample(prepared.source) if plan.options.diagnostics else None
        self._waiting: list[tuple[int, int, Any]] = []

    def run(self) -> list[Run]:
        plan, steps = self._plan, self._plan.options.steps or 0
        self.step, self.state = self._start()
        if self._stop.asked:  # nothing has been done since the checkpoint
            raise self._interrupted()
        try:
            while self.step < steps and self._alive() and not self._enough():
                self._advance(min(plan.chunk_steps, steps - self.step))
                at_end, asked = (
                    self.step == steps,
                    self._stop.asked,
                )  # asked once: a signal after this waits for the next
                evaluate = self.step % (plan.options.eval_every or steps) == 0 or at_end
                save = self._saved + plan.options.checkpoint_every <= self.step or at_end or asked
                if evaluate or save:
                    self._boundary(evaluate, save)
                if self._enough() and self._saved < self.step:
                    self._boundary(evaluate=False, save=True)
                if (asked or self._left_due()) and not at_end:
                    raise self._interrupted()
            return self._finish()
        except OSError as error:
            raise OdiceError(
                f"{self._seed_runs[0].directory.path}: the run cannot go on at step {self.step:,} ({error}); its "
                "checkpoints are intact. When the cause is removed, run the same command again to continue."
            ) from error
        finally:
            for chunk in self._chunks.values():
                if isinstance(chunk, StreamedChunk):
                    chunk.close()

    # --- chunks -------------------------------------------------------------------------------------------------------

    def _advance(self, length: int) -> None:
        if length not in self._chunks:
            make = StreamedChunk if isinstance(self._prepared.source, Streamed) else make_chunk
            self._chunks[length] = make(self._algo, self._plan.settings.batch_size, length, seeds=self._together)
        self.state, metrics = self._chunks[length](self.state, self._prepared.source, self._seed, self.step)
        self.step += length
        self._waiting.append((self.step, length, metrics))
        if len(self._waiting) > 1:  # the next chunk is under way: there is time to look at the one before
            self._absorb(self._waiting.pop(0), [{}] * len(self._seed_runs))

    def _absorb(self, chunk: tuple[int, int, Any], extras: list[dict[str, float]]) -> None:
        step, length, metrics = chunk
        metrics = jax.device_get(metrics)
        for i, one in self._alive():
            own = {name: value[i] if self._together else value for name, value in metrics.items()}
            with _failing(one, alone=not self._together):
                one.absorb(step, length, own, extras[i])

    def _boundary(self, evaluate: bool, save: bool) -> None:
        """Bring the host up to date with the device, then evaluate and save."""
        states = self._host_states()
        extras = [self._diagnose(state) if evaluate else {} for state in states]
        while self._waiting:
            self._absorb(self._waiting.pop(0), extras)
        for i, one in self._alive():
            with _failing(one, alone=not self._together):
                if evaluate:
                    one.look(self.step, self._algo.policy(states[i]))
                    one.evaluate(self.step, self._algo.policy(states[i]))
        save = save or self._left_due()
        for i, one in self._alive() if save else ():
            with _failing(one, alone=not self._together):
                one.save(self.step, states[i])
        if save:
            self._saved = self.step

    def _enough(self) -> bool:
        """Whether every seed has lost its patience; those of one `vmap` stop together."""
        return all(one.enough for _, one in self._alive())

    def _left_due(self) -> bool:
        """Whether the run was asked to stop while an evaluation should have started: then this step must be saved."""
        return any(one.due is not None for _, one in self._alive())

    def _diagnose(self, state: Any) -> dict[str, float]:
        algorithm, network = self._plan.algorithm, None
        if algorithm.value is not None:
            network = algorithm.value(state)
        discount = algorithm.setting(self._plan.settings, algorithm.discount, 0.99)
        found = look(self._algo.policy(state), network, self._prepared.probe, discount)
        if self._sample is None or network is None:
            return found
        return found | {name: float(number) for name, number in feature_products(network, self._sample).items()}

    def _host_states(self) -> list[Any]:
        host = jax.device_get(self.state)
        if not self._together:
            return [host]
        return [jax.tree.map(lambda leaf, i=i: leaf[i], host) for i in range(len(self._seed_runs))]

    def _alive(self) -> list[tuple[int, SeedRun]]:
        return [(i, one) for i, one in enumerate(self._seed_runs) if one.failure is None]

    # --- start and end ------------------------------------------------------------------------------------------------

    def _start(self) -> tuple[int, Any]:
        """The state to go on from: every one's newest checkpoint that all of them have, or the beginning."""

        def initial(seed: Any) -> Any:
            return initial_state(self._algo, seed)

        like = jax.eval_shape(initial, 0)
        found, at_most = [one.restore(like) for one in self._seed_runs], None
        while len({one.step if one else 0 for one in found}) > 1:
            at_most = min(one.step if one else 0 for one in found)
            found = [one.restore(like, at_most) for one in self._seed_runs]
        for seed_run, checkpoint in zip(self._seed_runs, found, strict=True):
            seed_run.begin(checkpoint)
        self._saved = found[0].step if found[0] else 0
        if found[0] is None:
            return 0, jax.jit(jax.vmap(initial) if self._together else initial)(self._seed)
        self._display.note(f"continuing {self._seed_runs[0].directory.path} from step {self._saved:,}")
        states = [one.arrays["state"] for one in found if one]
        state = jax.tree.map(lambda *leaves: np.stack(leaves), *states) if self._together else states[0]
        return self._saved, jax.device_put(state)

    def _finish(self) -> list[Run]:
        if not all(one.settle() for _, one in self._alive()):
            raise self._interrupted()
        states = self._host_states()
        runs = [Run(one.directory.path, one.finish(self.step, states[i])) for i, one in self._alive()]
        failures = [one.failure for one in self._seed_runs if one.failure]
        if failures:
            raise failures[0]
        for run in runs:
            self._display.note(run.summary())
            if not run.result["last"] and not self._plan.options.imitation:
                source = self._prepared.facts["source"]
                self._display.note(f"how good it is, by the log alone: odice evaluate {run.path} --data {source}")
            if run.result["health"]["verdict"] == "do not deploy":
                self._display.warn(f"{run.path}: {run.result['health']['says']}")
            best = (run.result["best"] or {}).get("health", {})
            if best.get("verdict") == "do not deploy":
                self._display.warn(f"{run.path / 'policy' / 'best'}: {best['says']}")
        return runs

    def _interrupted(self) -> Interrupted:
        where = self._seed_runs[0].directory.path
        return Interrupted(
            f"stopped at step {self.step:,}; the checkpoint is in {where}. Run the same command again to continue.",
            self._stop.signal,
        )


@contextmanager
def _failing(one: SeedRun, alone: bool) -> Iterator[None]:
    """A seed that diverges stops alone; the others of its `vmap` go on."""
    try:
        yield
    except Diverged as error:
        if alone:
            raise
        one.failure = error


# --- what is recorded -------------------------------------------------------------------------------------------------


def _claim(directory: RunDirectory, plan: Plan, prepared: Prepared, display: Display) -> None:
    identity = {**plan.identity(), "env": prepared.env_id, "data": prepared.facts["fingerprint"]}
    if suboptimal := prepared.facts.get("suboptimal"):
        identity["suboptimal"] = suboptimal["fingerprint"]
    if held := prepared.facts.get("held_out_episodes"):
        identity["held_out_episodes"] = held
    known = versions()
    record = {
        "odice": __version__,
        "versions": known,
        "git": git_revision(),
        "data": prepared.facts,
        "preprocess": prepared.fitted.to_dict(),
        "preset": plan.preset and {"name": plan.preset.name, "row": plan.preset.data},
        "backend": jax.default_backend(),
        "command": sys.argv,
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    if directory.claim(identity, record):
        before = directory.read("config.json").get("versions", {})
        if changes := differences(before, json.loads(json.dumps(known))):
            display.note(
                f"other versions than at the start, so results may differ in the last bits: {'; '.join(changes)}"
            )
