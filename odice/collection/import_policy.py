"""The policy that `--policy` names: a folder, or a function of a Python module."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from odice.errors import OdiceError


def import_policy(name: str, allow_import: bool) -> str | Callable[..., Any]:
    """Import the function of `module:function`; return the path of a folder unchanged.

    Args:
        name: A run or policy folder, or `module:function`, looked up in the working directory too.
        allow_import: Importing runs the module's code, so the user has to allow it.
    """
    if ":" not in name or Path(name).exists():
        return name
    if not allow_import:
        raise OdiceError(f"--policy {name} would import a Python module; if you trust it, add --allow-import.")
    module, _, attribute = name.partition(":")
    sys.path.insert(0, "")  # an installed script does not search the working directory
    try:
        policy = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # importing a module can raise anything
        raise OdiceError(f"--policy {name} cannot be imported: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove("")
    if not callable(policy):
        raise OdiceError(f"--policy {name} is a {type(policy).__name__}, not a function of a batch of observations.")
    return policy
