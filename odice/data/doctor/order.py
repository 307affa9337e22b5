"""What makes the bounds of an estimate false: a world that changed, rows that belong together, wrong probabilities.

The first two are invisible to an estimate. What shows them is the order of the episodes, so a shuffled log hides them.

    u = reward - what a regression on observation, action and step predicts
    v = action - what a regression on observation and step predicts           (discrete: one column per action)

If the world stays the same and the observations say what mattered, the means of u over stretches of the log have
nothing to do with those of v, however much the behavior learns meanwhile: what its new actions earn, the regression has
accounted for. Only logs of short episodes are judged: in long ones what a regression misses (a goal that is reached
more often) would look the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from odice.data.dataset import Dataset, pick
from odice.data.doctor.finding import Finding
from odice.data.doctor.scan import layout

LONGEST = 20
"""Steps of an episode, at most."""
EPISODES = 100
STRETCHES = 20
ROWS = 20_000
MAX_WIDTH = 50
MAX_ACTIONS = 20
TOGETHER = 0.75
"""Correlation over the stretches; by chance about one in 10,000 is larger."""
STAYS = 0.75
"""Share of the rows that must share a column with the row before for it to mark groups."""
SURE = 4.5
"""Standard errors that are no chance."""
TILT = 2.0
"""Standard errors of a mean by which the stretches shift what an action seems to earn; where the regression fits badly,
the logs of learners reach 1.8."""


def trend(data: Dataset) -> Iterator[Finding]:
    """Rewards and behavior that change together along the log, beyond what observations and actions explain."""
    if (facts := moved_together(data)) is None:
        return
    action, more = facts["action"], facts["more"]
    what = f"action {action} is {'more' if more else 'less'} frequent"
    if not data.discrete:
        what = f"action[{action}] is {'larger' if more else 'smaller'}"
    yield Finding(
        "trend",
        "warning",
        f"The world seems to change along the log: in stretches of its {data.n_episodes:,} episodes where "
        f"{what} than the observations explain, rewards are higher than observations and actions explain (correlation "
        f"{facts['correlation']:.2f}).",
        "What the time brought would be credited to the actions: record what changed, or the time, as an observation; "
        "or keep only a part of the log in which nothing changed, such as the last.",
        facts,
    )


def groups(data: Dataset) -> Iterator[Finding]:
    """One-step episodes in runs that share their observations and their luck, as the visits of one customer do."""
    if (facts := runs_alike(data)) is None:
        return
    columns = facts["columns"]
    yield Finding(
        "grouped-rows",
        "warning",
        f"Every row counts as an episode of its own, but the rows come in about {facts['groups']:,} runs that share "
        f"{', '.join(map(repr, columns[:4]))}{', ...' if len(columns) > 4 else ''} and in which rewards resemble each "
        f"other (correlation {facts['correlation']:.2f}).",
        "Rows of one customer, patient or machine are no independent evidence: name the column that says to whom they "
        "belong as the episode (--episode-column).",
        facts,
    )


def contradicted_propensities(data: Dataset) -> Iterator[Finding]:
    """Stated probabilities that are too small for how often their actions were chosen."""
    if (facts := too_frequent(data)) is None:
        return
    yield Finding(
        "wrong-propensities",
        "warning",
        f"The stated probabilities contradict the log: {facts['where']}action {facts['action']} was chosen "
        f"{facts['times']:.2f} times as often as they say ({facts['errors']:.0f} standard errors too often).",
        "Correct the column of probabilities, or leave it out: without it the behavior is estimated from the log.",
        facts,
    )


def too_frequent(data: Dataset) -> dict[str, Any] | None:
    """The action that most surely occurs more often than its stated probabilities allow, or None.

    The mean of 1{a} / p is the share of the rows in which a is possible, so at most 1; also over the rows where a
    column of the observation is small, or large.
    """
    if data.propensities is None or not data.discrete or data.not_finite():
        return None
    rows = np.sort(np.random.default_rng(0).permutation(data.n_steps)[:ROWS])
    p = pick(data.propensities, rows).astype(np.float64)
    if len(rows) < EPISODES or not (p > 0).all():
        return None
    seen = pick(data.observations, rows + np.searchsorted(data.ends, rows))[:, :MAX_WIDTH]
    above = seen > np.median(seen, axis=0)
    parts = np.concatenate([np.ones((len(rows), 1), bool), above, ~above], axis=1).astype(np.float64)
    columns = layout(data)[: seen.shape[1]]
    names = ["", *(f"where {name} is {side}, " for side in ("large", "small") for name in columns)]
    count, worst, actions = parts.sum(axis=0), None, pick(data.actions, rows)
    for a in range(min(data.spec.action_dim, MAX_ACTIONS)):
        inverse = (actions == a) / p
        mean = inverse @ parts / np.maximum(count, 1)
        error = np.sqrt(np.maximum((inverse**2) @ parts / np.maximum(count, 1) - mean**2, 1e-12) / np.maximum(count, 1))
        sure = np.where(count >= EPISODES / 2, (mean - 1) / error, 0.0)
        j = int(sure.argmax())
        if sure[j] >= SURE and (worst is None or sure[j] > worst["errors"]):
            worst = {"action": a, "where": names[j], "times": float(mean[j]), "errors": float(sure[j])}
    return worst


def runs_alike(data: Dataset) -> dict[str, Any] | None:
    """The columns by which consecutive one-step episodes form groups of like rewards, or None."""
    if data.lengths.max() > 1 or (parts := _unexplained(data)) is None:
        return None
    seen = pick(data.observations, 2 * parts.owner).astype(np.float64)  # each step is followed by a last observation
    change, by_chance = np.diff(seen, axis=0), np.random.default_rng(0).permutation(seen)[1:] - seen[1:]
    usual = np.abs(by_chance).mean(axis=0)
    jump = np.abs(change) > 0.2 * usual
    held = [
        j
        for j in np.flatnonzero((usual > 0) & (1 - jump.mean(axis=0) >= STAYS) & (jump.sum(axis=0) >= 20))
        if np.mean(np.abs(by_chance[:, j]) <= 0.2 * usual[j]) <= 0.5  # else it is nearly always the same anyway
        # A season drifts, a sorted column and a clock go one way; from one customer to the next anything may happen.
        and np.median(np.abs(change[jump[:, j], j])) >= 0.5 * usual[j]
        and 0.2 <= np.mean(change[jump[:, j], j] > 0) <= 0.8
    ]
    same = ~jump[:, held].any(axis=1)
    if not held or same.mean() < STAYS - 0.1:
        return None
    left = (parts.reward - parts.reward.mean()) / max(parts.reward.std(), 1e-12)
    alike = float(np.mean((left[1:] * left[:-1])[same]))
    if alike * same.sum() ** 0.5 < SURE:
        return None
    names = layout(data)
    return {"columns": [names[j] for j in held], "groups": int((~same).sum()) + 1, "correlation": alike}


def moved_together(data: Dataset) -> dict[str, Any] | None:
    """How rewards and actions move together along the log where nothing that was recorded explains it, or None."""
    parts = _unexplained(data)
    if parts is None:
        return None
    owner, reward, actions = parts
    stretch = owner * STRETCHES // data.n_episodes
    count = np.bincount(stretch, minlength=STRETCHES).astype(np.float64)
    if (count == 0).any():
        return None
    mean = lambda x: np.bincount(stretch, x, minlength=STRETCHES) / count
    u, best = mean(reward), None
    for k, column in enumerate(actions.T):
        v = mean(column)
        if min(u.std(), v.std()) < 1e-9:
            continue
        together = float(np.corrcoef(u, v)[0, 1])
        shared = float(np.average((u - u.mean()) * (v - v.mean()), weights=count))
        tilt = abs(shared) / (reward.std() * column.std()) * len(reward) ** 0.5
        if abs(together) >= TOGETHER and tilt >= TILT and (best is None or tilt > best["tilt"]):
            best = {"action": k, "more": together > 0, "correlation": abs(together), "tilt": tilt}
    return best


class _Unexplained(NamedTuple):
    """Of some rows the episode, and what regressions leave of the reward and of the actions."""

    owner: np.ndarray
    reward: np.ndarray
    actions: np.ndarray


def _unexplained(data: Dataset) -> _Unexplained | None:
    """Of the first rows, or of all if there are few; None for a log that is not judged."""
    width = data.observations.shape[1]
    if data.n_episodes < EPISODES or data.lengths.max() > LONGEST or width > MAX_WIDTH or data.not_finite():
        return None
    most = ROWS // STRETCHES
    if data.n_steps <= ROWS:
        rows = np.arange(data.n_steps)
    else:  # the beginnings of the stretches
        begin = data.starts[-(-np.arange(STRETCHES) * data.n_episodes // STRETCHES)]
        rows = np.unique(np.minimum(begin[:, None] + np.arange(most), data.n_steps - 1))
    owner = np.searchsorted(data.ends, rows)
    seen = pick(data.observations, rows + owner).astype(np.float64)
    step = (rows - data.starts[owner]).astype(np.float64)[:, None]
    actions = pick(data.actions, rows)
    if data.discrete:
        actions = np.eye(data.spec.action_dim)[actions][:, :MAX_ACTIONS]
    actions = actions.astype(np.float64).reshape(len(rows), -1)
    situation = _bent(np.concatenate([seen, step], axis=1))
    reward = pick(data.rewards, rows).astype(np.float64)
    done = _standard(actions)
    both = [situation, done] if data.discrete else [situation, done, done**2]
    # What an action earns depends on the situation, and not in a straight line; as many features as the rows allow.
    room = int(min(len(rows) / 5, 600) - sum(part.shape[1] for part in both)) // (1 + done.shape[1])
    bends = _waves(seen, room - seen.shape[1])
    for part in (_standard(seen), bends):
        if 0 < part.shape[1] <= room:
            both += [(part[:, :, None] * done[:, None]).reshape(len(rows), -1)]
    if bends.shape[1]:
        both.append(bends)
    return _Unexplained(owner, _left(np.concatenate(both, axis=1), reward[:, None])[:, 0], _left(situation, actions))


def _bent(x: np.ndarray) -> np.ndarray:
    x = _standard(x)
    return np.concatenate([np.ones((len(x), 1)), x, x**2, np.maximum(x, 0)], axis=1)


def _waves(x: np.ndarray, count: int, most: int = 100) -> np.ndarray:
    """Random features of all columns together, at most so many."""
    rng, count = np.random.default_rng(0), int(np.clip(count, 0, most))
    ways = rng.normal(size=(x.shape[1], count)) / max(x.shape[1], 1) ** 0.5
    return np.tanh(2 * _standard(x) @ ways + rng.normal(size=count))


def _standard(x: np.ndarray) -> np.ndarray:
    std = x.std(axis=0)
    return (x - x.mean(axis=0)) / np.where(std > 1e-12, std, 1.0)


def _left(inputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
    gram = inputs.T @ inputs
    gram += 1e-6 * np.trace(gram) / len(gram) * np.eye(len(gram))
    return targets - inputs @ np.linalg.solve(gram, inputs.T @ targets)
