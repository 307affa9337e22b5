"""The model card: a policy's description for people, in Markdown."""

from __future__ import annotations

import html
import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from odice.policy.policy import Policy


def model_card(policy: Policy) -> str:
    """What it is, what it was learned from, what it scored, and how to use it."""
    about, layout = policy.about, policy.layout
    output = {
        "clip": "mean, clipped to the action box",
        "tanh": "tanh of the mean",
        "argmax": "the most likely action",
    }
    actions = f"one of {policy.action_dim}" if policy.discrete else f"vector of {policy.action_dim}, {_bounds(policy)}"
    facts = {
        "algorithm": about.get("algorithm") or "unknown",
        "environment": policy.env_id or "none (trained without one)",
        "observation": f"vector of {policy.obs_dim}, {'normalized inside' if policy.obs_mean is not None else 'raw'}",
        "action": actions,
        "network": f"{' - '.join(map(str, layout.sizes))}, {layout.activation}; {output[layout.output]}",
        "gradient updates": about.get("step"),
        **{f"data {key}": value for key, value in (about.get("data") or {}).items()},
    }
    lines = [
        f"# Policy: {_cell(about.get('algorithm') or 'unknown')} for {_cell(policy.env_id or 'an unnamed task')}",
        "",
        "A deterministic policy learned offline, from a fixed log of decisions, with `odice`.",
        "",
        *_table(("", ""), {key: value for key, value in facts.items() if value is not None}),
        "",
        "## Scores",
        "",
        *(_table(("measure", "value"), about["scores"]) if about.get("scores") else ["None were measured."]),
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
        f"action = policy(observation)  # a raw vector of {policy.obs_dim}, or a batch of them; numpy in and out",
        "```",
        "",
        "It has only seen the states of its data: check it where it will act, first in simulation or under "
        "supervision.",
        "",
        "## Settings",
        "",
        "```json",
        json.dumps({"config": about.get("config"), "preprocess": about.get("preprocess")}, indent=1),
        "```",
        "",
    ]
    return "\n".join(lines)


def _health(health: dict[str, Any]) -> list[str]:
    """What the run that made it says of itself."""
    if not health:
        return ["Not checked."]
    measures = health.get("measures")  # a file may hold anything there
    known = {key: value for key, value in measures.items() if value is not None} if isinstance(measures, dict) else {}
    return [f"**{_cell(health.get('says'))}**", "", *_table(("measure", "value"), known)]


def _bounds(policy: Policy) -> str:
    if policy.action_low is None or policy.action_high is None:
        return "each in [-1, 1]"
    return f"from {policy.action_low.tolist()} to {policy.action_high.tolist()}"


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
