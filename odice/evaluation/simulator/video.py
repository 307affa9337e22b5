"""A short video of one episode of a policy, in the environment's own time."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from odice.envs.make import make
from odice.errors import OdiceError
from odice.evaluation.simulator.evaluate import episode_seeds
from odice.evaluation.simulator.rollout import Act, Rollout, converter, empty_batch
from odice.files import complete_file

FRAMES_PER_SECOND = 30
SUFFIXES = (".gif", ".mp4")
Writer = Callable[[Path, list[np.ndarray], float], None]


def record(
    act: Act,
    env_id: str,
    path: str | Path,
    *,
    seed: int = 0,
    noise: float = 0.0,
    start_noise: float = 0.0,
    max_steps: int | None = None,
    max_frames: int = 300,
    allow_import: bool = False,
) -> int:
    """Record the first episode of `evaluate` with this seed.

    Args:
        act: The policy.
        env_id: The environment's name.
        path: The file to write, a .gif or .mp4.
        seed: The `seed` of `evaluate`.
        noise: Standard deviation of Gaussian noise on every observed number.
        start_noise: Standard deviation of Gaussian noise on the start state.
        max_steps: Time limit of the episode.
        max_frames: Frames at most; the video ends there.
        allow_import: Accept environments of other packages; see `odice.envs.make.make`.

    Returns:
        The number of frames.
    """
    path = Path(path)
    writer = writer_for(path)
    _choose_backend()
    env = make(env_id, max_steps=max_steps, render_mode="rgb_array", allow_import=allow_import)
    try:
        speed = float(env.metadata.get("render_fps") or FRAMES_PER_SECOND)
        every = max(1, round(speed / FRAMES_PER_SECOND))
        rollout = Rollout(env_id, int(episode_seeds(seed, 1)[0]), noise, start_noise)
        rollout.start(env)
        _follow(env)
        batch, convert = empty_batch(env), converter(env.action_space, env_id)
        frames = [_frame(env, env_id)]
        while not rollout.over and len(frames) < max_frames:
            batch[0] = rollout.observed(batch.shape[1:])
            rollout.step(convert(act(batch), [0])[0])
            if rollout.length % every == 0:
                frames.append(_frame(env, env_id))
    finally:
        env.close()
    with complete_file(path) as temporary:
        writer(temporary, frames, speed / every)
    return len(frames)


def _choose_backend() -> None:
    """Draw through EGL where there is no display; MuJoCo would otherwise try to open a window."""
    if sys.platform == "linux" and not os.environ.get("DISPLAY"):
        os.environ.setdefault("MUJOCO_GL", "egl")


def _follow(env: Any) -> None:
    """Use the model's own camera, which moves with the robot; Gymnasium's newer default does not."""
    renderer = getattr(env.unwrapped, "mujoco_renderer", None)
    if renderer is None:
        return
    import mujoco

    kind = mujoco.mjtObj.mjOBJ_CAMERA  # pyright: ignore[reportAttributeAccessIssue]
    camera = mujoco.mj_name2id(env.unwrapped.model, kind, "track")  # pyright: ignore[reportAttributeAccessIssue]
    if camera != -1:
        renderer.camera_id = camera


def _frame(env: Any, name: str) -> np.ndarray:
    try:
        frame = env.render()
    except Exception as error:  # a graphics stack can raise anything
        backend = os.environ.get("MUJOCO_GL")
        tried = f" (MUJOCO_GL={backend}; egl, osmesa and glfw are the choices)" if backend else ""
        raise OdiceError(f"{name} cannot be drawn on this machine{tried}: {type(error).__name__}: {error}") from error
    if frame is None or np.ndim(frame) != 3:
        raise OdiceError(f"{name} does not draw pictures, so there is no video of it; leave --video out.")
    return np.asarray(frame, np.uint8)


def writer_for(path: Path) -> Writer:
    """Return the function that writes frames to a file with this suffix; refuse other suffixes."""
    if path.suffix.lower() not in SUFFIXES:
        raise OdiceError(f"A video is a file that ends in {' or '.join(SUFFIXES)}, got {path.name!r}.")
    if path.suffix.lower() == ".gif":
        return _write_gif
    try:
        import imageio.v3  # noqa: F401
        import imageio_ffmpeg  # noqa: F401  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise OdiceError(
            "Writing .mp4 needs the packages imageio and imageio-ffmpeg; install them, or choose a .gif."
        ) from None
    return _write_mp4


def _write_gif(path: Path, frames: list[np.ndarray], fps: float) -> None:
    from PIL import Image  # comes with matplotlib

    first, *rest = [Image.fromarray(frame).quantize(64) for frame in frames]
    first.save(path, "GIF", save_all=True, append_images=rest, duration=round(1000 / fps), loop=0)


def _write_mp4(path: Path, frames: list[np.ndarray], fps: float) -> None:
    import imageio.v3

    imageio.v3.imwrite(path, np.stack(frames), extension=".mp4", fps=fps)
