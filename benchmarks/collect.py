"""What collecting costs: environment steps and SAC updates per second, and the share of the time that is spent on
updates.

    python benchmarks/collect.py                         # Hopper-v5, HalfCheetah-v5, Pendulum-v1; batch 128 and 256
    python benchmarks/collect.py --env Hopper-v5 --seconds 10

Steps are those of the behavior: sampled actions of the policy, `--num-envs` environments together, resets included.
Updates are the compiled chunks of 50 that training calls. Per wall second and, in brackets, per second of processor
time: on a busy machine only the latter says something. The machine's own matrix-multiply rate (256 x 256, float32) is
printed beside them.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from odice.collection.learner import explore, make_learn
from odice.collection.replay import Replay
from odice.collection.sac import SACConfig, sac
from odice.collection.vector_env import VectorEnv

CHUNK = 50


def rate(call: Callable[[], int], seconds: float) -> tuple[float, float]:
    """Units of work per wall second and per second of processor time; `call` does some and says how many."""
    call()  # compiles
    done, wall, cpu = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - wall < seconds:
        done += call()
    return done / (time.perf_counter() - wall), done / (time.process_time() - cpu)


def multiply_rate(seconds: float) -> float:
    """GFLOP per second of processor time."""
    one = jnp.full((256, 256), 1 / 256)
    many = jax.jit(lambda x: jax.lax.fori_loop(0, 200, lambda _, y: y @ x, x))

    def call() -> int:
        many(one).block_until_ready()
        return 200

    return rate(call, seconds)[1] * 2 * 256**3 / 1e9


def measure(env: str, num_envs: int, batches: list[int], seconds: float) -> None:
    envs = VectorEnv(env, num_envs, (0, 0))
    replay = Replay(envs.spec, 20_000)
    state = sac(SACConfig(), envs.spec).init(jax.random.key(0))
    step = 0

    def collect() -> int:
        nonlocal step
        for _ in range(CHUNK):
            rows = envs.step(np.asarray(explore(state.policy.params, envs.obs, 0, step)))
            step += 1
            if replay.filled < 10_000:
                replay.add(rows)
        return CHUNK * num_envs

    steps = rate(collect, seconds)
    print(f"{env:<16} env steps  {steps[0]:8,.0f} /s ({steps[1]:,.0f} per CPU second)", flush=True)
    for batch in batches:
        cfg = SACConfig(batch_size=batch)
        learn = make_learn(cfg, envs.spec, CHUNK)
        box = [sac(cfg, envs.spec).init(jax.random.key(0))]

        def update(learn=learn, box=box) -> int:
            box[0], metrics = learn(box[0], replay.device, replay.filled, 0, 0)
            jax.block_until_ready(metrics)
            return CHUNK

        updates = rate(update, seconds)
        share = (1 / updates[1]) / (1 / updates[1] + 1 / steps[1])
        print(
            f"{'':<16} batch {batch:<4} {updates[0]:8,.0f} updates/s ({updates[1]:,.0f} per CPU second); "
            f"{share:.1%} of a step's time",
            flush=True,
        )
    envs.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--env", nargs="*", default=["Hopper-v5", "HalfCheetah-v5", "Pendulum-v1"])
    parser.add_argument("--num-envs", type=int, default=5)
    parser.add_argument("--batch", type=int, nargs="*", default=[128, 256])
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    print(
        f"{platform.machine()}, jax {jax.__version__}; matrix products {multiply_rate(1.0):,.0f} GFLOP per CPU second"
    )
    for env in options.env:
        measure(env, options.num_envs, options.batch, options.seconds)


if __name__ == "__main__":
    main()
