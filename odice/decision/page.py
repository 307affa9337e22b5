"""The decision page: what a log says about a policy, for a person who has to decide and has never heard of RL."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from odice.decision.advice import STAY, SURE, TRY, advice, number, signed
from odice.decision.judge import Effect, Judgment, effect
from odice.evaluation.changes import action_names, changes
from odice.evaluation.ope.intervals import ALPHA
from odice.evaluation.ope.select import REFUSED
from odice.evaluation.trial import episodes_needed
from odice.reports import html
from odice.reports.charts import histogram

if TYPE_CHECKING:
    from odice.data.dataset import Dataset
    from odice.evaluation.ope.select import Ranked

POWER = 0.8
ROOM, AT_BOUND = 0.2, 0.01
"""Of the range of the returns, how much is added where less than this share of the episodes is at its end."""
WAYS = {
    "fqe": "a model learned from the log that predicts what follows",
    "importance": "logged episodes, weighted by how much they resemble the policy",
    "doubly-robust": "that model, corrected by weighted episodes",
    "one-step": "the logged steps in which the policy's action was taken",
    "propensity": "the logged probabilities of the actions; exact",
}
"""Estimator -> what it is, in plain words."""


@dataclass(frozen=True)
class Checked:
    """One thing that could be wrong: how it was checked and what came out."""

    state: Literal["good", "bad", "not checked"]
    what: str
    why: str


@dataclass(frozen=True)
class Trial:
    """The trial to run next: how many episodes confirm which gain."""

    gain: float
    episodes: int | None
    parallel: bool
    """Whether as many episodes without the policy are needed at the same time."""
    possible: Sequence[str]
    """The least and the most that an episode can earn, as far as the log shows."""
    command: str


@dataclass(frozen=True)
class Paths:
    """What the page's commands name; empty where it is not known."""

    log: str = "LOG"
    schema: str = ""
    policy: str = ""


def decision_page(
    data: Dataset,
    policy: Any,
    judgment: Judgment,
    *,
    title: str = "Should we act differently?",
    health: dict[str, Any] | None = None,
    candidates: list[dict[str, str]] | None = None,
    paths: Paths | None = None,
    span: str = "",
) -> str:
    """Render the page.

    Args:
        data: The log that was used to judge.
        policy: The policy.
        judgment: What the log says about it.
        title: Of the page.
        health: What the run says about its policy (`Run.result["health"]`).
        candidates: Rows of a table of all policies that were compared.
        paths: What its commands name.
        span: From when to when the log is.
    """
    per = "decision" if int(data.lengths.max()) == 1 else "episode"
    many = f"{per}s"
    answer, reason = advice(judgment, (health or {}).get("verdict"), per)
    paths, estimates = paths or Paths(data.meta.source), judgment.estimates
    counted = None if estimates.horizon >= data.lengths.max() else estimates.horizon
    returns = data.returns_within(counted)
    counts, edges = np.histogram(returns, bins=min(30, max(5, int(np.sqrt(data.n_episodes)))))
    reward = dict(data.meta.schema or {}).get("reward", "reward")
    effects = [item for item in (judgment.gain._replace(name=str(reward)), judgment.cost, *judgment.outcomes) if item]
    return html.page(
        "decision.html",
        styles=["decision.css"],
        title=title,
        lead=f"{data.meta.source}: {data.n_steps:,} rows{f', {span}' if span else ''}",
        foot=f"policy: {paths.policy}" if paths.policy else "",
        answer=answer,
        color={TRY: "note", STAY: "warning"}.get(answer, "plain"),
        reason=reason,
        about=_about(data, str(reward), counted),
        cards=_cards(data, returns, per, counted),
        returns=histogram(edges.tolist(), counts.tolist(), f"What one {per} earned ({reward})"),
        today=_shares(data),
        changes=changes(policy, data),
        effects=[_row(effects[0], estimates.verdict.lower_bound), *(_row(item) for item in effects[1:])],
        bars=_interval_bars(judgment.gain, float(returns.min()), float(returns.max())),
        certain=SURE,
        each=100 * estimates.verdict.confidence if estimates.verdict.confidence > 1 - ALPHA else None,
        sentence=_gain_sentence(judgment, per),
        cost=_cost_sentence(judgment, per),
        ways=[WAYS.get(name, name) for name in judgment.gain.by],
        checks=_checks(judgment, health, many),
        trial=_trial(returns, judgment, paths, counted) if answer != STAY else None,
        export=shlex.join(["odice", "export", paths.policy, "--onnx", "policy.onnx"]) if paths.policy else "",
        sure=answer == TRY,
        per=per,
        per_many=many,
        power=POWER,
        candidates=candidates or [],
        verdict=str(estimates.verdict),
        estimators=[
            (name, "–" if one.value is None else _range(one.value), _range(one.improvement), one.unusable or "yes")
            for name, one in estimates.estimates.items()
        ],
    )


def _about(data: Dataset, reward: str, counted: int | None) -> list[str]:
    """Say what the log is in sentences, with its own names."""
    schema = dict(data.meta.schema or {})
    seen, done = list(schema.get("observation", ())), list(schema.get("action", ()))
    low, high = int(data.lengths.min()), int(data.lengths.max())
    if high == 1:
        out = [f"Each of the {data.n_steps:,} rows is one decision."]
    else:
        one = f", one for each {schema['episode']}" if schema.get("episode") else ""
        rows = f"{low} to {high} rows" if low < high else f"{high} rows each"
        out = [f"There are {data.n_episodes:,} episodes{one}, of {rows}. Each row is one decision."]
    if seen and done:
        more = f" and {len(seen) - 8} more columns" if len(seen) > 8 else ""
        names = ", ".join(seen[:8]) + more
        out.append(f"Known before it: {names}. Decided: {', '.join(done)}. What counts afterwards: {reward}.")
    out += [f"{text[0].upper()}{text[1:]}." for text in data.meta.history if text.endswith("left out")]
    if counted is not None:
        out.append(
            f"The log stops before many episodes are over, so the first {counted} rows of each are counted, and every "
            "number per episode on this page means those."
        )
    return out


def _cards(data: Dataset, returns: np.ndarray, per: str, counted: int | None) -> list[tuple[str, str]]:
    cards = [(f"{data.n_episodes:,}", "decisions" if per == "decision" else "episodes")]
    if per != "decision":
        cards.append((f"{data.n_steps:,}", "decisions"))
    cards.append((html.number(float(returns.mean())), f"earned per {per}"))
    if data.costs is not None:
        cost = replace(data, rewards=data.costs).returns_within(counted).mean()
        cards.append((html.number(float(cost)), f"cost per {per}"))
    return cards


def _shares(data: Dataset) -> list[tuple[str, float]]:
    """Return how often each choice was taken; nothing for amounts."""
    if not data.discrete:
        return []
    names = action_names(data)
    share = np.bincount(data.actions, minlength=len(names)) / data.n_steps
    order = np.argsort(-share)[:12]
    return [(names[i], float(share[i])) for i in order]


def _gain_sentence(judgment: Judgment, per: str) -> str:
    gain, bound = judgment.gain.change, judgment.estimates.verdict.lower_bound
    about = f"about {number(abs(gain.mean))} {'more' if gain.mean >= 0 else 'less'} per {per} than today"
    if not judgment.gain.supported:
        return f"That is not known. A model learned from the log expects {about}; nothing in the log confirms it."
    if bound is not None:
        return f"The policy would earn {about}, and at least {number(bound)} more ({SURE})."
    return f"The policy would earn {about}: between {signed(gain.low)} and {signed(gain.high)} ({SURE})."


def _range(item: Any) -> str:
    return f"{number(item.mean)} ({number(item.low)} to {number(item.high)})"


def _row(item: Effect, bound: float | None = None) -> dict[str, str]:
    """Return a line of the table; where a bound on one side is stated, it stands in place of the range."""
    ends = f"{signed(item.change.low)} to {signed(item.change.high)}" if item.supported else "not confirmed"
    if item.supported and bound is not None:
        ends = f"at least {signed(bound)}"
    return {"name": item.name, "today": number(item.today.mean), "change": f"{signed(item.change.mean)} ({ends})"}


def _interval_bars(gain: Effect, low: float, high: float) -> list[dict[str, Any]]:
    """Return the intervals of today's return and of the policy's as positions in percent; none without evidence."""
    if not gain.supported:
        return []
    rows = [("today", gain.today), ("the policy", gain.policy)]
    ends = [end for _, item in rows for end in (item.low, item.high)]
    room = 0.5 * (max(ends) - min(ends)) + 1e-12
    least, most = max(min(low, min(ends)), min(ends) - room), min(max(high, max(ends)), max(ends) + room)
    place = lambda value: 100 * (value - least) / max(most - least, 1e-12)
    return [
        {
            "name": name,
            "left": f"{place(item.low):.1f}",
            "width": f"{max(place(item.high) - place(item.low), 0.6):.1f}",
            "mean": f"{place(item.mean):.1f}",
            "text": _range(item),
        }
        for name, item in rows
    ]


def _cost_sentence(judgment: Judgment, per: str) -> str:
    if judgment.cost is None:
        return ""
    change, cost, limit = judgment.cost.change, judgment.cost.policy, number(judgment.limit)
    sentence = (
        f"Today a{'n' if per == 'episode' else ''} {per} costs {number(judgment.cost.today.mean)}"
        f"{', which is above the limit' if judgment.today_breaks_limit else ''}. With the policy it would cost "
        f"about {number(abs(change.mean))} {'more' if change.mean >= 0 else 'less'}"
    )
    if judgment.cost.supported:
        sentence += f": between {signed(change.low)} and {signed(change.high)}."
    else:
        sentence += ", by a model that nothing in the log confirms."
    may = f" It may reach {number(cost.high)}." if judgment.cost.supported else ""
    answers = {
        "kept": f" That is within the limit of {limit}.",
        "broken": f" That is above the limit of {limit}.",
        "not known": f"{may} Whether it stays within the limit of {limit} is not known.",
        None: " No limit on the cost was given.",
    }
    return f"{sentence}{answers[judgment.keeps_limit]}"


def _checks(judgment: Judgment, health: dict[str, Any] | None, many: str) -> list[Checked]:
    estimates = judgment.estimates
    outside, enough = estimates.outside, estimates.episodes >= 200
    judged = f"{estimates.judged_by[:1].upper()}{estimates.judged_by[1:]}.".replace("episodes", many)
    checks = [
        Checked(
            "good" if outside <= 0.1 else "bad",
            "Known ground",
            "The policy does nothing that was hardly ever done in such a situation."
            if outside < 0.005
            else f"In {outside:.0%} of the log's situations the policy does what was hardly ever done there; the log "
            "cannot show what happens then.",
        ),
        Checked(
            "good" if enough else "bad",
            "Enough to judge by",
            judged if enough else f"{judged} With fewer than 200, luck weighs heavily.",
        ),
    ]
    if estimates.doubt:
        checks.append(Checked("bad", "One world, and what was written down of it", estimates.doubt))
    if not estimates.known:
        checks.append(
            Checked(
                "not checked" if estimates.calibration <= 0.05 else "bad",
                "Why things were done",
                f"The log does not say with which probability each action was chosen; a model of it is off by "
                f"{estimates.calibration:.1%} where it could be checked. If people acted on something that is not in "
                "the log, or the world has changed while it was kept, every estimate here is wrong, and no log shows "
                "that.",
            )
        )
    if estimates.cut:
        checks.append(
            Checked("bad", "Unfinished episodes", f"Episodes that stop early and count only in part: {estimates.cut}.")
        )
    if health:
        checks.append(_training(health))
    else:
        checks.append(
            Checked("not checked", "Training", "No run is known for this policy, so its training is unknown.")
        )
    checks.append(
        Checked(
            "not checked",
            "New situations",
            "The policy knows the situations of this log only. Its guard measures how new a situation is and says when "
            "to fall back on today's practice.",
        )
    )
    return checks


def _training(health: dict[str, Any]) -> Checked:
    verdict = str(health.get("verdict"))
    memorized = (health.get("measures") or {}).get("memorized")
    more = ""
    if isinstance(memorized, float) and memorized > 0.05:
        more = f" On new episodes it predicts actions {memorized:.0%} worse than on those it learned from."
    said = str(health.get("says", verdict)).removeprefix(f"{verdict}: ")
    begin = {
        "watch": "The check of the training has a warning, for those who know the method",
        REFUSED: "The training did not pass its check",
    }
    text = f"{begin.get(verdict, 'The check of the training says')}: {said}.{more}"
    if verdict in ("good", "not checked"):
        return Checked("good" if verdict == "good" else "not checked", "Training", text)
    return Checked("bad", "Training", text)


def _trial(returns: np.ndarray, judgment: Judgment, paths: Paths, counted: int | None) -> Trial | None:
    """Plan the trial for the gain that the log supports, else for the one that it estimates."""
    bound, room = judgment.estimates.verdict.lower_bound, float(returns.max() - returns.mean())
    gain = min(judgment.gain.change.mean if bound is None else bound, 0.9 * room)
    if gain <= 0:
        return None
    ends = [f"{end:.10g}" for end in _possible(returns)]
    words = ["--gain", f"{gain:.4g}", "--range", *ends]
    words += ["--horizon", str(counted)] if counted is not None else []
    words += ["--schema", paths.schema] if paths.schema else []
    words += ["--policy", paths.policy] if paths.policy else []
    command = lambda control: shlex.join(["odice", "trial", "TRIAL.csv", "--control", control, *words])
    needed = partial(episodes_needed, returns, gain, limits=(float(ends[0]), float(ends[1])), power=POWER)
    if (episodes := needed()) is not None:
        return Trial(gain, episodes, False, ends, command(paths.log))
    # A short log leaves too much in doubt to compare with; a group at the same time does not.
    return Trial(gain, needed(parallel=True), True, ends, command("CONTROL.csv"))


def _possible(returns: np.ndarray) -> tuple[float, float]:
    """What an episode can earn, to be fixed before a trial: the range of the log, rounded outwards to three digits.

    An end that few episodes reach is no bound (a best day, say, is not the best possible), and gets room beyond it.
    """
    low, high = float(returns.min()), float(returns.max())
    room = ROOM * (high - low)
    low -= room * (np.mean(returns == low) < AT_BOUND)
    high += room * (np.mean(returns == high) < AT_BOUND)
    unit = 10.0 ** (math.floor(math.log10(max(high - low, 1e-9))) - 2)
    return math.floor(low / unit) * unit, math.ceil(high / unit) * unit


def candidate_row(item: Ranked, judgment: Judgment | None = None) -> dict[str, str]:
    """Return a row of the table of all policies that were compared."""
    gain, bound = effect(item.name, item.estimates).change, item.verdict.lower_bound
    row = {
        "policy": item.name,
        "gain, estimated": f"{gain.mean:+.4g}",
        "at least": "no bound" if bound is None else f"{bound:+.4g}",
        "answer": item.verdict.answer,
        "training": item.health or "not checked",
    }
    if judgment is not None and judgment.limit is not None and judgment.cost is not None:
        row["cost, at most"] = number(judgment.cost.policy.high)
        row["limit"] = str(judgment.keeps_limit)
    return row
