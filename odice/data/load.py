"""`odice.load`: load a data set, whatever kind of source it is in.

The first of these that fits decides: a Python object, a pattern of files or a bucket, a file or folder that exists, a
data set that comes with odice, a legacy D4RL name, a name of OGBench's, a Minari id. Each kind has a reader,
`read(source, **options) -> Dataset`, in a module that is imported only when it is needed. `register_reader` adds your
own.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from odice.data.dataset import Dataset
from odice.data.join import concatenate, recode
from odice.data.names import MINARI_ID
from odice.data.readers.files import is_many
from odice.encoding import Encoding
from odice.errors import OdiceError, unknown_name
from odice.ogbench import HOST, names_of

Reader = Callable[..., Dataset]
"""`(source, *, options) -> Dataset`"""

# format -> reader, or the module whose `read` (or the function named after the colon) is one
READERS: dict[str, Reader | str] = {
    "d4rl": "odice.data.readers.d4rl",
    "minari": "odice.data.readers.minari",
    "ogbench": "odice.data.readers.ogbench",
    "arrays": "odice.data.readers.arrays",
    "table": "odice.data.readers.table",
    "store": "odice.data.store.folder",
    "episodes": "odice.data.build:from_episodes",
}
# end of a file's name -> format
SUFFIXES: dict[str, str] = {
    ".hdf5": "d4rl",
    ".h5": "d4rl",
    ".npz": "arrays",
    ".parquet": "table",
    ".pq": "table",
    ".csv": "table",
    ".tsv": "table",
    ".csv.gz": "table",
}
FOLDER_READERS = ("minari", "store", "table")
"""Formats that read a folder as a whole; for the others a folder is a set of files, one after the other."""
BUNDLED = "bundled/"
"""Prefix of the data sets that come with odice, in the folder of that name."""


def register_reader(name: str, read: Reader, suffixes: Iterable[str] = ()) -> None:
    """Add a reader of your own to `odice.load`.

    Args:
        name: The format: `odice.load(source, format=name)` calls the reader with any source, a file or not.
        read: `read(source, *, options) -> Dataset`. It gets the `Path` of a file that exists, and any other source as
            it is. Its keyword-only parameters are the options that `odice.load` takes for it. End it with
            `data.build.from_steps` or `from_episodes`.
        suffixes: Ends of file names that this reader reads, such as `.log`. A name or a suffix can be given once.
    """
    suffixes = tuple(suffix.lower() for suffix in suffixes)
    if name in READERS:
        raise OdiceError(f"The data format {name!r} has a reader already; choose another name.")
    for suffix in suffixes:
        if not suffix.startswith(".") or not suffix.strip("."):
            raise OdiceError(
                f"The suffix {suffix!r} of the data format {name!r} must start with a dot, such as '.log'."
            )
        if suffix in SUFFIXES:
            raise OdiceError(
                f"Files {suffix!r} are read as {SUFFIXES[suffix]!r} already; choose another suffix, or none."
            )
    READERS[name] = read
    SUFFIXES.update(dict.fromkeys(suffixes, name))


class Source(NamedTuple):
    """Where a source is: the format of its reader, the items to hand to it (shards if several), and implied options."""

    format: str
    items: Sequence[Any]
    options: Mapping[str, Any] = {}


def load(
    source: Any,
    *,
    format: str | None = None,
    data_dir: str | Path | None = None,
    encoding: Encoding | None = None,
    **options: Any,
) -> Dataset:
    """Load a data set.

    Args:
        source: One of: the path of a file (D4RL HDF5, NPZ, HDF5, Parquet, CSV) or of a folder of such files; a pattern
            of Parquet files, also in a bucket (`s3://bucket/logs/*.parquet`); a legacy D4RL name
            (`hopper-medium-v2`); OGBench's single-task name (`cube-single-play-singletask-v0`); a Minari id
            (`mujoco/hopper/medium-v0`); a data set that comes with odice (`bundled/hopper-replay`); a dict of arrays; a
            list of episodes; a `minari.MinariDataset`; a `Dataset`.
        format: The reader to use, where name and content do not decide it.
        data_dir: The folder of D4RL's and OGBench's files; by default the one that the variable ODICE_DATA names.
        encoding: How words and missing values become numbers, if not as this log suggests: that of a policy
            (`policy.encoding`) or of another data set (`dataset.encoding`).
        **options: Those of the reader, such as `schema` for a table.
    """
    if isinstance(source, Dataset):
        return source if encoding is None else recode(source, encoding)
    located = find(source, format=format, data_dir=data_dir)
    if encoding is not None and "encoding" in inspect.signature(reader_of(located.format)).parameters:
        options["encoding"] = encoding
    parts = [read(located, item, **options) for item in located.items]
    dataset = parts[0] if len(parts) == 1 else concatenate(parts, source=os.fspath(source))
    if _is_bundled(source):  # its name, not where this installation has it
        dataset = replace(dataset, meta=replace(dataset.meta, source=os.fspath(source)))
    return dataset if encoding is None else recode(dataset, encoding)


def find(source: Any, *, format: str | None = None, data_dir: str | Path | None = None) -> Source:
    """Find out which reader a source needs, without reading it."""
    if format is not None and format not in READERS:
        raise unknown_name("data format", format, READERS)
    if not isinstance(source, str | os.PathLike):
        if format is not None and callable(READERS[format]):  # a registered reader may know other objects
            return Source(format, [source])
        return Source(_format_of_object(source), [source])
    text, path = os.fspath(source), Path(source)
    if is_many(text) and format in (None, "table"):
        return Source("table", [text])
    if _is_bundled(source):
        return Source("table", [_find_bundled(text)])
    if format is None:
        format = _format_of(path) if path.exists() else _format_of_name(text)
    if not path.exists():
        if format == "d4rl":
            return Source(format, [_find_d4rl(text, data_dir)], {"name": text})
        if format == "ogbench":
            return Source(format, [_find_ogbench(text, data_dir)], {"name": text})
        return Source(format, [text])
    if path.is_dir() and format not in FOLDER_READERS and format in SUFFIXES.values():
        return Source(format, sorted(item for item in path.iterdir() if _suffix_format(item) == format))
    return Source(format, [path])


def read(located: Source, item: Any, **options: Any) -> Dataset:
    """Read one item that `find` found. Options are checked against those of its reader."""
    reader = reader_of(located.format)
    parameters = inspect.signature(reader).parameters.values()
    valid = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    for option in options:
        if option not in valid and not any(p.kind is p.VAR_KEYWORD for p in parameters):
            raise unknown_name(f"option of the {located.format} reader", option, valid)
    return reader(item, **{**located.options, **options})


LARGE_BYTES = 200 << 20
"""A file larger than this is not read just to see which environment it names."""


def names_environment(
    source: Any, *, format: str | None = None, data_dir: str | Path | None = None, **options: Any
) -> bool:
    """Whether a source says which environment its data are from; True where that would take long to see."""
    located = find(source, format=format, data_dir=data_dir)
    item = located.items[0] if located.items else None
    if located.format == "d4rl" and isinstance(item, Path):
        from odice.data.readers.d4rl import environment

        return environment(item, name=located.options.get("name")) is not None
    if located.format == "ogbench" or not isinstance(item, Path) or item.is_dir() or item.stat().st_size > LARGE_BYTES:
        return True
    return load(source, format=format, data_dir=data_dir, **options).meta.env_id is not None


def reader_of(format: str) -> Reader:
    """The reader of a format; its module is imported now."""
    reader = READERS[format]
    if not isinstance(reader, str):
        return reader
    module, _, function = reader.partition(":")
    return getattr(import_module(module), function or "read")


def _format_of_object(source: Any) -> str:
    if isinstance(source, Mapping):
        return "arrays"
    if type(source).__module__.split(".")[0] == "minari":
        return "minari"
    if isinstance(source, Iterable):
        return "episodes"
    raise OdiceError(
        f"Cannot load a {type(source).__name__}: give a path, a name, a dict of arrays, "
        "a list of episodes or a MinariDataset."
    )


def _format_of(path: Path) -> str:
    """The reader for a file or folder that exists."""
    if path.is_dir():
        if (path / "data" / "metadata.json").exists() or (path / "data" / "main_data.hdf5").exists():
            return "minari"
        if (path / "store.json").exists():
            return "store"
        formats = {format for item in path.iterdir() if item.is_file() and (format := _suffix_format(item))}
        if len(formats) == 1:
            return formats.pop()
        what = "no data files" if not formats else f"files for several readers ({', '.join(sorted(formats))})"
        raise OdiceError(f"{path}: the folder holds {what}; expected shards of one kind, such as *.parquet or *.hdf5.")
    if path.stat().st_size == 0:
        raise OdiceError(f"{path}: the file is empty (0 bytes); write or download it again.")
    if format := _suffix_format(path):
        return format
    raise OdiceError(f"{path}: unknown kind of file {path.suffix!r}; known are {', '.join(SUFFIXES)}, or pass format=.")


def _suffix_format(path: Path) -> str | None:
    return SUFFIXES.get("".join(path.suffixes[-2:]).lower()) or SUFFIXES.get(path.suffix.lower())


def _format_of_name(text: str) -> str:
    """The reader for a name that is no file: a legacy D4RL name is never looked up in Minari, whose data differ."""
    from odice.d4rl import REFERENCES

    if text in REFERENCES:
        return "d4rl"
    if "-singletask" in text:
        return "ogbench"
    if MINARI_ID.fullmatch(text):
        return "minari"
    raise OdiceError(
        f"{text}: there is no such file or folder, and it is neither a D4RL "
        "name (hopper-medium-v2) nor a Minari id (mujoco/hopper/medium-v0)."
    )


def _is_bundled(source: Any) -> bool:
    return isinstance(source, str) and source.startswith(BUNDLED) and not Path(source).exists()


def _find_bundled(name: str) -> Path:
    known = {f"{BUNDLED}{file.stem}": file for file in (Path(__file__).parent / "bundled").glob("*.parquet")}
    if name not in known:
        raise unknown_name("bundled data set", name, known)
    return known[name]


def _find_d4rl(name: str, data_dir: str | Path | None) -> Path:
    from odice.d4rl import file_names

    folder = data_dir or os.environ.get("ODICE_DATA")
    if not folder:
        raise OdiceError(
            f"{name} is a D4RL data set, but no folder to look in is known: pass data_dir (--data-dir) or set "
            f"ODICE_DATA to the folder that holds {file_names(name)[0]}."
        )
    for candidate in file_names(name):
        if (path := Path(folder).expanduser() / candidate).is_file():
            return path
    raise OdiceError(
        f"{name}: looked in {folder} for {' or '.join(file_names(name))} and found none; download the file once "
        "from D4RL's host (rail.eecs.berkeley.edu/datasets/offline_rl) or a mirror you trust, and put it there."
    )


def _find_ogbench(name: str, data_dir: str | Path | None) -> Path:
    known, folder = names_of(name), data_dir or os.environ.get("ODICE_DATA")
    if known is None:
        raise OdiceError(
            f"{name}: not the name of OGBench's single-task data, such as antmaze-large-navigate-singletask-task1-v0."
        )
    path = Path(folder).expanduser() / known.file if folder else None
    if path is None or not path.is_file():
        raise OdiceError(
            f"{name}: {known.file} is not in {folder or 'any folder (--data-dir)'}; download {HOST}/{known.file} there."
        )
    return path
