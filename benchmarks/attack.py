"""Attack odice with folders and tables of an enemy, and count what goes wrong.

    python benchmarks/attack.py links --count 200
    python benchmarks/attack.py tables --count 1000

`links`: a run folder in which one or several names are symbolic links to somebody's folder or file; the run is
continued. Nothing behind a link may change, and the refusal is one sentence.

`tables`: a log with hostile words, names, gaps and types, and a second one with other words in another order. A policy
is made from the first (every `--train`-th is trained), saved, loaded, and meets the second: it is read for the policy,
judged, joined to the first as suboptimal data, and shown row by row. Each is refused in one sentence, or every number
stands for the word that is in the file.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import resource
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import polars as pl

import odice
from odice.data.demonstrations import with_suboptimal
from odice.data.preprocess import Preprocess, fit
from odice.encoding import encode
from odice.errors import OdiceError
from odice.evaluation.ope.episodes import make_episodes
from odice.policy.file import Layout
from odice.policy.policy import Policy

TRAIN = {"algo": "bc", "policy_hidden": (8,), "batch_size": 8, "steps": 10, "env": "none", "quiet": True}
TRAIN |= {"allow": ("all",)}

# --- links ------------------------------------------------------------------------------------------------------------

NAMES = [".lock", "config.json", "metrics.jsonl", "evaluations.jsonl", "timing.jsonl", "result.json", "estimates.jsonl"]
NAMES += ["checkpoints", "policy", "damaged", "tensorboard", "wandb", "policy/last", "policy/best", "policy/selected"]
NAMES += [
    "checkpoints/{n}",
    "policy/step-{n}",
    "policy/.last.{hex}.tmp",
    "policy/.step-{n}.{hex}.tmp",
    "policy/.last.old",
]
NAMES += [".config.json.{hex}.tmp", ".metrics.jsonl.{hex}.tmp", "checkpoints/{n}.orbax-checkpoint-tmp", "damaged/{n}"]
NAMES += ["damaged/result.json", "damaged/metrics.jsonl.0", "policy/last/policy.json", "policy/last/README.md"]


def state(folder: Path) -> dict[str, tuple[int, str]]:
    """Everything in a folder, down to the last change."""
    return {
        str(path.relative_to(folder)): (
            path.lstat().st_mtime_ns,
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
        )
        for path in sorted(folder.rglob("*"))
    }


def links(folder: Path, count: int, seed: int) -> Counter:
    rng, log = random.Random(seed), small_log()
    odice.train(log, out=folder / "finished", **TRAIN)
    counts: Counter = Counter()
    for i in range(count):
        run, victim = folder / f"{i}" / "run", folder / f"{i}" / "victim"
        shutil.copytree(folder / "finished", run)
        for name in ("9/state/a", "thesis/a", "step-9/a", ".last.0123abcd.tmp/a", "10.orbax-checkpoint-tmp/a"):
            (victim / name).parent.mkdir(parents=True)
            (victim / name).write_text("years of work")
        for name in ("file", "result.json", "policy.json", "metrics.jsonl"):
            (victim / name).write_text('{"step": 1}\n')
        for _ in range(rng.choice([1, 1, 2, 3])):
            name = rng.choice(NAMES).format(n=rng.choice([9, 10, 20]), hex=f"{rng.randrange(1 << 32):08x}")
            place = run / name
            if place.is_symlink() or any(parent.is_symlink() for parent in place.parents):
                continue
            shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)
            place.parent.mkdir(parents=True, exist_ok=True)
            relative = Path("../victim") if len(Path(name).parts) == 1 else victim
            place.symlink_to(rng.choice([relative, victim / "file", victim / "missing", victim / "thesis"]))
        before = state(victim)
        changes = {"out": run, "steps": rng.choice([10, 20])}
        counts[outcome(lambda changes=changes: odice.train(log, **{**TRAIN, **changes}))] += 1
        counts["changed behind a link"] += state(victim) != before
        shutil.rmtree(folder / f"{i}")
    return counts


def small_log() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    ends = np.arange(200) % 10 == 9
    return {
        "observations": rng.normal(size=(200, 3)).astype(np.float32),
        "actions": rng.integers(0, 2, 200),
        "rewards": rng.normal(size=200).astype(np.float32),
        "terminals": ends,
        "timeouts": np.zeros(200, bool),
    }


# --- tables -----------------------------------------------------------------------------------------------------------

WORDS = ["a", "b", "c", "A", "on", "off", "true", "false", "yes", "1x", "ERR", "n.a.", "=1+1", "<b>", "a|b", "a=b", "ä"]
WORDS += ["\u2028x", "x" * 300, "-", "b ", "None", "null", "inf!", "🤖", "[a]", "'", '"', "a,b", "a;b", "#", "\\"]
COLUMNS = ["mode", "*", "a=b", "[x]", "^x$", "x|y", "#", "obs.state", "weather", "ж", "'", '"', "next", "is missing"]
HOSTILE = [10**400, "text", None, float("nan"), [], [1, 2], {}, np.datetime64("2025-01-01"), 1j, b"x", "\ud800", -0.0]


def table(rng: random.Random, name: str, words: list[str], modes: list[str], n: int) -> pl.DataFrame:
    """Rows with words, numbers, gaps and now and then a cell or a type that does not belong there."""
    x = [float(rng.gauss(0, 1)) for _ in range(n)]
    cells: dict[str, list] = {
        "episode": [i // 5 for i in range(n)],
        name: [rng.choice(modes) for _ in range(n)],
        "speed": x,
        "act": [rng.choice(words) for _ in range(n)],
        "reward": [rng.random() for _ in range(n)],
        "terminated": [i % 5 == 4 for i in range(n)],
    }
    if rng.random() < 0.3:
        cells["speed"] = [None if rng.random() < 0.1 else value for value in x]
    if rng.random() < 0.1:
        cells[name] = [None if rng.random() < 0.1 else value for value in cells[name]]
    if rng.random() < 0.1:
        cells["speed"] = [str(value) if rng.random() < 0.95 else "ERR" for value in x]
    if rng.random() < 0.05:
        cells["reward"] = [rng.choice([1e308, -1e308, 1e39, 0.0]) for _ in range(n)]
    if rng.random() < 0.05:
        cells["terminated"] = [rng.choice(["yes", "no", "maybe"]) for _ in range(n)]
    return pl.DataFrame(cells, strict=False)


def tables(folder: Path, count: int, seed: int, train: int) -> Counter:
    counts: Counter = Counter()
    for i in range(count):
        rng = random.Random(seed * 1_000_003 + i)
        name = rng.choice(COLUMNS)
        words, modes = rng.sample(WORDS, rng.randint(1, 5)), rng.sample(WORDS, rng.randint(1, 5))
        first = table(rng, name, words, modes, 50)
        others = [rng.sample(each, rng.randint(1, len(each))) for each in (words, modes)]
        for each in others:
            each += rng.sample(WORDS, 1) if rng.random() < 0.3 else []
        second = table(rng, name, others[0], others[1], 50)
        kind = rng.choice(["csv", "parquet"])
        paths = [folder / f"{i}-{j}.{kind}" for j in range(2)]
        for path, frame in zip(paths, (first, second), strict=True):
            frame.write_csv(path) if kind == "csv" else frame.write_parquet(path)
        roles = {"observation": [name, "speed"], "action": ["act"], "reward": "reward", "episode": "episode"}
        roles |= {"terminated": "terminated", "missing": rng.choice(["refuse", "impute", "forward-fill", "split"])}
        roles |= {"missing_indicator": rng.random() < 0.5}
        counts[outcome(lambda: meet(paths, roles, name, folder / f"{i}", i % train == 0, counts, rng))] += 1  # noqa: B023
        for path in paths:
            path.unlink()
        shutil.rmtree(folder / f"{i}", ignore_errors=True)
    return counts


def meet(paths, roles, name, out, trained, counts, rng) -> None:
    """A policy of the first table meets the second."""
    data = odice.load(paths[0], **roles)
    if trained:
        run = odice.train(paths[0], out=out / "run", schema=None, **TRAIN, **flags(roles))
        policy = run.policy
        counts["trained"] += 1
    else:
        sizes = (data.spec.obs_dim, data.spec.action_dim)
        weights = np.random.default_rng(0).normal(size=sizes).astype(np.float32)
        tensors = {"layers.0.weight": weights, "layers.0.bias": np.zeros(sizes[1], np.float32)}
        fitted = json.loads(json.dumps(fit(Preprocess(), data).to_dict()))
        layout = Layout(sizes, False, "relu", "argmax" if data.discrete else "clip")
        Policy(layout, tensors, about={"preprocess": fitted}).save(out / "policy")
        policy = Policy.load(out / "policy")
    counts["wrong codings"] += not same_words(data, paths[0], name, policy, counts)
    for _ in range(3):  # the policy itself, shown what nobody should show it
        row = {name: rng.choice([*WORDS, *HOSTILE]), "speed": rng.choice([1.0, *HOSTILE])}
        counts[f"row: {outcome(lambda row=row: policy(row))}"] += 1
        counts[f"array: {outcome(lambda: policy(rng.choice(HOSTILE)))}"] += 1
    other = odice.load(paths[1], **roles, encoding=policy.encoding)
    counts["wrong codings"] += not same_words(other, paths[1], name, policy, counts)
    make_episodes(policy, other)
    alone = odice.load(paths[1], **roles)
    union = with_suboptimal(data, alone)
    half = union.select(range(data.n_episodes, union.n_episodes))
    counts["wrong codings"] += words_of(half) != words_of(alone)
    counts["met"] += 1


def flags(roles: dict) -> dict:
    names = {"observation": "observation_columns", "action": "action_columns"}
    return {
        names.get(key, f"{key}_column" if key in ("reward", "episode", "terminated") else key): tuple(value)
        if isinstance(value, list)
        else value
        for key, value in roles.items()
    }


def words_of(data) -> list[str]:
    return [data.meta.choices[code] for code in data.actions] if data.meta.choices else data.actions.tolist()


def same_words(data, path: Path, name: str, policy: Policy, counts: Counter) -> bool:
    """Whether the numbers of a data set are those of the file's words, read here in another way."""
    if len(data.rewards) != 50 or not data.discrete or not policy.choices:  # rows were left out
        return True
    frame = pl.read_csv(path, infer_schema_length=None) if path.suffix == ".csv" else pl.read_parquet(path)
    wanted = [str(word).strip() for word in frame["act"].to_list()]
    if [policy.choices[code] for code in data.actions] != wanted:
        return False
    observations = data.step_observations()
    for i, row in enumerate(zip(frame["speed"], frame[name], strict=True)):
        cells = dict(zip(("speed", name), row, strict=True))
        if None in cells.values():
            continue
        counts["rows compared"] += 1
        if not np.array_equal(encode(policy.columns, cells), observations[i]):
            return False
    return True


# --- both -------------------------------------------------------------------------------------------------------------


def outcome(work) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            work()
            return "done"
        except OdiceError as error:
            return "refused" if "\n" not in str(error) else "refused in several lines"
        except Exception:
            traceback.print_exc()
            return "tracebacks"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=["links", "tables"])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--train", type=int, default=50, help="tables: train a real policy for every n-th")
    arguments = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="odice-attack-") as folder:
        if arguments.kind == "links":
            counts = links(Path(folder), arguments.count, arguments.seed)
        else:
            counts = tables(Path(folder), arguments.count, arguments.seed, arguments.train)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(json.dumps(dict(sorted(counts.items())), indent=1))
    print(f"{arguments.count} {arguments.kind}, {time.monotonic() - began:.0f} s, at most {peak:.0f} MB")
    bad = sum(
        number
        for name, number in counts.items()
        if "traceback" in name or "wrong" in name or "changed" in name or "several" in name
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
