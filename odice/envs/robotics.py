"""gymnasium-robotics (the extra `mazes`): its registration, and what it needs to work with this MuJoCo."""

from __future__ import annotations

from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from odice.errors import OdiceError


def register(name: str) -> None:
    """Register its environments with Gymnasium, or say what to install for `name`; a second call changes nothing."""
    import gymnasium

    try:
        with redirect_stderr(StringIO()), redirect_stdout(StringIO()):  # it prints news about other robots
            import gymnasium_robotics  # pyright: ignore[reportMissingImports]
            from gymnasium_robotics.utils import mujoco_utils  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise OdiceError(f"{name} needs gymnasium-robotics; install it with: pip install 'odice[mazes]'") from None
    gymnasium.register_envs(gymnasium_robotics)
    if not isinstance(mujoco_utils.mujoco, _WithNumbers):
        mujoco_utils.mujoco = _WithNumbers(mujoco_utils.mujoco)


def is_installed() -> bool:
    from importlib.util import find_spec

    return find_spec("gymnasium_robotics") is not None


def remove_model_file(env: Any) -> None:
    """Delete the model that a maze leaves behind in the temporary directory."""
    if path := getattr(env.unwrapped, "tmp_xml_file_path", None):
        Path(path).unlink(missing_ok=True)


class _WithNumbers:
    """MuJoCo with joint types as numbers: its own do not equal numpy's, which the kitchen compares them with."""

    def __init__(self, mujoco: Any):
        self._mujoco = mujoco
        self.mjtJoint = SimpleNamespace(**{name: int(value) for name, value in mujoco.mjtJoint.__members__.items()})

    def __getattr__(self, name: str) -> Any:
        return getattr(self._mujoco, name)
