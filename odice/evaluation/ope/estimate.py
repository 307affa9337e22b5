"""`odice.estimate`: every estimator on one log, what they say together, and the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from odice.data.load import load
from odice.errors import OdiceError, unknown_name
from odice.evaluation.ope.behavior import Behavior, CloneConfig, clone
from odice.evaluation.ope.bootstrap import REPLICATES, Interval, from_heads, percentile, resample, widened
from odice.evaluation.ope.dice import FORMS, DICEConfig, dice
from odice.evaluation.ope.doubly_robust import doubly_robust
from odice.evaluation.ope.fqe import FQEConfig, fqe
from odice.evaluation.ope.importance import Weighted, behavior_return, importance
from odice.evaluation.ope.log import Log, make_log
from odice.evaluation.ope.verdict import MASS, MIN_EPISODES, MIN_SHARE, Verdict, judge, together
from odice.jsonable import jsonable
from odice.policy.policy import Policy

ESTIMATORS = ("fqe", "importance", "doubly-robust", *FORMS)
DEFAULT = ("fqe", "importance", "doubly-robust", "gradient-dice")
DISCOUNT = 0.99


@dataclass(frozen=True)
class Estimate:
    """What one estimator says."""

    name: str
    discounted: Interval
    undiscounted: Interval | None
    improvement: Interval
    """Over the behavior, discounted; both on the same resamples of the episodes."""
    undiscounted_improvement: Interval | None
    effective: float | None
    """Effective sample size: episodes for importance weights, a share of the log for density ratios."""
    unusable: str
    """Why the verdict does not use it, or nothing."""
    details: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        return _plain(vars(self))


@dataclass(frozen=True)
class Estimates:
    """Everything that the log says about the policy."""

    source: str
    episodes: int
    steps: int
    cut: int
    """Episodes that end before the horizon without having terminated."""
    horizon: int
    discount: float
    behavior: Interval
    """Discounted return of the log's own episodes."""
    behavior_undiscounted: Interval
    calibration: float
    outside: float
    agreement: float
    discrete: bool
    estimates: dict[str, Estimate]
    together: Interval
    """FQE's estimate with the interval of all that were learned: see `verdict.together`."""
    spread: float
    """Standard deviation of the log's discounted returns."""
    disagreement: float
    """Largest difference between the discounted estimates of the usable estimators, in standard deviations of
    returns."""
    verdict: Verdict

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        fields = {key: value for key, value in vars(self).items() if key not in ("estimates", "verdict")}
        estimates = {name: one.to_dict() for name, one in self.estimates.items()}
        return jsonable({**_plain(fields), "estimates": estimates, "verdict": self.verdict._asdict()})


def estimate(
    policy: Policy,
    data: Any,
    *,
    estimators: Sequence[str] = DEFAULT,
    discount: float | None = None,
    horizon: int | None = None,
    updates: int | None = None,
    heads: int = 5,
    seed: int = 0,
) -> Estimates:
    """What a policy would earn, from a log alone, with intervals and a verdict. For an estimate by episodes see
    `odice.evaluate`.

    data: anything `odice.load` takes.
    discount: by default that of the policy's own training, else 0.99.
    horizon: steps that count; by default the longest episode of the log.
    updates: of FQE; the other networks' change in proportion.
    """
    dataset = load(data, encoding=policy.encoding)
    discount = _check(policy, estimators, discount, updates, heads)
    log = make_log(policy, dataset, horizon)
    return Work(log, discount, updates, heads, seed).run(estimators, dataset.meta.source)


def _check(policy: Policy, estimators: Sequence[str], discount: float | None, updates: int | None, heads: int) -> float:
    for name in estimators:
        if name not in ESTIMATORS:
            raise unknown_name("estimator", name, ESTIMATORS)
    if "fqe" not in estimators:
        raise OdiceError("The estimators must include fqe: the verdict and doubly-robust are built on it.")
    if (updates is not None and updates < 10) or heads < 2:
        raise OdiceError(f"--updates must be at least 10 and heads at least 2, got {updates} and {heads}.")
    if discount is None:
        given = dict(policy.about.get("config") or {}).get("discount")
        discount = float(given) if isinstance(given, float) and 0 < given < 1 else DISCOUNT
    if not 0 < discount < 1:
        raise OdiceError(
            f"--discount must lie between 0 and 1, got {discount:g}; the undiscounted return is shown anyway."
        )
    return discount


class Work:
    """One log, its resamples, and what the estimators share."""

    def __init__(self, log: Log, discount: float, updates: int | None = None, heads: int = 5, seed: int = 0):
        self.log, self.discount, self.seed = log, discount, seed
        pace = 1.0 if updates is None else updates / FQEConfig().updates
        scaled = lambda config, *names: replace(config, **{n: max(10, round(pace * getattr(config, n))) for n in names})
        self.fqe_config = scaled(FQEConfig(heads=heads), "updates", "start_updates")
        self.clone_config = scaled(CloneConfig(), "updates")
        self.dice_config = scaled(DICEConfig(), "updates")
        rng = np.random.default_rng(seed)
        self.heads, self.counts = (resample(log.episodes, n, rng) for n in (heads, REPLICATES))
        self.spreads = [float(log.to_go(gamma)[log.first].std()) for gamma in (discount, 1.0)]
        """Of the log's returns, discounted and not."""
        self.logged = behavior_return(log, discount, self.counts)
        self.logged_heads = behavior_return(log, discount, self.heads).replicates

    def behavior(self) -> Behavior:
        """The behavior, cloned, and the policy beside it."""
        return clone(self.log, self.clone_config, self.seed)

    def run(self, estimators: Sequence[str], source: str) -> Estimates:
        log, behavior = self.log, self.behavior()
        found = self._estimates(estimators, behavior)
        usable = [one.discounted.mean for one in found.values() if not one.unusable]
        spread = self.spreads[0]
        verdict = judge(
            {name: one.improvement for name, one in found.items()},
            found["fqe"].undiscounted_improvement or found["fqe"].improvement,
            {name: one.unusable for name, one in found.items()},
            episodes=log.episodes,
            outside=behavior.outside,
            spread=spread,
        )
        return Estimates(
            source=source,
            episodes=log.episodes,
            steps=log.steps,
            cut=int((~log.complete).sum()),
            horizon=log.horizon,
            discount=self.discount,
            behavior=percentile(self.logged.value[0], self.logged.replicates[0]),
            behavior_undiscounted=percentile(self.logged.value[1], self.logged.replicates[1]),
            calibration=behavior.calibration,
            outside=behavior.outside,
            agreement=behavior.agreement,
            discrete=log.spec.discrete,
            estimates=found,
            together=together({name: one.discounted for name, one in found.items()}),
            spread=spread,
            disagreement=(max(usable) - min(usable)) / max(spread, 1e-12) if usable else 0.0,
            verdict=verdict,
        )

    def _estimates(self, estimators: Sequence[str], behavior: Behavior) -> dict[str, Estimate]:
        learned = fqe(self.log, self.discount, self.heads, self.fqe_config, self.seed)
        found = {"fqe": self._learned("fqe", learned.replicates, None, "", {"loss": learned.loss})}
        ratio = behavior.log_ratio
        if "importance" in estimators:
            found["importance"] = self._weighted("importance", importance(self.log, ratio, self.discount, self.counts))
        if "doubly-robust" in estimators:
            robust = doubly_robust(self.log, learned, ratio, self.discount, self.counts)
            found["doubly-robust"] = self._weighted("doubly-robust", robust)
        for name in estimators:
            if name in FORMS:
                found[name] = self.dice(name, behavior)
        return found

    def dice(self, name: str, behavior: Behavior) -> Estimate:
        """One member of the DICE family."""
        ratio = dice(self.log, self.discount, self.heads, FORMS[name], self.dice_config, self.seed, behavior.spread)
        why = ""
        if ratio.effective < MIN_SHARE:
            why = f"its weights leave {ratio.effective:.1%} of the log"
        elif not MASS[0] <= ratio.mass <= MASS[1]:
            why = f"its weights sum to {ratio.mass:.2f} and should to 1: it has not converged"
        details: dict[str, Any] = {"mass": ratio.mass}
        if FORMS[name].reward:
            details |= {
                "primal": from_heads(ratio.primal).to_dict(),
                "lagrangian": from_heads(ratio.lagrangian).to_dict(),
            }
        return self._learned(name, ratio.dual[None], ratio.effective, why, details)

    def _learned(
        self, name: str, replicates: np.ndarray, effective: float | None, why: str, details: dict[str, Any]
    ) -> Estimate:
        both = len(replicates) == 2
        wide = lambda values, row: widened(from_heads(values), self.spreads[row])
        return Estimate(
            name,
            wide(replicates[0], 0),
            wide(replicates[1], 1) if both else None,
            wide(replicates[0] - self.logged_heads[0], 0),
            wide(replicates[1] - self.logged_heads[1], 1) if both else None,
            effective,
            why,
            details,
        )

    def _weighted(self, name: str, found: Weighted) -> Estimate:
        few = found.effective < MIN_EPISODES
        why = f"its weights leave {found.effective:.1f} of {self.log.episodes} episodes" if few else ""
        own, behavior = found, self.logged
        gain, more = own.value - behavior.value, own.replicates - behavior.replicates
        return Estimate(
            name,
            percentile(own.value[0], own.replicates[0]),
            percentile(own.value[1], own.replicates[1]),
            percentile(gain[0], more[0]),
            percentile(gain[1], more[1]),
            found.effective,
            why,
            {},
        )


def _plain(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: value.to_dict() if isinstance(value, Interval) else value for key, value in fields.items()}
