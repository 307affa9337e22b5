"""Environments with options: `PointMaze_UMaze-v3?obs=observation,desired_goal&continuing_task=true`.

`obs` names the parts of a dict observation that make up the vector, in this order; every other option is an argument of
the environment. Values are JSON where they can be read as such, else text. A data set whose observations are a dict
names its environment so, and the vector is then built in the order of the data.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from odice.errors import OdiceError

if TYPE_CHECKING:
    import gymnasium

MARK, AND, OBS = "?", "&", "obs"


def split(name: str) -> tuple[str, dict[str, Any]]:
    """An environment's plain name, and its options."""
    env_id, mark, rest = name.partition(MARK)
    if not mark:
        return name, {}
    options: dict[str, Any] = {}
    for item in rest.split(AND):
        key, equals, text = item.partition("=")
        if not equals or not key.isidentifier():
            raise OdiceError(f"{name}: options are written NAME?key=value&key=value, got {item!r}.")
        if key == OBS:
            options[key] = tuple(text.split(","))
            continue
        try:
            options[key] = json.loads(text)
        except (ValueError, RecursionError):
            options[key] = text
    return env_id, options


def join(env_id: str, options: Mapping[str, Any], obs: Sequence[str] = ()) -> str:
    """The name of an environment with these options; the inverse of `split`."""
    items = [f"{OBS}={','.join(obs)}"] if obs else []
    items += [f"{key}={json.dumps(value, separators=(',', ':'))}" for key, value in options.items()]
    return f"{env_id}{MARK}{AND.join(items)}" if items else env_id


def plain(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that a file may choose: numbers, words and lists of them, and nothing that could name a file."""
    return {
        key: value
        for key, value in options.items()
        if key.isidentifier()
        and key not in (OBS, "render_mode")
        and not any(word in key.lower() for word in ("file", "path", "dir", "model"))
        and _is_plain(value)
    }


def _is_plain(value: Any, depth: int = 0) -> bool:
    if isinstance(value, list):
        return depth < 3 and len(value) <= 100 and all(_is_plain(item, depth + 1) for item in value)
    if isinstance(value, str):
        return len(value) <= 40 and all(c.isalnum() or c in " _-" for c in value)
    return value is None or isinstance(value, bool | int | float)


def as_vector(env: gymnasium.Env, paths: Sequence[str], name: str) -> gymnasium.Env:
    """The parts of a dict observation one after the other, as one vector. A part is named by its keys, joined by /."""
    import gymnasium

    spaces = {path: _space_at(env.observation_space, path, name) for path in paths}
    width = sum(_width(space) for space in spaces.values())

    class Vector(gymnasium.ObservationWrapper):
        def __init__(self, env: gymnasium.Env):
            super().__init__(env)
            self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (width,), np.float64)

        def observation(self, observation: Any) -> np.ndarray:
            return np.concatenate([_flat(_at(observation, path), space) for path, space in spaces.items()])

    return Vector(env)


def _at(observation: Any, path: str) -> Any:
    for key in path.split("/"):
        observation = observation[int(key) if isinstance(observation, tuple) else key]
    return observation


def _space_at(space: Any, path: str, name: str) -> Any:
    from gymnasium import spaces

    inner_space = space
    for key in path.split("/"):
        inner: Any = inner_space.spaces if isinstance(inner_space, spaces.Dict | spaces.Tuple) else {}
        if isinstance(inner, tuple):
            inner = {str(i): each for i, each in enumerate(inner)}
        inner_space = inner.get(key)
    if isinstance(inner_space, spaces.Dict | spaces.Tuple) or inner_space is None:
        raise OdiceError(f"{name} has no observation {path!r}; there are: {', '.join(parts(space)) or 'none'}.")
    return inner_space


def parts(space: Any, path: tuple[str, ...] = ()) -> list[str]:
    """The names of the parts of an observation."""
    from gymnasium import spaces

    if isinstance(space, spaces.Dict):
        return [name for key, inner in space.spaces.items() for name in parts(inner, (*path, str(key)))]
    if isinstance(space, spaces.Tuple):
        return [name for i, inner in enumerate(space.spaces) for name in parts(inner, (*path, str(i)))]
    return ["/".join(path)] if path else []


def _width(space: Any) -> int:
    return int(space.n) if hasattr(space, "start") and hasattr(space, "n") else int(np.prod(space.shape))


def _flat(value: Any, space: Any) -> np.ndarray:
    if hasattr(space, "start") and hasattr(space, "n"):  # a choice: one column for each, as in the data
        return (np.arange(space.n) == int(value) - int(space.start)).astype(np.float64)
    return np.asarray(value, np.float64).reshape(-1)
