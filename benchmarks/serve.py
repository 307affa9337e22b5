"""Latency of `examples/serve`: one server process on one core, clients on loopback that ask one row after the other.

    python benchmarks/serve.py [--clients 4] [--seconds 20]

Prints requests per second and the 50th, 90th and 99th percentile of the time that a client waits, for one client and
for several; at the end the server gets SIGTERM, and every decision that was answered must be in its log.
"""

from __future__ import annotations

import argparse
import dataclasses
import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
COLUMNS = [{"name": f"x{i}"} for i in range(8)] + [{"name": "ward", "values": ["north", "south"]}]


def make_policy(folder: Path) -> Path:
    """A policy of 8 numbers and a word, 64-64, with a guard of 1,000 states."""
    import jax

    from odice import Policy
    from odice.core.policies import CategoricalPolicy
    from odice.policy.guard import fit_guard
    from odice.types import Spec

    log = np.random.default_rng(0).normal(size=(4000, 10)).astype(np.float32)
    network = CategoricalPolicy(jax.random.key(0), Spec(10, 3, True), (64, 64))
    policy = Policy.from_network(network.deterministic(), guard=fit_guard(log[:2000], log[2000:]))
    known = {"columns": COLUMNS, "choices": ["wait", "treat", "leave"]}
    return dataclasses.replace(policy, about={**policy.about, "preprocess": known}).save(folder / "policy")


def ask(port: int, seconds: float, seed: int, times: list[float], ids: list[str]) -> None:
    """One client: rows one after the other on one connection."""
    rng, connection = np.random.default_rng(seed), http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        row = {f"x{i}": float(value) for i, value in enumerate(rng.normal(size=8))} | {"ward": "north"}
        body = json.dumps({"rows": [row]})
        began = time.perf_counter()
        try:
            connection.request("POST", "/decide", body, {"content-type": "application/json"})
            answer = json.loads(connection.getresponse().read())
        except (OSError, http.client.HTTPException):  # the server has stopped
            return
        times.append(time.perf_counter() - began)
        ids.append(answer[0]["id"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=20.0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        log = folder / "decisions.jsonl"
        own = {"POLICY": str(make_policy(folder)), "LOG": str(log), "FALL_BACK": "wait", "OPENBLAS_NUM_THREADS": "1"}
        command = ["-m", "uvicorn", "app:app", "--app-dir", str(ROOT / "examples/serve"), "--port", "0"]
        server = subprocess.Popen(
            [sys.executable, *command, "--no-access-log"],
            env={**os.environ, **own, "PYTHONPATH": str(ROOT)},
            stderr=subprocess.PIPE,
            text=True,
        )
        assert server.stderr is not None
        said = next(line for line in server.stderr if "running on" in line)
        port = int(said.split("127.0.0.1:")[1].split()[0])
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(server.pid, {0})
        answered: list[str] = []
        print("clients  requests/s  p50 ms  p90 ms  p99 ms")
        for clients in (1, args.clients):
            times: list[float] = []
            threads = [
                threading.Thread(target=ask, args=(port, args.seconds, seed, times, answered))
                for seed in range(clients)
            ]
            for thread in threads:
                thread.start()
            if clients > 1:
                time.sleep(args.seconds * 0.9)
                server.send_signal(signal.SIGTERM)
            for thread in threads:
                thread.join()
            seconds = args.seconds * (0.9 if clients > 1 else 1.0)
            shown = "  ".join(f"{1000 * np.quantile(times, q):6.2f}" for q in (0.5, 0.9, 0.99))
            print(f"{clients:<9}{len(times) / seconds:>10.0f}  {shown}")
        server.wait(30)
        logged = {json.loads(line)["id"] for line in log.read_text().splitlines()}
        print(f"{len(answered):,} answered, {len(set(answered) - logged)} of them not in the log")


if __name__ == "__main__":
    main()
