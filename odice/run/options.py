"""What a run is told, and how it is resolved: flag > config file > preset > default.

`RunOptions` surrounds an algorithm: data, length, evaluation, files. The algorithm's own settings are the fields of its
config. Both are plain dataclasses, and every field of both is a flag of `odice train`, an argument of `odice.train` and an
entry of a config file.
"""

from __future__ import annotations

import dataclasses
import json
import math
import tomllib
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from odice.algos import Entry, algorithms, entry
from odice.data.demonstrations import FinalObs
from odice.data.preprocess import ANTMAZE_REWARDS, Preprocess
from odice.data.transitions import Convention
from odice.errors import OdiceError, unknown_name
from odice.presets import OWN, PRESETS, Preset, preset

# name of a reward map -> what it asks of `data.preprocess`
REWARDS: dict[str, dict[str, Any]] = {
    "none": {},
    "return-range": {"return_range": "episodes"},
    "return-range-b": {"return_range": "thousand"},
    "minus-1": ANTMAZE_REWARDS["iql"],
    "minus-3": ANTMAZE_REWARDS["odice-paper"],
    "zero-to-minus-3": ANTMAZE_REWARDS["odice-code"],
    "times-4-minus-2": ANTMAZE_REWARDS["cql"],
    "times-10-minus-5": ANTMAZE_REWARDS["corl-cql"],
    "standard-tenth": {"standardize_reward": True, "reward_scale": 0.1},
    "zero": {"reward_scale": 0.0},
}
ROW_STEPS = 1000
"""A row of metrics covers at most this many updates."""
PIECE_STEPS = 50
"""Updates per compiled call, at most: how often the loop looks up to see whether it should stop."""


@dataclass(frozen=True)
class RunOptions:
    """The run around the algorithm. A value of None is filled in from the preset, or from the data."""

    data: str
    """What to learn from: a file (HDF5, NPZ, Parquet, CSV) or folder of them, a Minari id, or a D4RL name."""
    algo: str = "odice"
    """The algorithm (`odice list` names them)."""
    preset: Literal["paper", "reference", "corl"] | None = None
    """Published settings to start from: `paper` is the text, `reference` the authors' code, `corl` CORL's."""
    env: str | None = None
    """Environment to evaluate in; by default the one the data names. `none` trains without evaluation."""
    steps: int | None = None
    """Gradient updates; 1,000,000 unless the preset says otherwise."""
    seed: int = 0
    """Seed of the networks and of the batches."""
    seeds: int | None = None
    """Train this many seeds, from `seed` on, each in its own folder `OUT/seed-N`."""
    out: str | None = None
    """The run's folder; by default runs/DATA/ALGO/seed-N."""
    config: str | None = None
    """A JSON or TOML file with any of these settings; flags win over it."""
    resume: bool = False
    """Insist on continuing: an error if there is no run in OUT. (The same command continues a run by itself.)"""
    checkpoint_every: int = 10_000
    """Updates between two checkpoints; at most this many are lost when the process is killed."""
    keep: int = 3
    """Checkpoints kept, beside the best."""
    eval_every: int | None = None
    """Updates between two evaluations; 5,000 unless the preset says otherwise."""
    eval_episodes: int | None = None
    """Episodes per evaluation; 10 unless the preset says otherwise."""
    reward: str | None = None
    """How rewards are changed before training: none, return-range, minus-1, zero-to-minus-3 ..."""
    normalise_obs: bool | None = None
    """Train on (s - mean) / std of the data; the policy then does the same when it acts. On unless a preset says otherwise."""
    clip_actions: float | None = None
    """Clip logged actions, mapped to [-1, 1], to +- this; the JAX codes of IQL, SQL and f-DVL use 0.99999."""
    convention: Convention = "qlearning"
    """Which steps count: `qlearning` drops time-limit steps as D4RL does, `bootstrap` keeps those whose next state is known."""
    imitation: bool = False
    """Learn from demonstrations, without rewards; what `odice imitate` sets."""
    episode: tuple[int, ...] = ()
    """Imitation: numbers of the episodes to learn from, counted from 0; by default all."""
    imperfect: str | None = None
    """Imitation: other data to learn from beside the demonstrations, however good; DemoDICE and SMODICE need some."""
    absorbing: bool | None = None
    """Imitation: put an absorbing state after every terminal one, marked in an extra column, as ValueDICE does."""
    final_obs: FinalObs | None = None
    """Imitation: after the last step of an episode that was cut by time comes the recorded final observation (a step without
    one is left out), or, as the authors' code has it by mistake, the first observation of the next episode."""
    allow: tuple[str, ...] = ()
    """Findings of the data doctor to accept (`odice data inspect` explains them); `all` accepts everything."""
    data_dir: str | None = None
    """Folder with the files of D4RL names; else the variable ODICE_DATA."""
    format: str | None = None
    """Which reader to use where the name does not tell: d4rl, arrays, table, minari, store."""
    schema: str | None = None
    """TOML or JSON file that names the columns of a table."""
    stream: bool = False
    """Leave the data on disk and gather batches from there: for data larger than memory. A log is copied once to a store beside it."""
    log: tuple[str, ...] = ()
    """Also log to `tensorboard` or `wandb`; each needs its extra."""
    diagnostics: bool = False
    """Log gradient norms and cosine, the feature product grad V(s).grad V(s'), and V's range."""
    parallel: Literal["auto", "processes", "vmap"] = "auto"
    """How several seeds run: one process per core (CPU), or all in one `vmap` (accelerator)."""
    quiet: bool = False
    """Print nothing but warnings and errors."""

    def __post_init__(self):
        at_least = {"steps": 1, "seed": 0, "seeds": 1, "checkpoint_every": 1, "keep": 1}
        at_least |= {"eval_every": 1, "eval_episodes": 1}
        for name, least in at_least.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise OdiceError(f"{name} must be at least {least}, got {value}.")
        if self.preset is not None and self.preset not in PRESETS:
            raise unknown_name("preset", self.preset, PRESETS)
        if self.reward is not None and self.reward not in REWARDS:
            raise unknown_name("reward map", self.reward, REWARDS)
        if self.imitation:
            self._check_imitation()
        elif self.episode or self.imperfect or self.absorbing or self.final_obs == "next-reset":
            raise OdiceError(
                "episode, imperfect, absorbing and final_obs belong to imitation; use `odice imitate`, or add --imitation."
            )

    def _check_imitation(self) -> None:
        if self.reward not in (None, "zero"):
            raise OdiceError(f"Imitation learns without rewards, but --reward is {self.reward!r}; leave it out.")
        if self.stream:
            raise OdiceError("Imitation keeps its chosen episodes in memory; leave out --stream.")
        if self.absorbing and self.convention != "bootstrap":
            raise OdiceError(
                "Absorbing states follow the last step of an episode, so they need --convention bootstrap."
            )


class Plan(NamedTuple):
    """A run with everything decided that can be decided before the data are read."""

    options: RunOptions
    settings: Any
    """The algorithm's config."""
    preset: Preset | None

    @property
    def row_steps(self) -> int:
        """Updates per row of metrics: evaluations fall on rows."""
        return _divisor(self.options.eval_every or OWN.eval_every, ROW_STEPS)

    @property
    def piece_steps(self) -> int:
        return _divisor(self.row_steps, PIECE_STEPS)

    @property
    def preprocess(self) -> Preprocess:
        options = self.options
        return Preprocess(
            **REWARDS[options.reward or "none"],
            normalize_obs=bool(options.normalise_obs),
            clip_actions=options.clip_actions,
            absorbing=options.imitation and bool(options.absorbing),
        )

    def identity(self) -> dict[str, Any]:
        """What makes two runs the same one, beside the data: all that changes a number in its files."""
        shared = ("algo", "steps", "seed", "eval_every", "eval_episodes", "reward", "normalise_obs", "convention")
        imitation = ("imitation", "episode", "absorbing", "final_obs") if self.options.imitation else ()
        options = {name: getattr(self.options, name) for name in (*shared, "clip_actions", "diagnostics", *imitation)}
        return {**options, "settings": dataclasses.asdict(self.settings)}


def resolve(data: Any, **given: Any) -> Plan:
    """Decide every setting. `given` are fields of `RunOptions` and of the algorithm's config; None counts as not given."""
    return complete(draft(data, **given))


def draft(data: Any, **given: Any) -> Plan:
    """A plan whose values may still be changed, by flags for example, before it is complete."""
    given = {name: value for name, value in given.items() if value is not None}
    from_file = read_config(given["config"]) if "config" in given else {}
    algorithm = entry(str(given.get("algo", from_file.get("algo", RunOptions.algo))))
    option_types, setting_types = get_type_hints(RunOptions), get_type_hints(algorithm.config)
    del option_types["data"]
    option_types["imperfect"] = Any  # as `data`, from Python it need not be a name
    for source, where in ((from_file, f"setting in {given.get('config')}"), (given, f"setting of {algorithm.name}")):
        for name, value in source.items():
            if name not in option_types and name not in setting_types:
                raise unknown_name(where, name, [*option_types, *setting_types])
            source[name] = coerce(name, value, option_types.get(name) or setting_types[name])

    merged = {**from_file, **given}
    chosen, name, imitation = None, merged.get("preset"), bool(merged.get("imitation"))
    if imitation:
        _check_imitates(algorithm)
    if name or imitation:
        chosen = preset(name or "imitation", algorithm.name, row_name(data), imitation=imitation)
    protocol = chosen.protocol if chosen else OWN
    defaults = {name: getattr(protocol, name) for name in protocol._fields if name in option_types}
    options = RunOptions(data, **{**defaults, **{k: v for k, v in merged.items() if k in option_types}})
    settings = {**(chosen.values() if chosen else {}), **{k: v for k, v in merged.items() if k in setting_types}}
    return Plan(options, algorithm.config(**settings), chosen)


def _check_imitates(algorithm: Entry) -> None:
    if not algorithm.imitates:
        able = ", ".join(name for name, each in algorithms().items() if each.imitates)
        raise OdiceError(
            f"{algorithm.name} learns from rewards, which demonstrations do not have; imitate with one of: {able}."
        )


def complete(plan: Plan) -> Plan:
    """The plan, with what the run decides for the algorithm: how long a schedule lasts, and whether it diagnoses itself."""
    options, settings = plan.options, plan.settings
    decided: dict[str, Any] = {}
    if options.diagnostics and hasattr(settings, "diagnose"):
        decided["diagnose"] = True
    if getattr(settings, "cosine_steps", 0) is None:
        decided["cosine_steps"] = options.steps
    return plan._replace(settings=dataclasses.replace(settings, **decided))


def row_name(data: Any) -> str | None:
    """The name by which a preset may know a data set: a D4RL name, or a file called after one."""
    return Path(data).stem.replace("_", "-") if isinstance(data, str | Path) else None


def read_config(path: str) -> dict[str, Any]:
    """The settings in a JSON or TOML file."""
    try:
        text = Path(path).read_text("utf-8")
        found = json.loads(text) if Path(path).suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise OdiceError(f"{path}: cannot read the config file ({error.strerror}).") from None
    except ValueError as error:
        raise OdiceError(f"{path}: not a valid {Path(path).suffix or 'TOML'} file ({error}).") from None
    if not isinstance(found, dict):
        raise OdiceError(f"{path}: a config file holds one object of settings, found a {type(found).__name__}.")
    return {name.replace("-", "_"): value for name, value in found.items()}


def coerce(name: str, value: Any, hint: Any) -> Any:
    """A value as its field's type, or an error that names the field. Whole numbers may stand for floats, lists for tuples."""
    origin, inside = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return None if value is None else coerce(name, value, next(arg for arg in inside if arg is not type(None)))
    if origin is Literal:
        if value not in inside:
            raise unknown_name(name, value, map(str, inside))
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise OdiceError(f"{name} must be a list, got {value!r}.")
        return tuple(coerce(name, item, inside[0]) for item in value)
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if hint is str and isinstance(value, Path):
        return str(value)
    if hint is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if hint in (int, bool, str) and type(value) is not hint:
        raise OdiceError(f"{name} must be of type {hint.__name__}, got {value!r}.")
    if hint is float:
        raise OdiceError(f"{name} must be a number, got {value!r}.")
    return value


def _divisor(number: int, limit: int) -> int:
    """The largest divisor of `number` that is at most `limit`."""
    if number <= limit:
        return number
    return max(d for a in range(1, math.isqrt(number) + 1) if number % a == 0 for d in (a, number // a) if d <= limit)
