"""Stores: data larger than memory, in a folder on disk that training reads directly.

`folder` opens and writes stores and makes them from other data, `records` is the layout of the file that training
reads, `streamed` gathers batches from it.
"""

from odice.data.store.folder import make_store, read, stored, write_store
from odice.data.store.streamed import Streamed

__all__ = ["Streamed", "make_store", "read", "stored", "write_store"]
