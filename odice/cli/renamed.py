"""Flags that have a new name. The old name works for one more version, and a note on stderr names the new one."""

from __future__ import annotations

import sys
from collections.abc import Mapping

_RUN = {"--normalise-obs": "--normalize-obs", "--imperfect": "--suboptimal", "--normalise": "--normalize"}
# A bare --reward is the reward map in training, and --episode the episodes to imitate; so columns say that they are
# columns.
_COLUMNS = {f"--{name}": f"--{name}-columns" for name in ("observation", "action", "next-observation")}
_COLUMNS |= {
    f"--{name}": f"--{name}-column"
    for name in ("reward", "terminated", "truncated", "episode", "first", "last", "step")
}
_COLUMNS["--n-actions"] = "--n-choices"
# command -> old flag -> new flag
RENAMED: dict[str, dict[str, str]] = {
    "train": _RUN,
    "imitate": _RUN,
    "data": {"--behaviour": "--behavior", "--lanes": "--num-envs", **_COLUMNS},
}


def renamed(argv: list[str], names: Mapping[str, str]) -> list[str]:
    """The arguments with every old flag under its new name: `--old`, `--no-old`, and both with `=value`.

    As on the rest of the command line, `_` in a flag is the same as `-`. What follows `--` is left alone.
    """
    both = {**names, **{f"--no-{old[2:]}": f"--no-{new[2:]}" for old, new in names.items()}}
    end = argv.index("--") if "--" in argv else len(argv)
    found, noted = [], set()
    for word in argv[:end]:
        flag, equals, value = word.partition("=")
        old = flag.replace("_", "-")
        if old in both and old not in noted:
            noted.add(old)
            print(f"odice: note: {old} is now {both[old]}; the old name goes in the next version.", file=sys.stderr)
        found.append(f"{both[old]}{equals}{value}" if old in both else word)
    return found + argv[end:]
