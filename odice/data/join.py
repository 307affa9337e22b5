"""Several data sets as one, and one in the encoding of another.

Every table numbers its own words: `b` may be action 1 in one and action 0 in another. So before data sets are joined,
or a policy is evaluated on another log, one is translated into the encoding of the other by the names of its columns
and words; what has no counterpart is refused by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from odice.data.dataset import OPTIONAL, Dataset
from odice.data.meta import Meta
from odice.encoding import Column, Encoding, layout, size
from odice.errors import OdiceError


def concatenate(parts: Iterable[Dataset], source: str | None = None) -> Dataset:
    """One data set of all episodes in order: medium + expert = medium-expert.

    Words are numbered alike in all parts. Other metadata that differ become unknown.
    """
    parts = list(parts)
    if not parts:
        raise OdiceError("Nothing to concatenate: give at least one data set.")
    encoding = union([part.encoding for part in parts], [part.meta.source for part in parts])
    parts = [recode(part, encoding) for part in parts]
    specs = [part.spec for part in parts]
    if len({(s.obs_dim, s.discrete, None if s.discrete else s.action_dim) for s in specs}) > 1:
        shapes = "; ".join(f"{p.meta.source}: {tuple(s)}" for p, s in zip(parts, specs, strict=True))
        raise OdiceError(f"Cannot concatenate data sets with different (obs, action, discrete): {shapes}.")
    arrays: dict[str, Any] = {
        item.name: np.concatenate([getattr(part, item.name) for part in parts])
        for item in fields(Dataset)
        if item.name not in ("meta", *OPTIONAL)
    }
    for name in OPTIONAL:  # where one part has none, none are known
        known = [array for part in parts if (array := getattr(part, name)) is not None]
        arrays[name] = np.concatenate(known) if len(known) == len(parts) else None
    return Dataset(**arrays, meta=merge_meta(parts, source))


def merge_meta(parts: Sequence[Dataset], source: str | None = None) -> Meta:
    """The metadata of several data sets as one: unknown where they disagree; counts of evidence add up."""
    metas = [part.meta for part in parts]
    common = {}
    for item in fields(Meta):
        values = [getattr(meta, item.name) for meta in metas]
        if item.name not in ("evidence", "history", "source") and all(v == values[0] for v in values):
            common[item.name] = values[0]
    if parts[0].discrete:
        common["n_actions"] = max(part.spec.action_dim for part in parts)
    evidence: dict[str, dict[str, Any]] = {}
    for meta in metas:
        for key, facts in meta.evidence.items():
            before = evidence.get(key, {"count": 0})
            evidence[key] = {**facts, **before, "count": before["count"] + facts["count"]}
    return Meta(
        source=source or " + ".join(meta.source for meta in metas),
        history=tuple(f"{meta.source}: {step}" for meta in metas for step in meta.history),
        evidence=evidence,
        **common,
    )


# --- encodings --------------------------------------------------------------------------------------------------------


def union(encodings: Sequence[Encoding], sources: Sequence[str]) -> Encoding:
    """The encoding that can hold every row of these logs: their words, in the order of the first log, then new ones."""
    first = encodings[0]
    words = [each.choices for each in encodings]
    if any(words) and not all(words):
        raise OdiceError(_words_against_numbers(sources[[bool(each) for each in words].index(False)], max(words)))
    columns: list[Column] = []
    for column in first.columns:
        alike = [next((c for c in each.columns if c["name"] == column["name"]), None) for each in encodings]
        columns.append(_union_column(column, [each for each in alike if each is not None]))
    return Encoding(tuple(columns), tuple(dict.fromkeys(word for each in words for word in each)))


def _union_column(column: Column, others: Sequence[Column]) -> Column:
    """A column with the categories, the fill value and the indicator that any of the logs has."""
    merged = dict(column)
    if column.get("values"):
        merged["values"] = tuple(dict.fromkeys(word for each in others for word in each.get("values") or ()))
    for key in ("fill", "indicator"):
        known = [each[key] for each in others if key in each]
        if known:
            merged[key] = known[0]
    return merged


def recode(dataset: Dataset, encoding: Encoding) -> Dataset:
    """The data set in another encoding; refused by name where a column, a word or a missing value has no place in it.

    Args:
        dataset: The episodes. If nothing is known of the columns behind its observations, they are left as they are.
        encoding: The encoding of a policy, or of the data set that this one joins.
    """
    changed: dict[str, Any] = {}
    meta = dataset.meta
    if dataset.discrete and encoding.choices != dataset.encoding.choices:
        changed["actions"] = _recode_actions(dataset, encoding.choices)
        meta = replace(meta, choices=encoding.choices, n_actions=len(encoding.choices))
    ours, theirs = dataset.encoding.columns, encoding.columns
    if ours and theirs and list(map(_plain, ours)) != list(map(_plain, theirs)):
        changed["observations"] = _recode_observations(dataset, theirs)
        meta = replace(meta, obs_columns=theirs, obs_layout=layout(theirs))
    return replace(dataset, **changed, meta=meta) if changed else dataset


def _plain(column: Column) -> dict[str, Any]:
    """A column that compares equal before and after a trip through JSON."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in column.items()}


def _recode_actions(dataset: Dataset, words: Sequence[str]) -> np.ndarray:
    known, source = dataset.encoding.choices, dataset.meta.source
    if not known or not words:
        raise OdiceError(_words_against_numbers(source, known or words))
    numbers = {word: i for i, word in enumerate(words)}
    actions = np.array([numbers.get(word, -1) for word in known], np.int32)[dataset.actions]
    unknown = actions < 0
    if unknown.any():
        step = int(np.argmax(unknown))
        raise OdiceError(
            f"{source}: step {step} takes the action {known[dataset.actions[step]][:40]!r}, which is not among "
            f"{', '.join(word[:40] for word in words[:8])}; give a log with those actions, or leave its episode out."
        )
    return actions


def _words_against_numbers(source: str, words: Sequence[str]) -> str:
    shown = ", ".join(word[:40] for word in words[:8])
    return (
        f"{source}: nothing says which number of an action is which word ({shown}), because only one of this log and "
        "its counterpart (the policy, or the other log) has words; write the same words in both."
    )


def _recode_observations(dataset: Dataset, columns: Sequence[Column]) -> np.ndarray:
    """The observations, column by column, in the order and with the categories of `columns`."""
    ours, source = dataset.encoding.columns, dataset.meta.source
    places, at = {}, 0
    for column in ours:
        places[column["name"]] = at
        at += size(column)
    by_name = {column["name"]: column for column in ours}
    for column in columns:
        if column["name"] not in by_name:
            raise OdiceError(
                f"{source}: lacks the column {column['name'][:60]!r}, which the policy or the other log has; name the "
                "same observation columns for both with --observation-columns or --schema."
            )
    if extra := [name for name in by_name if name not in {column["name"] for column in columns}]:
        raise OdiceError(
            f"{source}: has the column {extra[0][:60]!r}, which the policy or the other log lacks; name the same "
            "observation columns for both with --observation-columns or --schema."
        )
    out = np.zeros((len(dataset.observations), sum(map(size, columns))), np.float32)
    at = 0
    for column in columns:
        own, start = by_name[column["name"]], places[column["name"]]
        part = dataset.observations[:, start : start + size(own)]
        out[:, at : at + size(column)] = _recode_column(part, own, column, source)
        at += size(column)
    return out


def _recode_column(part: np.ndarray, own: Column, wanted: Column, source: str) -> np.ndarray:
    """The numbers of one column in another encoding of it."""
    name = own["name"][:60]
    words, known = own.get("values") or (), list(wanted.get("values") or ())
    if bool(words) != bool(known) or own.get("width", 1) != wanted.get("width", 1):
        raise OdiceError(
            f"{source}: the column {name!r} is {_kind(own)}, and {_kind(wanted)} for the policy or in the other log; "
            "read both alike, with `categories` if its numbers are categories."
        )
    if "fill" in own and own.get("fill") != wanted.get("fill"):
        raise OdiceError(
            f"{source}: a missing value of {name!r} became {own['fill']:g}, where the policy or the other log has "
            f"{format(wanted['fill'], 'g') if 'fill' in wanted else 'none that is missing'}; fill the gaps in both "
            "logs alike before they are read, or split at them with `missing` split."
        )
    out = np.zeros((len(part), size(wanted)), np.float32)
    for i, word in enumerate(words):
        if word in known:
            out[:, known.index(word)] = part[:, i]
        elif part[:, i].any():
            raise OdiceError(
                f"{source}: the column {name!r} holds {word[:40]!r}, which is not among "
                f"{', '.join(each[:40] for each in known[:8])}; the policy or the other log does not know it."
            )
    if not words:
        out[:, : own.get("width", 1)] = part[:, : own.get("width", 1)]
    if own.get("indicator"):
        if wanted.get("indicator"):
            out[:, -1] = part[:, -1]
        elif part[:, -1].any():
            raise OdiceError(
                f"{source}: values of {name!r} are missing, and none were in the policy's or the other log; leave "
                "those rows out with `missing` split."
            )
    return out


def _kind(column: Column) -> str:
    width = column.get("width", 1)
    return "a category" if column.get("values") else "a number" if width == 1 else f"a list of {width} numbers"
