"""The old name of `odice.data.store`, until `odice.run` and the benchmarks import from there."""

from odice.data.store import Streamed, make_store, read, stored, write_store

__all__ = ["Streamed", "make_store", "read", "stored", "write_store"]
