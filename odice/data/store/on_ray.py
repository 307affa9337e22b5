"""The files of a log read by the nodes of a Ray cluster: a task per file, whose rows come back in order.

What a node does is what this machine would do (`windows.tables`), so the store is the same, bit for bit. The episodes
are put together and written here, because they may span files, and because a store is one folder. Ray Data would do no
less: its blocks have no memory of the one before, so the order, the ends of episodes and the place to go on from would
still be ours, and it needs pyarrow.

The nodes have odice in the same version. They read buckets with their own credentials, and files by a path that all of
them share.
"""

from __future__ import annotations

import os
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl

from odice import __version__
from odice.cluster import ANSWER_SECONDS
from odice.data.readers.files import LogFile, local_copies
from odice.data.store.windows import Piece, Reading, Words, tables, words_of
from odice.errors import OdiceError

AHEAD = 16
"""Files that are being read at a time, at most; fewer where the cluster has fewer cores."""
UNREAD = 2
"""Tables of a file that wait for us, at most: this bounds the memory."""


class RayReader:
    """Reads files on the cluster that `ray` is connected to."""

    def __init__(self, ray: Any):
        self._ray = ray
        self._ahead = max(1, min(AHEAD, int(ray.cluster_resources().get("CPU", 1))))

    def words(self, files: Sequence[LogFile], names: Sequence[str]) -> Iterator[Words]:
        for _, words in self._each(_node_words, [(_absolute(file), tuple(names), __version__) for file in files]):
            yield words

    def pieces(self, files: Sequence[LogFile], begin: int, how: Reading) -> Iterator[Piece]:
        tasks = [(_absolute(file), 0 if number else begin, how, __version__) for number, file in enumerate(files)]
        for number, (row, table) in self._each(_node_tables, tasks):
            yield Piece(number, row, table)

    def _each(self, work: Any, tasks: Sequence[tuple]) -> Iterator[tuple[int, Any]]:
        """What the tasks yield, in the order of the files; the next files are read meanwhile."""
        task = self._ray.remote(_generator_backpressure_num_objects=UNREAD)(work)
        running: deque[Any] = deque()
        for number in range(len(tasks)):
            while len(running) < self._ahead and number + len(running) < len(tasks):
                running.append(task.remote(*tasks[number + len(running)]))
            if number == 0 and not self._ray.wait([running[0]], timeout=ANSWER_SECONDS)[0]:
                warnings.warn(
                    f"the cluster has not read a row of {tasks[0][0].name} in {ANSWER_SECONDS:.0f} s; `ray status` "
                    "shows whether it has a free core",
                    stacklevel=2,
                )
            for ref in running.popleft():
                yield number, self._get(ref, tasks[number][0].name)

    def _get(self, ref: Any, name: str) -> Any:
        errors = self._ray.exceptions
        try:
            return self._ray.get(ref)
        except errors.RayTaskError as error:
            if isinstance(error.cause, OdiceError):
                raise OdiceError(str(error.cause)) from None
            raise
        except errors.RayError as error:
            raise OdiceError(
                f"{name}: the cluster lost it ({type(error).__name__}); run the same command again to go on."
            ) from error


def _absolute(file: LogFile) -> LogFile:
    """A file's absolute path, because the nodes work elsewhere."""
    return file if "://" in file.name else file._replace(name=os.path.abspath(file.name))


# --- on a node --------------------------------------------------------------------------------------------------------


def _node_tables(file: LogFile, begin: int, how: Reading, version: str) -> Iterator[tuple[int, pl.DataFrame]]:
    _same_version(version)
    with local_copies([file]) as copies:
        for file, path in copies:
            yield from tables(file, path, begin, how)


def _node_words(file: LogFile, names: tuple[str, ...], version: str) -> Iterator[Words]:
    _same_version(version)
    with local_copies([file]) as copies:
        for _, path in copies:
            yield words_of(path, names)


def _same_version(version: str) -> None:
    if version != __version__:
        raise OdiceError(f"A node has odice {__version__}, this command has {version}; install one of them.")
