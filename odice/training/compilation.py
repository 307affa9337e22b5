"""Compiled programs are kept between runs: the second start of the same training does not compile again.

JAX does the keeping. This module chooses the place, keeps it small, and keeps what cannot be trusted out of it:

- XLA compiles for one CPU and one number of cores, and JAX's key names neither. So both are in the name of the folder.
- The entries are machine code. A folder that somebody else can write to is not used.
- JAX compresses the entries with zlib, whose checksum finds a damaged one; it is then compiled as if it were not there.
  (Not where `zstandard` is installed, or from Python 3.14 on: JAX then uses zstd without a checksum.)
- JAX can bound the size itself, but needs a package and a lock for it, and one entry from a process that sets no bound
  stops all writing (jax issue 39880). So old entries are deleted here, when a run starts. A process that has opened one
  keeps it.

`JAX_COMPILATION_CACHE_DIR` and JAX's other settings of the cache go before; `ODICE_CACHE=none` switches it off.
"""

from __future__ import annotations

import hashlib
import os
import platform
import stat
import sys
import time
import warnings
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from odice.machine import cores

MOST_BYTES = 1_000_000_000
MOST_DAYS = 30
"""Since the last use, as far as the file system records reading. A damaged entry, which JAX never replaces, also ends
here."""


def use_cache() -> Path | None:
    """Keep what this process compiles from now on. Gives the folder, or nothing if there is none; never an error."""
    import jax

    if os.environ.get("ODICE_CACHE") == "none":
        return None
    if chosen := jax.config.values["jax_compilation_cache_dir"]:
        return Path(chosen)
    if (folder := open_folder()) is None:
        return None
    # An entry that cannot be read or written costs a compilation and nothing else.
    warnings.filterwarnings("ignore", message="Error (reading|writing) persistent compilation cache entry")
    jax.config.update("jax_compilation_cache_dir", str(folder))
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    return folder


def open_folder() -> Path | None:
    """The default folder, made and cleared of what is old, if it can be used. Does not import jax."""
    folder = default_folder()
    if not _works_here() or not _is_ours(folder):
        return None
    delete_old(folder.parent)
    return folder


def default_folder() -> Path:
    """The folder for programs of this jaxlib, this CPU and this number of cores."""
    facts = (version("jaxlib"), platform.python_version_tuple()[:2], platform.machine(), _cpu(), cores())
    tag = hashlib.sha256(repr(facts).encode()).hexdigest()[:12]
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "odice" / f"xla-{tag}"


def delete_old(root: Path, most_bytes: int = MOST_BYTES, most_days: float = MOST_DAYS) -> None:
    """Delete the entries that were not used for long, then the least recently used until the rest is small enough."""
    entries = []
    for path in root.glob("xla-*/*-cache"):
        with suppress(OSError):  # another process may delete it too
            status = path.stat()
            entries.append((max(status.st_atime, status.st_mtime), status.st_size, path))
    total = 0
    for used, size, path in sorted(entries, reverse=True):
        total += size
        if total > most_bytes or used < time.time() - most_days * 86_400:
            with suppress(OSError):
                path.unlink()


def _is_ours(folder: Path) -> bool:
    """Make sure that the folder is there, that we can write to it, and that nobody else can."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError:
        return False
    private = status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return private and os.access(folder, os.W_OK | os.X_OK)


def _works_here() -> bool:
    """On a Mac a jaxlib before 0.10 dies when it loads a large program that it has stored."""
    return sys.platform != "darwin" or tuple(map(int, version("jaxlib").split(".")[:2])) >= (0, 10)


def _cpu() -> str:
    """The CPU's model and features. On a Mac the kernel's version names the chip."""
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:
        return os.uname().version
    return "\n".join(line for line in lines if line.startswith(("model name", "flags", "Features", "CPU")))
