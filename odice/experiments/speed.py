"""The cost of an update: its floating-point operations, counted from its program, and its rate compared with the rate
at which the same core multiplies matrices.

The share (operations per second of the updates, over that of plain matrix products) is the part of the time spent on
necessary work. It hardly depends on the machine, and not on how busy it is: both rates are measured in turns.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxprs_in_params
from jax.interpreters.partial_eval import dce_jaxpr

from odice.algos import entry
from odice.training.devices import Devices, put
from odice.training.loop import initial_state, make_chunk
from odice.training.settings import resolve
from odice.types import COLUMNS, Algo, Batch, Spec, Transitions

SPEC = Spec(obs_dim=17, action_dim=6)
"""HalfCheetah's and Walker2d's sizes."""
LOG, LOG_SPEC, LOG_ENV = "bundled/hopper-replay", Spec(obs_dim=11, action_dim=3), "Hopper-v5"
"""The log of the measurements that need one."""
MATRIX = 256


def made_up(rows: int, spec: Spec = SPEC) -> Transitions:
    """Random transitions: what is in them does not change what an update costs."""
    rng = np.random.default_rng(0)
    terminated = np.zeros(rows, bool)
    terminated[99::100] = True
    starts = jnp.arange(0, rows, min(rows, 1000))
    shapes = dict.fromkeys(COLUMNS, (rows,)) | {"next_action": (rows, spec.action_dim)}
    return jax.device_put(
        Transitions(
            obs=rng.standard_normal((rows + 1, spec.obs_dim), np.float32),  # pyright: ignore[reportArgumentType]
            index=jnp.arange(rows, dtype=jnp.int32),
            next_index=None,
            action=2 * rng.random((rows, spec.action_dim), np.float32) - 1,  # pyright: ignore[reportArgumentType]
            reward=rng.standard_normal(rows, np.float32),  # pyright: ignore[reportArgumentType]
            terminated=terminated,  # pyright: ignore[reportArgumentType]
            initial=starts,
            expert=starts,
            columns={name: jnp.asarray(rng.random(shape, np.float32)) for name, shape in shapes.items()},
        )
    )


def settings_of(algo: str, preset: str | None) -> Any:
    """An algorithm's config, as a run has it: a preset's, or odice's own."""
    return resolve(LOG, algo=algo, preset=preset).config


def operations(algo: Algo, batch: Batch) -> int:
    """Floating-point operations of all matrix products in one update.

    Counted in the program as it is traced, without what no result depends on: the compiler leaves that out too.
    """
    batch = batch._replace(
        initial_obs=batch.obs if algo.initial_states else None, expert=batch if algo.expert else None
    )
    state = jax.eval_shape(algo.init, jax.random.key(0))
    program = jax.make_jaxpr(algo.update)(state, batch, jax.random.key(0)).jaxpr
    needed, _ = dce_jaxpr(program, [True] * len(program.outvars))
    return _operations(needed)


def _operations(program: Any) -> int:
    total = 0
    for equation in program.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            depth = np.prod([equation.invars[0].aval.shape[axis] for axis in contracted], dtype=int)
            total += 2 * int(np.prod(equation.outvars[0].aval.shape, dtype=int)) * int(depth)
        inner = [_operations(each) for each in jaxprs_in_params(equation.params)]
        if equation.primitive.name == "cond":  # TD3+BC's policy moves in every second update: the mean of both branches
            inner = [sum(inner) // len(inner)]
        total += equation.params.get("length", 1) * sum(inner)  # length: of a scan
    return total


class Updates:
    """A compiled chunk of updates and what it works on."""

    def __init__(
        self, algo: str, settings: Any, rows: int, length: int, spec: Spec = SPEC, devices: Devices | None = None
    ):
        made = entry(algo).build(settings, spec)
        self._data, self.length = made_up(rows, spec), length
        self.operations = operations(made, self._data.batch(jnp.zeros(settings.batch_size, jnp.int32)))
        self._data = put(self._data, devices.everywhere) if devices else self._data
        self._chunk: Any = make_chunk(made, settings.batch_size, length, devices=devices)
        where = devices.state(False) if devices else None
        self.state, self._step = jax.jit(lambda: initial_state(made, 0), out_shardings=where)(), 0
        self()  # compiles

    def __call__(self) -> None:
        self.state, metrics = self._chunk(self.state, self._data, 0, self._step)
        jax.block_until_ready((self.state, metrics))
        self._step += self.length

    def exchanged(self) -> int:
        """Bytes that each device adds up with the others in one update, by the shapes of the compiled program."""
        text = self._chunk.lower(self.state, self._data, 0, self._step).compile().as_text()
        return all_reduced(text)


def all_reduced(text: str) -> int:
    """The bytes of the all-reduces in a compiled program's text; each is written once, in the body of the loop."""
    total = 0
    for line in text.splitlines():
        made, operation, _ = line.partition(" all-reduce(")
        if operation:
            shapes = re.findall(r"f32\[([\d,]*)\]", made.partition("=")[2])
            total += sum(4 * int(np.prod([int(each) for each in shape.split(",") if each])) for shape in shapes)
    return total


def products(size: int = MATRIX, length: int = 50) -> tuple[Callable[[], None], int]:
    """A chain of square matrix products in one program, and its operations: the rate that updates could reach at
    best."""

    @jax.jit
    def chain(a: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda c, _: (c @ a, None), a, None, length=length)[0]

    rotation = jnp.asarray(np.linalg.qr(np.random.default_rng(0).normal(size=(size, size)))[0], jnp.float32)

    def run() -> None:
        jax.block_until_ready(chain(rotation))

    run()  # compiles
    return run, 2 * size**3 * length


def rate(run: Callable[[], None], work: float) -> float:
    """Work per second of one call."""
    began = time.perf_counter()
    run()
    return work / (time.perf_counter() - began)
