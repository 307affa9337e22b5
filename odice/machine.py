"""What this machine has. Not every system answers the same questions, so they are asked here and nowhere else."""

from __future__ import annotations

import os
from contextlib import suppress


def cores() -> int:
    """The number of cores that this process may use: fewer than the machine has in a container or under `taskset`."""
    if hasattr(os, "sched_getaffinity"):  # Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory() -> int | None:
    """Bytes of physical memory, or None on a system that does not say."""
    names = ("SC_PAGE_SIZE", "SC_PHYS_PAGES")
    if not hasattr(os, "sysconf") or not set(names) <= set(os.sysconf_names):
        return None
    page, pages = (os.sysconf(name) for name in names)
    return page * pages if page > 0 and pages > 0 else None


def pin(process: int, number: int) -> None:
    """Keep a process on one core: the `number`-th of those that we may use. Where the system cannot, it stays free."""
    if hasattr(os, "sched_setaffinity"):  # Linux
        own = sorted(os.sched_getaffinity(0))
        with suppress(ProcessLookupError):  # it may have ended already
            os.sched_setaffinity(process, {own[number % len(own)]})
