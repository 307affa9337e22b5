"""A policy from outside: a folder, or a function of somebody's module."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from odice.errors import OdiceError


def outside_policy(name: str, allow_import: bool) -> str | Callable[..., Any]:
    """What `--policy` names: the function of `module:function`, or the folder as it is."""
    if ":" not in name or Path(name).exists():
        return name
    if not allow_import:  # importing runs the module's code, so a person has to say so
        raise OdiceError(f"--policy {name} would import a Python module; if you trust it, add --allow-import.")
    module, _, attribute = name.partition(":")
    sys.path.insert(0, "")  # a script of odice does not look in the working directory, where such modules are
    try:
        found = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # whatever importing somebody's module can raise
        raise OdiceError(f"--policy {name} cannot be imported: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove("")
    if not callable(found):
        raise OdiceError(f"--policy {name} is a {type(found).__name__}, not a function of a batch of observations.")
    return found
