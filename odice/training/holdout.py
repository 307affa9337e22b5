"""Episodes held out of training, and the fixed transitions by which a run judges its policy.

Held-out episodes show overfitting: how likely their actions are to the policy, and how well V predicts its own next
value there. They also are where the policy is compared with two yardsticks that need no training:

    chance    always the log's most common action, or its mean action
    cloning   the better of ten nearest neighbors and a linear fit, from other episodes of the log

    gain = 1 - error / error of chance        error: share of wrong choices, or mean squared distance

A policy may differ from the log on purpose. But one that is no better than chance, where neighbors are, has not learned
from the log at all. Cloning by neighbors costs a second instead of a second run, and what it cannot predict nobody
could.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from odice.caching import Later
from odice.core.extraction import Density
from odice.core.numerics import nearest, returns_to_go
from odice.data.dataset import Dataset, pick
from odice.data.store import Streamed
from odice.data.transitions import Convention, rows_of
from odice.policy.guard import POOL, Guard, fit_guard
from odice.types import Acts, Batch, Spec, Transitions

ROWS, REFERENCE = 1024, 4096
"""At most so many transitions are measured on, and cloning finds its neighbors among so many others."""
NEIGHBORS = 10
SIMILAR = {True: 100, False: 20}
"""Neighbors by which a discrete or a continuous action is rare: shares need more of them than distances do."""
RARE, OF_UNIFORM, USUAL = 0.05, 0.5, 0.95
RETURNS = 200
"""Episodes from which the range of the discounted returns is taken."""


class Nearby(NamedTuple):
    """What the log did in the states most similar to each of the judged ones, in other episodes."""

    actions: np.ndarray
    """(rows, neighbors) or (rows, neighbors, act)."""
    limit: float
    """Discrete: an action is rare if fewer than this share of the neighbors took it. Continuous: it is unusual if it is
    farther than this from every neighbor's action, as one logged action in twenty is."""

    def outside(self, action: np.ndarray) -> float:
        """The share of rows in which the log hardly ever did what is done here."""
        if action.ndim == 1:
            return float(np.mean(np.mean(self.actions == action[:, None], axis=1) < self.limit))
        return float(np.mean(_distance(self.actions, action) > self.limit))


class Yardsticks(NamedTuple):
    """What needs no training."""

    chance: float
    """Error of always doing the same."""
    clone_gain: float
    """How much better than chance cloning is; near 0 means that the log's actions do not depend on what was
    observed."""
    nearby: Nearby | None = None
    """None where the log's numbers are not finite."""


class Probe(NamedTuple):
    """Fixed transitions, as the algorithm sees them, and what the yardsticks make of them."""

    trained: Batch
    held: Batch | None
    returns: tuple[float, float]
    """The least and the largest discounted return from any step of the log, of the rewards the algorithm sees."""
    yardsticks: Callable[[], Yardsticks]
    """Fitted when they are first asked for."""

    @property
    def judged(self) -> Batch:
        """The held-out transitions, or the others where none are held out."""
        return self.trained if self.held is None else self.held

    def gain(self, policy: Acts) -> float:
        """How much better than chance a policy predicts the log's actions, held out of training if any are."""
        return self._gain(policy, self.judged)

    def memorized(self, policy: Acts) -> float | None:
        """How much better it predicts actions that it was trained on; None where nothing was held out."""
        return None if self.held is None else self._gain(policy, self.trained) - self._gain(policy, self.held)

    def outside(self, policy: Acts) -> float | None:
        """The share of states in which the policy does what the log hardly ever did."""
        nearby = self.yardsticks().nearby
        return None if nearby is None else nearby.outside(np.asarray(_mode(policy, self.judged.obs)))

    def _gain(self, policy: Acts, batch: Batch) -> float:
        return 1.0 - error(np.asarray(_center(policy, batch.obs)), np.asarray(batch.action)) / self.yardsticks().chance


@eqx.filter_jit
def _mode(policy: Acts, obs: Any) -> Any:
    """The policy's actions, in one program: op by op, every run would compile a dozen small ones."""
    return policy.mode(obs)


@eqx.filter_jit
def _center(policy: Acts, obs: Any) -> Any:
    """The middle of what a policy may do, where it draws: a draw is farther from the log's action than the middle is,
    also if both are drawn alike."""
    return policy.center(obs) if isinstance(policy, SampledPolicy) else policy.mode(obs)


@runtime_checkable
class SampledPolicy(Protocol):
    """A policy whose action is one of several draws."""

    def center(self, obs: Any) -> Any: ...


def error(predicted: np.ndarray, action: np.ndarray) -> float:
    """The share of wrong choices, or the mean squared distance."""
    if action.ndim == 1:
        return float(np.mean(predicted != action))
    return float(np.mean(np.square(predicted - action)))


# --- choosing the transitions, and measuring --------------------------------------------------------------------------


def make_probe(
    source: Transitions | Streamed,
    seen: Dataset,
    held: Transitions | None,
    convention: Convention,
    discount: float,
    fitted: Any,
) -> Probe:
    """Choose the transitions. The yardsticks are fitted later, to copies of a few thousand rows.

    Args:
        source: What batches are made of.
        seen: The data set that the rows of `source` are made of.
        held: Transitions of the episodes that are held out of training.
        convention: Which steps of `seen` are rows of `source`.
        discount: Of the returns.
        fitted: The preprocessing, where the rewards of `seen` are raw.
    """
    rng = np.random.default_rng(0)
    queries, others = _apart(seen, convention, rng, 0.2, (ROWS, REFERENCE))
    trained = gather(source, queries)
    reference = gather(source, others)
    held_rows = None
    if held is not None:
        held_rows = gather(held, np.sort(rng.permutation(held.size)[:ROWS]))
    judged = trained if held_rows is None else held_rows
    yardsticks = Later(partial(_yardsticks, reference, judged, seen.spec))
    return Probe(trained, held_rows, _returns(seen, discount, fitted, rng), yardsticks)


def make_guard(dataset: Dataset, held: Dataset | None, convention: Convention) -> Later[Guard]:
    """A guard from most of the episodes, calibrated on the others; `dataset` is raw, as a policy will meet the
    world. It is fitted later, to copies of some rows."""
    rows = rows_of(dataset, convention)

    def observations(chosen: np.ndarray) -> np.ndarray:
        steps, owner = rows.locate(chosen)
        return pick(dataset.observations, steps + owner)

    parts = _apart(dataset, convention, np.random.default_rng(1), 0.3, (POOL, POOL))
    unseen, known = (observations(chosen) for chosen in parts)
    if held is not None:
        unseen = np.concatenate([unseen, held.step_observations()])
    names = dataset.meta.obs_names
    if len(names) != known.shape[1]:
        return Later(partial(fit_guard, known, unseen))
    unit = dict(dataset.meta.obs_units or ())
    units = tuple(unit.get(name, "") for name in names) if unit else ()
    return Later(partial(fit_guard, known, unseen, names, units))


def _apart(
    seen: Dataset, convention: Convention, rng: np.random.Generator, share: float, counts: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray]:
    """Query rows and reference rows, of different episodes: the neighbors of a step are in its own episode."""
    rows = rows_of(seen, convention)
    edges = np.unique(np.append(rows.first[rows.kept > 0], rows.size))
    if len(edges) < 6:  # of few episodes, stretches
        edges = np.unique(np.linspace(0, rows.size, 11).astype(np.int64))
    order = rng.permutation(len(edges) - 1)
    queries = order[: max(1, round(share * len(order)))]
    groups = queries, np.setdiff1d(order, queries)
    if not groups[1].size:
        groups = queries, queries
    return _some(edges, groups[0], counts[0], rng), _some(edges, groups[1], counts[1], rng)


def _some(edges: np.ndarray, groups: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """At most `count` rows of these groups, in order."""
    sizes = np.diff(edges)[groups]
    ends = np.cumsum(sizes)
    total = int(ends[-1])
    picked = np.arange(total) if total <= count else np.unique(rng.integers(0, total, count))
    owner = np.searchsorted(ends, picked, side="right")
    return np.sort(edges[groups[owner]] + picked - (ends - sizes)[owner])


def gather(source: Transitions | Streamed, rows: np.ndarray) -> Batch:
    """Return these rows, gathered on the host: `source` holds numpy arrays here, and nothing is compiled for it."""
    batch = source.gather(rows) if isinstance(source, Streamed) else source.batch(rows)  # pyright: ignore
    return jax.device_put(batch)


def _yardsticks(reference: Batch, judged: Batch, spec: Spec) -> Yardsticks:
    return Yardsticks(*_cloning(reference, judged, spec), _nearby(reference, judged, spec))


def _cloning(reference: Batch, judged: Batch, spec: Spec) -> tuple[float, float]:
    """The error of chance, and the gain of the better way of cloning."""
    known, queries = np.asarray(reference.obs, np.float64), np.asarray(judged.obs, np.float64)
    action = np.asarray(reference.action)
    if not (np.isfinite(known).all() and np.isfinite(queries).all() and np.isfinite(action).all()):
        return 1.0, 0.0  # the doctor was overruled; training will name the cause
    center, scale = known.mean(axis=0), known.std(axis=0) + 1e-6
    known, queries = (known - center) / scale, np.clip((queries - center) / scale, -10, 10)
    targets = np.eye(spec.action_dim)[action] if spec.discrete else action.astype(np.float64)

    def chosen(scores: np.ndarray) -> np.ndarray:
        return scores.argmax(axis=-1) if spec.discrete else scores

    truth = np.asarray(judged.action)
    constant = np.broadcast_to(targets.mean(axis=0), (len(queries), targets.shape[1]))
    chance = max(error(chosen(constant), truth), 1e-12)
    neighbors = targets[nearest(queries, known, min(NEIGHBORS, len(known)))].mean(axis=1)
    predictions = neighbors, _linear(known, targets, queries)
    return chance, max(0.0, *(1.0 - error(chosen(each), truth) / chance for each in predictions))


def _nearby(reference: Batch, judged: Batch, spec: Spec) -> Nearby | None:
    known, queries = np.asarray(reference.obs, np.float64), np.asarray(judged.obs, np.float64)
    action = np.asarray(reference.action)
    if not (np.isfinite(known).all() and np.isfinite(queries).all() and np.isfinite(action).all()):
        return None
    center, scale = known.mean(axis=0), known.std(axis=0) + 1e-6
    rows = nearest((queries - center) / scale, (known - center) / scale, min(SIMILAR[spec.discrete], len(known)))
    if spec.discrete:
        return Nearby(action[rows], min(RARE, OF_UNIFORM / spec.action_dim))
    return Nearby(action[rows], float(np.quantile(_distance(action[rows], np.asarray(judged.action)), USUAL)))


def _distance(near: np.ndarray, action: np.ndarray) -> np.ndarray:
    """(rows,) from each action to the nearest of its neighbors' actions."""
    return np.sqrt(np.mean(np.square(near - action[:, None]), axis=-1)).min(axis=1)


def _linear(known: np.ndarray, targets: np.ndarray, queries: np.ndarray) -> np.ndarray:
    mean = targets.mean(axis=0)
    gram = known.T @ known + 1e-3 * len(known) * np.eye(known.shape[1])
    return queries @ np.linalg.solve(gram, known.T @ (targets - mean)) + mean


def _returns(seen: Dataset, discount: float, fitted: Any, rng: np.random.Generator) -> tuple[float, float]:
    """The range of the returns to go of some episodes, 0 included; `fitted` maps their rewards where it is given."""
    rewards = [seen[int(e)].rewards for e in np.sort(rng.permutation(seen.n_episodes)[:RETURNS])]
    each = rewards if fitted is None else [fitted.reward(one) for one in rewards]
    to_go = returns_to_go(np.concatenate(each), np.array([len(one) for one in each]), discount)
    return min(0.0, float(to_go.min())), max(0.0, float(to_go.max()))


def holdout_measures(policy: Acts, value: Any, probe: Probe, discount: float) -> dict[str, float]:
    """How the policy and V do on held-out transitions, and on as many that were trained on.

    Args:
        policy: The policy.
        value: V, where the algorithm declares one.
        probe: The transitions.
        discount: Of the next state's value.

    Returns:
        Metrics with the prefixes `holdout_` and `train_`; none where nothing is held out.
    """
    if probe.held is None:
        return {}
    measures: dict[str, float] = {}
    for name, batch in (("holdout", probe.held), ("train", probe.trained)):
        mode, numbers = _measures(policy, value, batch, discount)
        wrong = error(np.asarray(mode), np.asarray(batch.action))
        measures[f"{name}_action_error"] = wrong if batch.action.ndim == 1 else wrong**0.5
        measures |= {f"{name}_{key}": float(number) for key, number in numbers.items()}
    return measures


@eqx.filter_jit
def _measures(policy: Acts, value: Any, batch: Batch, discount: float) -> tuple[Any, dict[str, Any]]:
    numbers = {}
    if isinstance(policy, Density):
        numbers["log_prob"] = jnp.mean(policy.log_prob(batch.obs, batch.action))
    if value is not None:
        following = batch.reward + discount * batch.mask * jnp.mean(value(batch.next_obs), axis=0)
        residual = following - jnp.mean(value(batch.obs), axis=0)
        numbers["value_error"] = jnp.sqrt(jnp.mean(jnp.square(residual)))
    return policy.mode(batch.obs), numbers
