"""`python on_devices.py NAME ...`, in a process with several simulated devices: each algorithm takes 200 updates
on one of them and on all. Prints the largest difference of the states, and whether the devices exchanged anything.
"""

import json
import sys

import jax
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


def build(name: str):
    """The algorithm with small networks and its own learning rates."""
    small = {key: value for key, value in tiny(name).items() if not key.endswith("lr")}
    return entry(name).build(resolve("x", algo=name, **small).config, Spec(3, 2))


def trained(name: str, devices: Devices | None, *, seeds: int = 0, stream: bool = False):
    """The state after the updates, and the compiled program's text."""
    log, algo = odice.load(pushes()), build(name)
    columns = make_columns(MAKERS, log, 0.5)
    rows = to_transitions(log, columns=columns | {"credit": columns["return_to_go"]})
    rows = rows._replace(expert=np.arange(100, dtype=np.int32))
    source = Streamed(log, "qlearning") if stream else put(rows, devices and devices.everywhere)
    chunk = (StreamedChunk if stream else make_chunk)(algo, BATCH, PIECE, seeds=bool(seeds), devices=devices)
    begin, seed = lambda seed: initial_state(algo, seed), jax.numpy.arange(seeds) if seeds else 0
    state = jax.jit(jax.vmap(begin) if seeds else begin, out_shardings=devices and devices.state(bool(seeds)))(seed)
    text = "" if stream else chunk.lower(state, source, seed, 0).compile().as_text()
    for first in range(0, UPDATES, PIECE):
        state, _ = chunk(state, source, seed, first)
    return jax.device_get(state), text


def apart(a, b) -> float:
    """The largest difference of two states, relative where numbers are above 1."""
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    wide = [(np.asarray(x, np.float64), np.asarray(y, np.float64)) for x, y in pairs if np.size(x)]
    return max(float(np.max(np.abs(x - y) / np.maximum(1.0, np.abs(x)))) for x, y in wide)


def compare(name: str, **options) -> dict[str, float]:
    one, _ = trained(name, None, **options)
    several, text = trained(name, choose_devices("all", BATCH, options.get("seeds") or 1), **options)
    return {"apart": apart(one, several), "all_reduces": text.count(" all-reduce(")}


if __name__ == "__main__":
    for name in sys.argv[1:]:
        kind, _, algorithm = name.rpartition(":")
        options = {"": {}, "seeds": {"seeds": 2}, "stream": {"stream": True}}[kind]
        print(json.dumps({"name": name, "devices": len(jax.devices()), **compare(algorithm, **options)}), flush=True)
