"""Would the tests notice? Known mistakes are put into a copy of the code, one at a time, and the tests are run on it.

    python benchmarks/mutations.py                      # each mistake against the tests that should catch it
    python benchmarks/mutations.py --only mask polyak   # those whose name contains a word
    python benchmarks/mutations.py --tests tests        # against other tests, e.g. all of them

A mistake replaces one string that the file must hold exactly once; a change of the code that moves it is an error here,
not a silent pass. Without a mistake the same tests must pass. Takes half a minute per mistake on one core.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]


class Mistake(NamedTuple):
    name: str
    file: str
    right: str
    wrong: str
    tests: str


DICE, VDICE = "tests/core/test_gradients.py tests/algos/test_vdice.py", "odice/core/vdice.py"
LOAD = "tests/data/test_load.py tests/data/test_transitions.py"
MISTAKES = [
    Mistake("loss: sign of V", VDICE, "rest=lambda v: (1.0", "rest=lambda v: -(1.0", DICE),
    Mistake(
        "loss: sign of the advantage",
        "odice/algos/iql.py",
        "_weight(q - v",
        "_weight(v - q",
        "tests/algos/test_implicit.py",
    ),
    Mistake("target: max of the value's heads", VDICE, "jnp.min(target, axis", "jnp.max(target, axis", DICE),
    Mistake(
        "target: max of the critics",
        "odice/core/critics.py",
        "jnp.where(head < least, head, least)",
        "jnp.where(head > least, head, least)",
        "tests/algos/test_implicit.py tests/algos/test_td3_bc.py",
    ),
    Mistake("mask: dropped", VDICE, "discount * mask[None] * v_next", "discount * v_next", DICE),
    Mistake(
        "mask: dropped in the Q target",
        "odice/algos/implicit_q.py",
        "cfg.discount * batch.mask * v_next",
        "cfg.discount * v_next",
        "tests/algos/test_implicit.py",
    ),
    Mistake("projection: sign", "odice/core/gradients.py", "1.0 - rule.eta * kappa", "1.0 + rule.eta * kappa", DICE),
    Mistake("projection: none", "odice/core/gradients.py", "project=True", "project=False", DICE),
    Mistake(
        "stop-gradient: removed",
        "odice/algos/td3_bc.py",
        "scale = jax.lax.stop_gradient(jnp.mean(jnp.abs(q)))",
        "scale = jnp.mean(jnp.abs(q))",
        "tests/algos/test_td3_bc.py",
    ),
    Mistake(
        "polyak: swapped", "odice/core/optim.py", "rate * o + (1.0 - rate) * t", "rate * t + (1.0 - rate) * o", DICE
    ),
    Mistake(
        "auto: all of the backward gradient",
        VDICE,
        "jnp.mean(residuals) if excess else",
        "jnp.mean(residuals) if not excess else",
        "tests/algos/test_auto.py",
    ),
    Mistake(
        "auto: the temperature moves the wrong way",
        "odice/core/adaptive.py",
        "return log_temperature + RATE * _gap",
        "return log_temperature - RATE * _gap",
        "tests/core/test_adaptive.py",
    ),
    Mistake(
        "auto: the baseline is added",
        "odice/core/adaptive.py",
        "return residual - explained,",
        "return residual + explained,",
        "tests/algos/test_auto.py",
    ),
    Mistake(
        "learner: the schedule is ignored",
        "odice/core/learner.py",
        "if steps else self.learning_rate",
        "if not steps else self.learning_rate",
        "tests/algos/test_auto.py",
    ),
    Mistake(
        "conjugate: derivative doubled",
        "odice/core/divergences.py",
        "lambda t, _, y: safe_weight(y) * t",
        "lambda t, _, y: 2 * safe_weight(y) * t",
        "tests/core/test_divergences.py",
    ),
    Mistake(
        "expectile: the wrong side",
        "odice/core/critics.py",
        "jnp.where(u < 0, 1.0 - tau, tau)",
        "jnp.where(u < 0, tau, 1.0 - tau)",
        "tests/algos/test_implicit.py",
    ),
    Mistake(
        "resume: one step too far",
        "odice/training/loop.py",
        "return self._saved, put(",
        "return self._saved + 1, put(",
        "tests/training/test_resume.py",
    ),
    Mistake(
        "resume: batches do not follow the step",
        "odice/core/sampling.py",
        "jax.random.fold_in(loop_key, step)",
        "jax.random.fold_in(loop_key, 0 * step)",
        "tests/training/test_loop.py",
    ),
    Mistake(
        "reader: the last row is lost",
        "odice/data/readers/d4rl.py",
        "hdf5.array(file, key, where) for r",
        "hdf5.array(file, key, where)[:-1] for r",
        LOAD,
    ),
    Mistake(
        "reader: terminals are lost",
        "odice/data/transitions.py",
        "dataset.terminated[owner] & (steps == ends[owner])",
        "False & (steps == ends[owner])",
        LOAD,
    ),
    Mistake(
        "reward: sign of the shift",
        "odice/data/preprocess.py",
        "+ np.float32(self.reward_shift)",
        "- np.float32(self.reward_shift)",
        "tests/data/test_preprocess.py",
    ),
    Mistake(
        "normalizer: not applied to the data",
        "odice/data/preprocess.py",
        "obs = (obs - _f32(self.obs_mean)) / _f32(self.obs_scale)",
        "pass",
        "tests/data/test_preprocess.py",
    ),
    Mistake(
        "schema: the reward may be an observation",
        "odice/data/binding.py",
        'SEEN = ("observation", "next_observation", "first", "step")',
        'SEEN = ("observation", "next_observation", "first", "step", "reward")',
        "tests/data/test_ends.py",
    ),
    Mistake(
        "schema: flags lose to the file",
        "odice/data/schema.py",
        "schema.over(Schema.read(file))",
        "Schema.read(file).over(schema)",
        "tests/data/test_schema.py",
    ),
]


def copy(folder: Path, mistake: Mistake | None = None) -> None:
    """The tree, with a mistake in it."""
    skip = shutil.ignore_patterns(".*", "__pycache__", "runs", "demo", "*.egg-info")
    shutil.copytree(ROOT, folder, ignore=skip)
    if mistake is not None:
        path = folder / mistake.file
        text = path.read_text("utf-8")
        if text.count(mistake.right) != 1:
            sys.exit(
                f"{mistake.name}: {mistake.file} holds {mistake.right!r} {text.count(mistake.right)} times, not once"
            )
        path.write_text(text.replace(mistake.right, mistake.wrong), "utf-8")


def failure(folder: Path, tests: str) -> str | None:
    """The first test that fails, if one does."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider", "-m", "not long"]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run([*command, *tests.split()], cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode == 0:
        return None
    named = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    if named is None:
        sys.exit(
            f"pytest ended with code {done.returncode} and named no test:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        )
    return named[1].removeprefix("tests/")


def main(only: list[str], tests: str | None) -> int:
    chosen = [mistake for mistake in MISTAKES if not only or any(word in mistake.name for word in only)]
    chosen = [mistake._replace(tests=tests or mistake.tests) for mistake in chosen]
    missed = 0
    with tempfile.TemporaryDirectory(prefix="odice-mutations-") as temporary:
        copy(Path(temporary) / "right")
        for each in sorted({mistake.tests for mistake in chosen}):
            if test := failure(Path(temporary) / "right", each):
                sys.exit(f"{test} fails without any mistake; that must be mended first")
        for i, mistake in enumerate(chosen):
            folder, begin = Path(temporary) / str(i), time.monotonic()
            copy(folder, mistake)
            test = failure(folder, mistake.tests)
            missed += test is None
            caught = f"caught by {test}" if test else "NOT CAUGHT"
            print(f"{mistake.name:<40}{caught}  ({time.monotonic() - begin:.0f} s)", flush=True)
            shutil.rmtree(folder)
    print(f"{len(chosen) - missed} of {len(chosen)} mistakes caught")
    return 1 if missed else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[], help="words of which a mistake's name must contain one")
    parser.add_argument("--tests", help="the tests to run instead of those of each mistake")
    args = parser.parse_args()
    sys.exit(main(args.only, args.tests))
