"""From arrays of steps to a Dataset: the one place where rows become episodes.

Every reader ends here, so that flags, unfinished tails, missing next observations, dtypes and shapes are treated alike
whatever the file was. Arrays may be anything that can be sliced (an open HDF5 data set too): they are read once, in
blocks, straight into their final place, so that loading needs little more memory than the result.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from odice.data.dataset import Dataset, Episode, UnfinishedEpisodeWarning, blocks
from odice.data.meta import MAX_ACTIONS, Meta
from odice.data.names import ALIASES
from odice.errors import OdiceError
from odice.machine import memory

Allocate = Callable[[str, tuple[int, ...], type], np.ndarray]


def in_memory(name: str, shape: tuple[int, ...], dtype: type) -> np.ndarray:
    """The default place for a data set's arrays. Refuses what cannot fit before touching any memory."""
    need = int(np.prod(shape, dtype=object)) * np.dtype(dtype).itemsize
    have = memory()
    if have is not None and need > 0.9 * have:
        raise OdiceError(
            f"The {name} of shape {shape} need {need / 1e9:,.0f} GB but this machine has {have / 1e9:,.0f} GB of "
            "memory; leave the data on disk (--stream), or check that the file is not damaged."
        )
    # 64-byte alignment lets JAX use the array on a CPU as it is, where it would otherwise make a second copy.
    raw = np.empty(need + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + need].view(dtype).reshape(shape)


def from_steps(
    observations: Any,
    actions: Any,
    rewards: Any,
    *,
    terminated: Any = None,
    truncated: Any = None,
    episode: Any = None,
    next_observations: Any = None,
    next_known: Any = None,
    costs: Any = None,
    propensities: Any = None,
    discrete: bool | None = None,
    meta: Meta | None = None,
    allocate: Allocate = in_memory,
) -> Dataset:
    """Make a Dataset from arrays with one row per step.

    A row ends its episode if `terminated` or `truncated` says so, if the number in `episode` changes after it, or if it
    is the last. An episode that ends without a flag is kept as truncated, with an `UnfinishedEpisodeWarning`.

    Args:
        observations: (steps, obs) what was known before each action.
        actions: (steps, act), or (steps,) numbers of discrete actions.
        rewards: (steps,).
        terminated: (steps,) flags: the world ended with this step.
        truncated: (steps,) flags: the log ended with this step, the world went on.
        episode: (steps,) a number or name that changes from one episode to the next.
        next_observations: (steps, obs). Only those of last steps are kept; inside an episode the next observation is
            the following row, and `meta.evidence["next_mismatch"]` says how often and where the two differ.
        next_known: (steps,) flags: `next_observations` was recorded in this row; by default everywhere.
        costs: (steps,).
        propensities: (steps,) the probability with which each action was chosen.
        discrete: Whether actions are discrete; by default if they are integers.
        meta: What is known of the data besides.
        allocate: Makes the arrays; by default in memory.
    """
    meta = meta or Meta()
    where = meta.source
    named = {
        "observations": observations,
        "actions": actions,
        "rewards": rewards,
        "next_observations": next_observations,
        "costs": costs,
        "propensities": propensities,
    }
    source = {name: _sliceable(name, value, where) for name, value in named.items() if value is not None}
    n = len(source["observations"])
    for name, value in source.items():
        if len(value) != n:
            raise OdiceError(f"{where}: {name!r} has {len(value)} rows but 'observations' has {n}; they must agree.")
    if n == 0:
        raise OdiceError(f"{where}: 0 steps, so no episodes; a data set needs at least one step.")
    if _width(source["observations"]) == 0:
        raise OdiceError(f"{where}: 'observations' has no columns (shape {source['observations'].shape}).")

    ends, flags, evidence = _boundaries(n, terminated, truncated, episode, where)
    lengths = np.diff(ends, prepend=-1)
    packed = allocate("observations", (n + len(ends), _width(source["observations"])), np.float32)
    _pack(packed, source["observations"], ends)
    known = np.zeros(len(ends), bool)
    if "next_observations" in source:
        if _width(source["next_observations"]) != packed.shape[1]:
            raise OdiceError(f"{where}: 'next_observations' has another width than 'observations'; they must agree.")
        mask = None if next_known is None else flag_column("next_known", next_known, n, where)
        known, mismatch = _finish(packed, source["next_observations"], mask, ends)
        evidence |= mismatch
    unknown = (ends + np.arange(len(ends)) + 1)[~known]
    packed[unknown] = packed[unknown - 1]

    acts, n_actions = _actions(source["actions"], discrete, meta, allocate)
    reward = _numbers("rewards", source["rewards"], where, allocate)
    cost = _numbers("costs", source["costs"], where, in_memory) if "costs" in source else None
    chance = _propensities(source["propensities"], where) if "propensities" in source else None
    meta = replace(meta, n_actions=n_actions, evidence={**meta.evidence, **evidence})
    return Dataset(packed, acts, reward, lengths, *flags, known, meta, cost, chance)


def from_episodes(
    episodes: Iterable[Episode | Mapping[str, Any]],
    *,
    discrete: bool | None = None,
    meta: Meta | None = None,
    allocate: Allocate = in_memory,
) -> Dataset:
    """Make a Dataset of episodes: `Episode`s, or mappings with `observations`, `actions`, `rewards` and flags.

    With T actions an episode has T + 1 observations, or T if the final one was not recorded. A flag is one boolean for
    the episode, or one per step, under any of its usual names (`data.names`). A flag inside an episode cuts it there.
    The episodes are walked through twice (sizes, then content), so a lazy sequence stays lazy.
    """
    meta = meta or Meta(source="a list of episodes")
    episodes = episodes if isinstance(episodes, Sequence) else list(episodes)
    if not episodes:
        raise OdiceError(f"{meta.source}: 0 episodes; a data set needs at least one.")
    flags = [_episode_flags(*_mapping(episodes, e, meta)) for e in range(len(episodes))]
    ids = np.repeat(np.arange(len(flags)), [len(term) for term, _, _ in flags])
    term, trunc, known = (np.concatenate(column) for column in zip(*flags, strict=True))
    ends, ended, evidence = _boundaries(len(ids), term, trunc, ids, meta.source)

    first, act, _ = _arrays(*_mapping(episodes, 0, meta), flags[0])
    width = _width(first)
    if width == 0:
        raise OdiceError(f"{meta.source}: the observations of episode 0 have no columns.")
    packed = allocate("observations", (len(ids) + len(ends), width), np.float32)
    choices = _is_discrete(act, discrete, meta)
    acts = np.empty(len(ids), act.dtype) if choices else allocate("actions", (len(ids), _width(act)), np.float32)
    rewards = allocate("rewards", (len(ids),), np.float32)
    step = number = 0  # of the next step, and of the next episode in the result
    for e in range(len(episodes)):
        one, where = _mapping(episodes, e, meta)
        own_obs, own_acts, own_rewards = _arrays(one, where, flags[e])
        if _width(own_obs) != width or own_acts.shape[1:] != act.shape[1:]:
            raise OdiceError(f"{where}: its observations or actions have another width than those of episode 0.")
        steps = len(own_rewards)
        obs = _float32(own_obs[:]).reshape(-1, width)
        rewards[step : step + steps] = _float32(own_rewards[:]).reshape(-1)
        acts[step : step + steps] = np.reshape(own_acts[:], (steps, *acts.shape[1:]))
        for end in ends[number : np.searchsorted(ends, step + steps)]:
            start = ends[number - 1] + 1 if number else 0
            own = obs[start - step : end - step + 2]
            packed[start + number : start + number + len(own)] = own
            if not known[end]:
                packed[end + number + 1] = packed[end + number]
            number += 1
        step += steps
    n_actions = None
    if choices:
        acts, n_actions = _actions(acts, True, meta, allocate)
    meta = replace(meta, n_actions=n_actions, evidence={**meta.evidence, **evidence})
    return Dataset(packed, acts, rewards, np.diff(ends, prepend=-1), *ended, known[ends], meta)


def flag_column(name: str, value: Any, n: int, where: str) -> np.ndarray:
    """A column of booleans; 0 and 1 of any numeric type are accepted, everything else is an error."""
    flags = np.asarray(value[:] if hasattr(value, "shape") else value)
    if flags.shape not in ((n,), (n, 1)):
        raise OdiceError(f"{where}: {name!r} has shape {flags.shape}; expected one flag for each of the {n} steps.")
    flags = flags.reshape(-1)
    if flags.dtype != bool:
        if flags.dtype.kind not in "iuf" or not np.isin(flags, (0, 1)).all():
            raise OdiceError(f"{where}: {name!r} holds values other than 0 and 1; write flags as booleans.")
        flags = flags != 0
    return flags


# --- the steps of it -----------------------------------------------------------------------------------------------


def _boundaries(n, terminated, truncated, episode, where):
    """The last row of each episode, (terminated, truncated) of each, and evidence of missing or early flags."""
    term = np.zeros(n, bool) if terminated is None else flag_column("terminated", terminated, n, where)
    trunc = np.zeros(n, bool) if truncated is None else flag_column("truncated", truncated, n, where)
    last = term | trunc
    evidence = {}
    if episode is not None:
        ids = np.asarray(episode[:] if hasattr(episode, "shape") else episode).reshape(-1)
        if len(ids) != n:
            raise OdiceError(f"{where}: 'episode' has {len(ids)} rows but there are {n} steps; they must agree.")
        changes = np.append(ids[1:] != ids[:-1], True)
        if inside := int((last & ~changes).sum()):
            evidence["flags_inside_episode"] = {"count": inside, "first_row": int(np.argmax(last & ~changes))}
        last |= changes
    last[-1] = True
    ends = np.flatnonzero(last)
    if len(ends) == n and terminated is None and truncated is None:
        term = np.ones(n, bool)  # nothing follows a log of single decisions
    unflagged = ~(term[ends] | trunc[ends])
    if unflagged.any():
        count, of = int(unflagged.sum()), len(ends)
        evidence["unfinished"] = {"count": count, "tail": bool(unflagged[-1])}
        one = count == 1 and unflagged[-1]
        what = "the last episode ends" if one else f"{count} of {of} episodes end"
        kept = "is kept" if one else "are kept"
        message = f"{where}: {what} with neither a terminal nor a timeout flag and {kept} as truncated."
        warnings.warn(UnfinishedEpisodeWarning(message), stacklevel=4)
    return ends, (term[ends], trunc[ends] | unflagged), evidence


def _pack(packed: np.ndarray, source: Any, ends: np.ndarray) -> None:
    """Copy step observations to their places, leaving one free row after each episode."""
    for block in blocks(len(source), packed[:1].nbytes):
        rows = np.arange(block.start, block.stop)
        packed[rows + np.searchsorted(ends, rows)] = _float32(source[block]).reshape(len(rows), -1)


def _finish(packed: np.ndarray, nexts: Any, known: np.ndarray | None, ends: np.ndarray):
    """Fill in the final observations that are known, and compare the others with the rows that follow them."""
    final = np.ones(len(ends), bool) if known is None else known[ends]
    count, first, worst = 0, None, np.zeros(packed.shape[1])
    for block in blocks(len(nexts), packed[:1].nbytes):
        rows = np.arange(block.start, block.stop)
        owner = np.searchsorted(ends, rows)
        after = rows + owner + 1
        value = _float32(nexts[block]).reshape(len(rows), -1)
        is_end = rows == ends[owner]
        fill = is_end & final[owner]
        packed[after[fill]] = value[fill]
        inner = ~is_end if known is None else ~is_end & known[block]
        follows = packed[after[inner]]
        bad = inner.copy()
        bad[inner] = ((follows != value[inner]) & ~(np.isnan(follows) & np.isnan(value[inner]))).any(axis=1)
        if bad.any():
            first = int(rows[np.argmax(bad)]) if first is None else first
            count += int(bad.sum())
            # Rows may be infinite; the evidence goes to JSON, so it is finite.
            with np.errstate(over="ignore", invalid="ignore"):
                apart = np.nan_to_num(np.abs(packed[after[bad]] - value[bad]), nan=0.0)
            worst = np.maximum(worst, apart.max(axis=0, initial=0))
    return final, {"next_mismatch": _mismatch(count, first, worst, packed)} if count else {}


def _mismatch(count: int, first: int | None, worst: np.ndarray, packed: np.ndarray) -> dict[str, Any]:
    """How large the differences are, in the column where they are largest relative to its standard deviation."""
    some = packed[:: max(1, len(packed) // 10_000)].astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        moves = np.nan_to_num(some.std(axis=0), posinf=np.finfo(np.float64).max)
    column = int(np.argmax(worst / np.maximum(moves, 1e-30)))
    return {"count": count, "first_row": first, "largest": float(worst[column]), "column": column}


def _numbers(name: str, source: Any, where: str, allocate: Allocate) -> np.ndarray:
    """One number per step: the rewards, or the costs."""
    if _width(source) != 1:
        raise OdiceError(f"{where}: {name!r} has shape {source.shape}; there must be one {name[:-1]} per step.")
    out = allocate(name, (len(source),), np.float32)
    for block in blocks(len(source), 8):
        out[block] = _float32(source[block]).reshape(-1)
    return out


def _propensities(source: Any, where: str) -> np.ndarray:
    """The probability with which each action was chosen: above 0, or the action would not have been logged."""
    out = _numbers("propensities", source, where, in_memory)
    wrong = ~((out > 0) & (out <= 1))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise OdiceError(
            f"{where}: the propensity of step {row + 1} is {out[row]:g}; it is the probability with which the logged "
            "action was chosen, above 0 and at most 1."
        )
    return out


def _actions(source: Any, discrete: bool | None, meta: Meta, allocate: Allocate) -> tuple[np.ndarray, int | None]:
    n, width, kind = len(source), _width(source), source.dtype.kind
    if not _is_discrete(source, discrete, meta):
        out = allocate("actions", (n, width), np.float32)
        for block in blocks(n, 4 * width):
            out[block] = _float32(source[block]).reshape(-1, width)
        return out, None
    out = allocate("actions", (n,), np.int32)
    least, most = 0, -1
    for block in blocks(n, 8):
        values = np.asarray(source[block]).reshape(-1)
        if kind == "f" and not (np.isfinite(values).all() and (values == np.floor(values)).all()):
            raise OdiceError(
                f"{meta.source}: 'actions' are declared discrete but hold fractions; they must be whole numbers."
            )
        least, most = min(least, int(values.min())), max(most, int(values.max()))
        limit = MAX_ACTIONS if meta.n_actions is None else meta.n_actions
        if least < 0 or most >= limit:
            raise OdiceError(
                f"{meta.source}: 'actions' holds {least if least < 0 else most}, but discrete actions are numbered "
                f"from 0 to {limit - 1}; renumber them, or read them as continuous."
            )
        out[block] = values
    return out, most + 1 if meta.n_actions is None else meta.n_actions


def _is_discrete(source: Any, discrete: bool | None, meta: Meta) -> bool:
    if discrete is None:
        discrete = meta.n_actions is not None or (source.dtype.kind in "iub" and _width(source) == 1)
    if discrete and _width(source) != 1:
        raise OdiceError(f"{meta.source}: discrete actions of shape {source.shape}; there must be one number per step.")
    return discrete


def _sliceable(name: str, value: Any, where: str) -> Any:
    """The array as it is if it can be sliced and is numeric; lists are converted."""
    if isinstance(value, Mapping):
        parts = ", ".join(map(str, value))
        raise OdiceError(f"{where}: {name!r} is a dict of {parts}; join the parts that are vectors into one array.")
    if not (hasattr(value, "shape") and hasattr(value, "dtype")):
        try:
            value = np.asarray(value)
        except ValueError as error:
            raise OdiceError(f"{where}: {name!r} is ragged; every row must have the same number of values.") from error
    if value.dtype.kind not in "fiub":
        raise OdiceError(f"{where}: {name!r} has dtype {value.dtype}; only real numbers can be used.")
    if value.ndim == 0:
        raise OdiceError(f"{where}: {name!r} is a single number; expected one row per step.")
    if value.dtype == np.uint8 and value.ndim > 2:
        shape = list(value.shape[1:])
        raise OdiceError(
            f"{where}: {name!r} are images of shape {shape}, and odice has no networks for images; encode "
            "them as vectors first."
        )
    return value


def _width(array: Any) -> int:
    return int(np.prod(array.shape[1:], dtype=np.int64))


def _float32(block: Any) -> np.ndarray:
    with np.errstate(over="ignore"):  # becomes inf, which the data doctor reports with its place
        return np.asarray(block).astype(np.float32, copy=False)


def _mapping(episodes: Sequence, e: int, meta: Meta) -> tuple[Mapping[str, Any], str]:
    """Episode e with the arrays it needs, and what to call it."""
    where, item = f"{meta.source}, episode {e}", episodes[e]
    one = item._asdict() if isinstance(item, Episode) else item if isinstance(item, Mapping) else {}
    if any(key not in one for key in ("observations", "actions", "rewards")):
        given = f"only {', '.join(map(str, one))}" if one else f"a {type(item).__name__}"
        raise OdiceError(f"{where}: expected a mapping with observations, actions and rewards, found {given}.")
    return one, where


def _episode_flags(one: Mapping[str, Any], where: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Per step: terminated, truncated, and whether the observation after the step was recorded."""
    roles = ("terminated", "truncated")
    flags_given: list[Any] = [next((one[name] for name in ALIASES[role] if name in one), False) for role in roles]
    flags_given = [np.asarray(flag[:] if hasattr(flag, "shape") and flag.shape else flag) for flag in flags_given]
    steps = next((len(flag) for flag in flags_given if flag.ndim), None)
    steps = len(_sliceable("rewards", one["rewards"], where)) if steps is None else steps
    if steps == 0:
        raise OdiceError(f"{where}: it has 0 steps; leave it out.")
    columns = []
    for role, flag in zip(roles, flags_given, strict=True):
        column = flag if flag.ndim else np.append(np.zeros(steps - 1, bool), bool(flag))
        columns.append(flag_column(role, column, steps, where))
    final = one.get("final_known")
    final = len(_sliceable("observations", one["observations"], where)) == steps + 1 if final is None else final
    return columns[0], columns[1], np.append(np.ones(steps - 1, bool), bool(final))


def _arrays(
    one: Mapping[str, Any], where: str, flags: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> tuple[Any, Any, Any]:
    """Observations, actions and rewards, if their lengths fit together."""
    obs, act, rew = (_sliceable(key, one[key], where) for key in ("observations", "actions", "rewards"))
    steps, least = len(flags[0]), len(flags[0]) + int(flags[2][-1])
    if len(rew) != steps or len(act) != steps or not least <= len(obs) <= steps + 1 or _width(rew) != 1:
        raise OdiceError(
            f"{where}: {len(obs)} observations, {len(act)} actions, rewards of shape {rew.shape}; an episode of T "
            f"steps (here {steps}) has T + 1 observations (T if the final one is unknown), T actions and T rewards."
        )
    return obs, act, rew
