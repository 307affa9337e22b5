"""Results that a process keeps, so that a second run with the same settings need not trace and compile again."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

MOST = 16
"""Results that a function keeps: a program takes a few megabytes."""


def kept(function: Callable[P, T]) -> Callable[P, T]:
    """`functools.lru_cache` that also takes arguments without a hash, such as a plugin's: these are not kept."""
    cached = functools.lru_cache(maxsize=MOST)(function)

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            hash((args, *kwargs.values()))
        except TypeError:
            return function(*args, **kwargs)
        return cached(*args, **kwargs)

    return call
