"""Arrays padded to few different sizes, so that one compiled program serves many logs."""

from __future__ import annotations

import numpy as np

LEAST = 512


def padded_size(size: int) -> int:
    """The next of 512, 640, 768, 896, 1024, 1280, ...: at most a quarter more."""
    if size <= LEAST:
        return LEAST
    step = 1 << (int(size - 1).bit_length() - 3)
    return -(-size // step) * step


def pad(array: np.ndarray, axis: int = 0) -> np.ndarray:
    """The array with zeros behind it, up to a padded size."""
    widths = [(0, 0)] * array.ndim
    widths[axis] = (0, padded_size(array.shape[axis]) - array.shape[axis])
    return np.pad(array, widths)
