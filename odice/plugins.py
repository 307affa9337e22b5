"""Code of other packages that adds to odice: algorithms, divergences, reward maps, readers, environments.

A plugin is a module that registers things when it is imported (`odice.register` and its relatives,
`gymnasium.register`). An installed package names its module in the entry-point group `odice.plugins`; any other is
named on the command line with
`--plugin MODULE`. Importing a module runs its code: no file that odice reads can name one, only a person or an
installation.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable
from functools import cache
from importlib import import_module, metadata

from odice.errors import OdiceError

GROUP = "odice.plugins"


@cache
def load_entry_points() -> None:
    """Import the plugins of installed packages, once. One that fails costs a warning, not the run."""
    for point in metadata.entry_points(group=GROUP):
        try:
            import_module(point.module)
        except Exception as error:  # whatever somebody's module raises
            warnings.warn(
                f"The plugin {point.name!r} ({point.module}) cannot be imported: {type(error).__name__}: {error}",
                stacklevel=2,
            )


def load_plugins(modules: Iterable[str]) -> None:
    """Import these modules; the working directory is searched too."""
    for name in modules:
        sys.path.insert(0, "")
        try:
            import_module(name)
        except OdiceError:
            raise
        except Exception as error:
            raise OdiceError(f"--plugin {name} cannot be imported: {type(error).__name__}: {error}") from error
        finally:
            sys.path.remove("")
