"""What must hold between the parts of a policy, whether it was just trained or read from a file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from odice.encoding import is_column, size
from odice.errors import OdiceError
from odice.policy.guard import Guard

if TYPE_CHECKING:
    from odice.policy.policy import Policy


def check(policy: Policy) -> None:
    """Raise an `OdiceError` that names the first part that does not fit the others."""
    for name, shape in policy.layout.shapes.items():
        tensor = policy.tensors.get(name)
        if tensor is None or tensor.shape != shape or not np.isfinite(tensor).all():
            raise OdiceError(f"The policy's tensor {name!r} is missing, misshapen or not finite.")
    if policy.guard is not None:
        _check_guard(policy.guard, policy.obs_dim)
    low, high = policy.action_low, policy.action_high
    if (policy.obs_mean is None) != (policy.obs_scale is None) or (low is None) != (high is None):
        raise OdiceError("A normalizer needs a mean and a scale, an action map a lower and an upper bound.")
    if policy.obs_scale is not None and not (policy.obs_scale > 0).all():
        raise OdiceError("The observation normalizer's scale must be positive.")
    if low is not None and high is not None and (policy.discrete or not (low < high).all()):
        raise OdiceError("Action bounds need low < high, and continuous actions.")
    _check_encoding(policy, policy.about.get("preprocess") or {})
    pair = policy.about.get("reference")
    if pair is not None and not (
        isinstance(pair, list | tuple)
        and len(pair) == 2
        and all(type(v) in (int, float) and abs(v) < 1e308 for v in pair)
        and pair[0] < pair[1]
    ):
        raise OdiceError("`reference` must be two numbers, the return that counts as 0 and the one that counts as 100.")


def _check_encoding(policy: Policy, preprocess: Mapping[str, Any]) -> None:
    columns, words = preprocess.get("columns", ()), preprocess.get("choices", ())
    if not isinstance(columns, list | tuple) or not all(map(is_column, columns)):
        raise OdiceError("`preprocess.columns` does not say how a row of a table becomes an observation.")
    if columns and sum(map(size, columns)) != policy.obs_dim:
        raise OdiceError(f"`preprocess.columns` has other columns than the {policy.obs_dim} numbers of an observation.")
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
        raise OdiceError("`preprocess.choices` is not a list of words.")
    if words and (not policy.discrete or len(set(words)) != len(words) or len(words) != policy.action_dim):
        raise OdiceError(f"`preprocess.choices` does not have one word for each of the {policy.action_dim} actions.")


def _check_guard(guard: Guard, obs_dim: int) -> None:
    vectors = guard.center, guard.scale, guard.low, guard.high
    fits = all(vector.shape == (obs_dim,) for vector in vectors) and guard.states.ndim == 2
    if not fits or not all(np.isfinite(array).all() for array in (*vectors, guard.whiten, guard.states)):
        raise OdiceError("The guard does not fit the policy's observations, or holds numbers that are not finite.")
    if not ((guard.scale > 0).all() and guard.warn > 0 and guard.fall_back >= 1):
        raise OdiceError("The guard's scale and distance must be positive, and it falls back no earlier than it warns.")
