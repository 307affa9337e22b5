"""What results depend on besides the configuration: versions of packages, and the commit of the source tree."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = (
    "jax",
    "jaxlib",
    "numpy",
    "optax",
    "equinox",
    "orbax-checkpoint",
    "gymnasium",
    "mujoco",
    "gymnasium-robotics",
)


def versions() -> dict[str, str]:
    """Python's version and those of the packages whose arithmetic ends up in the results."""
    installed = {"python": ".".join(map(str, sys.version_info[:3]))}
    for name in PACKAGES:
        try:
            installed[name] = version(name)
        except PackageNotFoundError:
            continue
    return installed


def git_revision() -> str | None:
    """The commit of the source tree odice runs from, if it is one; `+` marks changes that are not committed."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--abbrev=40", "--dirty=+", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
