"""HDF5's global heaps, checked before the library reads them.

Texts of variable length lie in heap collections: a header, then objects one after the other, each with its size. The
HDF5 library (seen in 2.0.0) walks them without checking that a size moves it forward; one damaged word makes it walk in
place for ever, where no signal reaches it. So the same walk is done here first.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

from odice.errors import OdiceError

_HEADER = struct.Struct("<4sB3sQ")  # signature, version, reserved, size of the collection
_OBJECT = struct.Struct("<HHIQ")  # index (0: free space), references, reserved, size


def check_heaps(path: Path) -> None:
    """Raise OdiceError if reading a text from this HDF5 file would never end."""
    if path.stat().st_size == 0:
        return
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        at = data.find(b"GCOL")
        while at >= 0:
            if not _walks(data, at):
                raise OdiceError(f"{path}: damaged inside (the text heap at byte {at}); copy or download it again.")
            at = data.find(b"GCOL", at + 4)


def _walks(data: mmap.mmap, at: int) -> bool:
    """Whether the walk through the collection at this place ends. What is no collection at all is no danger."""
    if at + _HEADER.size > len(data):
        return True
    _, version, reserved, size = _HEADER.unpack_from(data, at)
    if version != 1 or reserved != b"\0\0\0" or size > len(data):
        return True
    place, end = at + _HEADER.size, min(at + size, len(data))
    while place + _OBJECT.size <= end:
        index, _, _, length = _OBJECT.unpack_from(data, place)
        step = length if index == 0 else _OBJECT.size + (length + 7 & ~7)
        if step < _OBJECT.size or step > len(data):
            return False
        place += step
    return True
