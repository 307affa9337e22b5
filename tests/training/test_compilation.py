"""What was compiled is kept: where, for how long, and what a damaged entry does."""

import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from odice.training import compilation
from odice.training.compilation import default_folder, delete_old

COUNTED = """
import json, sys
from collections import Counter

import jax
import jax.numpy as jnp

from odice.training.compilation import use_cache

seen = Counter()
jax.monitoring.register_event_listener(lambda event, **_: seen.update([event.rpartition("/")[2]]))
folder = use_cache()
{work}
print(json.dumps([folder and str(folder), seen["cache_hits"], seen["cache_misses"], result]))
"""
SUM = "result = float(jax.jit(lambda x: jnp.sum(jnp.sin(x)))(jnp.arange(99.0)))"
TRAIN = """
import odice
from tests.training.line import SMALL, line_log
run = odice.train(line_log(discrete=True), out=sys.argv[1], env="none", steps=20, quiet=True, algo="odice", **SMALL)
result = [run.result["state_sha256"], (run.path / "metrics.jsonl").read_text()]
"""


def start(work: str, caches: Path, out: Path | str = "", **environment: str) -> list:
    """The folder, the hits, the misses and the result of this work in a process whose user keeps caches there."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    own |= {"JAX_PLATFORMS": "cpu", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    own |= {"XDG_CACHE_HOME": str(caches), **environment}
    command = [sys.executable, "-W", "error::UserWarning", "-c", COUNTED.format(work=work), str(out)]
    done = subprocess.run(command, env=own, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


@pytest.mark.slow
def test_a_second_start_of_a_run_does_not_compile_again(tmp_path):
    folder, hits, misses, result = start(TRAIN, tmp_path, tmp_path / "cold")
    assert misses > 0
    assert start(TRAIN, tmp_path, tmp_path / "warm") == [folder, hits + misses, 0, result]
    assert Path(folder).is_relative_to(tmp_path / "odice")
    assert stat.S_IMODE(Path(folder).stat().st_mode) == 0o700


def test_a_damaged_entry_is_compiled_again_without_a_word(tmp_path):
    folder, _, misses, result = start(SUM, tmp_path)
    entries = sorted(Path(folder).glob("*-cache"))
    assert len(entries) == misses > 1
    for i, entry in enumerate(entries):  # cut short by a kill, or with bits that flipped
        data = bytearray(entry.read_bytes())
        data[len(data) // 2] ^= 0x10
        entry.write_bytes(data if i % 2 else data[: len(data) // 2])
    assert start(SUM, tmp_path) == [folder, 0, misses, result]


@pytest.mark.parametrize("environment", [{"ODICE_CACHE": "none"}, {"XDG_CACHE_HOME": os.devnull}])
def test_without_a_folder_nothing_is_kept(environment, tmp_path):
    assert start(SUM, tmp_path, **environment)[:3] == [None, 0, 0]
    assert not (tmp_path / "odice").exists()


def test_the_choice_of_the_user_goes_before(monkeypatch):
    import jax

    chosen = jax.config.values["jax_compilation_cache_dir"]  # by conftest.py
    if chosen is None:
        pytest.skip("there is no folder to keep programs in")
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert compilation.use_cache() == Path(chosen)
    assert jax.config.values["jax_compilation_cache_dir"] == chosen


def test_programs_of_other_machines_are_kept_apart(monkeypatch):
    folders = {default_folder()}
    for name, value in {"version": lambda _: "9.9.9", "_cpu": lambda: "another", "cores": lambda: 96}.items():
        with monkeypatch.context() as patch:
            patch.setattr(compilation, name, value)
            folders.add(default_folder())
    assert len(folders) == 4
    assert default_folder() in folders


def test_a_folder_that_others_can_write_to_is_not_used(tmp_path):
    assert compilation._is_ours(tmp_path / "mine")
    (tmp_path / "mine").chmod(0o770)
    assert not compilation._is_ours(tmp_path / "mine")
    (tmp_path / "file").touch()
    assert not compilation._is_ours(tmp_path / "file" / "below")


def test_the_least_recently_used_entries_go(tmp_path):
    for days, tag in enumerate(("a", "b", "c", "d", "e")):
        folder = tmp_path / f"xla-{tag}"
        folder.mkdir()
        (folder / "jit_f-1-cache").write_bytes(bytes(100))
        (folder / "notes").write_bytes(bytes(100))
        os.utime(folder / "jit_f-1-cache", (time.time() - days * 86_400 - 60,) * 2)
    left = lambda: [path.parent.name for path in sorted(tmp_path.glob("*/*-cache"))]
    delete_old(tmp_path)
    assert len(left()) == 5
    delete_old(tmp_path, most_days=3.5)
    assert left() == ["xla-a", "xla-b", "xla-c", "xla-d"]
    delete_old(tmp_path, most_bytes=250)
    assert left() == ["xla-a", "xla-b"]
    assert len(list(tmp_path.glob("*/notes"))) == 5
