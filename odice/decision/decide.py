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

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from odice.data.dataset import Dataset
from odice.data.load import load
from odice.data.schema import Schema
from odice.decision import candidates as training
from odice.decision.advice import Advice, advice
from odice.decision.judge import Judgment, judge, steps_that_count
from odice.decision.page import Paths, candidate_row, decision_page
from odice.decision.read import Ask, Say, checked, is_table, proposed_schema, time_span
from odice.errors import OdiceError
from odice.evaluation.ope.episodes import check_log
from odice.evaluation.ope.estimate import Estimates
from odice.evaluation.ope.select import Ranked, Selection, select
from odice.files import complete_file
from odice.notebook import facts
from odice.policy.policy import Policy
from odice.training.run import Run

STEPS = 10_000
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

    def _repr_html_(self) -> str:
        rows = {"why": self.reason, "policy": f"{self.name}, in {self.policy}", "page": self.page}
        return facts(self.advice.capitalize(), rows)


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
    workers: int | None = None,
    ask: Ask | None = None,
    say: Say = print,
    quiet: bool = False,
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
            near the log and, if the log is long enough, far from it, and IQL.
        workers: How many candidates are trained at a time, each on a core of its own; by default one on each core.
            With 1 they are trained one after the other in this process, which an algorithm that was registered in it
            needs.
        ask: Called with each question about a proposed schema and the proposal; gives the answer, or nothing to take
            the proposed one.
        say: Called with a line of text at every stage.
        quiet: Say nothing.
        **options: More options of `odice.train` for all candidates, and of `odice.load`.

    Returns:
        The decision; its page is in `OUT/decision.html`.
    """
    if not 0.1 <= holdout <= 0.5:
        raise OdiceError(f"holdout is the share of episodes that judge, from 0.1 to 0.5; got {holdout:g}.")
    if workers is not None and workers < 1:
        raise OdiceError(f"workers is how many candidates are trained at a time, at least 1; got {workers}.")
    if quiet:
        say = lambda text: None
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
    wanted = training.usual_candidates(int((1 - holdout) * data.n_steps)) if candidates is None else candidates
    shared = {"env": "none", "steps": steps, "seed": seed, "holdout": holdout, "checkpoint_every": CHECKPOINT}
    shared |= {"quiet": True, **options}
    runs = training.train_candidates(data, wanted, shared, folder, workers=workers, say=say, quiet=quiet)
    many = f"{len(runs)} policies by the episodes that none of them has seen"
    say(f"judging {many if len(runs) > 1 else '1 policy by the episodes that it has not seen'}")
    decision = _concluded(task, runs, folder, Path(schema) if isinstance(schema, str | Path) else None)
    say(str(decision))
    return decision


def _concluded(task: Task, runs: Mapping[str, Run], folder: Path, schema: Path | None) -> Decision:
    """Judge the candidates, and write down what follows."""
    policies = {name: Policy.load(run.path / "policy" / "last") for name, run in runs.items()}
    selection, judgments = task.judge(policies)
    best = max(selection.ranked, key=lambda item: _preference(item, judgments.get(item.name)))
    for item in selection.ranked:
        runs[item.name].remember(item.estimates.summary())
    path = policies[best.name].with_scores(best.estimates.summary()).save(folder / "policy")
    judgment = judgments[best.name]
    answer = advice(judgment, best.health, task.per)
    decision = Decision(*answer, path, best.name, selection, judgment, folder / "decision.html", schema)
    page = decision_page(
        task.data,
        policies[best.name],
        judgment,
        health=dict(policies[best.name].about.get("health") or {}),
        candidates=[candidate_row(item, judgments.get(item.name)) for item in selection.ranked],
        paths=Paths(str(task.log) if isinstance(task.log, str | Path) else "LOG", str(schema or ""), str(path)),
        span=time_span(task.log, task.schema),
    )
    _write(decision, page)
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
            f"{data.n_episodes:,} episodes, {data.n_steps:,} rows; {holdout:.0%} of the episodes judge, "
            "the others train"
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
        best = max(selection.ranked, key=lambda item: _preference(item, None))
        judged = selection.ranked if self.limit is not None else [best]
        return selection, {
            item.name: judge(policies[item.name], self.data, item.estimates, seed=self.seed, **options)
            for item in judged
        }


def _preference(item: Ranked, judgment: Judgment | None) -> tuple[bool, ...]:
    """The key by which the best candidate is chosen; equal keys are decided by rank.

    In this order: the answer "better", not refused by the health check, surely within the limit on the cost, not surely
    above it. If today's practice breaks the limit, a candidate that keeps it comes first.
    """
    limit = None if judgment is None else judgment.keeps_limit
    better = item.verdict.answer == "better" and not item.refused and limit != "broken"
    first = judgment is not None and judgment.today_breaks_limit and limit == "kept" and not item.refused
    return first, better, not item.refused, limit in (None, "kept"), limit != "broken"


def _write(decision: Decision, page: str) -> None:
    facts = json.dumps(decision.to_dict(), indent=1) + "\n"
    for place, content in ((decision.page, page), (decision.page.parent / "decision.json", facts)):
        try:
            with complete_file(place) as temporary:
                temporary.write_text(content, "utf-8", errors="replace")
        except OSError as error:
            raise OdiceError(f"{place} cannot be written: {error.strerror or error}.") from None
