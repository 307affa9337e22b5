"""What every algorithm's config is held to: a wrong setting gets one sentence before anything is computed."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal, get_args, get_origin, get_type_hints

from odice.core.divergences import Divergence
from odice.errors import OdiceError, unknown_name


def require(holds: bool, message: str) -> None:
    """Raise the message as an `OdiceError` unless the condition holds. Write it so that NaN fails: `0 <= x`, not `x >=
    0`."""
    if not holds:
        raise OdiceError(message)


def validate(config: Any) -> None:
    """Check the fields that mean the same in every config, by their names, and every choice by its type."""
    hints = get_type_hints(type(config))
    for field in dataclasses.fields(config):
        name, value = field.name, getattr(config, field.name)
        if name == "discount":
            require(0 <= value <= 1, f"discount must lie in [0, 1], got {value}.")
        elif name == "polyak":
            require(0 < value <= 1, f"polyak must lie in (0, 1], got {value}.")
        elif name == "batch_size":
            require(value >= 1, f"batch_size must be at least 1, got {value}.")
        elif name == "weight_clamp":
            require(value > 0, f"weight_clamp must be positive, got {value}: no transition would be imitated.")
        elif name == "cosine_steps":
            require(
                value is None or value >= 0,
                f"cosine_steps must be at least 0 (0 keeps the rate constant), got {value}.",
            )
        elif name.endswith(("_lr", "_weight_decay")):
            require(0 <= value < math.inf, f"{name} must be a finite number of at least 0, got {value}.")
        elif name.endswith("_hidden") and value is not None:
            require(all(width >= 1 for width in value), f"{name} must be widths of at least 1, got {value}.")
        elif get_origin(hints[name]) is Literal and value not in get_args(hints[name]):
            raise unknown_name(name, str(value), map(str, get_args(hints[name])))


def positive(config: Any, *names: str) -> None:
    """These fields must be positive and finite."""
    for name in names:
        value = getattr(config, name)
        require(0 < value < math.inf, f"{name} must be a positive number, got {value}.")


def not_negative(config: Any, *names: str) -> None:
    """These fields must be finite and at least 0."""
    for name in names:
        value = getattr(config, name)
        require(0 <= value < math.inf, f"{name} must be a finite number of at least 0, got {value}.")


def settings_dict(config: Any) -> dict[str, Any]:
    """A config as plain values for a file; a divergence is written as its name."""
    values = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    return {name: value.name if isinstance(value, Divergence) else value for name, value in values.items()}
