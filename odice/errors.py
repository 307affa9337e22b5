"""The one kind of error a user is meant to read.

Whatever is wrong with a user's input is raised as `OdiceError` with one sentence that says what was found, where, and
what to do. The command line prints that sentence and exits with code 2; everything else is a bug and keeps its
traceback.
"""

import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable
from difflib import SequenceMatcher, get_close_matches


class Sentence:
    """An error that says everything in its sentence."""

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows in the place of a traceback."""
        return [f"{type(self).__name__}: {self}"]


class OdiceError(Sentence, Exception):
    """Bad input, said in one sentence."""

    exit_code = 2


class Diverged(OdiceError):
    """A run diverged: a metric is not finite, or values are far beyond any sum of the rewards."""

    exit_code = 3


class Interrupted(Sentence, KeyboardInterrupt):
    """A run was asked to stop; its checkpoint is written."""

    def __init__(self, message: str, signal: int):
        super().__init__(message)
        self.signal = signal


def brief(error: BaseException) -> str:
    """What another library says is wrong, short enough for a sentence."""
    return " ".join(str(error).split())[:160] or type(error).__name__


CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""What moves the cursor, colors or turns around what a terminal shows."""


def printable(text: object) -> str:
    """A text for a terminal: names and words out of a file must not control it."""
    return CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), str(text))


def exit_code(work: Callable[[], int | None]) -> int:
    """Do the work of a command, and say in one sentence how it ended if it did not end well. Warnings become lines."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # the name of a file need not be text; it is no reason for a traceback
            stream.reconfigure(errors="backslashreplace")  # pyright: ignore[reportAttributeAccessIssue]
    warnings.showwarning = lambda text, *_, **__: print(
        f"odice: warning: {printable(text)}", file=sys.stderr, flush=True
    )
    try:
        code = work()
        sys.stdout.flush()
        return code or 0
    except OdiceError as error:
        print(f"odice: {printable(error)}", file=sys.stderr)
        return error.exit_code
    except Interrupted as error:
        print(f"odice: {error}", file=sys.stderr)
        return 128 + error.signal
    except KeyboardInterrupt:
        print("odice: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `odice ... | head` has seen enough; what is left in the buffer has nowhere to go
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def unknown_name(kind: str, name: str, valid: Iterable[str]) -> OdiceError:
    """The error for a name that is not in a registry: lists the valid names and the nearest, two if equally near."""
    valid = sorted(valid)
    near = get_close_matches(str(name), valid, n=2, cutoff=0.5)
    alike = [SequenceMatcher(None, one, str(name)).ratio() for one in near]
    near = [one for one, ratio in zip(near, alike, strict=True) if ratio == alike[0]]
    hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
    return OdiceError(f"Unknown {kind} {name!r}.{hint} Valid: {', '.join(valid)}.")
