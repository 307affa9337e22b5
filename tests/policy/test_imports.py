"""A deployment imports odice.policy: numpy comes with it, and nothing heavy."""

import subprocess
import sys
from pathlib import Path

import odice.policy
from odice.policy import Policy, open_policy, policy

HEAVY = {"jax", "jaxlib", "equinox", "optax", "gymnasium", "polars", "h5py", "minari", "onnx", "onnxruntime", "tyro"}


def test_numpy_is_all_that_a_policy_imports():
    names = [f"odice.policy.{file.stem}" for file in Path(odice.policy.__file__).parent.glob("*.py")]
    names = [name.removesuffix(".__init__") for name in names]
    assert len(names) > 4
    code = f"import sys, {', '.join(names)}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert {"numpy", *names} <= set(loaded)
    assert not HEAVY & set(loaded)
    packages = {".".join(name.split(".")[:2]) for name in loaded if name.startswith("odice.")}
    leaves = {f"odice.{name}" for name in ("errors", "files", "action_map", "encoding", "jsonable", "notebook")}
    assert packages == {"odice.policy", *leaves}


def test_the_package_names_what_people_need():
    assert (Policy, open_policy) == (policy.Policy, policy.open_policy)
