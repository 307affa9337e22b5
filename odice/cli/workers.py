"""Flags of commands that train many runs: how many at a time, or on which cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from odice.errors import OdiceError

if TYPE_CHECKING:
    from odice.sweeps.execute import Backend


@dataclass(frozen=True)
class WorkerFlags:
    """Where the runs are trained."""

    workers: int | None = None
    """Runs at a time; by default as many as there are cores."""
    retries: int = 1
    """How often a failed run is tried again; one that diverged is not."""
    ray: str | None = None
    """Address of a Ray cluster (`auto`, HOST:PORT): train there. OUT and the data are then paths that all nodes
    share."""
    store: str | None = None
    """With --ray: where run directories live if nodes share no path; an address that fsspec knows (s3://bucket/folder)."""
    cpus: float = 1.0
    """With --ray: cores that a run asks for."""
    gpus: float = 0.0
    """With --ray: GPUs that a run asks for."""
    memory_gb: float | None = None
    """With --ray: memory that a run asks for."""

    def __post_init__(self):
        if self.workers is not None and self.workers < 1:
            raise OdiceError(f"workers must be at least 1, got {self.workers}.")
        for name, value in (("retries", self.retries), ("cpus", self.cpus), ("gpus", self.gpus)):
            if value < 0:
                raise OdiceError(f"{name} must be at least 0, got {value}.")

    def backend(self) -> Backend:
        """Where the runs are trained."""
        from odice.sweeps.execute import Backend
        from odice.sweeps.ray import Resources

        return Backend(self.workers, self.ray, self.store, Resources(self.cpus, self.gpus, self.memory_gb))
