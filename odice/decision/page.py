"""The decision page: what a log says about a policy, for a person who has to decide and has never heard of RL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from odice.evaluation.changes import action_names, changes
from odice.evaluation.ope.select import REFUSED
from odice.evaluation.trial import episodes_needed
from odice.reports import html
from odice.reports.charts import histogram

if TYPE_CHECKING:
    from odice.data.dataset import Dataset
    from odice.evaluation.ope.estimate import Estimates

Advice = Literal["try it on a small scale", "go on as before", "nothing can be said"]
POWER = 0.8


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


def advice(estimates: Estimates, health: str | None = None) -> tuple[Advice, str]:
    """Return what to do next, and why in a sentence.

    Args:
        estimates: What the log says.
        health: The verdict of the run's health check, if there is one; a policy that it refuses is never advised.
    """
    verdict = estimates.verdict
    if health == REFUSED:
        return "go on as before", "The policy did not pass its own health check, whatever its estimate is."
    if verdict.answer == "better":
        return "try it on a small scale", (
            f"The log supports that the policy earns at least {html.number(verdict.lower_bound)} more per episode. An "
            "estimate is not a trial: confirm it before it is used everywhere."
        )
    if verdict.answer == "not better":
        return "go on as before", f"The log says that the policy is not better: {verdict.reason}."
    return "nothing can be said", f"The log cannot tell whether the policy is better: {verdict.reason}."


def decision_page(
    data: Dataset,
    policy: Any,
    estimates: Estimates,
    *,
    title: str = "Should we act differently?",
    health: dict[str, Any] | None = None,
    candidates: list[dict[str, str]] | None = None,
    cost: Estimates | None = None,
    command: str = "",
) -> str:
    """Render the page.

    Args:
        data: The log that was used to judge.
        policy: The policy, or None if there is none to advise.
        estimates: What the log says about it.
        title: Of the page.
        health: What the run says about its policy (`Run.result["health"]`).
        candidates: Rows of a table of all policies that were compared: name, gain, answer.
        cost: What the log says about the policy's costs, if it has any.
        command: What stands at the foot of the page.
    """
    answer, reason = advice(estimates, (health or {}).get("verdict"))
    difference = changes(policy, data) if policy is not None else None
    low, high = float(data.returns.min()), float(data.returns.max())
    counts, edges = np.histogram(data.returns, bins=min(30, max(5, int(np.sqrt(data.n_episodes)))))
    return html.page(
        "decision.html",
        styles=["decision.css"],
        title=title,
        lead=f"{data.meta.source}: {data.n_episodes:,} episodes, {data.n_steps:,} steps",
        foot=command,
        answer=answer,
        color={"try it on a small scale": "note", "go on as before": "warning"}.get(answer, "plain"),
        reason=reason,
        cards=_cards(data),
        returns=histogram(edges.tolist(), counts.tolist(), "What an episode earned"),
        today=_shares(data),
        changes=difference,
        bars=_interval_bars(estimates, low, high),
        sentence=_gain_sentence(estimates),
        cost=_cost_sentence(data, cost),
        judged=estimates.judged_by,
        checks=_checks(estimates, health),
        trial=_trial(data, estimates) if answer != "go on as before" else None,
        power=POWER,
        candidates=candidates or [],
    )


def _cards(data: Dataset) -> list[tuple[str, str]]:
    cards = [
        (f"{data.n_episodes:,}", "episodes"),
        (f"{data.n_steps:,}", "steps"),
        (html.number(float(data.returns.mean())), "earned per episode"),
        (html.number(float(data.lengths.mean()), 3), "steps per episode"),
    ]
    if data.costs is not None:
        cost = np.add.reduceat(data.costs, data.starts).mean()
        cards.append((html.number(float(cost)), "cost per episode"))
    return cards


def _shares(data: Dataset) -> list[tuple[str, float]]:
    """Return how often each choice was taken; nothing for amounts."""
    if not data.discrete:
        return []
    names = action_names(data)
    share = np.bincount(data.actions, minlength=len(names)) / data.n_steps
    order = np.argsort(-share)[:12]
    return [(names[i], float(share[i])) for i in order]


def _gain_sentence(estimates: Estimates) -> str:
    shown = _shown(estimates)
    if shown is None:
        return "No estimate of the difference can be given."
    gain = shown.improvement
    more = "more" if gain.mean >= 0 else "less"
    return (
        f"Compared with today the policy would earn about {html.number(abs(gain.mean))} {more} per episode; "
        f"anything between {_signed(gain.low)} and {_signed(gain.high)} is possible (95 % interval, by {shown.name})."
    )


def _signed(value: float) -> str:
    return f"{'+' if value >= 0 else '−'}{html.number(abs(value))}"


def _shown(estimates: Estimates):
    """Return the estimate that the page shows: of those the verdict rests on, the most cautious."""
    names = [name for name in estimates.verdict.witnesses if name in estimates.estimates] or list(estimates.estimates)
    usable = [estimates.estimates[name] for name in names]
    return min(usable, key=lambda item: item.improvement.low, default=None)


def _interval_bars(estimates: Estimates, low: float, high: float) -> list[dict[str, Any]]:
    """Return the intervals of today's return and of the policy's as positions in percent."""
    shown = _shown(estimates)
    rows = [("today", estimates.behavior)]
    if shown is not None:
        gain, today = shown.improvement, estimates.behavior.mean
        rows.append(("the policy", gain._replace(mean=today + gain.mean, low=today + gain.low, high=today + gain.high)))
    least = min([low, *(item.low for _, item in rows)])
    most = max([high, *(item.high for _, item in rows)])
    place = lambda value: 100 * (value - least) / max(most - least, 1e-12)
    return [
        {
            "name": name,
            "left": f"{place(item.low):.1f}",
            "width": f"{max(place(item.high) - place(item.low), 0.6):.1f}",
            "mean": f"{place(item.mean):.1f}",
            "text": f"{html.number(item.mean)} ({html.number(item.low)} to {html.number(item.high)})",
        }
        for name, item in rows
    ]


def _cost_sentence(data: Dataset, estimates: Estimates | None) -> str:
    if data.costs is None:
        return ""
    cost = np.add.reduceat(data.costs, data.starts)
    sentence = f"An episode of the log cost {html.number(float(cost.mean()))}."
    if estimates is None or (shown := _shown(estimates)) is None:
        return f"{sentence} What the policy costs was not estimated."
    gain = shown.improvement
    return (
        f"{sentence} The policy would cost about {html.number(abs(gain.mean))} {'more' if gain.mean >= 0 else 'less'} "
        f"(between {_signed(gain.low)} and {_signed(gain.high)})."
    )


def _checks(estimates: Estimates, health: dict[str, Any] | None) -> list[Checked]:
    outside = estimates.outside
    checks = [
        Checked(
            "good" if outside <= 0.1 else "bad",
            "Known ground",
            f"In {outside:.0%} of the log's states the policy does what was hardly ever done there; the log cannot "
            "show what happens then.",
        ),
        Checked(
            "good" if estimates.episodes >= 200 else "bad",
            "Enough episodes",
            f"{estimates.judged_by[:1].upper()}{estimates.judged_by[1:]}.",
        ),
    ]
    if health:
        state = {"good": "good", "not checked": "not checked"}.get(str(health.get("verdict")), "bad")
        words = health.get("says") or health.get("reason") or health.get("verdict")
        checks.append(Checked(state, "Training", f"The run's own check: {words}."))  # pyright: ignore[reportArgumentType]
    else:
        checks.append(
            Checked("not checked", "Training", "There is no run behind this policy, so its training is unknown.")
        )
    return checks


def _trial(data: Dataset, estimates: Estimates) -> Trial | None:
    """Plan the trial for the gain that the page shows, or for the smallest that the log could confirm."""
    shown = _shown(estimates)
    gain = shown.improvement.mean if shown is not None else 0.0
    if gain <= 0:
        return None
    room = float(data.returns.max() - data.returns.mean())
    gain = min(gain, 0.9 * room)
    return Trial(gain, episodes_needed(data.returns, gain, power=POWER)) if gain > 0 else None
