"""What to do next, and why, in words that need no knowledge of statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from odice.evaluation.ope.intervals import ALPHA
from odice.evaluation.ope.select import REFUSED
from odice.evaluation.ope.verdict import FEW_EPISODES, MAX_OUTSIDE
from odice.reports import html

if TYPE_CHECKING:
    from odice.decision.judge import Effect, Judgment

Advice = Literal["try it on a small scale", "go on as before", "nothing can be said"]
TRY, STAY, OPEN = "try it on a small scale", "go on as before", "nothing can be said"
SURE = f"{100 * (1 - ALPHA):.3g} % sure"
"""The confidence of all statements about the chosen policy together, however many it was chosen from."""


def number(value: float | None) -> str:
    """Format with three significant digits."""
    return html.number(value, 3)


def signed(value: float) -> str:
    """Format with three significant digits and the sign."""
    return f"{'+' if value >= 0 else '−'}{number(abs(value))}"


def advice(judgment: Judgment, health: str | None = None, per: str = "episode") -> tuple[Advice, str]:
    """Return what to do next, and why in a sentence or two.

    Args:
        judgment: What the log says.
        health: The verdict of the run's health check, if there is one; a policy that it refuses is never advised.
        per: What the numbers are counted by.
    """
    verdict, cost = judgment.estimates.verdict, judgment.cost
    if health == REFUSED:
        return STAY, "No policy can be advised: the training of the best one did not pass its check, which is below."
    if judgment.today_breaks_limit and judgment.keeps_limit == "kept" and cost is not None:
        return TRY, _within_at_last(judgment, cost, per)
    if verdict.answer == "not better":
        return STAY, f"The log says that the policy earns less than what is done today, not more, per {per}."
    if judgment.keeps_limit == "broken" and cost is not None:
        over = f"at least {number(cost.policy.low)} per {per}, and at most {number(judgment.limit)} is allowed"
        return STAY, f"The policy would cost too much: {over}."
    if verdict.answer != "better":
        return OPEN, f"The log cannot tell whether the policy is better. {_why_open(judgment, per)}"
    if judgment.keeps_limit == "not known" and cost is not None:
        could = f": it may reach {number(cost.policy.high)}" if cost.supported else ""
        limit = f"the limit of {number(judgment.limit)} per {per}"
        return OPEN, f"The policy earns more, but the log cannot tell whether its cost stays within {limit}{could}."
    return TRY, (
        f"The log supports that the policy earns at least {number(verdict.lower_bound)} more per {per} than what is "
        f"done today ({SURE}, a bound on one side). An estimate is not a trial: "
        "confirm it before it is used everywhere."
    )


def _within_at_last(judgment: Judgment, cost: Effect, per: str) -> str:
    """Why a policy is to be tried that keeps a limit which is broken today, whatever it earns."""
    gain = judgment.gain.change
    earns = f"it would change what is earned by {signed(gain.low)} to {signed(gain.high)}"
    return (
        f"What is done today costs {number(cost.today.mean)} per {per}, and at most {number(judgment.limit)} is "
        f"allowed. The policy would cost at most {number(cost.policy.high)}; "
        f"{earns if judgment.gain.supported else 'what it would earn is not known'}. Confirm it before "
        "it is used everywhere."
    )


def _why_open(judgment: Judgment, per: str) -> str:
    estimates, verdict = judgment.estimates, judgment.estimates.verdict
    if estimates.episodes < FEW_EPISODES:
        return f"Only {estimates.episodes} {per}s were left to judge by, and fewer than {FEW_EPISODES} say little."
    if estimates.doubt:
        return estimates.doubt
    if verdict.smallest is not None:
        found = judgment.gain.change.mean
        seen = "and it finds no gain" if found <= 0 else f"and the one that it finds is about {number(found)}"
        return f"With so many {per}s a gain of {number(verdict.smallest)} per {per} or more could be seen, {seen}."
    if estimates.outside > MAX_OUTSIDE:
        return (
            f"In {estimates.outside:.0%} of the situations the policy does what was hardly ever done there, so the log "
            "does not show what would happen."
        )
    if "trained" in verdict.reason:
        return "It was trained on the very episodes that would have to judge it."
    return "Too few of the logged episodes resemble what the policy would do."
