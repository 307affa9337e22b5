"""`odice.decide`: from a log to a page that says whether to act differently.

    read       a table without a schema gets a proposed one (`data.propose`), which is written down
    check      the data doctor; what it calls an error stops here
    train      the candidates, all on the same episodes; the others are held out
    judge      every candidate by the held-out episodes; all bounds hold at once
    decide     the best one that the log supports, whose cost is allowed and which health does not refuse, or none
    page       decision.html and decision.json

Everything lies in one folder. The same call continues where it stopped, because every candidate is a run.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from odice import __version__
from odice.data.dataset import Dataset
from odice.data.load import load
from odice.data.schema import Schema
from odice.decision.advice import Advice, advice
from odice.decision.judge import Judgment, judge, steps_that_count
from odice.decision.page import Paths, candidate_row, decision_page
from odice.decision.read import Ask, Say, checked, is_table, proposed_schema, time_span
from odice.errors import Interrupted, OdiceError
from odice.evaluation.ope.episodes import check_log
from odice.evaluation.ope.estimate import Estimates
from odice.evaluation.ope.select import Ranked, Selection, select
from odice.files import complete_file, refuse_links_below
from odice.policy.policy import Policy
from odice.training.directory import read_record, write_record
from odice.training.interrupt import Stop
from odice.training.progress import duration, live, seeds_line
from odice.training.run import Run
from odice.training.train import train

CANDIDATES: dict[str, dict[str, Any]] = {
    "clone": {"algo": "bc"},
    "clone of the best part": {"algo": "bc-10"},
    "auto near the log": {"algo": "auto", "distance": "near"},
    "auto far from it": {"algo": "auto", "distance": "far"},
    "iql": {"algo": "iql", "reward": "return-spread"},
}
"""Name of a candidate -> how it is trained."""
STEPS = 10_000
TRAINED = "decide.json"
"""In the folder of a finished candidate: what it was made of, so that the next call need not read the log for it."""
CHECKPOINT = 2_000
"""Updates that a killed command loses at most."""
HOLDOUT = 0.3
"""Share of the episodes that judge and do not train. A decision rests on them, so it is larger than in a plain run."""


@dataclass(frozen=True)
class Decision:
    """What to do, and everything that the advice rests on."""

    advice: Advice
    reason: str
    policy: Path
    """The folder of the policy that the page describes; it is advised only if `advice` is to try it."""
    name: str
    selection: Selection
    judgment: Judgment
    page: Path
    schema: Path | None

    @property
    def estimates(self) -> Estimates:
        """What the log says about the policy that the page describes."""
        return self.judgment.estimates

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            **self.selection.to_dict(),
            **self.judgment.to_dict(),
            "advice": self.advice,
            "reason": self.reason,
            "candidate": self.name,
            "policy": str(self.policy),
            "schema": None if self.schema is None else str(self.schema),
        }

    def __str__(self) -> str:
        return f"{self.advice.capitalize()}. {self.reason} See {self.page}."


def decide(
    log: str | Path | Dataset,
    *,
    schema: str | Path | Mapping[str, Any] | Schema | None = None,
    out: str | Path = "decision",
    steps: int = STEPS,
    seed: int = 0,
    holdout: float = HOLDOUT,
    cost_limit: float | None = None,
    candidates: Mapping[str, Mapping[str, Any]] | None = None,
    ask: Ask | None = None,
    say: Say = lambda text: None,
    progress: bool = False,
    **options: Any,
) -> Decision:
    """Decide from a log whether to act differently.

    Args:
        log: A file, a data set's name, or a `Dataset`.
        schema: What the columns of a table mean. Without one the roles are proposed, and written to `OUT/schema.toml`.
        out: The folder for everything. The same call continues in it.
        steps: Updates of each candidate.
        seed: Of training and of the estimators.
        holdout: Share of the episodes that judge and do not train.
        cost_limit: The most that an episode may cost on average; by default the schema's.
        candidates: Name -> options of `odice.train`; by default a clone, a clone of the best tenth, `auto`
            near the log and far from it, and IQL.
        ask: Called with each question about a proposed schema and the proposal; gives the answer, or nothing to take
            the proposed one.
        say: Called with a line of text at every stage.
        progress: Whether to show how far a candidate is, in the last line of the terminal.
        **options: More options of `odice.train` for all candidates, and of `odice.load`.

    Returns:
        The decision; its page is in `OUT/decision.html`.
    """
    if not 0.1 <= holdout <= 0.5:
        raise OdiceError(f"holdout is the share of episodes that judge, from 0.1 to 0.5; got {holdout:g}.")
    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OdiceError(f"{folder}: cannot write there ({error.strerror}); choose another --out.") from None
    if schema is None and is_table(log):
        schema = proposed_schema(Path(log), folder / "schema.toml", ask, say, cost_limit)  # pyright: ignore
    reading: dict[str, Any] = {} if schema is None else {"schema": schema}
    data = log if isinstance(log, Dataset) else load(log, **reading)
    checked(data, tuple(options.get("allow", ())), say)
    task = Task(log, data, Schema.parse(data.meta.schema or {}, data.meta.source), cost_limit, seed)
    task.check(say, holdout)
    shared = {"env": "none", "steps": steps, "seed": seed, "holdout": holdout, "quiet": True} | options
    shared = {"checkpoint_every": CHECKPOINT, **shared}
    runs = _train(data, dict(candidates or CANDIDATES), shared, folder, say, progress)
    say(f"judging {len(runs)} policies by the episodes that none of them has seen")
    policies = {name: Policy.load(run.path / "policy" / "last") for name, run in runs.items()}
    selection, judgments = task.judge(policies)
    best = next((item for item in selection.ranked if _allowed(item, judgments)), selection.ranked[0])
    for item in selection.ranked:
        runs[item.name].remember(item.estimates.summary())
    path = policies[best.name].with_scores(best.estimates.summary()).save(folder / "policy")
    told = advice(judgments[best.name], best.health, task.per)
    file = Path(schema) if isinstance(schema, str | Path) else None
    decision = Decision(*told, path, best.name, selection, judgments[best.name], folder / "decision.html", file)
    text = decision_page(
        data,
        policies[best.name],
        decision.judgment,
        health=dict(policies[best.name].about.get("health") or {}),
        candidates=[candidate_row(item, judgments.get(item.name)) for item in selection.ranked],
        paths=Paths(data.meta.source, str(file or ""), str(path)),
        span=time_span(log, task.schema),
    )
    _write(decision, text)
    say(str(decision))
    return decision


@dataclass(frozen=True)
class Task:
    """A log with everything that a judgment needs to know about it."""

    log: Any
    data: Dataset
    schema: Schema
    given_limit: float | None
    seed: int

    @property
    def limit(self) -> float | None:
        """The most that an episode may cost on average."""
        return self.schema.cost_limit if self.given_limit is None else self.given_limit

    @property
    def horizon(self) -> int | None:
        """The steps of an episode that count; None for all."""
        return steps_that_count(self.data)

    @property
    def per(self) -> str:
        """What numbers are counted by."""
        return "decision" if int(self.data.lengths.max()) == 1 else "episode"

    def check(self, say: Say, holdout: float) -> None:
        """Refuse, before anything is trained, what could not be judged afterwards."""
        data = self.data
        check_log(data, self.horizon)
        if self.limit is not None and data.costs is None:
            raise OdiceError(f"{data.meta.source}: a cost limit needs a cost; name its column as `cost` in the schema.")
        say(
            f"{data.n_episodes:,} episodes, {data.n_steps:,} rows; {holdout:.0%} of the episodes judge, the others "
            "train"
        )
        if self.horizon is not None:
            say(f"the log stops before many episodes are over, so the first {self.horizon} rows of each are counted")

    def judge(self, policies: Mapping[str, Policy]) -> tuple[Selection, dict[str, Judgment]]:
        """Rank the policies, and judge the costs and outcomes of the best one; with a limit on the cost, of all."""
        several = len(policies) * (2 if self.limit is not None else 1)  # bounds on the costs hold at once with the rest
        # people count what an episode earns, undiscounted
        settings = {"seed": self.seed, "discount": 1.0, "horizon": self.horizon, "bounds": several}
        selection = select(policies, self.data, **settings)
        options = {"log": self.log, "schema": self.schema, "limit": self.limit, "candidates": several}
        judged = selection.ranked if self.limit is not None else selection.ranked[:1]
        return selection, {
            item.name: judge(policies[item.name], self.data, item.estimates, seed=self.seed, **options)
            for item in judged
        }


def _train(
    data: Dataset,
    candidates: Mapping[str, Mapping[str, Any]],
    shared: Mapping[str, Any],
    folder: Path,
    say: Say,
    progress: bool,
) -> dict[str, Run]:
    """Train the candidates one after the other; finished ones are found again, interrupted ones continue."""
    runs: dict[str, Run] = {}
    began, trained = time.monotonic(), 0
    with Stop() as stop:
        for count, (name, settings) in enumerate(candidates.items(), 1):
            place = folder / "candidates" / name.replace(" ", "-")
            refuse_links_below(folder, place)
            asked = _digest(data, {**shared, **settings})
            known = _finished(place, asked)
            left = len(candidates) - count + 1
            rest = f", about {duration((time.monotonic() - began) / trained * left)} left" if trained else ""
            told = "trained already" if known else "training"
            say(f"{told} {count} of {len(candidates)}: {name}{'' if known else rest}")
            line = lambda place=place: f"  {seeds_line([place], int(shared['steps']))}"
            if known is not None:
                runs[name] = known
                continue
            with live(line) if progress else nullcontext():
                runs[name] = train(data, out=str(place), **{**shared, **settings})
            write_record(place / TRAINED, {"asked": asked})
            trained += 1
            if stop.requested:
                raise Interrupted(f"stopped after {name}. Run the same command again to continue.", stop.signal)
    return runs


def _digest(data: Dataset, options: Mapping[str, Any]) -> str:
    """What a candidate is made of: the log and every option."""
    text = json.dumps([data.fingerprint, __version__, dict(options)], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _finished(place: Path, asked: str) -> Run | None:
    """The run of a candidate that was trained from the same log with the same options."""
    done = (place / TRAINED).exists() and (place / "result.json").exists()
    return Run.open(place) if done and read_record(place / TRAINED).get("asked") == asked else None


def _allowed(item: Ranked, judgments: Mapping[str, Judgment]) -> bool:
    known = judgments.get(item.name)
    return item.verdict.answer == "better" and not item.refused and known is not None and known.keeps_limit != "broken"


def _write(decision: Decision, page: str) -> None:
    facts = json.dumps(decision.to_dict(), indent=1) + "\n"
    for place, content in ((decision.page, page), (decision.page.parent / "decision.json", facts)):
        try:
            with complete_file(place) as temporary:
                temporary.write_text(content, "utf-8", errors="replace")
        except OSError as error:
            raise OdiceError(f"{place} cannot be written: {error.strerror or error}.") from None
