"""The metadata of a data set, and how they are kept in files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from odice.encoding import Column, is_column
from odice.errors import OdiceError

MAX_ACTIONS = 100_000
"""More discrete actions than this are almost surely an identifier or a broken column, not a choice."""


@dataclass(frozen=True)
class Meta:
    """Facts about a data set that its arrays do not hold. Nothing is guessed: unknown is None.

    `evidence` holds what a reader saw in the source and what the T + 1 form can no longer show (for the data doctor):
    a name -> {"count": how often, and details}. `history` says in words how the data set was derived from its sources.
    """

    source: str = "memory"
    env_id: str | None = None
    action_low: tuple[float, ...] | None = None
    action_high: tuple[float, ...] | None = None
    n_actions: int | None = None
    ref_min: float | None = None
    ref_max: float | None = None
    obs_layout: tuple[tuple[str, int], ...] | None = None
    history: tuple[str, ...] = ()
    evidence: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    obs_columns: tuple[Column, ...] | None = None
    """How a row of the table became an observation (`odice.encoding`)."""
    obs_units: tuple[tuple[str, str], ...] | None = None
    """(column, its unit), where the schema says so."""
    action_names: tuple[str, ...] | None = None
    """The columns of the action."""
    choices: tuple[str, ...] | None = None
    """The word of each number of a discrete action, where the log has words."""
    schema: Mapping[str, Any] | None = None
    """What the columns of the table mean (`data.schema`), as it was read. A store keeps it for the policy that is
    trained from it; other saved data do not, because their columns have the usual names."""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; fields that are unknown or empty are left out."""
        return {key: value for key, value in asdict(self).items() if key != "schema" and value not in (None, (), {})}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Meta:
        """The inverse of `to_dict`, also after a trip through JSON. Keys this version does not know are ignored.

        Files carry this, so nothing is taken on trust: a value of the wrong kind is refused by name.
        """
        if not isinstance(state, Mapping):
            raise OdiceError("The metadata 'odice' is not an object of named values; save the data set again.")
        values: dict[str, Any] = {}
        for key, fits in _KINDS.items():
            value = state.get(key)
            if value is None:
                continue
            if not fits(value):
                raise OdiceError(
                    f"The metadata 'odice' is damaged: {key!r} is {str(value)[:60]!r}; save the data set again."
                )
            values[key] = tuple(value) if isinstance(value, list) else value
        if "obs_layout" in values:
            values["obs_layout"] = tuple((name, size) for name, size in values["obs_layout"])
        if "obs_units" in values:
            values["obs_units"] = tuple((name, unit) for name, unit in values["obs_units"])
        return cls(**values)

    @property
    def obs_names(self) -> tuple[str, ...]:
        """A name for every number of an observation; empty where none are known."""
        layout = self.obs_layout or ()
        return tuple(name if size == 1 else f"{name}[{i}]" for name, size in layout for i in range(size))

    def after(self, step: str) -> Meta:
        return replace(self, history=(*self.history, step))


# --- checks of stored values -----------------------------------------------------------------------------------------


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_number(value: Any) -> bool:
    """Not NaN, and within what a float can hold: JSON has no bound on whole numbers."""
    return (isinstance(value, float) and value == value) or (type(value) is int and abs(value) < 1e308)


def _is_list_of(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list | tuple) and all(map(fits, value))


def _is_part(value: Any) -> bool:
    return (
        isinstance(value, list | tuple)
        and len(value) == 2
        and _is_text(value[0])
        and type(value[1]) is int
        and value[1] > 0
    )


def _is_evidence(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(facts, Mapping)
        and type(facts.get("count")) is int
        and facts["count"] >= 0
        and all(isinstance(fact, int | float) for fact in facts.values())
        for facts in value.values()
    )


# field of Meta -> the check of a stored value
_KINDS: dict[str, Callable[[Any], bool]] = {
    "source": _is_text,
    "env_id": _is_text,
    "action_low": _is_list_of(_is_number),
    "action_high": _is_list_of(_is_number),
    "n_actions": lambda value: type(value) is int and 0 < value <= MAX_ACTIONS,
    "ref_min": _is_number,
    "ref_max": _is_number,
    "obs_layout": _is_list_of(_is_part),
    "obs_columns": _is_list_of(is_column),
    "obs_units": _is_list_of(
        lambda pair: isinstance(pair, list | tuple) and len(pair) == 2 and all(map(_is_text, pair))
    ),
    "action_names": _is_list_of(_is_text),
    "choices": _is_list_of(_is_text),
    "history": _is_list_of(_is_text),
    "evidence": _is_evidence,
}
