"""The one kind of error a user is meant to read.

Whatever is wrong with a user's input is raised as `OdiceError` with one sentence that says what was found, where, and
what to do. The command line prints that sentence and exits with code 2; everything else is a bug and keeps its traceback.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class OdiceError(Exception):
    """Bad input, said in one sentence."""


def unknown_name(kind: str, name: str, valid: Iterable[str]) -> OdiceError:
    """The error for a name that is not in a registry: lists the valid names and the nearest one."""
    valid = sorted(valid)
    near = get_close_matches(str(name), valid, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return OdiceError(f"Unknown {kind} {name!r}.{hint} Valid: {', '.join(valid)}.")
