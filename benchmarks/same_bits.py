"""Does a change of the code change a number? Some updates of every algorithm under every preset, as hashes.

    python benchmarks/same_bits.py make before.json         # in the old checkout
    python benchmarks/same_bits.py make after.json          # in the new one: same machine and versions
    python benchmarks/same_bits.py compare before.json after.json

Hashed are the options that a preset sets, the metrics of each update (sorted, so that one may be renamed) and the
policy's parameters. Batches are random numbers. `make` keeps what its file has already, so that a stopped run can be
continued; `--only` limits it to some names.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import odice
from odice.errors import OdiceError
from odice.training.settings import resolve
from odice.types import Batch, Spec

STEPS = 4
HOPPER = "bundled/hopper-replay"
PRESETS = ("paper", "reference", "corl")
DEMONSTRATION = {"imitation": True, "episode": (5, 300), "batch_size": 64}
PAPER = {"odice": {"eta": 0.5}, "sdice": {"gradient": "semi"}, "vdice-true": {"gradient": "true"}}
"""How `auto` is turned into each member of the paper's family."""
PLAIN = {
    "lam": 0.6,
    "polyak": 0.005,
    "value_lr": 1e-4,
    "policy_lr": 1e-4,
    "value_ess": 0.0,
    "policy_ess": 0.0,
    "policy_baseline": False,
    "return_weight": 0.0,
    "value_start": 0.0,
    "cosine_steps": 0,
    "average": 0.0,
}
"""`auto` with nothing adapted: the paper's update."""
PROTOCOL = ("reward", "normalize_obs", "clip_actions", "convention", "final_obs", "absorbing", "eval_episodes")
STARTS = {"value_start": 1.5, "cosine_steps": 20}
"""What a run fills in where a setting is None."""
OWN = {"reward": "none"}


def runs() -> dict[str, dict[str, Any]]:
    """The arguments of `odice.train` for each named run; the data `discrete` mean random discrete actions."""
    found: dict[str, dict[str, Any]] = {}
    for name, entry in odice.algorithms().items():
        if name in ("auto", "dual-sac", "sac"):
            continue
        data = HOPPER
        union = {"suboptimal": HOPPER} if name in ("demo-dice", "lobs-dice", "smodice", "rgm") else {}
        explicit = {field.name: getattr(entry.config(), field.name) for field in dataclasses.fields(entry.config)}
        if not union:
            found[name] = {"data": data, "algo": name, **explicit, **OWN}
        if entry.discrete and not union:
            found[f"{name}, discrete"] = {"data": "discrete", "algo": name, **explicit, **OWN}
        for preset in PRESETS:
            if has(preset, name):
                found[f"{name}, {preset}"] = {"data": data, "algo": name, "preset": preset}
        if entry.imitates:
            for preset in (None, "paper", "reference"):
                if preset is None or has(preset, name, imitation=True):
                    given = {"data": HOPPER, "algo": name, "preset": preset, **DEMONSTRATION, **union}
                    found[f"{name}, imitation, {preset}"] = given
    found["auto"] = {"data": HOPPER, "algo": "auto"}
    found["auto, discrete"] = {"data": "discrete", "algo": "auto"}
    found["auto, averaged over next states"] = {"data": HOPPER, "algo": "auto", "double_sampling": "both"}
    found["auto, semi"] = {"data": HOPPER, "algo": "auto", "gradient": "semi"}
    for name, more in PAPER.items():
        for which in ("policy", "both"):
            given = {"algo": "auto", **PLAIN, **more}
            found[f"{name}, double sampling {which}"] = {"data": HOPPER, "double_sampling": which, **given, **OWN}
    return found


def has(preset: str, algo: str, *, imitation: bool = False) -> bool:
    try:
        odice.preset(preset, algo, imitation=imitation)
    except OdiceError:
        return False
    return True


def batch_for(spec: Spec, size: int, rng: np.random.Generator) -> Batch:
    """Random numbers in the place of a batch, with everything that a batch may carry."""
    normal = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)
    discrete = lambda: jnp.asarray(rng.integers(0, spec.action_dim, size), jnp.int32)
    continuous = lambda: jnp.asarray(rng.uniform(-1, 1, (size, spec.action_dim)), jnp.float32)

    def rows() -> Batch:
        action = discrete() if spec.discrete else continuous()
        ended = jnp.asarray(rng.uniform(size=size) < 0.1)
        return Batch(normal(size, spec.obs_dim), action, normal(size), normal(size, spec.obs_dim), ended)

    batch = rows()._replace(
        initial_obs=normal(size, spec.obs_dim), columns={"cost": jnp.abs(normal(size)), "return_to_go": normal(size)}
    )
    batch = batch._replace(expert=rows())
    return batch._replace(columns=batch.columns | {"next_action": normal(size, spec.action_dim)})


def digest(given: dict[str, Any]) -> str:
    """The hash of a run's options, and of the metrics and the policy after some updates."""
    spec = Spec(4, 3, discrete=True) if given["data"] == "discrete" else Spec(11, 3)
    plan = resolve(**{**given, "data": HOPPER})
    settings = plan.config
    started = {name: STARTS[name] for name in STARTS if getattr(settings, name, 0) is None}
    algo = plan.algorithm.build(dataclasses.replace(settings, **started), spec)
    total = hashlib.sha256(repr([getattr(plan.options, name) for name in PROTOCOL]).encode())
    key = (plan.options.algo, spec, repr(settings))
    if key not in _UPDATES:
        _UPDATES[key] = updates(algo, spec, settings.batch_size)
    total.update(_UPDATES[key])
    return total.hexdigest()[:16]


_UPDATES: dict[tuple, bytes] = {}
"""What is known already: several presets may have the same settings."""


def updates(algo: odice.Algo, spec: Spec, batch_size: int) -> bytes:
    """The metrics of some updates, and the policy after them."""
    rng, update, numbers = np.random.default_rng(0), jax.jit(algo.update), b""
    state = jax.jit(algo.init)(jax.random.key(3))
    for step in range(STEPS):
        state, metrics = update(state, batch_for(spec, batch_size, rng), jax.random.key(step))
        numbers += json.dumps(sorted(str(float(value)) for value in metrics.values())).encode()
    return numbers + b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(algo.policy(state)))


def make(out: Path, only: str | None) -> None:
    hashes = json.loads(out.read_text()) if out.exists() else {}
    for name, given in runs().items():
        if (only and only not in name) or name in hashes:
            continue
        try:
            hashes[name] = digest(given)
        except OdiceError as error:
            hashes[name] = f"failed: {error}"
        print(f"{name:<40}{hashes[name]}", flush=True)
        out.write_text(json.dumps(hashes, indent=1) + "\n")


def compare(before: Path, after: Path) -> int:
    old, new = (json.loads(path.read_text()) for path in (before, after))
    other = [name for name in old if old[name] != new.get(name) or old[name].startswith("failed")]
    for name in other:
        print(f"{name}: {old[name]} before, {new.get(name)} after")
    print(f"{len(old) - len(other)} of {len(old)} runs have the same bits")
    return 1 if other else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("make", "compare"))
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--only", help="make only the runs whose name holds this")
    args = parser.parse_args()
    sys.exit(make(args.files[0], args.only) if args.command == "make" else compare(*args.files))
