"""The result of checking one claim by a measurement."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class ClaimCheck(NamedTuple):
    """A claim, the measurement, and whether the claim holds."""

    source: str
    claim: str
    measured: str
    passed: bool
    numbers: dict[str, float]


def check(source: str, claim: str, measured: str, passed: bool | np.bool, **numbers) -> ClaimCheck:
    """Make a `ClaimCheck`.

    Args:
        source: Where the paper makes the claim.
        claim: The claim.
        measured: The measurement, a format string over `numbers`.
        passed: Whether the claim holds.
        **numbers: The numbers of the measurement.
    """
    numbers = {name: float(number) for name, number in numbers.items()}
    return ClaimCheck(source, claim, measured.format(**numbers), bool(passed), numbers)
