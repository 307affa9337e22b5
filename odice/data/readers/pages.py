"""Parquet's page headers, read before polars reads them: are they possible, and how large is what they declare?

A column lies in pages: a header in Thrift's compact protocol, then the values. polars (seen in 2.1.0) takes the number
of values from the header as it stands; a negative one, which is a single flipped bit, becomes a request for 2^61 bytes,
and the process aborts where no exception can be caught. So the same walk is done here first: from the footer to the
column chunks, and from header to header through each.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

from odice.errors import OdiceError
from odice.files import regular_file

MAGIC = b"PAR1"
MAX_DEPTH = 32
LARGEST = 1 << 40
"""More values or bytes than any page or column chunk has."""
MAX_NAME = 4096
"""Bytes of a text that are kept: only the names of columns matter."""
NUMBER_BYTES, TEXT_BYTES = 16, 24
"""What a value takes while it is read: as polars decodes it, and as it is kept."""


def column_bytes(path: Path) -> tuple[int, dict[str, int]]:
    """Check every page of a Parquet file, and take its measure.

    Returns:
        The number of rows, and the bytes that each column takes in memory: a value that is repeated a billion times is
        written once.
    """
    with regular_file(path) as file:
        if file.seek(0, 2) < 12:
            return 0, {}  # polars says what it is not
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            if data[-4:] != MAGIC:
                return 0, {}
            try:
                return _measure(data)
            except (IndexError, ValueError, TypeError, KeyError, AttributeError) as error:
                raise OdiceError(
                    f"{path}: damaged inside ({str(error) or 'its footer or a page cannot be read'}); copy or download "
                    "it again."
                ) from None


def _measure(data: mmap.mmap) -> tuple[int, dict[str, int]]:
    footer, _ = _struct(data, len(data) - 8 - int.from_bytes(data[-8:-4], "little"))
    rows, sizes = 0, {}
    for group in footer[4]:
        rows += group[3]
        for column in group[1]:
            known = column[3]
            unpacked = _walk(data, known.get(11) or known[9], known[7], known[5])
            name = known[3][0].decode("utf-8", "replace")  # of a list: the column's own name comes first
            each = TEXT_BYTES if known[1] in (6, 7) else NUMBER_BYTES
            if not 0 <= group[3] <= LARGEST:
                raise ValueError(f"a group of {group[3]} rows")
            sizes[name] = sizes.get(name, 0) + max(unpacked, each * max(known[5], group[3]))
    return rows, sizes


def _walk(data: mmap.mmap, start: int, size: int, values: int) -> int:
    """Check the pages of a column chunk, and return their unpacked size."""
    if not (start >= 0 and 0 <= size <= len(data) - start and 0 <= values <= LARGEST):
        raise ValueError(f"a column of {values} values in {size} bytes from byte {start}")
    place, end, total = start, start + size, 0
    while place < end:
        header, body = _struct(data, place)
        unpacked, packed = header[2], header[3]
        counts = [header[kind][1] for kind in (5, 8) if kind in header]  # data pages of both versions
        entries = header[7][1] if 7 in header else 0  # a dictionary
        good = all(0 <= count <= values for count in counts) and 0 <= entries <= LARGEST
        if not (good and 0 <= unpacked <= LARGEST and 0 <= packed <= end - body):
            raise ValueError(f"the page at byte {place}")
        place, total = body + packed, total + unpacked
    return total


# --- Thrift's compact protocol ----------------------------------------------------------------------------------------


def _varint(data: mmap.mmap, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place
        if shift > 70:
            raise ValueError("a number without end")


def _zigzag(data: mmap.mmap, place: int) -> tuple[int, int]:
    value, place = _varint(data, place)
    return (value >> 1) ^ -(value & 1), place


def _struct(data: mmap.mmap, place: int, depth: int = 0) -> tuple[dict[int, Any], int]:
    """The fields of a struct by their number, and where it ends."""
    if place < 0 or depth > MAX_DEPTH:
        raise ValueError("a structure that does not lie in the file or nests too deeply")
    fields: dict[int, Any] = {}
    number = 0
    while head := data[place]:
        place += 1
        if head >> 4:
            number += head >> 4
        else:
            number, place = _zigzag(data, place)
        if (kind := head & 15) in (1, 2):  # a boolean is its type
            fields[number] = kind == 1
        else:
            fields[number], place = _value(data, place, kind, depth)
    return fields, place + 1


def _value(data: mmap.mmap, place: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind in (1, 2, 3):  # a byte; inside a list also a boolean
        return data[place], place + 1
    if kind in (4, 5, 6):
        return _zigzag(data, place)
    if kind in (7, 13):  # a double, an identifier
        return None, place + (8 if kind == 7 else 16)
    if kind == 8:
        size, place = _varint(data, place)
        if size > len(data) - place:
            raise ValueError(f"a text of {size} bytes")
        return bytes(data[place : place + min(size, MAX_NAME)]), place + size
    if kind in (9, 10):
        return _list(data, place, depth)
    if kind == 11:
        return _map(data, place, depth)
    if kind == 12:
        return _struct(data, place, depth + 1)
    raise ValueError(f"a value of the unknown kind {kind}")


def _list(data: mmap.mmap, place: int, depth: int) -> tuple[list[Any], int]:
    head, place = data[place], place + 1
    count, values = head >> 4, []
    if count == 15:
        count, place = _varint(data, place)
    if count > len(data) - place:  # every element has a byte at least
        raise ValueError(f"a list of {count} elements")
    for _ in range(count):
        value, place = _value(data, place, head & 15, depth + 1)
        values.append(value)
    return values, place


def _map(data: mmap.mmap, place: int, depth: int) -> tuple[None, int]:
    count, place = _varint(data, place)
    if count > len(data) - place:
        raise ValueError(f"a map of {count} entries")
    kinds, place = (data[place], place + 1) if count else (0, place)
    for _ in range(count):
        _, place = _value(data, place, kinds >> 4, depth + 1)
        _, place = _value(data, place, kinds & 15, depth + 1)
    return None, place
