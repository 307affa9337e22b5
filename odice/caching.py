"""Results that a process keeps: programs, so that a second run with the same settings need not trace and compile again;
and values that are made late."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Generic, ParamSpec, TypeVar

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


class Later(Generic[T]):
    """A value that is made when it is first asked for; what it is made of is let go then.

    Args:
        make: Makes it.
    """

    def __init__(self, make: Callable[[], T]):
        self._make: Callable[[], T] | None = make

    def __call__(self) -> T:
        if self._make is not None:
            self._value, self._make = self._make(), None
        return self._value
