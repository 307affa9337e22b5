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
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from odice.data.dataset import Dataset
from odice.data.load import load
from odice.data.schema import Schema
from odice.decision.advice import Advice, advice
from odice.decision.judge import Judgment, judge, steps_that_count
from odice.decision.page import Paths, candidate_row, decision_page
from odice.decision.read import Ask, Say, checked, is_table, proposed_schema, time_span
from odice.errors import OdiceError
from odice.evaluation.ope.episodes import check_log
from odice.evaluation.ope.estimate import Estimates
from odice.evaluation.ope.select import Ranked, Selection, select
from odice.files import complete_file, refuse_links_below
from odice.policy.policy import Policy
from odice.training.progress import duration
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
    data = _load(log, schema)
    checked(data, tuple(options.get("allow", ())), say)
    meaning = Schema.parse(data.meta.schema or {}, data.meta.source)
    limit = meaning.cost_limit if cost_limit is None else cost_limit
    horizon = steps_that_count(data)
    check_log(data, horizon)
    if limit is not None and data.costs is None:
        raise OdiceError(f"{data.meta.source}: a cost limit needs a cost; name its column as `cost` in the schema.")
    say(f"{data.n_episodes:,} episodes, {data.n_steps:,} rows; {holdout:.0%} of the episodes judge, the others train")
    if horizon is not None:
        say(f"the log stops before many episodes are over, so the first {horizon} rows of each are counted")
    shared = {"env": "none", "steps": steps, "seed": seed, "holdout": holdout, "quiet": True} | options
    shared = {"checkpoint_every": CHECKPOINT, **shared}
    runs = _train(data, dict(candidates or CANDIDATES), shared, folder, say)
    policies = {name: Policy.load(run.path / "policy" / "last") for name, run in runs.items()}
    say(f"judging {len(runs)} policies by the episodes that none of them has seen")
    several = len(runs) * (2 if limit is not None else 1)  # the bounds on the costs hold at once with the others
    # people count what an episode earns, undiscounted
    selection = select(policies, data, seed=seed, discount=1.0, horizon=horizon, bounds=several)
    settings = {"log": log, "schema": meaning, "limit": limit, "seed": seed, "candidates": several}
    judgments = {
        item.name: judge(policies[item.name], data, item.estimates, **settings)
        for number, item in enumerate(selection.ranked)
        if number == 0 or limit is not None
    }
    best = next((item for item in selection.ranked if _allowed(item, judgments)), selection.ranked[0])
    for item in selection.ranked:
        runs[item.name].remember(item.estimates.summary())
    per = "row" if int(data.lengths.max()) == 1 else "episode"
    judgment = judgments[best.name]
    path = policies[best.name].with_scores(best.estimates.summary()).save(folder / "policy")
    told = advice(judgment, best.health, per)
    file = Path(schema) if isinstance(schema, str | Path) else None
    decision = Decision(*told, path, best.name, selection, judgment, folder / "decision.html", file)
    text = decision_page(
        data,
        policies[best.name],
        judgment,
        health=dict(policies[best.name].about.get("health") or {}),
        candidates=[candidate_row(item, judgments.get(item.name)) for item in selection.ranked],
        paths=Paths(data.meta.source, str(file or ""), str(path)),
        span=time_span(log, meaning),
    )
    _write(decision, text)
    say(str(decision))
    return decision


def _load(log: str | Path | Dataset, schema: Any) -> Dataset:
    if isinstance(log, Dataset):
        return log
    return load(log) if schema is None else load(log, schema=schema)


def _train(
    data: Dataset, candidates: Mapping[str, Mapping[str, Any]], shared: Mapping[str, Any], folder: Path, say: Say
) -> dict[str, Run]:
    """Train the candidates one after the other; finished ones are found again, interrupted ones continue."""
    runs: dict[str, Run] = {}
    began, trained = time.monotonic(), 0
    for count, (name, settings) in enumerate(candidates.items(), 1):
        place = folder / "candidates" / name.replace(" ", "-")
        refuse_links_below(folder, place)
        known = (place / "result.json").exists()
        left = len(candidates) - count + 1
        rest = f", about {duration((time.monotonic() - began) / trained * left)} left" if trained else ""
        say(f"{'trained already' if known else 'training'} {count} of {len(candidates)}: {name}{'' if known else rest}")
        runs[name] = train(data, out=str(place), **{**shared, **settings})
        trained += not known
    return runs


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
