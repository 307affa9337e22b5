"""One run on several devices: the rows of each batch are divided over them, everything else is on all of them.

The program is written for the whole batch. `jax.jit` is given where its arrays lie (`NamedSharding`) and divides the
work; a mean over the batch becomes a mean over all devices. So an inner product of two gradients, a projection, a norm
to clip by, a temperature that follows the batch or a running average means what it means on one device: it is computed
from gradients and means of the whole batch, which the compiler has added up before.

Several seeds are divided first, because seeds exchange nothing: 8 seeds on 4 devices are two on each, 2 seeds on 8
devices are four devices for each.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from odice.errors import OdiceError
from odice.machine import accelerator

SEED, BATCH = "seed", "batch"
"""The axes of the mesh."""


class Devices(NamedTuple):
    """The devices of a run.

    Args:
        mesh: Their two axes: seeds and the rows of a batch.
    """

    mesh: Mesh

    @property
    def size(self) -> int:
        return self.mesh.size

    @property
    def everywhere(self) -> NamedSharding:
        """For the data: a copy on every device."""
        return NamedSharding(self.mesh, PartitionSpec())

    def state(self, seeds: bool) -> NamedSharding:
        """For states and metrics: a copy on every device that works for the seed."""
        return NamedSharding(self.mesh, PartitionSpec(SEED) if seeds else PartitionSpec())

    def batches(self, seeds: bool) -> NamedSharding:
        """For the batches of a streamed chunk, ([seeds,] blocks, updates, rows, ...): divided by rows."""
        return NamedSharding(self.mesh, PartitionSpec(*[SEED] * seeds, None, None, BATCH))

    def split(self, batches: Any) -> Any:
        """Inside a program: batches of several updates, (updates, rows, ...), divided by rows."""
        return jax.lax.with_sharding_constraint(batches, NamedSharding(self.mesh, PartitionSpec(None, BATCH)))


def choose_devices(wanted: int | str | None, batch_size: int, seeds: int = 1) -> Devices | None:
    """The devices that `--devices` names: a number, or `all`; None for a run on the default device.

    Raises:
        OdiceError: There are not so many, or they cannot share the batch.
    """
    if wanted is None:
        return None
    there = jax.devices()
    count = len(there) if wanted == "all" else int(wanted)
    if count > len(there):
        more = " (simulate more with XLA_FLAGS=--xla_force_host_platform_device_count=N)"
        hint = more if jax.default_backend() == "cpu" else ""
        raise OdiceError(
            f"--devices {count}: JAX sees {len(there)} here, of kind {there[0].device_kind!r}{hint}; "
            f"give at most {len(there)}, or `all`."
        )
    per_seed = count // math.gcd(seeds, count)
    if batch_size % per_seed:
        raise OdiceError(
            f"A batch of {batch_size} rows cannot be divided over {per_seed} devices; choose a batch size that is a "
            f"multiple of {per_seed}, or other --devices."
        )
    return Devices(Mesh(np.asarray(there[:count]).reshape(count // per_seed, per_seed), (SEED, BATCH)))


def unused_accelerator() -> str | None:
    """A sentence where the machine has an accelerator that JAX does not use, and nobody asked for that."""
    there = accelerator()
    if there is None or jax.default_backend() != "cpu" or jax.config.values["jax_platforms"]:
        return None
    name, extra = there
    return (
        f"this machine has {name}, but JAX uses the CPU; install JAX for it with pip install 'odice[{extra}]', or set "
        "JAX_PLATFORMS=cpu if the CPU is meant"
    )


def put(tree: Any, where: NamedSharding | None) -> Any:
    """Host arrays that are the same in every process, on the devices."""
    if where is None:
        return jax.device_put(tree)
    one = lambda leaf: jax.make_array_from_callback(np.shape(leaf), where, lambda part: np.asarray(leaf)[part])
    return jax.tree.map(one, tree) if jax.process_count() > 1 else jax.device_put(tree, where)
