"""Flip single bits in every file of a run, and see whether what is read afterwards differs without a word.

    python benchmarks/flips.py --flips 1000

A small run is trained once. Then, again and again, one random bit is flipped: the kinds of files take turns, and the
files of a kind (the policies, the newest checkpoint) too, so that none is missed. Afterwards it is read as a user of
the run would: the configuration, the result, a log, the policies (what they answer to 32 observations), or the
checkpoint that the run would go on from. Each flip must be

- refused: one sentence, or a warning and the checkpoint before; or
- without effect: what is read is what was written (a space for a line break, a byte that nobody reads).

A silent difference or a traceback is a failure. Not looked at: `timing.jsonl` (wall-clock times), the model cards
(`README.md`) and `.lock`, which nothing is read from.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from chaos import write_data

import odice
from odice.training.checkpoint import Checkpoints, digest
from odice.training.loop import initial_state
from odice.training.prepare import prepare
from odice.training.settings import resolve

OPTIONS: dict[str, Any] = {"steps": 60, "eval_every": 20, "checkpoint_every": 20, "eval_episodes": 2, "quiet": True}
OPTIONS |= {"value_hidden": (16,), "policy_hidden": (16,), "batch_size": 16, "allow": ("all",), "env": "CartPole-v1"}
UNREAD = ("timing.jsonl", "README.md", ".lock")


def readers(run: Path, data: str) -> dict[str, Callable[[Path], Any]]:
    """The first folder or file below the run -> how it is read, as something that can be compared."""
    plan = resolve(data, out=str(run), **OPTIONS)
    algo = plan.algorithm.build(plan.config, prepare(plan).spec)
    like = jax.eval_shape(lambda: initial_state(algo, 0))
    observations = np.random.default_rng(0).normal(size=(32, 4))

    def policy(which: str, path: Path) -> Any:
        policy = odice.Policy.load(path / "policy" / which)
        return policy.outputs(observations).tobytes(), json.dumps(dict(policy.about), sort_keys=True)

    def checkpoint(path: Path) -> Any:
        checkpoints = Checkpoints(path / "checkpoints")
        try:
            restored = checkpoints.restore(lambda facts: {"state": like})
        finally:
            checkpoints.close()
        return restored and (restored.step, digest(restored.arrays), json.dumps(restored.facts, sort_keys=True))

    return {
        "config.json": lambda path: odice.Run.open(path).config,
        "result.json": lambda path: odice.Run.open(path).result,
        "metrics.jsonl": lambda path: odice.Run.open(path).metrics.to_dicts(),
        "evaluations.jsonl": lambda path: odice.Run.open(path).evaluations.to_dicts(),
        "policy": lambda path: [policy(which, path) for which in ("last", "best")],
        "checkpoints": checkpoint,
    }


def outcome(read: Callable[[Path], Any], path: Path, expected: Any) -> str:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            same = read(path) == expected
        except odice.OdiceError as error:
            return "refused" if "\n" not in str(error) else "traceback"
        except BaseException:
            traceback.print_exc()
            return "traceback"
    said = [each for each in said if issubclass(each.category, UserWarning)]
    return "refused" if said else "without effect" if same else "silent"


def flips(folder: Path, count: int, seed: int = 0) -> dict[str, Counter]:
    """Outcomes by what was damaged."""
    rng, data, run, copy = random.Random(seed), str(folder / "data.npz"), folder / "run", folder / "copy"
    write_data(Path(data))
    odice.train(data, out=str(run), **OPTIONS)
    read = readers(run, data)
    expected = {name: each(run) for name, each in read.items()}
    kinds = {name: _files(run / name) for name in read} | {"checkpoints": _files(run / "checkpoints" / "60")}
    counts: dict[str, Counter] = {name: Counter() for name in read}
    shutil.copytree(run, copy)
    for i in range(count):
        name = list(kinds)[i % len(kinds)]
        whole = kinds[name][i // len(kinds) % len(kinds[name])]
        path = copy / whole.relative_to(run)
        content = bytearray(path.read_bytes())
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        path.write_bytes(content)
        counts[name][outcome(read[name], copy, expected[name])] += 1
        if name == "checkpoints":  # what is damaged was moved away
            shutil.rmtree(copy)
            shutil.copytree(run, copy)
        else:
            shutil.copyfile(whole, path)
    return counts


def _files(path: Path) -> list[Path]:
    paths = sorted(path.rglob("*")) if path.is_dir() else [path]
    return [each for each in paths if each.is_file() and each.name not in UNREAD and each.stat().st_size]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flips", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="odice-flips-") as folder:
        outcomes = flips(Path(folder), arguments.flips, arguments.seed)
    for name, counts in outcomes.items():
        print(f"{name:20} {dict(sorted(counts.items()))}")
    total = sum(outcomes.values(), Counter())
    print(f"{total.total()} flips: {dict(sorted(total.items()))}")
    return 1 if total["silent"] or total["traceback"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
