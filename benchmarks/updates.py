"""Updates per second of every algorithm on one core, and what share of that core's matrix-multiply rate they reach.

    python benchmarks/updates.py                  # every algorithm, default settings (256-256 networks, batch 256)
    python benchmarks/updates.py odice --preset reference

The floating-point operations of an update are counted from its own program (every matrix product in it), so the share
says how much of the time is spent on work that must be done. Both rates are measured in the same run on the same core,
interleaved, and the best of several repeats counts: other programs can only slow a machine down.
"""

import os

CORE = min(os.sched_getaffinity(0))
os.sched_setaffinity(0, {CORE})  # before jax counts the cores for its thread pool

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxprs_in_params
from jax.interpreters.partial_eval import dce_jaxpr

import odice
from odice.run.loop import initial_state, make_chunk
from odice.types import Batch, Spec, Transitions

SPEC = Spec(obs_dim=17, action_dim=6)


def fake_data(n: int = 100_000) -> Transitions:
    rng = np.random.default_rng(0)
    return Transitions(
        obs=jnp.asarray(rng.normal(size=(n + 1, SPEC.obs_dim)), jnp.float32),
        index=jnp.arange(n),
        next_index=jnp.arange(n) + 1,
        action=jnp.asarray(rng.uniform(-1, 1, (n, SPEC.action_dim)), jnp.float32),
        reward=jnp.asarray(rng.normal(size=n), jnp.float32),
        terminated=jnp.asarray(rng.random(n) < 0.01),
        initial=jnp.arange(0, n, 1000),
    )


def matmul_operations(jaxpr) -> int:
    """Floating-point operations of all matrix products in a program, loops and calls included."""
    total = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contract, _), _ = equation.params["dimension_numbers"]
            depth = np.prod([equation.invars[0].aval.shape[axis] for axis in contract])
            total += 2 * int(np.prod(equation.outvars[0].aval.shape)) * int(depth)
        inner = [matmul_operations(program) for program in jaxprs_in_params(equation.params)]
        if equation.primitive.name == "cond":  # TD3+BC's policy moves in every second update: the mean of both branches
            inner = [sum(inner) // len(inner)]
        total += equation.params.get("length", 1) * sum(inner)  # length: of a scan
    return total


def matmul_chain(size: int = 256, length: int = 200):
    """A chain of square products in one program: the rate a training loop could at best reach."""

    def chain(a):
        return jax.lax.scan(lambda c, _: (c @ a, None), a, None, length=length)[0]

    a = jnp.asarray(np.linalg.qr(np.random.default_rng(0).normal(size=(size, size)))[0], jnp.float32)
    compiled = jax.jit(chain)
    return lambda: compiled(a).block_until_ready(), 2 * size**3 * length


def rate(run, work: float) -> float:
    start = time.perf_counter()
    run()
    return work / (time.perf_counter() - start)


def measure(name: str, settings: dict, data: Transitions, length: int, repeats: int) -> dict:
    algo = odice.make(name, SPEC, **settings)
    batch_size = odice.algorithms()[name].config(**settings).batch_size
    chunk = make_chunk(algo, batch_size, length)
    state = initial_state(algo, 0)
    batch: Batch = data.batch(jnp.zeros(batch_size, jnp.int32))
    batch = batch._replace(initial_obs=batch.obs) if algo.initial_states else batch
    program = jax.make_jaxpr(algo.update)(state, batch, jax.random.key(0)).jaxpr
    needed, _ = dce_jaxpr(program, [True] * len(program.outvars))  # what the compiler leaves out is no work
    operations = matmul_operations(needed)
    box = [state]

    def run():
        box[0], metrics = chunk(box[0], data, 0, 0)
        jax.block_until_ready((box[0], metrics))

    multiply, multiply_work = matmul_chain()
    run(), multiply()  # compile
    updates = best = 0.0
    for _ in range(repeats):
        updates = max(updates, rate(run, length))
        best = max(best, rate(multiply, multiply_work))
    return {"updates": updates, "operations": operations, "share": updates * operations / best, "matmul": best}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("algorithms", nargs="*", default=sorted(odice.algorithms()), help="default: all of them")
    parser.add_argument("--preset", help="settings of a preset instead of the defaults")
    parser.add_argument("--length", type=int, default=300, help="updates per compiled chunk")
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    data = fake_data()
    print(f"core {CORE}, jax {jax.__version__}, observations {SPEC.obs_dim}, actions {SPEC.action_dim}")
    print(f"{'algorithm':<14}{'updates/s':>10}{'MFLOP/update':>14}{'share of matmul':>17}{'matmul GFLOP/s':>16}")
    for name in arguments.algorithms:
        settings = odice.preset(arguments.preset, name).values() if arguments.preset else {}
        result = measure(name, settings, data, arguments.length, arguments.repeats)
        print(
            f"{name:<14}{result['updates']:>10.0f}{result['operations'] / 1e6:>14.0f}"
            f"{result['share']:>16.0%} {result['matmul'] / 1e9:>15.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
