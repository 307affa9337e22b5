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
    """`measured` is a format string over `numbers`."""
    numbers = {name: float(number) for name, number in numbers.items()}
    return ClaimCheck(source, claim, measured.format(**numbers), bool(passed), numbers)
