"""A policy on the rows of a table: what it would choose, in the words of its log, and whether to trust it there."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from odice.encoding import Column, encode, size, text
from odice.errors import OdiceError
from odice.policy.guard import Decision

if TYPE_CHECKING:
    from odice.policy.policy import Policy

Unseen = Literal["fall back", "commonest", "refuse"]


class Choice(NamedTuple):
    """What a policy chooses for one row."""

    action: Any
    """The word of the choice, or the number of each column of the action by its name."""
    decision: Decision
    """`act`, `warn` or `fall back`."""
    why: tuple[str, ...]
    """What is unusual about the row, in words."""


def choose(policy: Policy, rows: Any, unseen: Unseen) -> Any:
    """See `Policy.choose`."""
    if isinstance(rows, Mapping):
        return _choose(policy, rows, unseen)
    named = rows.iter_rows(named=True) if hasattr(rows, "iter_rows") else rows
    if hasattr(rows, "to_dict") and not hasattr(rows, "iter_rows"):
        named = rows.to_dict("records")
    if not isinstance(named, Iterable) or isinstance(named, str | np.ndarray):
        raise OdiceError("choose takes a row, as a mapping from columns to values, or several rows or a data frame.")
    return [_choose(policy, row, unseen) for row in named]


def _choose(policy: Policy, row: Any, unseen: Unseen) -> Choice:
    if not isinstance(row, Mapping):
        raise OdiceError(f"A row is a mapping from columns to values, got a {type(row).__name__}.")
    known, strange = (row, []) if unseen == "refuse" else replaced(policy, row)
    observation = encode(policy.columns, known)
    why = list(strange)
    decision: Decision = "act"
    if policy.guard is not None:
        score = policy.guard.score(observation)
        decision = str(policy.guard.decide(score))  # pyright: ignore[reportAssignmentType]
        why += policy.guard.explain(observation)
        if decision != "act" and not why:
            why.append(f"the combination of values is unusual (score {float(score):.3g}, usual up to 1)")
    if strange and unseen == "fall back":
        decision = "fall back"
    return Choice(named_action(policy, policy(observation)), decision, tuple(why))


def replaced(policy: Policy, row: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the row with the log's commonest value in the place of categories that the policy does not know.

    Returns:
        The row, and a sentence for each value that was replaced.
    """
    out, why, at = dict(row), [], 0
    for column in policy.columns:
        values = column.get("values")
        if values and not _is_known(row.get(column["name"]), column):
            common = commonest(policy, values, at)
            value = row.get(column["name"])
            what = "missing" if _is_missing(value) else f"{str(value)[:40]!r}, which the log does not have"
            why.append(f"{column['name']} is {what}; {common!r}, the commonest, stands in its place")
            out[column["name"]] = common
        at += size(column)
    return out, why


def _is_known(value: Any, column: Column) -> bool:
    if _is_missing(value):
        return bool(column.get("indicator"))
    return isinstance(value, str | int | float | np.generic) and text(value) in column["values"]


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float | np.floating) and math.isnan(value))


def commonest(policy: Policy, values: Any, at: int) -> str:
    """The value whose indicator has the largest mean in the log, which the guard keeps."""
    if policy.guard is None:
        return values[0]
    return values[int(np.argmax(policy.guard.center[at : at + len(values)]))]


def named_action(policy: Policy, action: np.ndarray) -> Any:
    """Return an action in the words of the log, as far as they are known."""
    if policy.discrete:
        number = int(action)
        return policy.choices[number] if policy.choices else number
    names = policy.action_names or tuple(f"action {i}" for i in range(policy.action_dim))
    return {name: float(value) for name, value in zip(names, action, strict=True)}
