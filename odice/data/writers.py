"""Saving a Dataset so that loading it back gives the identical data, in three layouts that other tools read.

Each file also carries the metadata as JSON under the name `odice`. Nothing is half-written: files and folders get their
final name only when they are complete.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from odice.data.names import MINARI_ID
from odice.errors import OdiceError, unknown_name
from odice.files import complete_file, complete_folder

if TYPE_CHECKING:
    from odice.data.dataset import Dataset, Episode


def save(dataset: Dataset, path: str | Path, format: str | None = None) -> Path:
    """Write `dataset` as `minari`, `d4rl` or `parquet`; without a format the suffix decides (.hdf5, .parquet, none)."""
    return WRITERS[format_of(path, format)](dataset, path)


def format_of(path: str | Path, format: str | None = None) -> str:
    """The format that `save` would write there, or an error that names the ones there are."""
    kinds = {".hdf5": "d4rl", ".h5": "d4rl", ".parquet": "parquet", ".pq": "parquet"}
    format = format or kinds.get(Path(path).suffix) or ("minari" if MINARI_ID.fullmatch(str(path)) else None)
    if format is None:
        raise OdiceError(f"{path}: cannot tell the format from the name; use .hdf5, .parquet, or pass a format.")
    if format not in WRITERS:
        raise unknown_name("format to save in", format, WRITERS)
    return format


def save_d4rl(dataset: Dataset, path: str | Path) -> Path:
    """D4RL's HDF5, with `next_observations` if final observations are known and `next_known` if some are not."""
    import h5py

    arrays = {
        "observations": dataset.step_observations(),
        "actions": dataset.actions,
        "rewards": dataset.rewards,
        "terminals": dataset.step_flags("terminated"),
        "timeouts": dataset.step_flags("truncated"),
    }
    if dataset.costs is not None:
        arrays["costs"] = dataset.costs
    if dataset.propensities is not None:
        arrays["propensities"] = dataset.propensities
    known = dataset.final_known
    if known.any():
        after = np.delete(np.arange(len(dataset.observations)), dataset.starts + np.arange(dataset.n_episodes))
        arrays["next_observations"] = dataset.observations[after]
        if not known.all():
            mask = np.ones(dataset.n_steps, bool)
            mask[dataset.ends] = known
            arrays["next_known"] = mask
    with complete_file(path) as temporary, h5py.File(temporary, "w") as file:
        for name, value in arrays.items():
            file.create_dataset(name, data=value, compression="gzip", compression_opts=1, shuffle=True)
        file.attrs["odice"] = json.dumps(dataset.meta.to_dict())
        if dataset.meta.env_id is not None:
            file.attrs["env"] = dataset.meta.env_id
    return Path(path)


def save_parquet(dataset: Dataset, path: str | Path) -> Path:
    """One row per step. `next_observation_*` is filled in where an episode ends, if its final observation is known."""
    import polars as pl

    spec, n = dataset.spec, dataset.n_steps
    observations = dataset.step_observations()
    columns: dict[str, np.ndarray | pl.Series] = {
        "episode": np.repeat(np.arange(dataset.n_episodes), dataset.lengths),
        **{f"observation_{i}": observations[:, i] for i in range(spec.obs_dim)},
    }
    if dataset.discrete:
        columns["action"] = dataset.actions
    else:
        columns |= {f"action_{i}": dataset.actions[:, i] for i in range(spec.action_dim)}
    columns["reward"] = dataset.rewards
    if dataset.costs is not None:
        columns["cost"] = dataset.costs
    if dataset.propensities is not None:
        columns["propensity"] = dataset.propensities
    for which in ("terminated", "truncated"):
        columns[which] = dataset.step_flags(which)
    known = dataset.final_known
    if known.any():
        at = dataset.ends[known]
        final = dataset.observations[(dataset.ends + np.arange(dataset.n_episodes) + 1)[known]]
        for i in range(spec.obs_dim):
            empty = pl.Series(values=[None], dtype=pl.Float32).new_from_index(0, n)
            columns[f"next_observation_{i}"] = empty.scatter(at, np.ascontiguousarray(final[:, i]))
    with complete_file(path) as temporary:
        pl.DataFrame(columns).write_parquet(temporary, metadata={"odice": json.dumps(dataset.meta.to_dict())})
    return Path(path)


def save_minari(dataset: Dataset, path: str | Path) -> Path:
    """A Minari data set: under its root if `path` is an id such as `hopper/mine-v0`, else in the folder `path`."""
    import gymnasium
    from minari import __version__ as minari_version
    from minari.data_collector import EpisodeBuffer
    from minari.dataset.minari_storage import MinariStorage
    from minari.storage import get_dataset_path

    is_id = isinstance(path, str) and MINARI_ID.fullmatch(path) is not None
    folder = Path(get_dataset_path(str(path))) if is_id else Path(path)
    name = str(path) if is_id else folder.name if MINARI_ID.fullmatch(folder.name) else f"{folder.name}-v0"
    for field in ("costs", "propensities"):
        if getattr(dataset, field) is not None:
            raise OdiceError(f"{folder}: Minari has no place for {field}; save as .hdf5 or .parquet, which keep them.")
    if folder.exists():
        raise OdiceError(f"{folder}: exists already; Minari data sets are not overwritten, so choose another name.")
    meta, spec = dataset.meta, dataset.spec
    box = gymnasium.spaces.Box
    if dataset.discrete:
        actions: gymnasium.Space = gymnasium.spaces.Discrete(spec.action_dim)
    elif meta.action_low is not None and meta.action_high is not None:
        low, high = (np.asarray(bound, np.float32) for bound in (meta.action_low, meta.action_high))
        actions = box(low, high, dtype=np.float32)
    else:
        actions = box(-np.inf, np.inf, (spec.action_dim,), np.float32)
    with complete_folder(folder) as temporary:
        storage = MinariStorage.new(
            temporary / "data",
            observation_space=box(-np.inf, np.inf, (spec.obs_dim,), np.float32),
            action_space=actions,
            env_spec=gymnasium.registry.get(meta.env_id or ""),
        )
        storage.update_episodes(EpisodeBuffer(**_minari_arrays(one)) for one in dataset)
        extra = {"ref_min_score": meta.ref_min, "ref_max_score": meta.ref_max}
        storage.update_metadata(
            {
                "dataset_id": name,
                "minari_version": minari_version,
                "odice": meta.to_dict(),
                "odice_final_unknown": np.flatnonzero(~dataset.final_known).tolist(),
                **{key: value for key, value in extra.items() if value is not None},
            }
        )
    return folder


WRITERS = {"minari": save_minari, "d4rl": save_d4rl, "parquet": save_parquet}


def _minari_arrays(one: Episode) -> dict[str, Any]:
    flags = np.zeros((2, len(one.rewards)), bool)
    flags[:, -1] = one.terminated, one.truncated
    return {
        "observations": one.observations,
        "actions": one.actions,
        "rewards": one.rewards,
        "terminations": flags[0],
        "truncations": flags[1],
        "infos": {},
    }
