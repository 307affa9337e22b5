"""Policy: what training leaves behind, and all that acting needs.

A policy is a folder: `policy.safetensors` (weights), `policy.json` (everything else) and `README.md` (a model card).
It acts with numpy alone. Raw observations go in and actions of the environment come out, because what was done to the
data (normalized observations, mapped actions) is part of the policy:

    policy = odice.Policy.load("runs/hopper/policy/last")
    action = policy(observation)          # one observation, or a batch

Nothing in these files is executed, and a file that is not exactly what it should be is refused (`policy.file`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from odice.action_map import to_bounds
from odice.encoding import Column, Encoding, brief, encode
from odice.errors import OdiceError
from odice.jsonable import jsonable
from odice.notebook import facts, numbers
from odice.policy import file as policy_file
from odice.policy.consistency import check
from odice.policy.file import DESCRIPTION, VECTORS
from odice.policy.guard import Guard, Guarded
from odice.policy.layout import Layout, mlp_tensors
from odice.policy.rows import Unseen, choose
from odice.policy.sampler import Sampler, sampler_tensors


class Preprocessed(Protocol):
    """What was done to the data, as `data.preprocess.Fitted` says it."""

    @property
    def absorbing(self) -> bool: ...

    def to_dict(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True, eq=False)
class Policy:
    """A deterministic policy: observation normalizer, network, action map, and where it all came from."""

    layout: Layout | Sampler
    tensors: Mapping[str, np.ndarray]
    obs_mean: np.ndarray | None = None
    obs_scale: np.ndarray | None = None
    action_low: np.ndarray | None = None
    action_high: np.ndarray | None = None
    about: Mapping[str, Any] = field(default_factory=dict)
    """Provenance: algorithm, config, data, preprocess, env_id, reference, scores, health, step."""
    guard: Guard | None = None
    """The distance of an observation from those of the training data; None if the policy was made without them."""

    def __repr__(self) -> str:
        """For example `Policy(odice, 11 -> 3, step 20,000)`."""
        algorithm, step = self.about.get("algorithm"), self.about.get("step")
        words = [str(algorithm)] if algorithm else []
        words.append(f"{self.obs_dim} -> {self.action_dim}{' choices' if self.discrete else ''}")
        words += [f"step {step:,}"] if isinstance(step, int) else []
        return f"Policy({', '.join(words)})"

    def _repr_html_(self) -> str:
        about, data = self.about, self.about.get("data")
        rows = {
            "algorithm": about.get("algorithm"),
            "step": about.get("step"),
            "input": ", ".join(column["name"] for column in self.columns) or numbers(self.obs_dim),
            "output": ", ".join(self.choices)
            or (f"{self.action_dim} choices" if self.discrete else numbers(self.action_dim)),
            "environment": self.env_id,
            "data": data.get("source") if isinstance(data, Mapping) else None,
            "guard": "yes" if self.guard else "no",
        }
        return facts("Policy", rows)

    def __call__(self, obs: Any) -> np.ndarray:
        """The action for one observation `(obs,)` or for a batch `(..., obs)`, as the environment wants it."""
        return self.action(self.outputs(obs))

    def action(self, x: np.ndarray) -> np.ndarray:
        """Map the network's outputs to an action of the environment."""
        if self.layout.output == "argmax":
            return np.argmax(x, axis=-1)
        x = np.tanh(x) if self.layout.output == "tanh" else np.clip(x, -1.0, 1.0)
        if self.action_low is None or self.action_high is None:
            return x
        return to_bounds(x, self.action_low, self.action_high)

    def outputs(self, obs: Any) -> np.ndarray:
        """Return the network's outputs: the mean of an action, a value per choice, or an action made from noise.

        An observation may also be a row of the table that was learned from, a mapping from columns to values.
        """
        return self.layout.outputs(self.normalized(obs), self.tensors)

    def normalized(self, obs: Any) -> np.ndarray:
        """Return the network's input for an observation, which must be finite."""
        x = self._observation(obs)
        finite = np.isfinite(x)
        if not finite.all():
            raise OdiceError(f"{self._first_bad(x, finite)}; a policy acts on finite numbers only.")
        if self.obs_mean is not None and self.obs_scale is not None:
            x = (x - self.obs_mean) / self.obs_scale
        return x

    def choose(self, rows: Any, unseen: Unseen = "fall back") -> Any:
        """Choose for rows of a table, in the words of the log, and say whether the guard trusts the choice.

        Args:
            rows: One row, as a mapping from columns to values, or a list of rows, or a polars or pandas data frame.
            unseen: A category that the log does not have, or a missing one, is replaced by the commonest; then
                `fall back` says so in `decision`, `commonest` leaves the decision to the guard, and `refuse` raises an
                error instead.

        Returns:
            A `Choice` with `action`, `decision` (act, warn or fall back) and `why`; a list of them for several rows.
        """
        return choose(self, rows, unseen)

    def guarded(self, obs: Any, fall_back: Any = None) -> Guarded:
        """The action, how unlike the training data the observation is, and what to do: `act`, `warn` or `fall back`.

        Args:
            obs: One observation `(obs,)`, or a batch `(..., obs)`.
            fall_back: An action, or a function from observations to actions, such as another policy. Where the
                decision is `fall back`, `action` is this one; without it, the policy's own.

        An observation that is not finite is an error without `fall_back`, and with one that is a policy.
        """
        if self.guard is None:
            raise OdiceError(
                "This policy has no guard, because it was made without its data; train it again to get one."
            )
        x = self._observation(obs)
        finite = np.asarray(np.isfinite(x).all(axis=-1))
        score = self.guard.score(x)
        decision = self.guard.decide(score)
        fixed = None if fall_back is None else self._check_fall_back(fall_back)
        usable = x if fall_back is None else np.where(finite[..., None], x, self.guard.center)
        action, falls = self(usable), decision == "fall back"
        if fall_back is not None and falls.any():
            other = fixed
            if other is None:
                given = x[falls] if x.ndim > 1 else x
                other = self._check_action(fall_back(given), "the action that `fall_back` gives", given.shape[:-1])
            action = np.array(action)
            action[falls] = other
        return Guarded(action, score, decision if x.ndim > 1 else str(decision))

    def _check_fall_back(self, fall_back: Any) -> np.ndarray | None:
        """The action to fall back to; None if a function of the observation gives it."""
        if isinstance(fall_back, Policy):
            ours, its = ((p.obs_dim, p.action_dim, p.discrete, p.choices) for p in (self, fall_back))
            if ours != its:
                raise OdiceError(
                    f"`fall_back` is {fall_back}, which does not fit {self}; give a policy of the same task."
                )
            return None
        return None if callable(fall_back) else self._check_action(fall_back, "`fall_back`")

    def _check_action(self, action: Any, name: str, batch: tuple[int, ...] = ()) -> np.ndarray:
        """An action, or one for each of a batch of observations, in the environment's units."""
        values = _numbers(action, name)
        own = () if self.discrete else (self.action_dim,)
        if values.shape not in (own, batch + own):
            need = f"one of the numbers 0 to {self.action_dim - 1}" if self.discrete else f"{self.action_dim} numbers"
            raise OdiceError(f"{name} has the shape {values.shape}; an action is {need}.")
        if self.discrete:
            if not (np.isin(values, np.arange(self.action_dim))).all():
                raise OdiceError(f"{name} is {brief(action)}; the actions are 0 to {self.action_dim - 1}.")
            return values.astype(np.int64)
        low = -1.0 if self.action_low is None else self.action_low
        high = 1.0 if self.action_high is None else self.action_high
        room = 1e-6 * (np.abs(low) + np.abs(high))
        if not ((values >= low - room) & (values <= high + room)).all():
            raise OdiceError(f"{name} is {brief(action)}, which is not an action within the policy's bounds.")
        return values

    def _observation(self, obs: Any) -> np.ndarray:
        x = encode(self.columns, obs) if isinstance(obs, Mapping) else _numbers(obs, "The observation")
        if x.ndim == 0 or x.shape[-1] != self.obs_dim:
            raise OdiceError(
                f"The policy takes observations of {self.obs_dim} numbers, got an array of shape {x.shape}."
            )
        return x

    def _first_bad(self, x: np.ndarray, finite: np.ndarray) -> str:
        """`observation[3] (lactate) is nan in row 5`, for the first number that is not finite."""
        *row, column = np.argwhere(~finite)[0].tolist()
        name = f" ({self.guard.names[column]})" if self.guard is not None and self.guard.names else ""
        where = f" in row {row[0] if len(row) == 1 else row}" if row else ""
        return f"observation[{column}]{name} is {x[(*row, column)]}{where}"

    @property
    def obs_dim(self) -> int:
        """Numbers per observation."""
        return self.layout.obs_dim

    @property
    def action_dim(self) -> int:
        """Numbers per action, or the number of actions to choose from."""
        return self.layout.action_dim

    @property
    def discrete(self) -> bool:
        """Whether it chooses among actions."""
        return self.layout.output == "argmax"

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the table that was learned from, and how they become numbers; empty if it was no table."""
        return tuple(self.about.get("preprocess", {}).get("columns", ()))

    @property
    def schema(self) -> dict[str, Any] | None:
        """What the columns of its log mean (`odice.data.schema`), where it was a table."""
        data = self.about.get("data")
        schema = data.get("schema") if isinstance(data, Mapping) else None
        return dict(schema) if isinstance(schema, Mapping) else None

    @property
    def choices(self) -> tuple[str, ...]:
        """What each discrete action is called in the log, where it has words for them."""
        return tuple(self.about.get("preprocess", {}).get("choices", ()))

    @property
    def action_names(self) -> tuple[str, ...]:
        """The columns of the action in its log, where they are known."""
        names = (self.schema or {}).get("action", ())
        fits = isinstance(names, list | tuple) and len(names) == (1 if self.discrete else self.action_dim)
        return tuple(map(str, names)) if fits else ()

    @property
    def encoding(self) -> Encoding:
        """How the rows of its log became numbers: `odice.load(LOG, encoding=policy.encoding)` does the same."""
        return Encoding(self.columns, self.choices)

    @property
    def env_id(self) -> str | None:
        """The environment it was trained for, if one is known."""
        return self.about.get("env_id")

    @property
    def reference(self) -> tuple[float, float] | None:
        """Returns that count as 0 and 100, if known."""
        pair = self.about.get("reference")
        return (float(pair[0]), float(pair[1])) if pair else None

    @classmethod
    def from_network(
        cls,
        deterministic: Any,
        preprocess: Preprocessed | None = None,
        *,
        algorithm: str | None = None,
        config: Any = None,
        data: Mapping[str, Any] | None = None,
        env_id: str | None = None,
        reference: tuple[float, float] | None = None,
        scores: Mapping[str, Any] | None = None,
        step: int | None = None,
        guard: Guard | None = None,
    ) -> Policy:
        """Make a policy from what was trained.

        Args:
            deterministic: What acts: a `core.policies.Deterministic` (a network, and what is done to its output) or a
                `core.diffusion.Sampler`.
            preprocess: What was done to the data, a `data.preprocess.Fitted`.
            algorithm: Its name.
            config: Its settings, a dataclass or a dict.
            data: Facts of the data set; at least `fingerprint`.
            env_id: The environment it was trained for.
            reference: Returns that count as 0 and 100.
            scores: Of its evaluation.
            step: Updates that it was trained for.
            guard: Fitted to the observations of the data set.
        """
        read = sampler_tensors if hasattr(deterministic, "solver") else mlp_tensors
        layout, tensors = read(deterministic, absorbing=preprocess is not None and preprocess.absorbing)
        fitted = {} if preprocess is None else dict(preprocess.to_dict())
        given = {name: fitted.pop(name, None) for name in VECTORS}
        vectors = {name: None if values is None else np.asarray(values, np.float32) for name, values in given.items()}
        about = {
            "algorithm": algorithm,
            "config": _as_dict(config),
            "data": dict(data or {}),
            "preprocess": fitted,
            "env_id": env_id if policy_file.is_name(env_id) else None,
            "reference": reference,
            "scores": dict(scores or {}),
            "step": step,
        }
        return cls(layout, tensors, **vectors, about=jsonable(about, words=True), guard=guard)

    def with_scores(self, scores: Mapping[str, Any]) -> Policy:
        """Return the policy with these scores in its description."""
        return dataclasses.replace(self, about={**self.about, "scores": jsonable(scores, words=True)})

    def with_health(self, health: Mapping[str, Any]) -> Policy:
        """Return the policy with the result of its run's health check in its description."""
        return dataclasses.replace(self, about={**self.about, "health": jsonable(health, words=True)})

    def in_double(self) -> Policy:
        """Return the policy in double precision, to measure what single precision loses."""
        arrays = {name: getattr(self, name) for name in VECTORS}
        wide = {name: None if array is None else array.astype(np.float64) for name, array in arrays.items()}
        tensors = {name: tensor.astype(np.float64) for name, tensor in self.tensors.items()}
        return dataclasses.replace(self, tensors=tensors, **wide)

    def save(self, path: str | Path) -> Path:
        """Write the folder `path`, replacing a policy that is already there. A reader never meets half a policy."""
        check(self)
        policy_file.write(Path(path), self)
        return Path(path)

    @classmethod
    def load(cls, path: str | Path) -> Policy:
        """Read a policy's folder. A file that is damaged, or made to do harm, is refused with one `OdiceError`."""
        policy = cls(**policy_file.read(Path(path)))
        try:
            check(policy)
        except OdiceError as error:
            raise OdiceError(f"{Path(path) / DESCRIPTION} was refused: {error}") from None
        return policy


def open_policy(path: str | Path, which: Literal["last", "best", "selected"] = "last") -> Policy:
    """The policy of a run directory, or of a policy's own folder."""
    path = Path(path)
    if (path / DESCRIPTION).exists():
        return Policy.load(path)
    if (folder := path / "policy" / which).is_dir():
        return Policy.load(folder)
    if not path.exists():
        raise OdiceError(f"{path} does not exist; give a run directory or a policy's folder.")
    seeds = sorted(inner.name for inner in path.iterdir() if (inner / "policy").is_dir()) if path.is_dir() else []
    if seeds:
        raise OdiceError(f"{path} holds {len(seeds)} runs; name one of them, for example {path / seeds[0]}.")
    if (path / "policy").is_dir():
        there = sorted(inner.name for inner in (path / "policy").iterdir() if (inner / DESCRIPTION).exists())
        raise OdiceError(f"{path} has no {which!r} policy; it has {', '.join(there) or 'none yet'}.")
    raise OdiceError(f"{path} is neither a run directory nor a policy's folder (no policy/, no {DESCRIPTION}).")


def _numbers(value: Any, name: str) -> np.ndarray:
    """An array of float32, if these are real numbers; one too large for single precision is infinite."""
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, OverflowError):
        array = np.empty(0, object)
    if array.dtype.kind not in "fiub" or np.ma.isMaskedArray(value):
        what = (
            "lists of different lengths" if array.dtype == object and isinstance(value, list | tuple) else brief(value)
        )
        raise OdiceError(f"{name} is {what}; give an array of numbers.")
    with np.errstate(over="ignore"):
        return array.astype(np.float32, copy=False)


def _as_dict(config: Any) -> dict[str, Any]:
    fields: Any = dataclasses.asdict(config) if dataclasses.is_dataclass(config) else config  # pyright: ignore
    return dict(fields or {})
