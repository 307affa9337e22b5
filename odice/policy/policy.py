"""Policy: what training leaves behind, and all that acting needs.

A policy is a folder: `policy.safetensors` (weights), `policy.json` (everything else) and `README.md` (a model card).
It acts with numpy alone. Raw observations go in and actions of the environment come out, because what was done to the
data (normalised observations, mapped actions) is part of the policy:

    policy = odice.Policy.load("runs/hopper/policy/last")
    action = policy(observation)          # one observation, or a batch

Nothing in these files is executed, and a file that is not exactly what it should be is refused (`policy_file`).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from odice import __version__
from odice.errors import OdiceError
from odice.files import complete_folder
from odice.policy import file as policy_file
from odice.policy.file import CARD, DESCRIPTION, FORMAT, VERSION, WEIGHTS, Layout

LAYER_NORM_EPS = np.float32(1e-5)  # as core.networks, which would import jax

_ACTIVATE = {
    "relu": lambda x: np.maximum(x, np.float32(0)),
    "tanh": np.tanh,
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, np.float32(0)))),
}
_IN_PREPROCESS = ("obs_mean", "obs_scale", "action_low", "action_high")


@dataclass(frozen=True, eq=False)
class Policy:
    """A deterministic policy: observation normaliser, network, action map, and where it all came from."""

    layout: Layout
    tensors: Mapping[str, np.ndarray]
    obs_mean: np.ndarray | None = None
    obs_scale: np.ndarray | None = None
    action_low: np.ndarray | None = None
    action_high: np.ndarray | None = None
    about: Mapping[str, Any] = field(default_factory=dict)
    """Provenance: algorithm, config, data, preprocess, env_id, reference, scores, step."""

    # --- acting --------------------------------------------------------------------------------------------------------

    def __call__(self, obs: Any) -> np.ndarray:
        """The action for one observation `(obs,)` or for a batch `(..., obs)`, as the environment wants it."""
        x = self.outputs(obs)
        if self.layout.output == "argmax":
            return np.argmax(x, axis=-1)
        x = np.tanh(x) if self.layout.output == "tanh" else np.clip(x, -1.0, 1.0)
        if self.action_low is None or self.action_high is None:
            return x
        low, high = self.action_low, self.action_high
        return np.clip(low + (x + 1) * ((high - low) / 2), low, high)

    def outputs(self, obs: Any) -> np.ndarray:
        """What the network says before it becomes an action: a mean, or a value per choice."""
        x = np.asarray(obs, np.float32)
        if x.ndim == 0 or x.shape[-1] != self.obs_dim:
            raise OdiceError(
                f"The policy takes observations of {self.obs_dim} numbers, got an array of shape {x.shape}."
            )
        if self.obs_mean is not None and self.obs_scale is not None:
            x = (x - self.obs_mean) / self.obs_scale
        tensors, activate = self.tensors, _ACTIVATE[self.layout.activation]
        last = len(self.layout.sizes) - 2
        for i in range(last + 1):
            x = x @ tensors[f"layers.{i}.weight"] + tensors[f"layers.{i}.bias"]
            if i == last:
                break
            if self.layout.layer_norm:
                x = x - x.mean(axis=-1, keepdims=True)
                variance = np.square(x).mean(axis=-1, keepdims=True)
                x = x / np.sqrt(variance + LAYER_NORM_EPS)
                x = x * tensors[f"layers.{i}.scale"] + tensors[f"layers.{i}.shift"]
            x = activate(x)
        return x

    # --- what it is ----------------------------------------------------------------------------------------------------

    @property
    def obs_dim(self) -> int:
        return self.layout.sizes[0]

    @property
    def action_dim(self) -> int:
        """Numbers per action, or the number of actions to choose from."""
        return self.layout.sizes[-1]

    @property
    def discrete(self) -> bool:
        return self.layout.output == "argmax"

    @property
    def env_id(self) -> str | None:
        """The environment it was trained for, if one is known."""
        return self.about.get("env_id")

    @property
    def reference(self) -> tuple[float, float] | None:
        """Returns that count as 0 and 100, if known."""
        pair = self.about.get("reference")
        return (float(pair[0]), float(pair[1])) if pair else None

    # --- making, saving, loading -----------------------------------------------------------------------------------------

    @classmethod
    def from_network(
        cls,
        deterministic: Any,
        preprocess: Any = None,
        *,
        algorithm: str | None = None,
        config: Any = None,
        data: Mapping[str, Any] | None = None,
        env_id: str | None = None,
        reference: tuple[float, float] | None = None,
        scores: Mapping[str, Any] | None = None,
        step: int | None = None,
    ) -> Policy:
        """From a trained `state.policy.deterministic()` and the `data.preprocess.Fitted` its data went through.

        `config` is the algorithm's (a dataclass or a dict), `data` says what was learned from (at least `fingerprint`).
        """
        network, output = deterministic
        weights = [np.asarray(w, np.float32) for w in network.weights]
        if getattr(preprocess, "absorbing", False):  # the indicator of the absorbing state is 0 wherever a policy acts
            weights[0] = weights[0][:-1]
        layout = Layout(
            sizes=(weights[0].shape[0], *(w.shape[1] for w in weights)),
            layer_norm=bool(network.scales),
            activation=getattr(network.activation, "__name__", "unknown"),
            output=output,
        )
        if layout.activation not in policy_file.ACTIVATIONS:
            raise OdiceError(
                f"A policy file cannot hold the activation {layout.activation!r}; use one of {', '.join(policy_file.ACTIVATIONS)}."
            )
        tensors: dict[str, np.ndarray] = {}
        for key, arrays in (
            ("weight", weights),
            ("bias", network.biases),
            ("scale", network.scales),
            ("shift", network.shifts),
        ):
            tensors |= {f"layers.{i}.{key}": np.asarray(array, np.float32) for i, array in enumerate(arrays)}
        fitted = {} if preprocess is None else dict(preprocess.to_dict())
        vectors = {key: _vector(fitted.pop(key, None)) for key in _IN_PREPROCESS}
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
        return cls(layout, tensors, **vectors, about=_plain(about))

    def with_scores(self, scores: Mapping[str, Any]) -> Policy:
        """The same policy with these scores in its description."""
        return dataclasses.replace(self, about={**self.about, "scores": _plain(dict(scores))})

    def in_double(self) -> Policy:
        """The same policy in double precision: the yardstick for what single precision loses."""
        arrays = {key: getattr(self, key) for key in _IN_PREPROCESS}
        wide = {key: None if array is None else array.astype(np.float64) for key, array in arrays.items()}
        tensors = {name: tensor.astype(np.float64) for name, tensor in self.tensors.items()}
        return dataclasses.replace(self, tensors=tensors, **wide)

    def save(self, path: str | Path) -> Path:
        """Write the folder `path`, replacing a policy that is already there. A reader never meets half a policy."""
        from safetensors.numpy import save

        from odice.policy.card import model_card

        path = Path(path)
        self._check()
        tensors = {name: np.ascontiguousarray(self.tensors[name], np.float32) for name in self.layout.shapes}
        try:
            if path.exists() and not (path / DESCRIPTION).exists() and (not path.is_dir() or any(path.iterdir())):
                raise OdiceError(f"{path} exists and is not a policy; choose another folder.")
            with complete_folder(path) as folder:
                weights = save(tensors)
                (folder / WEIGHTS).write_bytes(weights)
                text = json.dumps(self._description(policy_file.digest(weights)), indent=1, allow_nan=False)
                (folder / DESCRIPTION).write_text(text + "\n", "utf-8")
                (folder / CARD).write_text(model_card(self), "utf-8")
        except OSError as error:
            raise OdiceError(f"{path} cannot be written: {error.strerror or error}.") from None
        return path

    @classmethod
    def load(cls, path: str | Path) -> Policy:
        """Read a policy's folder. A file that is damaged, or made to do harm, is refused with one `OdiceError`."""
        folder = Path(path)
        if not folder.is_dir():
            raise OdiceError(f"{folder} is not a folder; a policy is a folder with {WEIGHTS} and {DESCRIPTION}.")
        found = policy_file.read_description(folder)
        where = folder / DESCRIPTION
        layout = policy_file.read_layout(found, where)
        vectors = {
            "obs_mean": policy_file.read_vector(found, "observation", "mean", layout.sizes[0], where),
            "obs_scale": policy_file.read_vector(found, "observation", "scale", layout.sizes[0], where),
            "action_low": policy_file.read_vector(found, "action", "low", layout.sizes[-1], where),
            "action_high": policy_file.read_vector(found, "action", "high", layout.sizes[-1], where),
        }
        tensors = policy_file.read_tensors(folder, layout, found.get("weights_sha256"))
        about = {key: found.get(key) for key in _NOTHING}
        policy = cls(layout, tensors, **vectors, about=about)
        try:
            policy._check()
        except OdiceError as error:
            raise OdiceError(f"{where} was refused: {error}") from None
        return policy

    def _description(self, digest: str) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "version": VERSION,
            "odice": __version__,
            "weights_sha256": digest,
            "network": {**self.layout._asdict(), "sizes": list(self.layout.sizes)},
            "observation": {"mean": _numbers(self.obs_mean), "scale": _numbers(self.obs_scale)},
            "action": {"discrete": self.discrete, "low": _numbers(self.action_low), "high": _numbers(self.action_high)},
            **{key: self.about.get(key, nothing) for key, nothing in _NOTHING.items()},
        }

    def _check(self) -> None:
        """What must hold between the parts, whoever made them."""
        for name, shape in self.layout.shapes.items():
            tensor = self.tensors.get(name)
            if tensor is None or tensor.shape != shape or not np.isfinite(tensor).all():
                raise OdiceError(f"The policy's tensor {name!r} is missing, misshapen or not finite.")
        if (self.obs_mean is None) != (self.obs_scale is None) or (self.action_low is None) != (
            self.action_high is None
        ):
            raise OdiceError("A normaliser needs a mean and a scale, an action map a lower and an upper bound.")
        if self.obs_scale is not None and not (self.obs_scale > 0).all():
            raise OdiceError("The observation normaliser's scale must be positive.")
        low, high = self.action_low, self.action_high
        if low is not None and high is not None and (self.discrete or not (low < high).all()):
            raise OdiceError("Action bounds need low < high, and continuous actions.")
        pair = self.about.get("reference")
        if pair is not None and not (
            isinstance(pair, list | tuple)
            and len(pair) == 2
            and all(type(v) in (int, float) for v in pair)
            and pair[0] < pair[1]
        ):
            raise OdiceError(
                "`reference` must be two numbers, the return that counts as 0 and the one that counts as 100."
            )


def open_policy(path: str | Path, which: Literal["last", "best"] = "last") -> Policy:
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


_NOTHING: dict[str, Any] = dict.fromkeys(("algorithm", "env_id", "reference", "step"))
_NOTHING |= {key: {} for key in ("scores", "data", "preprocess", "config")}


def _as_dict(config: Any) -> dict[str, Any]:
    fields: Any = dataclasses.asdict(config) if dataclasses.is_dataclass(config) else config  # pyright: ignore
    return dict(fields or {})


def _vector(values: Any) -> np.ndarray | None:
    return None if values is None else np.asarray(values, np.float32)


def _numbers(vector: np.ndarray | None) -> list[float] | None:
    return None if vector is None else vector.tolist()


def _plain(value: Any) -> Any:
    """Only what JSON can hold; a number that it cannot is written as a word."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
