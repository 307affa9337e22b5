"""Between a policy's actions, which lie in [-1, 1], and those of an environment, which lie in its own bounds.

The order of the operations is part of the map: training, the policy, its ONNX graph and collection must agree on the
last bit. Types are the caller's: float32 in, float32 out.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def to_bounds(action: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """From [-1, 1] to the bounds; what would lie outside, by rounding or by more, is clipped."""
    return np.clip(low + (action + 1) * half_range(low, high), low, high)


def from_bounds(action: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """The inverse. An action outside of its bounds stays outside of [-1, 1]."""
    return (action - low) / half_range(low, high) - 1


def half_range(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """The width of [-1, 1], which is 2, is mapped to high - low: this is the factor."""
    return (high - low) / 2


def is_unit_box(low: Any, high: Any) -> bool:
    """Whether the bounds are [-1, 1] already. Then leave the map out: adding 1 and taking it away again rounds."""
    return bool((np.asarray(low) == -1).all() and (np.asarray(high) == 1).all())
