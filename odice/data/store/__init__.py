"""Stores: data larger than memory, in a folder on disk that training reads directly.

`folder` opens and writes stores, `make` makes them from other data and `many` from many files, `records` is the layout
of the file that training reads, `streamed` gathers batches from it.
"""

from odice.data.store.folder import read, write_store
from odice.data.store.make import make_store, stored
from odice.data.store.streamed import Streamed

__all__ = ["Streamed", "make_store", "read", "stored", "write_store"]
