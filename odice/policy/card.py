"""The model card: a policy's description for people, in Markdown."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from odice.encoding import Column, size
from odice.policy.rows import commonest

if TYPE_CHECKING:
    from odice.policy.policy import Policy

UNSCORED = "None were measured; `odice evaluate POLICY --data LOG` estimates what it earns."


def model_card(policy: Policy) -> str:
    """Return a policy's model card: what it is, what it was learned from, what it scored, and how to use it."""
    about = policy.about
    data = {key: value for key, value in (about.get("data") or {}).items() if key != "schema"}
    facts = {
        "algorithm": about.get("algorithm") or "unknown",
        "environment": policy.env_id or "none (trained without one)",
        "observation": _observation(policy),
        "action": _actions(policy),
        "network": policy.layout.words,
        "gradient updates": about.get("step"),
        **{f"data {key}": value for key, value in data.items()},
    }
    lines = [
        f"# Policy: {_cell(about.get('algorithm') or 'unknown')} for {_cell(_task(policy))}",
        "",
        "A deterministic policy learned offline, from a fixed log of decisions, with `odice`.",
        "",
        *_table(("", ""), {key: value for key, value in facts.items() if value is not None}),
        "",
        *_columns(policy),
        "## Scores",
        "",
        *(_table(("measure", "value"), about["scores"]) if about.get("scores") else [UNSCORED]),
        "",
        "## Health",
        "",
        *_health(about.get("health") or {}),
        "",
        "## Use",
        "",
        "```python",
        "import odice",
        "",
        'policy = odice.Policy.load("PATH/TO/THIS/FOLDER")',
        *_use(policy),
        "```",
        "",
        "As one file for other programs: `odice export PATH/TO/THIS/FOLDER --onnx policy.onnx`.",
        "",
        "It has only seen the states of its data: check it where it will act, "
        "first in simulation or under supervision.",
        "",
        "## Settings",
        "",
        "```json",
        json.dumps({"config": about.get("config"), "preprocess": about.get("preprocess")}, indent=1),
        "```",
        "",
    ]
    return "\n".join(lines)


def _task(policy: Policy) -> str:
    return policy.env_id or ", ".join(policy.action_names) or "an unnamed task"


def _observation(policy: Policy) -> str:
    """What goes in, by name where the log has names."""
    inside = "normalized inside" if policy.obs_mean is not None else "raw"
    if names := [column["name"] for column in policy.columns]:
        return f"{_some(names)}; {policy.obs_dim} numbers once words are encoded, {inside}"
    names = list(policy.guard.names) if policy.guard is not None else []
    return f"{_some(names) if names else f'vector of {policy.obs_dim}'}, {inside}"


def _actions(policy: Policy) -> str:
    """What comes out, by name where the log has names."""
    names = policy.action_names
    if policy.discrete:
        words = f": {', '.join(policy.choices)}" if policy.choices else ""
        return f"{f'{names[0]}, ' if names else ''}one of {policy.action_dim}{words}"
    if policy.action_low is None or policy.action_high is None:
        return f"{_some(names) if names else f'vector of {policy.action_dim}'}, each in [-1, 1]"
    bounds = zip(policy.action_low.tolist(), policy.action_high.tolist(), strict=True)
    named = [f"{name} from {low:g} to {high:g}" for name, (low, high) in zip(names, bounds, strict=False)]
    if named:
        return _some(named)
    return f"vector of {policy.action_dim}, from {policy.action_low.tolist()} to {policy.action_high.tolist()}"


def _some(names: Sequence[str], most: int = 12) -> str:
    """Join names; of more than `most` the first."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def _columns(policy: Policy) -> list[str]:
    """What a row needs: every column, its values or range in the log, and what stands for a missing one."""
    if not policy.columns:
        return []
    lines, at = ["## Columns of a row", "", "| column | in the log | if it is missing |", "|---|---|---|"], 0
    for column in policy.columns:
        lacking = "is known as missing" if column.get("indicator") else "must be there"
        lacking = f"{column['fill']:g} stands in its place" if "fill" in column else lacking
        if column.get("values") and not column.get("indicator"):
            lacking = "the commonest stands in its place, and `choose` says fall back"
        lines.append(f"| {_cell(column['name'])} | {_cell(_seen(policy, column, at))} | {lacking} |")
        at += size(column)
    return [*lines, ""]


def _seen(policy: Policy, column: Column, at: int) -> str:
    """The values of a column in the log."""
    if values := column.get("values"):
        return ", ".join(map(str, values))
    guard = policy.guard
    if guard is None or column.get("width", 1) > 1:
        return "numbers"
    unit = f" {guard.units[at]}" if guard.units and guard.units[at] else ""
    return f"{guard.low[at]:g} to {guard.high[at]:g}{unit}"


def _use(policy: Policy) -> list[str]:
    if not policy.columns:
        return [
            f"action = policy(observation)  # a raw vector of {policy.obs_dim}, or a batch of them; numpy in and out"
        ]
    return [
        *_row(policy),
        "choice = policy.choose(row)  # or a list of rows, or a data frame",
        "choice.action, choice.decision, choice.why",
    ]


def _row(policy: Policy) -> list[str]:
    """A row to try it with: the averages of the log, and of words the commonest."""
    lines, at = ["row = {"], 0
    for column in policy.columns:
        if values := column.get("values"):
            value: Any = commonest(policy, values, at)
        else:
            center = policy.guard.center[at:] if policy.guard is not None else [0.0] * column.get("width", 1)
            numbers = [float(f"{each:.3g}") for each in center[: column.get("width", 1)]]
            value = numbers if "width" in column else numbers[0]
        lines.append(f"    {column['name']!r}: {value!r},")
        at += size(column)
    return [*lines, "}"]


def _health(health: dict[str, Any]) -> list[str]:
    """The result of the run's health check."""
    if not health:
        return ["Not checked."]
    measures = health.get("measures")  # a file may hold anything there
    known = {key: value for key, value in measures.items() if value is not None} if isinstance(measures, dict) else {}
    return [f"**{_cell(health.get('says'))}**", "", *_table(("measure", "value"), known)]


def _table(head: tuple[str, str], rows: dict[str, Any]) -> list[str]:
    return [
        f"| {head[0]} | {head[1]} |",
        "|---|---|",
        *(f"| {_cell(key)} | {_cell(value)} |" for key, value in rows.items()),
    ]


def _cell(value: Any) -> str:
    """A value as text that neither Markdown nor HTML reads as anything else: it may come from a stranger's file."""
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    line = "".join(letter if letter.isprintable() else " " for letter in text[:500])
    return re.sub(r"([\\`*_{}\[\]()#!|~])", r"\\\1", html.escape(line, quote=False))
