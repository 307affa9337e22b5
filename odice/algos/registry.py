"""The registry: the name of every algorithm, how it is built, and what it needs from the run.

A file of this folder that calls `register` is an algorithm. So is a factory in any other package: `odice.register` is
the same function. The run reads what an algorithm declares here and guesses nothing from the names of its settings.
"""

from __future__ import annotations

import dataclasses
import pkgutil
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

from odice.algos.health import Check
from odice.caching import kept
from odice.errors import OdiceError, unknown_name
from odice.plugins import load_entry_points
from odice.types import COLUMNS, Algo, Spec


class Entry(NamedTuple):
    """An algorithm's name, how to build it, and what it declares."""

    name: str
    config: type
    factory: Callable[[Any, Spec], Algo]
    summary: str
    """The first paragraph of the factory's docstring."""
    imitates: bool = False
    """Whether it learns from demonstrations, where every reward is zero."""
    reads_rewards: bool = False
    """Whether it reads the rewards of the data even then."""
    discrete: bool = True
    """Whether it learns discrete actions too."""
    best_episodes: str | None = None
    """The setting that holds a fraction: it learns from the episodes with the highest return. None learns from all."""
    schedule: str | None = None
    """The setting that holds the length of a schedule: where it is None, the run fills in its own length."""
    value_start: str | None = None
    """The setting that says where values start: where it is None, the run fills in a high return of the log."""
    columns: Mapping[str, str | None] = {}
    """Columns of the batch that `update` reads (`types.COLUMNS`), each with the setting that turns it on; None is
    always."""
    chosen_share: str | None = None
    """The setting that says from which share of the data its policy learns (`training.skill`), where it reads the
    column `credit`: `Batch.chosen` are such steps."""
    balance: str | None = None
    """The setting that says how much all actions of a state are imitated alike: where it is None and the
    column `credit` is read, the run fills in what the log says (`training.skill`)."""
    derived: Callable[[Any], dict[str, tuple[Any, str]]] | None = None
    """From a config to the values of its settings that follow from others, each with the reason: `odice train
    --dry-run` prints them."""
    diagnose: str | None = None
    """The setting that adds metrics about the gradients: `--diagnostics` turns it on."""
    discount: str | None = "discount"
    """The setting that discounts the next state's value; None if it has no values."""
    value_metrics: tuple[str, ...] = ("value_mean", "critic_mean")
    """Metrics that are mean values of states: by them the run sees that values have diverged."""
    value: Callable[[Any], Any] | None = None
    """From a state to its value network, for the feature products of `--diagnostics`."""
    when_diverged: tuple[str, str] | None = None
    """What to advise when values diverge: what to do with which setting, such as ("lower", "lam")."""
    health: tuple[Check, ...] = ()
    """What healthy means for its metrics: the run checks it while it trains and at its end."""

    def setting(self, config: Any, name: str | None, default: Any) -> Any:
        """The value of a declared setting, or `default` where the algorithm declares none."""
        return default if name is None else getattr(config, name)

    def reads(self, config: Any) -> tuple[str, ...]:
        """The columns that the algorithm reads with this config."""
        return tuple(name for name, setting in self.columns.items() if self.setting(config, setting, True))

    def build(self, config: Any, spec: Spec, *, again: bool = False) -> Algo:
        """Make the algorithm for data of this shape.

        With `again` an earlier result for the same config and spec is returned, whose programs are compiled already.
        """
        if spec.discrete and not self.discrete:
            able = ", ".join(name for name, other in algorithms().items() if other.discrete)
            raise OdiceError(
                f"{self.name} needs continuous actions, but these data have {spec.action_dim} discrete ones; use one "
                f"of: {able}."
            )
        return _built(self.factory, config, spec) if again else self.factory(config, spec)


@kept
def _built(factory: Callable[[Any, Spec], Algo], config: Any, spec: Spec) -> Algo:
    return factory(config, spec)


_REGISTRY: dict[str, Entry] = {}


def register(name: str, config: type, **declared: Any) -> Callable:
    """Decorate a factory `(config, spec) -> Algo`; the first paragraph of its docstring says what the algorithm is.

    Args:
        name: The algorithm's name; one that is taken is refused.
        config: Its frozen dataclass of settings.
        **declared: Fields of `Entry`, from `imitates` on.
    """

    def decorate(factory: Callable[[Any, Spec], Algo]) -> Callable[[Any, Spec], Algo]:
        if name in _REGISTRY:
            raise OdiceError(f"An algorithm called {name!r} is registered already; choose another name.")
        if not dataclasses.is_dataclass(config):
            raise OdiceError(f"The config of {name!r} must be a frozen dataclass, got {config!r}.")
        fields = {field.name for field in dataclasses.fields(config)}
        if "batch_size" not in fields:
            raise OdiceError(f"The config of {name!r} needs a field batch_size: transitions per update.")
        summary = " ".join((factory.__doc__ or name).strip().split("\n\n")[0].split()) or name
        if "discount" not in fields:
            declared.setdefault("discount", None)
        _check_declarations(name, declared, fields)
        _REGISTRY[name] = Entry(name, config, factory, summary, **declared)
        return factory

    return decorate


DECLARATIONS = Entry._fields[4:]
SETTINGS = ("best_episodes", "schedule", "value_start", "chosen_share", "balance", "diagnose", "discount")
"""Declarations that name a setting."""


def _check_declarations(name: str, declared: Mapping[str, Any], fields: set[str]) -> None:
    """Refuse a declaration, a column or a setting that does not exist."""
    for each in declared:
        if each not in DECLARATIONS:
            raise unknown_name(f"declaration of {name}", each, DECLARATIONS)
    columns = declared.get("columns", {})
    for column in columns:
        if column not in COLUMNS:
            raise unknown_name(f"column that {name} declares", column, COLUMNS)
    advice = declared.get("when_diverged") or (None, None)
    for setting in (*(declared.get(each) for each in SETTINGS), *columns.values(), advice[1]):
        if setting is not None and setting not in fields:
            raise unknown_name(f"setting that {name} declares", setting, fields)


@cache
def _load_own() -> None:
    package = __name__.rpartition(".")[0]
    for module in pkgutil.iter_modules(import_module(package).__path__):
        import_module(f"{package}.{module.name}")


def algorithms() -> dict[str, Entry]:
    """Every registered algorithm by name: those of this package, of installed plugins, and what was registered
    since."""
    _load_own()
    load_entry_points()
    return dict(sorted(_REGISTRY.items()))


def entry(name: str) -> Entry:
    """One algorithm, or an error that lists the valid names and the nearest one."""
    registered = algorithms()
    if name not in registered:
        raise unknown_name("algorithm", name, registered)
    return registered[name]


def make(name: str, spec: Spec, **settings: Any) -> Algo:
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
    return algorithm.build(config, spec)
