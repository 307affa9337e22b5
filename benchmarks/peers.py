"""Updates per second beside other people's code: same networks, same batch, one pinned core, one run.

    python3 -m venv PEERS && PEERS/bin/pip install torch d3rlpy pyrallis jax flax distrax optax omegaconf
    python benchmarks/peers.py --python PEERS/bin/python --odice-pytorch DIR --corl DIR --jax-corl DIR --d3rlpy

A peer without its checkout (or flag) is left out. Nothing of them is changed or copied: their own scripts run, in a
process of their own. What they import and a benchmark cannot have (d4rl, an environment, wandb) is replaced by
stand-ins of this file; those for `tqdm` and `wandb.log`, which their loops call, count the updates. d3rlpy is called
by `update` in a bare loop. Each samples its own batches from the same numbers in memory.

The processes take turns of a few seconds, so that a slow moment of the machine meets everyone. Given are the median
and the best turn, and the ratio of medians. Settings are what each has: JAX-CORL's CQL has two hidden layers, not
three, and d3rlpy's too, so there odice is set to those as well.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import runpy
import statistics
import subprocess
import sys
import time
import types
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

OBS, ACTIONS, ROWS, BATCH = 17, 6, 100_000, 256
TWO = (256, 256)
LAGRANGE = {"critic_hidden": TWO, "policy_hidden": TWO, "n_actions": 10, "lagrange_gap": 10.0}


@dataclasses.dataclass(frozen=True)
class Match:
    """One comparison: an algorithm of ours with settings, against a peer's script (or class) of the same shape."""

    algo: str
    peer: str
    script: str
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    preset: str | None = None


MATCHES = [
    Match("odice", "odice-pytorch", "paper", preset="paper"),
    Match("odice", "odice-pytorch", "reference", preset="reference"),
    Match("iql", "corl", "iql", preset="corl"),
    Match("td3-bc", "corl", "td3_bc", preset="corl"),
    Match("cql", "corl", "cql", preset="corl"),
    Match("iql", "jax-corl", "iql", {"layer_norm": True}),
    Match("td3-bc", "jax-corl", "td3bc"),
    Match("cql", "jax-corl", "cql", {"critic_hidden": TWO, "policy_hidden": TWO}),
    Match("iql", "d3rlpy", "IQL"),
    Match("td3-bc", "d3rlpy", "TD3PlusBC"),
    Match("cql", "d3rlpy", "CQL", LAGRANGE),
    Match("bc", "d3rlpy", "BC", {"policy": "deterministic"}),
]


def numbers() -> tuple:
    import numpy as np

    rng = np.random.default_rng(0)
    floats = lambda x: x.astype(np.float32)
    obs, actions = floats(rng.normal(size=(ROWS, OBS))), floats(rng.uniform(-1, 1, (ROWS, ACTIONS)))
    return obs, actions, floats(rng.normal(size=ROWS)), np.arange(ROWS) % 1000 == 999


# --- taking turns ---------------------------------------------------------------------------------------------------


class Turns:
    """The worker's end of the pipe: reads "COUNT", lets so many updates pass, answers with the seconds they took."""

    def __init__(self) -> None:
        self._answers, sys.stdout = sys.stdout, sys.stderr  # what a library prints is no answer
        self._left = 0
        self._began: float | None = None
        self.finished: Callable[[], Any] = lambda: None

    def tick(self, updates: int = 1) -> None:
        """Called before every `updates` updates."""
        if self._left > 0:
            self._left -= updates
            return
        if self._began is not None:
            self.finished()  # what was started has to be done
            print(time.perf_counter() - self._began, file=self._answers, flush=True)
        line = sys.stdin.readline()
        if not line:
            os._exit(0)  # in the middle of somebody's loop
        self._left = int(line) - updates
        self._began = time.perf_counter()

    def through(self, items: Iterable, updates: int = 1) -> Iterable:
        for item in items:
            self.tick(updates)
            yield item


# --- stand-ins for what the peers import ----------------------------------------------------------------------------


class Anything(types.ModuleType):
    """A module whose every name is a function that does nothing and gives another such thing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything(name)

    def __call__(self, *_: Any, **__: Any) -> Any:
        return self

    def __mro_entries__(self, bases: tuple) -> tuple:
        return (object,)


def stand_ins() -> None:
    import numpy as np

    obs, actions, reward, cut = numbers()

    def dataset(*_: Any, **__: Any) -> dict:
        following = np.concatenate([obs[1:], obs[:1]])
        names = ("observations", "actions", "rewards", "next_observations", "terminals")
        return dict(zip(names, (obs.copy(), actions.copy(), reward.copy(), following, cut & False), strict=True))

    d4rl, gym, wandb = Anything("d4rl"), Anything("gym"), Anything("wandb")
    d4rl.qlearning_dataset = dataset
    space = lambda size: types.SimpleNamespace(shape=(size,), high=np.ones(size), seed=lambda seed: None)
    env = types.SimpleNamespace(observation_space=space(OBS), action_space=space(ACTIONS), seed=lambda seed: None)
    gym.make = lambda *_: env
    gym.wrappers = types.SimpleNamespace(TransformObservation=lambda env, _: env, TransformReward=lambda env, _: env)
    sys.modules |= {"d4rl": d4rl, "gym": gym, "wandb": wandb}


# --- the sides ------------------------------------------------------------------------------------------------------


def ours(match: Match, _: Path, turns: Turns) -> None:
    import jax

    import odice
    from odice.data.transitions import to_transitions
    from odice.training.loop import initial_state, make_chunk
    from odice.types import Spec

    obs, actions, reward, cut = numbers()
    log = {"observations": obs, "actions": actions, "rewards": reward, "terminals": cut & False, "timeouts": cut}
    preset = odice.preset(match.preset, match.algo).values() if match.preset else {}
    algo = odice.make(match.algo, Spec(obs_dim=OBS, action_dim=ACTIONS), **{**preset, **match.settings})
    data, state, step, updates = jax.device_put(to_transitions(odice.load(log))), initial_state(algo, 0), 0, 50
    chunk = make_chunk(algo, BATCH, updates)
    turns.finished = lambda: jax.block_until_ready(state)
    while True:
        turns.tick(updates)
        state, _metrics = chunk(state, data, 0, step)
        step += updates


def odice_pytorch(match: Match, checkout: Path, turns: Turns) -> None:
    """The authors' script: as released, or with the networks of the paper's text."""
    import tqdm
    import yaml

    stand_ins()
    tqdm.trange = lambda count: turns.through(range(count))
    os.chdir(checkout)
    sys.path.insert(0, str(checkout))
    script = runpy.run_path(str(checkout / "main_odice_rl.py"))
    config = yaml.safe_load(Path("configs/offline_RL.yaml").read_text())
    paper = {"use_twin_v": False, "layer_norm": False, "weight_decay": 0.0} if match.script == "paper" else {}
    known = {"env_name": "halfcheetah-medium-v2", "Lambda": 0.6, "eta": 1.0, "type": "orthogonal_true_g"}
    never = {"eval_period": 10**9, "log_dir": "unused", "model_dir": "unused"}
    main = script["main"]
    if paper:
        wide = main.__globals__["GaussianPolicy"]
        main.__globals__["GaussianPolicy"] = lambda *sizes, **options: wide(*sizes, **{**options, "hidden_dim": 256})
    os.chdir(os.environ.get("TMPDIR", "/tmp"))
    main.__globals__["__file__"] = f"{os.getcwd()}/peers-unused/script.py"
    main(argparse.Namespace(**{**config, **known, **never, **paper}))


def corl(match: Match, checkout: Path, turns: Turns) -> None:
    import torch

    torch.set_num_threads(1)
    stand_ins()
    sys.modules["wandb"].log = lambda *_, **__: turns.tick()
    sys.argv = [match.script, "--device=cpu", f"--buffer_size={ROWS}", "--eval_freq=1000000000"]
    runpy.run_path(str(checkout / "algorithms" / "offline" / f"{match.script}.py"), run_name="__main__")


def jax_corl(match: Match, checkout: Path, turns: Turns) -> None:
    import jax
    import tqdm

    stand_ins()
    jit, last = jax.jit, []

    def remembered(function: Callable, **options: Any) -> Callable:
        compiled = jit(function, **options)

        def call(*args: Any, **named: Any) -> Any:
            last[:] = [compiled(*args, **named)]
            return last[0]

        return call

    sys.argv = [match.script]
    jax.jit = remembered  # to wait for the last call: JAX returns before the work is done
    turns.finished = lambda: jax.block_until_ready(last)
    tqdm.tqdm = lambda items, **_: turns.through(items, updates=8)  # n_jitted_updates
    runpy.run_path(str(checkout / "algos" / f"{match.script}.py"), run_name="__main__")


def d3rlpy(match: Match, _: Path, turns: Turns) -> None:
    import d3rlpy
    import torch

    torch.set_num_threads(1)
    obs, actions, reward, cut = numbers()
    data = d3rlpy.dataset.MDPDataset(obs, actions, reward[:, None], 0.0 * cut, timeouts=1.0 * cut)
    algo = vars(d3rlpy.algos)[f"{match.script}Config"](batch_size=BATCH).create(device="cpu:0")
    algo.build_with_dataset(data)
    while True:
        turns.tick()
        algo.update(data.sample_transition_batch(BATCH))


SIDES = {"odice": ours, "odice-pytorch": odice_pytorch, "corl": corl, "jax-corl": jax_corl, "d3rlpy": d3rlpy}


# --- the run --------------------------------------------------------------------------------------------------------


class Side:
    """One library's process, and the rates it has shown."""

    def __init__(self, python: str, side: str, number: int, checkout: str, seconds: float):
        command = [python, __file__, "--worker", side, str(number), checkout]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self._ask(50)  # compiles, warms up
        took = min(self._ask(50), self._ask(50))
        self._count = 50 * max(1, round(seconds / took))
        self.rates: list[float] = []

    def _ask(self, count: int) -> float:
        assert self._process.stdin
        assert self._process.stdout
        assert self._process.stderr
        self._process.stdin.write(f"{count}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            sys.exit(self._process.stderr.read())
        return float(answer)

    def turn(self) -> None:
        self.rates.append(self._count / self._ask(self._count))

    def close(self) -> None:
        self._process.communicate()

    def shown(self) -> str:
        return f"{statistics.median(self.rates):.0f} ({max(self.rates):.0f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("algorithms", nargs="*", help="default: all of them")
    parser.add_argument("--python", default=sys.executable, help="a Python that has what the peers import")
    parser.add_argument("--odice-pytorch", help="checkout of maoliyuan/ODICE-Pytorch")
    parser.add_argument("--corl", help="checkout of corl-team/CORL")
    parser.add_argument("--jax-corl", help="checkout of nissymori/JAX-CORL")
    parser.add_argument("--d3rlpy", action="store_const", const="installed", help="d3rlpy, which is a package")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3, help="of one turn")
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        side, number, checkout = arguments.worker
        return SIDES[side](MATCHES[int(number)], Path(checkout).absolute(), Turns())
    core = min(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {core})  # for the processes too
    print(f"core {core}; updates per second, batch {BATCH}: median (best) of {arguments.turns} turns")
    print("| algorithm | peer | odice | peer's | ratio |\n|---|---|---|---|---|")
    for number, match in enumerate(MATCHES):
        checkout = vars(arguments)[match.peer.replace("-", "_")]
        if checkout is None or (arguments.algorithms and match.algo not in arguments.algorithms):
            continue
        pythons = (sys.executable, "odice"), (arguments.python, match.peer)
        sides = [Side(python, side, number, checkout, arguments.seconds) for python, side in pythons]
        for _ in range(arguments.turns):
            for side in sides:
                side.turn()
        for side in sides:
            side.close()
        mine, theirs = (statistics.median(side.rates) for side in sides)
        what = f"{match.peer}, {match.script}"
        print(f"| {match.algo} | {what} | {sides[0].shown()} | {sides[1].shown()} | {mine / theirs:.2f} |", flush=True)


if __name__ == "__main__":
    main()
