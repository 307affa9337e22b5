"""Kill a run again and again, at random moments and in the middle of saving, and see whether anything is lost.

    python benchmarks/chaos.py --kills 50

A reference run is left alone. Another one of the same configuration is killed with SIGKILL (half of the kills fall into
the time during which a checkpoint is written) and started again each time, then left to finish. Afterwards:

- every kill was followed by a run that went on (resumable);
- no kill lost more updates than lie between two checkpoints;
- after each restart there were no temporary files, and after the last no process that evaluates was left behind;
- weights (SHA-256), metrics and evaluations equal the reference's, byte for byte.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import numpy as np

FILES = (
    "result.json",
    "metrics.jsonl",
    "evaluations.jsonl",
    "policy/last/policy.safetensors",
    "policy/best/policy.json",
)
SMALL = [
    "--algo",
    "odice",
    "--value-hidden",
    "32",
    "--policy-hidden",
    "32",
    "--batch-size",
    "32",
    "--allow",
    "all",
    "--env",
    "CartPole-v1",
]


def write_data(path: Path) -> None:
    """A log with CartPole's shapes; what is in it does not matter here."""
    rng = np.random.default_rng(0)
    n = 4000
    ends = rng.random(n) < 0.02
    np.savez(
        path,
        observations=rng.normal(0, 0.1, (n, 4)).astype(np.float32),
        actions=rng.integers(0, 2, n),
        rewards=np.ones(n, np.float32),
        terminals=ends,
        timeouts=np.zeros(n, bool),
    )


class Victim:
    """One process of the run."""

    def __init__(self, folder: Path, out: Path, steps: int, every: int):
        self.out = out
        command = [
            sys.executable,
            "-m",
            "odice.cli.main",
            "train",
            "--data",
            str(folder / "data.npz"),
            "--out",
            str(out),
        ]
        command += ["--steps", str(steps), "--eval-every", str(every), "--eval-episodes", "2", *SMALL]
        self.log = open(folder / "log.txt", "a")  # noqa: SIM115
        self.process = subprocess.Popen(
            [*command, "--checkpoint-every", str(every)],
            stdout=self.log,
            stderr=subprocess.STDOUT,
            env=environment(folder),
        )

    def step(self) -> int:
        """How far the metrics say it has come."""
        return max((json.loads(line)["step"] for line in complete_lines(self.out / "metrics.jsonl")), default=0)

    def saving(self) -> bool:
        return any((self.out / "checkpoints").glob("*tmp*")) if (self.out / "checkpoints").is_dir() else False

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.log.close()

    def finish(self) -> int:
        code = self.process.wait()
        self.log.close()
        return code


def environment(folder: Path) -> dict[str, str]:
    """Compiled programs are kept between the processes: the kills are about files, not about compilers."""
    cache = {"JAX_COMPILATION_CACHE_DIR": str(folder / "xla"), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    return {**os.environ, **cache}


def complete_lines(path: Path) -> list[str]:
    if not path.exists():
        return []
    return [line for line in path.read_text().splitlines(keepends=True) if line.endswith("}\n")]


def leftovers(out: Path) -> set[tuple[str, int]]:
    """Temporary files and folders, with their inodes: ours start with a dot, orbax's say `tmp`."""
    paths = set()
    for folder, folders, files in os.walk(out):  # unlike rglob, it does not mind a run that deletes while we look
        for path in (Path(folder, name) for name in (*folders, *files)):
            if (path.name.startswith(".") and path.name != ".lock") or path.name.endswith("tmp"):
                with suppress(FileNotFoundError):
                    paths.add((str(path.relative_to(out)), path.stat().st_ino))
    return paths


def orphans() -> int:
    """Processes that evaluate for nobody: their run is gone."""
    count = 0
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if b"odice.evaluation.simulator.process" in (entry / "cmdline").read_bytes():
                count += "PPid:\t1\n" in (entry / "status").read_text()
    return count


def checkpoint(out: Path) -> int:
    folder = out / "checkpoints"
    return max((int(p.name) for p in folder.iterdir() if p.name.isdigit()), default=0) if folder.is_dir() else 0


def wait_for(ready, victim: Victim, seconds: float = 600.0, pause: float = 0.0005) -> bool:
    """Wait until `ready()`; False if the process ended or it took too long."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if ready():
            return True
        if victim.process.poll() is not None:
            return False
        time.sleep(pause)
    return False


def chaos(folder: Path, kills: int, seed: int = 0, interval: int = 1000) -> dict:
    """Run the experiment and return its counts."""
    rng = random.Random(seed)
    steps = (3 * kills + 5) * interval
    write_data(folder / "data.npz")
    if Victim(folder, folder / "reference", steps, interval).finish() != 0:
        raise SystemExit((folder / "log.txt").read_text()[-2000:])
    out, outcome = folder / "run", {"kills": 0, "inside_a_save": 0, "resumed": 0, "most_lost": 0, "leftovers": 0}
    while outcome["kills"] < kills and not (out / "result.json").exists():
        before, dirt = checkpoint(out), leftovers(out) if out.exists() else set()
        victim = Victim(folder, out, steps, interval)
        wait_for(lambda: victim.step() > before and checkpoint(out) > before, victim, pause=0.01)  # noqa: B023
        outcome["resumed"] += bool(outcome["kills"]) and victim.process.poll() is None
        outcome["leftovers"] += len(dirt & leftovers(out))
        if outcome["kills"] % 2 == 0:
            wait_for(victim.saving, victim)
            time.sleep(rng.uniform(0, 0.03))
        else:
            time.sleep(rng.uniform(0, 0.5))
        inside, reached = victim.saving(), victim.step()
        victim.kill()
        outcome["kills"] += 1
        outcome["inside_a_save"] += inside
        outcome["most_lost"] = max(outcome["most_lost"], reached - checkpoint(out))
    outcome["resumed"] += Victim(folder, out, steps, interval).finish() == 0
    outcome["leftovers"] += len(leftovers(out))
    time.sleep(3.0)  # a process that evaluates looks once a second whether its run is still there
    outcome["orphans"] = orphans()
    outcome["equal"] = {name: (out / name).read_bytes() == (folder / "reference" / name).read_bytes() for name in FILES}
    return {**outcome, "interval": interval, "steps": steps}


def passed(outcome: dict) -> bool:
    return (
        outcome["resumed"] == outcome["kills"]
        and outcome["most_lost"] <= outcome["interval"]
        and outcome["leftovers"] == 0
        and outcome["orphans"] == 0
        and all(outcome["equal"].values())
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--interval", type=int, default=1000, help="updates between two checkpoints")
    arguments = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="odice-chaos-") as folder:
        outcome = chaos(Path(folder), arguments.kills, arguments.seed, arguments.interval)
    print(json.dumps(outcome, indent=1))
    print(
        f"{outcome['resumed']} of {outcome['kills']} kills resumed ({outcome['inside_a_save']} inside a save), "
        f"{time.monotonic() - began:.0f} s"
    )
    return 0 if passed(outcome) else 1


if __name__ == "__main__":
    sys.exit(main())
