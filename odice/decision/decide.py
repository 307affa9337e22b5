"""`odice.decide`: from a log to a page that says whether to act differently.

    read       a table without a schema gets a proposed one (`data.propose`), which is written down
    check      the data doctor; what it calls an error stops here
    train      the candidates, all on the same episodes; the others are held out
    judge      every candidate by the held-out episodes; all bounds hold at once
    decide     the best one that the log supports and health does not refuse, or none
    page       decision.html and decision.json

Everything lies in one folder. The same call continues where it stopped, because every candidate is a run.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from odice.data.dataset import Dataset
from odice.data.doctor import check, inspect
from odice.data.load import load
from odice.data.propose import Proposal, propose
from odice.data.readers.draft import ROWS, schema_text
from odice.data.readers.table import PARQUET, TEXT, scan_first
from odice.data.schema import Schema
from odice.decision.page import Advice, advice, decision_page
from odice.errors import OdiceError
from odice.evaluation.ope.estimate import Estimates, estimate
from odice.evaluation.ope.held_out import evaluation_episodes
from odice.evaluation.ope.select import Ranked, Selection, select
from odice.files import complete_file, refuse_links_below
from odice.policy.policy import Policy
from odice.training.run import Run
from odice.training.train import train

CANDIDATES: dict[str, dict[str, Any]] = {
    "clone": {"algo": "bc"},
    "clone of the best part": {"algo": "bc-10"},
    "auto near the log": {"algo": "auto", "distance": "near"},
    "auto far from it": {"algo": "auto", "distance": "far"},
    "iql": {"algo": "iql"},
}
"""Name of a candidate -> how it is trained."""
STEPS = 10_000
HOLDOUT = 0.3
"""Share of the episodes that judge and do not train. A decision rests on them, so it is larger than in a plain run."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Decision:
    """What to do, and everything that the advice rests on."""

    advice: Advice
    reason: str
    policy: Path | None
    """The folder of the policy that the page describes; it is advised only if `advice` is to try it."""
    name: str
    selection: Selection
    page: Path
    schema: Path | None

    @property
    def estimates(self) -> Estimates:
        """What the log says about the policy that the page describes."""
        return self._ranked.estimates

    @property
    def _ranked(self) -> Ranked:
        return next(item for item in self.selection.ranked if item.name == self.name)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            **self.selection.to_dict(),
            "advice": self.advice,
            "reason": self.reason,
            "candidate": self.name,
            "policy": None if self.policy is None else str(self.policy),
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
    candidates: Mapping[str, Mapping[str, Any]] | None = None,
    confirm: Callable[[Proposal], bool] | None = None,
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
        candidates: Name -> options of `odice.train`; by default a clone, a clone of the best tenth, `auto`
            near the log and far from it, and IQL.
        confirm: Asked about a proposed schema that leaves doubts; False stops with the schema written.
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
    schema_file = None
    if schema is None and _is_table(log):
        schema_file = schema = _proposed_schema(Path(log), folder / "schema.toml", confirm, say)  # pyright: ignore
    elif isinstance(schema, str | Path):
        schema_file = Path(schema)
    readable: dict[str, Any] = {"schema": schema} if schema is not None else {}
    data = log if isinstance(log, Dataset) else load(log, **readable)
    _check(data, tuple(options.get("allow", ())), say)
    say(f"{data.n_episodes:,} episodes, {data.n_steps:,} steps; {holdout:.0%} of the episodes judge, the others train")
    runs: dict[str, Run] = {}
    chosen = dict(candidates or CANDIDATES)
    for number, (name, settings) in enumerate(chosen.items(), 1):
        say(f"training {number} of {len(chosen)}: {name}")
        place = folder / "candidates" / name.replace(" ", "-")
        refuse_links_below(folder, place)
        shared = {"env": "none", "steps": steps, "seed": seed, "holdout": holdout, "quiet": True, **options}
        runs[name] = train(data, out=str(place), **{**shared, **settings})
    say(f"judging {len(runs)} policies")
    policies = {name: Policy.load(run.path / "policy" / "last") for name, run in runs.items()}
    selection = select(policies, data, seed=seed, discount=1.0)  # people count what an episode earns, undiscounted
    return _write(data, policies, runs, selection, folder, schema_file, seed, say)


def _write(
    data: Dataset,
    policies: Mapping[str, Policy],
    runs: Mapping[str, Run],
    selection: Selection,
    folder: Path,
    schema: Path | None,
    seed: int,
    say: Say,
) -> Decision:
    best = selection.ranked[0]
    health = dict(policies[best.name].about.get("health") or {})
    action, reason = advice(best.estimates, best.health)
    page = folder / "decision.html"
    path = runs[best.name].path / "policy" / "last"
    decision = Decision(action, reason, path, best.name, selection, page, schema)
    text = decision_page(
        data,
        policies[best.name],
        best.estimates,
        health=health,
        candidates=[_row(item) for item in selection.ranked],
        cost=_cost(policies[best.name], data, seed),
        command=f"policy: {path}",
    )
    for place, content in ((page, text), (folder / "decision.json", json.dumps(decision.to_dict(), indent=1) + "\n")):
        try:
            with complete_file(place) as temporary:
                temporary.write_text(content, "utf-8", errors="replace")
        except OSError as error:
            raise OdiceError(f"{place} cannot be written: {error.strerror or error}.") from None
    say(str(decision))
    return decision


def _row(item: Ranked) -> dict[str, str]:
    gain = item.estimates.estimates["fqe"].improvement
    bound = item.verdict.lower_bound
    return {
        "policy": item.name,
        "gain, estimated": f"{gain.mean:+.4g}",
        "at least": "no bound" if bound is None else f"{bound:+.4g}",
        "answer": item.verdict.answer,
        "training": item.health or "not checked",
    }


def _cost(policy: Policy, data: Dataset, seed: int) -> Estimates | None:
    """Estimate what the policy costs: the costs in the place of the rewards."""
    if data.costs is None:
        return None
    held_out = evaluation_episodes(policy, data).data
    costs = held_out.costs
    return (
        None
        if costs is None
        else estimate(policy, dataclasses.replace(held_out, rewards=costs), seed=seed, discount=1.0)
    )


# --- reading ----------------------------------------------------------------------------------------------------------


def _is_table(log: Any) -> bool:
    return isinstance(log, str | Path) and str(log).lower().endswith(PARQUET + TEXT) and Path(log).exists()


def _proposed_schema(log: Path, place: Path, confirm: Callable[[Proposal], bool] | None, say: Say) -> Path:
    """Write the proposed schema, unless an earlier call has; a person may have corrected it since."""
    if place.exists():
        say(f"columns as {place} says")
        return place
    table = scan_first(log).head(ROWS).collect()
    proposal = propose(table)
    with complete_file(place) as temporary:
        temporary.write_text(schema_text(table, proposal, str(log), str(place)), "utf-8")
    for item in proposal.roles:
        say(f"  {item.column}: {item.role}{'' if item.sure else ' (?)'} ({item.reason})")
    for role in ("action", "reward"):
        if not proposal.columns(role):
            raise OdiceError(f"{log}: no column looks like the {role}; name it in {place}, then run the same again.")
    for doubt in proposal.doubts:
        say(f"in doubt: {doubt}")
    if proposal.doubts and confirm is not None and not confirm(proposal):
        raise OdiceError(f"Correct {place}, then run the same again.")
    return place


def _check(data: Dataset, allow: tuple[str, ...], say: Say) -> None:
    """Report what the doctor finds, and stop at an error that is not allowed."""
    for finding in inspect(data).findings:
        say(f"{finding.severity}: {finding.message} {finding.advice}")
    check(data, allow)
