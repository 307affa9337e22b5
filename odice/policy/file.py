"""The policy's two files: written completely or not at all, and read as if a stranger had written them.

`policy.json` describes the network. From that alone follow the names, shapes and bytes that
`policy.safetensors` must have. Every size is compared before anything is allocated, no file name comes from a file,
links and special files are not opened, and nothing that is read is ever executed or imported.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from odice import __version__
from odice.errors import OdiceError
from odice.files import SEAL, checksum, complete_folder, sealed
from odice.policy import card
from odice.policy.guard import Guard, tensor_shapes
from odice.policy.layout import MAX_WIDTH, Layout
from odice.policy.sampler import KIND, Sampler, read_network

if TYPE_CHECKING:
    from odice.policy.policy import Policy

WEIGHTS, DESCRIPTION, CARD = "policy.safetensors", "policy.json", "README.md"
FORMAT, VERSION = "odice-policy", 3
READS = (2, 3)
"""Versions that are read. A new one is added and none is taken away (docs/reference/formats.md). A policy is written
with the lowest version that describes it: one network with 2, a sampler with 3."""

MAX_JSON = 4 << 20  # bytes
MAX_PARAMETERS = 1 << 26  # 256 MB; the largest policy of the presets has 1.1 million


# a vector of the policy -> where it stands in the description
VECTORS = {
    "obs_mean": ("observation", "mean"),
    "obs_scale": ("observation", "scale"),
    "action_low": ("action", "low"),
    "action_high": ("action", "high"),
}
# an entry of `Policy.about` -> its value where it is not known
ABOUT: dict[str, Any] = dict.fromkeys(("algorithm", "env_id", "reference", "step"))
ABOUT |= {key: {} for key in ("scores", "health", "data", "preprocess", "config")}


def write(path: Path, policy: Policy) -> None:
    """Write the folder `path`, replacing a policy that is already there. A reader never meets half a policy."""
    from safetensors.numpy import save

    tensors = {name: np.ascontiguousarray(policy.tensors[name], np.float32) for name in policy.layout.shapes}
    if policy.guard is not None:
        tensors |= {name: np.ascontiguousarray(array, np.float32) for name, array in policy.guard.tensors.items()}
    try:
        if path.exists() and not (path / DESCRIPTION).exists() and (not path.is_dir() or any(path.iterdir())):
            raise OdiceError(f"{path} exists and is not a policy; choose another folder.")
        with complete_folder(path) as folder:
            weights = save(tensors)
            (folder / WEIGHTS).write_bytes(weights)
            text = json.dumps(sealed(_description(policy, _digest(weights))), indent=1, allow_nan=False)
            (folder / DESCRIPTION).write_text(text + "\n", "utf-8")
            (folder / CARD).write_text(card.model_card(policy), "utf-8", errors="replace")
    except OSError as error:
        raise OdiceError(f"{path} cannot be written: {error.strerror or error}.") from None


def _description(policy: Policy, sha256: str) -> dict[str, Any]:
    content: dict[str, Any] = {
        "format": FORMAT,
        "version": policy.layout.version,
        "odice": __version__,
        "weights_sha256": sha256,
        "network": policy.layout.describe(),
        "observation": {},
        "action": {"discrete": policy.discrete},
    }
    for name, (group, key) in VECTORS.items():
        vector = getattr(policy, name)
        content[group][key] = None if vector is None else vector.tolist()
    if (guard := policy.guard) is not None:
        content["observation"] |= guard.columns
        content["guard"] = {"states": len(guard.states), "warn": guard.warn, "fall_back": guard.fall_back}
    return content | {key: policy.about.get(key, unknown) for key, unknown in ABOUT.items()}


def read(folder: Path) -> dict[str, Any]:
    """The fields of a `Policy`. A file that is damaged, or made to do harm, is refused with one `OdiceError`."""
    if not folder.is_dir():
        raise OdiceError(f"{folder} is not a folder; a policy is a folder with {WEIGHTS} and {DESCRIPTION}.")
    description, path = read_description(folder), folder / DESCRIPTION
    layout = read_layout(description, path)
    sizes = {"observation": layout.obs_dim, "action": layout.action_dim}
    vectors = {name: read_vector(description, group, key, sizes[group], path) for name, (group, key) in VECTORS.items()}
    known = read_guard(description, layout.obs_dim, path)
    shapes = layout.shapes | (tensor_shapes(layout.obs_dim, known.pop("states")) if known else {})
    tensors = read_tensors(folder, shapes, description.get("weights_sha256"))
    guard = None
    if known:
        own = {name: tensors.pop(name) for name in tensor_shapes(layout.obs_dim, 0)}
        guard = Guard(**{name.removeprefix("guard."): tensor for name, tensor in own.items()}, **known)
    about = {key: description.get(key) for key in ABOUT}
    return {"layout": layout, "tensors": tensors, **vectors, "about": about, "guard": guard}


def read_description(folder: Path) -> dict[str, Any]:
    """The content of `policy.json`, with its format and every field that steers the program checked."""
    path = folder / DESCRIPTION
    description = strict_json(_contents(path, MAX_JSON), path)
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        _refuse(path, f"it is not a policy's description (no `format: {FORMAT}`)")
    _check_seal(description, path)
    for key in ("network", "observation", "action", "config", "data", "preprocess", "scores", "health"):
        if not isinstance(description.get(key), dict):
            _refuse(path, f"`{key}` must be an object")
    step = description.get("step")
    if step is not None and not (type(step) is int and 0 <= step < 1 << 53):
        _refuse(path, "`step` must be a whole number")
    for key in ("algorithm", "env_id"):
        if not (description.get(key) is None or is_name(description[key])):
            _refuse(path, f"`{key}` is not a plain name")
    return description


def _check_seal(description: dict[str, Any], path: Path) -> None:
    """A flipped digit anywhere in the description is noticed, not acted on."""
    version = description.get("version")
    if type(version) is not int or version not in READS:
        newer = ", so a newer odice wrote it" if type(version) is int and version > VERSION else ""
        reads = ", ".join(map(str, READS))
        _refuse(path, f"it has format version {version!r:.40}, this odice reads version {reads}{newer}")
    if description.pop(SEAL, None) != checksum(description):
        _refuse(path, "its content is not what its SHA-256 was made of: the file was damaged or edited")


def is_name(value: Any) -> bool:
    """A plain name of an algorithm or environment, which may have options (`Maze-v3?obs=a,b&continuing=true`).

    `module:Env-v0` is one too, but `envs.make` does not import it, and accepts few options from a file.
    """
    name = r"([A-Za-z0-9_.]+:)?[A-Za-z0-9_]+([./-][A-Za-z0-9_]+)*"
    option = r"[A-Za-z0-9_]+=[-A-Za-z0-9_,./\[\]\" ]*"
    if not isinstance(value, str) or ".." in value or len(value.partition("?")[0]) > 200 or len(value) > 2000:
        return False
    return re.fullmatch(rf"{name}(\?{option}(&{option})*)?", value) is not None


def read_layout(description: dict[str, Any], path: Path) -> Layout | Sampler:
    """The shape of what acts, within limits."""

    def refuse(reason: str) -> NoReturn:
        _refuse(path, reason)

    network, version = description["network"], description["version"]
    kind = network.get("kind")
    if kind not in ((None,) if version < 3 else (None, KIND)):
        refuse(f"`network.kind` is not one that format version {version} has")
    layout = read_network(network, refuse)
    if sum(map(math.prod, layout.shapes.values())) > MAX_PARAMETERS:
        refuse(f"its network has more than {MAX_PARAMETERS} parameters")
    return layout


def read_vector(description: dict[str, Any], group: str, key: str, size: int, path: Path) -> np.ndarray | None:
    """A vector of finite numbers, or None where the description has none.

    Args:
        description: The content of `policy.json`.
        group: The object in it that may have the vector.
        key: The vector's name there.
        size: How many numbers it must have.
        path: The file, for messages.
    """
    values = description[group].get(key)
    if values is None:
        return None
    if not isinstance(values, list) or len(values) != size or not all(type(v) in (int, float) for v in values):
        _refuse(path, f"`{group}.{key}` must be a list of {size} numbers")
    try:
        vector = np.asarray([float(v) for v in values], np.float64)
        with np.errstate(over="ignore"):
            vector = vector.astype(np.float32)
    except OverflowError:
        _refuse(path, f"`{group}.{key}` holds a number too large for float32")
    if not np.isfinite(vector).all():
        _refuse(path, f"`{group}.{key}` holds a number that is not finite in float32")
    return vector


def read_guard(description: dict[str, Any], obs_dim: int, path: Path) -> dict[str, Any]:
    """The guard's numbers, or nothing where a policy has none."""
    guard, columns = description.get("guard"), description["observation"]
    if guard is None:
        return {}
    if not isinstance(guard, dict) or not (type(guard.get("states")) is int and 1 <= guard["states"] <= MAX_WIDTH):
        _refuse(path, f"`guard` needs `states`, a whole number from 1 to {MAX_WIDTH}")
    known: dict[str, Any] = {"states": guard["states"]}
    for key in ("warn", "fall_back"):
        if type(guard.get(key)) not in (int, float) or not 0 < guard[key] < 1e30:
            _refuse(path, f"`guard.{key}` must be a positive number")
        known[key] = float(guard[key])
    for key in ("low", "high"):
        known[key] = read_vector(description, "observation", key, obs_dim, path)
        if known[key] is None:
            _refuse(path, f"`observation.{key}` is missing, and the guard needs it")
    for key in ("names", "units"):
        words = columns.get(key) or []
        if not isinstance(words, list) or len(words) not in (0, obs_dim) or not all(isinstance(w, str) for w in words):
            _refuse(path, f"`observation.{key}` must be a list of {obs_dim} words")
        known[key] = tuple(words)
    known["quantiles"] = columns.get("quantiles") if isinstance(columns.get("quantiles"), dict) else {}
    return known


def read_tensors(folder: Path, shapes: dict[str, tuple[int, ...]], sha256: Any) -> dict[str, np.ndarray]:
    """The weights, if the file holds exactly the float32 tensors of these names and shapes, all finite.

    The digest says that both files were written together; it is no proof of who wrote them.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    path = folder / WEIGHTS
    data_bytes = 4 * sum(map(math.prod, shapes.values()))
    header_limit = 4096 + 256 * len(shapes)
    raw = _contents(path, 8 + header_limit + data_bytes)
    length = int.from_bytes(raw[:8], "little")
    if len(raw) < 8 or length > min(header_limit, len(raw) - 8):
        _refuse(path, "it is not a safetensors file of a policy (its header has an impossible length)")
    header = strict_json(raw[8 : 8 + length], path)
    if not isinstance(header, dict):
        _refuse(path, "its header is not an object")
    header.pop("__metadata__", None)
    if set(header) != set(shapes):
        odd = sorted(set(header) ^ set(shapes))[0]
        _refuse(path, f"its tensors are not those of the network in {DESCRIPTION}; the first difference is {odd!r:.80}")
    for name, shape in shapes.items():
        entry = header[name]
        if not isinstance(entry, dict) or (entry.get("dtype"), entry.get("shape")) != ("F32", list(shape)):
            _refuse(path, f"tensor {name!r} must be float32 of shape {shape}")
    if len(raw) - 8 - length != data_bytes:
        _refuse(path, f"it holds {len(raw) - 8 - length} bytes of weights where the network has {data_bytes}")
    try:
        tensors = load(raw)  # checks that the offsets tile the buffer
    except SafetensorError as error:
        _refuse(path, f"its header is damaged ({error})")
    for name, tensor in tensors.items():
        if not np.isfinite(tensor).all():
            _refuse(path, f"tensor {name!r} holds numbers that are not finite")
    if _digest(raw) != sha256:
        _refuse(path, f"its SHA-256 is not the one in {DESCRIPTION}: a file was damaged or belongs to another policy")
    return tensors


def _digest(weights: bytes) -> str:
    return hashlib.sha256(weights).hexdigest()


def strict_json(raw: bytes, path: Path) -> Any:
    """JSON without its traps: no NaN, no repeated keys, no towers of brackets."""

    def constant(name: str) -> NoReturn:
        raise ValueError(f"{name} is not a JSON number")

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        content = dict(items)
        if len(content) != len(items):
            raise ValueError("a key appears twice")
        return content

    try:
        return json.loads(raw.decode("utf-8"), parse_constant=constant, object_pairs_hook=pairs)
    except (ValueError, RecursionError) as error:
        kind = "it nests too deeply" if isinstance(error, RecursionError) else f"{error}"
        raise OdiceError(f"{path} was refused: it is not clean JSON ({kind:.120}); get a fresh copy.") from None


def _contents(path: Path, limit: int) -> bytes:
    """The bytes of an ordinary file of at most `limit` bytes. Opened without following links or waiting on pipes."""
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        raise OdiceError(f"{path} is missing; a policy is a folder with {WEIGHTS} and {DESCRIPTION}.") from None
    except OSError as error:
        reason = "it is a link; copy the file itself" if path.is_symlink() else f"{error.strerror or error}"
        raise OdiceError(f"{path} cannot be read: {reason}.") from None
    with open(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            _refuse(path, "it is not an ordinary file")
        if status.st_size > limit:
            _refuse(path, f"it has {status.st_size} bytes where at most {limit} are expected")
        return file.read(limit + 1)


def _refuse(path: Path, reason: str) -> NoReturn:
    raise OdiceError(f"{path} was refused: {reason}.")
