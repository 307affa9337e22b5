"""Words in the names of columns that speak for a role: `stay_id`, `dose` and `died` are nobody's usual names."""

from __future__ import annotations

import re
from collections.abc import Iterable

from odice.data.names import ALIASES

# Words within a column's name that speak for a role, the strongest first.
_HINTS = {
    "episode": "episode traj trajectory rollout session stay encounter admission visit case trip ticket journey "
    "patient subject customer client user account member household student machine unit",
    "step": "step timestep time timestamp date day week month hour minute tick turn period round frame index order seq "
    "no nr number t",
    "action": "action act decision choice treatment dose dosage arm chosen recommended intervention prescribed offer "
    "channel control command promotion campaign order_qty quantity item setpoint throttle torque bid creative move "
    "drug medication medicine therapy antibiotic recipe",
    "propensity": "propensity propensity_score pscore action_prob action_probability logging_prob prob_of_action",
    "reward": "reward rew payoff profit revenue recovered gain utility return points click clicked conversion "
    "converted sale sales purchase purchased survived success income pnl margin yield score outcome result",
    "cost": "cost costs expense expenses spend spent fee penalty side_effect adverse",
    "terminated": "terminated terminal termination died dead death deceased closed churned failed crashed done end "
    "ended finished is_last discharged default",
    "outcome": "outcome result label final status died dead death survived success discharge class",
    # Words of a value that is not this row's own,
    "lagged": "last prev previous lag lagged past prior old next usual average avg mean",
    # of an outcome that nobody wants,
    "bad": "died dead death deceased churned failed crashed default defaulted relapse readmitted complication lost",
    # of an episode that is over at its last row (a customer or a machine goes on),
    "over": "stay encounter admission visit case trip ticket journey session",
    # and of a probability; whether it is that of the action, its values tell.
    "chance": "probability prob p likelihood chance",
}
HINTS = {role: words.split() for role, words in _HINTS.items()}


def speaks_of(name: str, kind: str) -> bool:
    """Whether a name has a word of this kind."""
    return not set(HINTS[kind]).isdisjoint(words_of(name))


def words_of(name: str) -> list[str]:
    """Split a name into lower-case words: `StayID`, `stay_id` and `stay.id` are `stay`, `id`."""
    parts = re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", name)
    return [word for word in re.split(r"[^a-z]+", parts.lower()) if word] or [name.lower()]


def stem(name: str) -> str:
    return re.sub(r"[\W_]*\d+$", "", name.lower())


def pattern(name: str) -> str:
    return re.sub(r"\d+", "#", name.lower())


def hint(name: str, role: str) -> int | None:
    """Return how strongly a name speaks for a role: 0 is a usual name, larger is weaker, None is not at all."""
    words = words_of(name)
    if name.lower() in ALIASES.get(role, ()) or stem(name) in ALIASES.get(role, ()):
        return 0
    if role in ("action", "propensity", "reward", "cost") and speaks_of(name, "lagged"):
        return None  # of another step
    hints = HINTS.get(role, ())
    ranks: Iterable[int] = (
        hints.index(word) + 1 for word in hints if word in words or "_".join(words) == word or word == stem(name)
    )
    return min(ranks, default=None)
