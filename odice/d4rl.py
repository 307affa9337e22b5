"""Reference scores: what makes a return comparable across tasks.

D4RL's normalised score is 100 (return - min) / (max - min), where min is the return of a random policy and max that of
an expert. The numbers belong to D4RL's environments (`d4rl/infos.py`). Where no reference is known the answer is None,
and raw returns are all there is: nothing is borrowed from a task with a similar name.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

_MUJOCO = ("random", "medium", "expert", "medium-replay", "medium-expert", "full-replay")
_MAZES = ("umaze", "umaze-diverse", "medium-play", "medium-diverse", "large-play", "large-diverse")
_HANDS = ("human", "cloned", "expert")

# robot -> (kinds of data, versions, reference minimum, reference maximum)
_FAMILIES = {
    "hopper": (_MUJOCO, ("v2",), -20.272305, 3234.3),
    "halfcheetah": (_MUJOCO, ("v2",), -280.178953, 12135.0),
    "walker2d": (_MUJOCO, ("v2",), 1.629008, 4592.3),
    "ant": (_MUJOCO, ("v2",), -325.6, 3879.7),
    "antmaze": (_MAZES, ("v0", "v2"), 0.0, 1.0),
    "pen": (_HANDS, ("v0", "v1"), 96.262799, 3076.8331017826877),
    "hammer": (_HANDS, ("v0", "v1"), -274.856578, 12794.134825156867),
    "door": (_HANDS, ("v0", "v1"), -56.512833, 2880.5693087298737),
    "relocate": (_HANDS, ("v0", "v1"), -6.425911, 4233.877797728884),
    "kitchen": (("complete", "partial", "mixed"), ("v0",), 0.0, 4.0),
    "maze2d-open": (("",), ("v0",), 0.01, 20.66),
    "maze2d-open-dense": (("",), ("v0",), 11.17817, 27.166538620695782),
    "maze2d-umaze": (("",), ("v1",), 23.85, 161.86),
    "maze2d-umaze-dense": (("",), ("v1",), 68.537689, 193.66285642381482),
    "maze2d-medium": (("",), ("v1",), 13.13, 277.39),
    "maze2d-medium-dense": (("",), ("v1",), 44.264742, 297.4552547777125),
    "maze2d-large": (("",), ("v1",), 6.7, 273.99),
    "maze2d-large-dense": (("",), ("v1",), 30.569041, 303.4857382709002),
}


def _expand() -> Iterator[tuple[str, tuple[float, float]]]:
    for robot, (kinds, versions, low, high) in _FAMILIES.items():
        for kind, version in product(kinds, versions):
            yield "-".join(part for part in (robot, kind, version) if part), (low, high)


# D4RL name -> (reference minimum, reference maximum), for all 71 environments
REFERENCES: dict[str, tuple[float, float]] = dict(_expand())


def normalized_score(returns: Any, reference: str | tuple[float | None, float | None] | None) -> Any:
    """100 (return - min) / (max - min), or None where the reference is unknown.

    `reference` is a D4RL name, or the pair (min, max) as in `Meta.ref_min`, `Meta.ref_max`. Works on a number or an
    array. The map is affine: never pass a standard deviation through it, scale that by 100 / (max - min) instead.
    """
    pair = REFERENCES.get(reference) if isinstance(reference, str) else reference
    low, high = pair or (None, None)
    if low is None or high is None or not high > low:
        return None
    return 100.0 * (returns - low) / (high - low)
