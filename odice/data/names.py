"""The usual names of columns, arrays and data sets: one table for every reader.

Readers compare them in lower case. Where several arrays of a file have a name of the same role, the first name in this
table wins; among the columns of a CSV or Parquet file that is an error, which asks for the right one.
"""

from __future__ import annotations

import re

_OBSERVATION = ("observations", "observation", "obs", "states", "state")

# role -> the names that mean it, in lower case
ALIASES: dict[str, tuple[str, ...]] = {
    "observation": _OBSERVATION,
    "action": ("actions", "action", "act"),
    "next_observation": tuple(f"next_{name}" for name in _OBSERVATION),
    "reward": ("rewards", "reward", "rew", "r", "next.reward"),
    "cost": ("costs", "cost"),
    "propensity": ("propensities", "propensity", "propensity_score", "pscore", "action_prob"),
    "terminated": ("terminated", "terminals", "terminations", "terminal", "termination", "is_terminal"),
    "truncated": ("truncated", "timeouts", "truncations", "timeout", "truncation", "timelimit.truncated"),
    "episode": (
        *("episode", "episodes", "episode_id", "episode_ids", "episode_index", "episode_idx", "ep", "ep_id"),
        "ep_index",
        *("traj", "traj_id", "trajectory", "trajectory_id", "rollout", "rollout_id", "trial", "trial_id"),
    ),
    "first": ("is_first", "first"),
    "last": ("is_last", "last"),
    "step": ("step", "step_id", "step_index", "timestep", "time_step", "frame_index", "t"),
    "next_known": ("next_known",),
}
# Names that say that an episode ended, but not why: refused until a person says which role they play.
DONE = ("dones", "done", "next.done", "is_done", "end", "is_end", "end_of_episode")
MINARI_ID = re.compile(r"(?:[-\w][-\w/]*[-\w]/)?[-\w]+-v\d+")  # (namespace/)name-vN, as Minari reads it


def natural(name: str) -> list[tuple[int, int | str]]:
    """A sort key that puts part 2 before part 10."""
    parts = re.split(r"([0-9]{1,18})", name)
    return [(0, int(p)) if p.isdecimal() and p.isascii() else (1, p) for p in parts]
