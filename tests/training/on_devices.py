"""`python on_devices.py NAME ...`, in a process with several simulated devices: each algorithm takes 200 updates
on one of them and on all. Prints the largest difference of the states, whether the devices exchanged anything, and how
far a run on one device gets from itself when its first parameters are changed in their last bit.

A name may have a kind in front: `fast:` learns with rates of 3e-3, `seeds:` has two seeds, `stream:` reads the log in
batches.
With JAX_ENABLE_X64=1 the states and the data are in double precision: there only a fault can make a difference.
"""

import json
import sys

import jax
import jax.numpy as jnp
import numpy as np

import odice
from odice.algos import entry
from odice.data.columns import MAKERS, make_columns
from odice.data.store import Streamed
from odice.data.transitions import to_transitions
from odice.training.devices import Devices, choose_devices, put
from odice.training.loop import initial_state, make_chunk
from odice.training.settings import resolve
from odice.training.stream import StreamedChunk
from odice.types import Spec
from tests.algos.test_contract import pushes, tiny

BATCH, UPDATES, PIECE = 64, 200, 50
KINDS = {"": {}, "fast": {"fast": True}, "seeds": {"seeds": 2}, "stream": {"stream": True}}


def build(name: str, fast: bool = False):
    """The algorithm with small networks, and its own learning rates or those of the contract test."""
    small = {key: value for key, value in tiny(name).items() if fast or not key.endswith("lr")}
    return entry(name).build(resolve("x", algo=name, **small).config, Spec(3, 2))


def widened(tree):
    """Floats as wide as this process computes."""
    wide = jax.dtypes.canonicalize_dtype(np.float64)
    return jax.tree.map(lambda x: x.astype(wide) if jnp.issubdtype(x.dtype, jnp.floating) else x, tree)


def nudged(tree, size: float):
    """Floats changed by a random share of this size."""
    leaves, tree_of = jax.tree.flatten(tree)
    keys = jax.random.split(jax.random.key(1), len(leaves))
    for i, leaf in enumerate(leaves):
        if jnp.issubdtype(leaf.dtype, jnp.floating):
            leaves[i] = leaf * (1 + size * jax.random.rademacher(keys[i], leaf.shape, leaf.dtype))
    return jax.tree.unflatten(tree_of, leaves)


class Program:
    """The updates of an algorithm on some devices, compiled once."""

    def __init__(self, algo, devices: Devices | None, *, seeds: int = 0, stream: bool = False):
        log = odice.load(pushes())
        columns = make_columns(MAKERS, log, 0.5)
        rows = to_transitions(log, columns=columns | {"credit": columns["return_to_go"]})
        rows = widened(rows._replace(expert=np.arange(100, dtype=np.int32)))
        self._source = Streamed(log, "qlearning") if stream else put(rows, devices and devices.everywhere)
        self._number = int if stream else jnp.asarray
        self._seed = jnp.arange(seeds) if seeds else self._number(0)
        self._begin = lambda nudge: jax.jit(
            (jax.vmap if seeds else lambda one: one)(lambda seed: nudged(widened(initial_state(algo, seed)), nudge)),
            out_shardings=devices and devices.state(bool(seeds)),
        )(self._seed)
        self._chunk = (StreamedChunk if stream else make_chunk)(algo, BATCH, PIECE, seeds=bool(seeds), devices=devices)
        self.text = ""
        if not stream:
            self._chunk = self._chunk.lower(self._begin(0.0), self._source, self._seed, self._number(0)).compile()
            self.text = self._chunk.as_text()

    def train(self, nudge: float = 0.0):
        """The state after all updates; `nudge` changes the first parameters by so large a share."""
        state = self._begin(nudge)
        for first in range(0, UPDATES, PIECE):
            state, _ = self._chunk(state, self._source, self._seed, self._number(first))
        return jax.device_get(state)


def apart(a, b) -> float:
    """The largest difference of two states, relative where numbers are above 1."""
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    wide = [(np.asarray(x, np.float64), np.asarray(y, np.float64)) for x, y in pairs if np.size(x)]
    return max(float(np.max(np.abs(x - y) / np.maximum(1.0, np.abs(x)))) for x, y in wide)


def compare(name: str, fast: bool = False, **options) -> dict[str, float]:
    algo = build(name, fast)
    one = Program(algo, None, **options)
    several = Program(algo, choose_devices("all", BATCH, options.get("seeds") or 1), **options)
    alone = one.train()
    facts = {"apart": apart(alone, several.train()), "all_reduces": several.text.count(" all-reduce(")}
    if not options.get("stream"):
        facts["nudged"] = apart(alone, one.train(float(jnp.finfo(jnp.zeros(()).dtype).eps)))
    return {**facts, "bits": 8 * np.dtype(jnp.zeros(()).dtype).itemsize}


if __name__ == "__main__":
    for name in sys.argv[1:]:
        kind, _, algorithm = name.rpartition(":")
        options = KINDS[kind]
        print(json.dumps({"name": name, "devices": len(jax.devices()), **compare(algorithm, **options)}), flush=True)
