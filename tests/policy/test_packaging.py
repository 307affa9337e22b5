"""`odice-policy` (packaging/policy): the files that acting imports, and no other."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import jax
import numpy as np

from odice import Policy
from odice.core.policies import GaussianPolicy
from odice.types import Spec

ROOT = Path(__file__).parents[2]


def unpacked(folder: Path) -> Path:
    """What the wheel installs."""
    project = tomllib.loads((ROOT / "packaging/policy/pyproject.toml").read_text())
    for source, target in project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"].items():
        item, place = ROOT / "packaging/policy" / source, folder / target
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(item, place) if item.is_dir() else shutil.copy(item, place)
    return folder


def python(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True, cwd=folder)


def test_the_files_of_the_wheel_are_enough_to_act(tmp_path):
    network = GaussianPolicy(jax.random.key(0), Spec(3, 2), (8,))
    policy = Policy.from_network(network.deterministic())
    policy.save(tmp_path / "policy")
    code = (
        f"import odice; print(odice.__file__); print(odice.Policy.load({str(tmp_path / 'policy')!r})([0.1, 0.2, 0.3]))"
    )
    done = python(unpacked(tmp_path / "site"), "-c", code)
    assert done.returncode == 0, done.stderr
    where, action = done.stdout.splitlines()
    assert where == str(tmp_path / "site/odice/__init__.py")
    assert action == str(policy(np.array([0.1, 0.2, 0.3], np.float32)))


def test_a_command_says_what_is_missing(tmp_path):
    done = python(unpacked(tmp_path), "-m", "odice", "train", "--data", "x")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("odice: `odice train` needs odice.cli.train, which is not installed here")
    assert done.stderr.count("\n") == 1
