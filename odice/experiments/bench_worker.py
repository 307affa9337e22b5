"""A process of `odice bench`: it compiles, reports ready, waits for a line, measures, and answers with JSON."""

from __future__ import annotations

import json
import os
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from odice.machine import pin


def work(job: dict[str, Any]) -> None:
    """Compile, wait for the start signal, measure."""
    if job["core"] is not None:
        pin(os.getpid(), job["core"])  # before jax counts the cores
    if job.get("devices"):  # before jax starts
        os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={job['devices']}"
        os.environ["JAX_PLATFORMS"] = "cpu"
    answers, sys.stdout = sys.stdout, sys.stderr
    say = lambda text: print(text, file=answers, flush=True)
    result = work_on_a_run(job, say) if job.get("kind") == "run" else work_on_updates(job, say)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    say(json.dumps({**result, "peak": peak * (1 if sys.platform == "darwin" else 1024)}))


def _wait(say: Any) -> None:
    say("ready")
    sys.stdin.readline()


def work_on_updates(job: dict[str, Any], say: Any) -> dict[str, Any]:
    from odice.experiments import speed
    from odice.training.compilation import use_cache
    from odice.training.devices import choose_devices

    use_cache()
    settings = speed.settings_of(job["algo"], job["preset"])
    devices = choose_devices(job.get("devices"), settings.batch_size)
    run = speed.Updates(job["algo"], settings, job["rows"], job["length"], devices=devices)
    multiply, operations = (None, 0) if job.get("alone") else speed.products()
    _wait(say)
    rates, matmul, until = [], [], time.perf_counter() + job["seconds"]
    while len(rates) < 3 or time.perf_counter() < until:
        rates.append(speed.rate(run, job["length"]))
        if multiply:
            matmul.append(speed.rate(multiply, operations))
    known = {"operations": run.operations, "batch": settings.batch_size, "exchanged": run.exchanged() if devices else 0}
    return {"rates": rates, "matmul": matmul, **known}


def work_on_a_run(job: dict[str, Any], say: Any) -> dict[str, Any]:
    """Seconds of one update in the bare loop; and of one row of metrics, one checkpoint and one evaluation.

    Runs of two lengths differ by their updates and their rows: so start and end of a run do not count.
    """
    import jax

    from odice.evaluation.simulator.evaluate import evaluate
    from odice.experiments import speed
    from odice.training.checkpoint import Checkpoints
    from odice.training.compilation import use_cache
    from odice.training.settings import resolve
    from odice.training.train import train

    use_cache()
    given = {"algo": job["algo"], "preset": job["preset"], "env": "none", "quiet": True, "checkpoint_every": 10**9}
    plan = resolve(speed.LOG, **given)
    more = max(1, job["steps"] // plan.row_steps)
    bare = speed.Updates(job["algo"], plan.config, 40_000, plan.chunk_steps, speed.LOG_SPEC)
    with tempfile.TemporaryDirectory() as folder:

        def run(rows: int, name: str) -> Any:
            return train(speed.LOG, **given, steps=rows * plan.row_steps, out=f"{folder}/{name}")

        policy = run(1, "warm").policy
        _wait(say)
        few, many = _seconds(lambda: run(1, "few")), _seconds(lambda: run(1 + more, "many"))
        update = 1 / statistics.median(speed.rate(bare, bare.length) for _ in range(15))
        state, kept = jax.device_get(bare.state), Checkpoints(Path(folder) / "kept")
        saves = [_seconds(lambda i=i: kept.save(i, {"state": state}, {})) for i in range(6)]
        evaluation = _seconds(lambda: evaluate(policy, speed.LOG_ENV, episodes=10))
    return {
        "bare": update,
        "row": max(0.0, (many - few) / more - plan.row_steps * update),
        "row_steps": plan.row_steps,
        "save": statistics.median(saves[1:]),
        "evaluation": evaluation,
        "eval_every": plan.options.eval_every,
    }


def _seconds(action: Any) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


if __name__ == "__main__":
    work(json.loads(sys.argv[1]))
