"""The registry: name -> (config, factory). A file in this folder that calls `register` is an algorithm; nothing else is needed."""

from __future__ import annotations

import dataclasses
import pkgutil
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

from odice.errors import OdiceError, unknown_name
from odice.types import Algo, Spec


class Entry(NamedTuple):
    name: str
    config: type
    factory: Callable[[Any, Spec], Algo]
    summary: str
    """The first line of the factory's docstring."""
    imitates: bool = False
    """Whether it learns from demonstrations, where every reward is zero."""


_REGISTRY: dict[str, Entry] = {}


def register(name: str, config: type, *, imitates: bool = False) -> Callable:
    """Decorates a factory `(config, spec) -> Algo` whose docstring's first line says what the algorithm is.

    `imitates` declares that it makes sense without rewards, so that `odice imitate` offers it.
    """

    def decorate(factory):
        _REGISTRY[name] = Entry(name, config, factory, (factory.__doc__ or "").strip().splitlines()[0], imitates)
        return factory

    return decorate


@cache
def _discover() -> dict[str, Entry]:
    for module in pkgutil.iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")
    return dict(sorted(_REGISTRY.items()))


def algorithms() -> dict[str, Entry]:
    """Every registered algorithm by name."""
    return dict(_discover())


def entry(name: str) -> Entry:
    """One algorithm, or an error that lists the valid names and the nearest one."""
    found = _discover()
    if name not in found:
        raise unknown_name("algorithm", name, found)
    return found[name]


def make(name: str, spec: Spec, **settings) -> Algo:
    """An algorithm ready to run: `make("odice", Spec(17, 6), lam=0.6, eta=1.0)`."""
    algorithm = entry(name)
    fields = {field.name for field in dataclasses.fields(algorithm.config)}
    for setting in settings:
        if setting not in fields:
            raise unknown_name(f"setting of {name}", setting, fields)
    try:
        config = algorithm.config(**settings)
    except TypeError as error:  # a config validates its fields by comparing numbers
        raise OdiceError(f"A setting of {name} has the wrong type: {error}.") from None
    return algorithm.factory(config, spec)
