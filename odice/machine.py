"""What this machine has. Differences between systems are handled in this module only."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection
from contextlib import suppress


def cores() -> int:
    """The number of cores that this process may use: fewer than the machine has in a container or under `taskset`."""
    if hasattr(os, "sched_getaffinity"):  # Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


CONTAINER_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Where Linux says how much memory a container may use."""
UNLIMITED = 2**60
"""A limit from here on is none: version 1 of cgroups writes the largest number of pages."""


def memory() -> int | None:
    """Bytes of memory that this machine or container has, or None on a system that does not say."""
    limits = [_physical()]
    for place in CONTAINER_LIMITS:
        with suppress(OSError, ValueError), open(place, encoding="ascii") as file:
            limits.append(int(file.read()))  # `max` where there is no limit
    return min((limit for limit in limits if limit and limit < UNLIMITED), default=None)


ACCELERATORS = {
    "an NVIDIA GPU": ("/dev/nvidia0", "cuda12"),
    "an AMD GPU": ("/dev/kfd", "rocm"),
    "a TPU": ("/dev/accel0", "tpu"),
}
"""What an accelerator is called, where Linux shows it, and the extra of odice that installs JAX for it."""


def accelerator() -> tuple[str, str] | None:
    """The accelerator that this machine has, in words, and the extra for it; None if none can be seen."""
    for name, (place, extra) in ACCELERATORS.items():
        if os.path.exists(place):
            return name, extra
    return None


def _physical() -> int | None:
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


def free_core(taken: Collection[int]) -> int:
    """The number, for `pin`, of the core on which the fewest other processes are kept, of those that are not taken.

    Two commands that each keep a process on a core would otherwise both choose the first.
    """
    if not hasattr(os, "sched_getaffinity"):
        return 0
    own = sorted(os.sched_getaffinity(0))
    kept: Counter[int] = Counter()
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        with suppress(OSError, ValueError):
            where = os.sched_getaffinity(int(name))
            if len(where) == 1 and os.path.exists(f"/proc/{name}/exe"):  # not the kernel's own
                kept.update(where)
    choices = [number for number in range(len(own)) if number not in taken] or range(len(own))
    return min(choices, key=lambda number: kept[own[number]])
