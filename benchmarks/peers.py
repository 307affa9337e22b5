"""Updates per second beside d3rlpy, the peer that installs from the package index: same networks, same batch, same
core, one run.

    python3 -m venv PEERS && PEERS/bin/pip install torch d3rlpy      # apart from odice, which does not want torch
    python benchmarks/peers.py --peer PEERS/bin/python

Each side is a process of its own, pinned to one core; they take turns of a few seconds, so that a slow moment of the
machine meets both, and the best turn of each counts. Both sample their batches themselves, from the same numbers in
memory. d3rlpy is called by `update` in a bare loop, without its logging and saving.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable

OBS, ACTIONS, ROWS, BATCH, WIDTHS = 17, 6, 100_000, 256, (256, 256)
# (settings here, name there; there all is as it comes): two hidden layers of 256, two critics, CQL with ten actions of
# each kind and a multiplier
PAIRS = {
    "bc": ({"policy": "deterministic"}, "BC"),
    "iql": ({}, "IQL"),
    "td3-bc": ({}, "TD3PlusBC"),
    "cql": ({"critic_hidden": WIDTHS, "policy_hidden": WIDTHS, "n_actions": 10, "lagrange_gap": 10.0}, "CQL"),
}


def numbers() -> tuple:
    import numpy as np

    rng = np.random.default_rng(0)
    floats = lambda x: x.astype(np.float32)
    obs, actions = floats(rng.normal(size=(ROWS, OBS))), floats(rng.uniform(-1, 1, (ROWS, ACTIONS)))
    return obs, actions, floats(rng.normal(size=ROWS)), np.arange(ROWS) % 1000 == 999


def odice_updates(name: str) -> Callable[[int], None]:
    import jax

    import odice
    from odice.data.transitions import to_transitions
    from odice.run.loop import initial_state, make_chunk
    from odice.types import Spec

    obs, actions, reward, cut = numbers()
    log = {"observations": obs, "actions": actions, "rewards": reward, "terminals": cut & False, "timeouts": cut}
    settings, _ = PAIRS[name]
    algo = odice.make(name, Spec(obs_dim=OBS, action_dim=ACTIONS), **settings)
    data = jax.device_put(to_transitions(odice.load(log)))
    state = initial_state(algo, 0)
    chunks = {}

    def update(count: int) -> None:
        nonlocal state
        chunk = chunks.setdefault(count, make_chunk(algo, BATCH, count))
        state, metrics = chunk(state, data, 0, 0)
        jax.block_until_ready((state, metrics))

    return update


def d3rlpy_updates(name: str) -> Callable[[int], None]:
    import d3rlpy
    import torch

    torch.set_num_threads(1)
    obs, actions, reward, cut = numbers()
    data = d3rlpy.dataset.MDPDataset(obs, actions, reward[:, None], 0.0 * cut, timeouts=1.0 * cut)
    _, peer = PAIRS[name]
    algo = getattr(d3rlpy.algos, f"{peer}Config")(batch_size=BATCH).create(device="cpu:0")
    algo.build_with_dataset(data)

    def update(count: int) -> None:
        for _ in range(count):
            algo.update(data.sample_transition_batch(BATCH))

    return update


def worker(side: str, name: str) -> None:
    """Answers each line "COUNT" with the seconds that so many updates took."""
    answers, sys.stdout = sys.stdout, sys.stderr  # what a library prints is no answer
    update = {"odice": odice_updates, "d3rlpy": d3rlpy_updates}[side](name)
    for line in sys.stdin:
        began = time.perf_counter()
        update(int(line))
        print(time.perf_counter() - began, file=answers, flush=True)


class Side:
    """One library's process, and the best rate it has shown."""

    def __init__(self, python: str, side: str, name: str, seconds: float):
        command = [python, __file__, "--worker", side, name]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self._ask(4)  # compiles, warms up
        self._count = max(2, int(seconds * 8 / min(self._ask(8), self._ask(8))))
        self._ask(self._count)  # a chunk of another length is another program
        self.best = 0.0

    def _ask(self, count: int) -> float:
        self._process.stdin.write(f"{count}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            sys.exit(self._process.stderr.read())
        return float(answer)

    def turn(self) -> None:
        self.best = max(self.best, self._count / self._ask(self._count))

    def close(self) -> None:
        self._process.communicate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("algorithms", nargs="*", default=list(PAIRS), help="default: all of them")
    parser.add_argument("--peer", help="a Python that has d3rlpy")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3, help="of one turn")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        return worker(*arguments.worker)
    if not arguments.peer:
        parser.error("--peer is needed: a Python that has d3rlpy")
    core = min(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {core})  # for the processes too
    print(f"core {core}; updates per second, batch {BATCH}, best of {arguments.turns} turns of {arguments.seconds:g} s")
    print(f"{'algorithm':<10}{'odice':>8}{'d3rlpy':>8}{'ratio':>8}")
    for name in arguments.algorithms:
        sides = [
            Side(python, side, name, arguments.seconds)
            for python, side in ((sys.executable, "odice"), (arguments.peer, "d3rlpy"))
        ]
        for _ in range(arguments.turns):
            for side in sides:
                side.turn()
        for side in sides:
            side.close()
        ours, theirs = (side.best for side in sides)
        print(f"{name:<10}{ours:>8.1f}{theirs:>8.1f}{ours / theirs:>8.2f}", flush=True)


if __name__ == "__main__":
    main()
