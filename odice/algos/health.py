"""Health checks as values: an algorithm declares them, and the run makes them (`training.health`)."""

from __future__ import annotations

from typing import Literal, NamedTuple


class Check(NamedTuple):
    """A number of the run and the side of a limit on which it is healthy."""

    metric: str
    limit: float
    side: Literal["at least", "at most"]
    says: str
    """What is wrong beyond the limit, in a few words that can follow "do not deploy:"."""
    stop: bool = True
    """Whether a policy that fails must not be deployed; else it is a warning."""

    def fails(self, value: float) -> bool:
        """Whether the value lies on the wrong side. The limit itself is healthy."""
        return value < self.limit if self.side == "at least" else value > self.limit

    def describe(self, value: float) -> str:
        return f"{self.says} ({self.metric} {value:.3g}, healthy {self.side} {self.limit:g})"


NO_WEIGHT = Check("weight_mean", 1e-7, "at least", "no transition has any weight, so nothing is imitated")
FEW_WEIGHTS = Check(
    "weight_ess", 0.02, "at least", "almost no transition has any weight, so hardly anything is imitated"
)
UNEVEN_WEIGHTS = Check("weight_ess", 0.05, "at least", "few transitions carry all the weight", stop=False)
WEIGHTS = (NO_WEIGHT, FEW_WEIGHTS, UNEVEN_WEIGHTS)
"""For policies that are learned by weighted cloning."""
CLAMPED_WEIGHTS = Check("weight_mean", 50.0, "at most", "most weights are at their clamp, so they tell nothing apart")
LARGE_WEIGHTS = Check(
    "weight_mean", 10.0, "at most", "weights are near their clamp: too sharp for the scale of the rewards", stop=False
)
VALUES_OF_RETURNS = Check(
    "value_excess", 1.0, "at most", "values lie outside every return of the log by more than the range of its returns"
)
"""For values that mean a discounted return. `value_excess` is made by the run."""
BLIND_DISCRIMINATOR = Check(
    "discriminator_loss",
    1.38,
    "at most",
    "the discriminator cannot tell the demonstrations from the other data",
    stop=False,
)
UNION = (FEW_WEIGHTS, BLIND_DISCRIMINATOR)
"""For demonstrations and other data."""
FEW_RATIOS = Check("ratio_ess", 0.01, "at least", "a handful of rows makes the gradient", stop=False)
WILD_REWARDS = Check("reward_std", 100.0, "at most", "the recovered reward grows without end", stop=False)
