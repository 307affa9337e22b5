"""From what a person says to a run with everything decided: flag > config file > preset > default."""

from __future__ import annotations

import dataclasses
import json
import math
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_type_hints

import pydantic

from odice.algos import Entry, algorithms, entry
from odice.algos.validation import settings_dict
from odice.data.preprocess import REWARD_MAPS, Preprocess
from odice.errors import OdiceError, unknown_name
from odice.files import read_text
from odice.plugins import load_plugins
from odice.presets import OWN, Preset, own_protocol, preset
from odice.training.options import RunOptions

ROW_STEPS = 1000
"""A row of metrics covers at most this many updates."""
CHUNK_STEPS = 50
"""Updates per compiled call, at most: how often the loop looks up to see whether it should stop."""
CONFIG_BYTES = 1 << 20
"""A config file is smaller than this."""
NOT_IN_FILES = ("plugin", "config", "resume")
"""Options that only a person can give: a file may not choose what is imported."""


class Plan(NamedTuple):
    """A run with everything decided that can be decided before the data are read."""

    options: RunOptions
    settings: Any
    """The algorithm's config."""
    preset: Preset | None
    typed_env: bool = False
    """Whether a person named the environment, not a file: only then may its name import a module."""
    default_algo: bool = False
    """Whether the algorithm is the default one because none was named."""

    @property
    def algorithm(self) -> Entry:
        return entry(self.options.algo)

    @property
    def row_steps(self) -> int:
        """Updates per row of metrics: evaluations fall on rows."""
        return _divisor(self.options.eval_every or OWN.eval_every, ROW_STEPS)

    @property
    def chunk_steps(self) -> int:
        return _divisor(self.row_steps, CHUNK_STEPS)

    @property
    def discount(self) -> float:
        """The algorithm's discount, or the usual one where it has none."""
        return self.algorithm.setting(self.settings, self.algorithm.discount, 0.99)

    @property
    def preprocess(self) -> Preprocess:
        options = self.options
        rewards = dict(REWARD_MAPS[options.reward or "none"])
        scale = 1.0 if options.reward_scale is None else options.reward_scale
        if scale != 1.0 or options.reward_shift:  # on top of the map: scale * map(r) + shift
            rewards["reward_shift"] = scale * rewards.get("reward_shift", 0.0) + (options.reward_shift or 0.0)
            rewards["reward_scale"] = scale * rewards.get("reward_scale", 1.0)
        return Preprocess(
            **rewards,
            discount=self.discount,
            normalize_obs=bool(options.normalize_obs),
            clip_actions=options.clip_actions,
            absorbing=options.imitation and bool(options.absorbing),
        )

    def identity(self) -> dict[str, Any]:
        """What makes two runs the same one, beside the data: all that changes a number in its files."""
        shared = ("algo", "steps", "seed", "eval_every", "eval_episodes", "reward", "normalize_obs", "convention")
        imitation = ("imitation", "episode", "absorbing", "final_obs") if self.options.imitation else ()
        shaped = [
            name for name in ("reward_scale", "reward_shift", "patience") if getattr(self.options, name) is not None
        ]
        named = (*shared, "clip_actions", "diagnostics", *imitation, *shaped)
        options = {name: getattr(self.options, name) for name in named}
        return {**options, "settings": settings_dict(self.settings)}


def make_plan(data: Any, **given: Any) -> Plan:
    """Decide every setting. `given` are fields of `RunOptions` and of the algorithm's config; None counts as not
    given."""
    return complete_plan(draft_plan(data, **given))


def draft_plan(data: Any, **given: Any) -> Plan:
    """A plan whose values may still be changed, by flags for example, before it is complete."""
    given = {name: value for name, value in given.items() if value is not None}
    load_plugins(given.get("plugin", ()))
    from_file = read_config(given["config"]) if "config" in given else {}
    merged = {**from_file, **given}
    algorithm = entry(str(merged.get("algo") or default_algo(merged)))
    option_types, setting_types = get_type_hints(RunOptions), get_type_hints(algorithm.config)
    del option_types["data"]
    option_types["suboptimal"] = Any  # as `data`, from Python it need not be a name
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
    protocol = chosen.protocol if chosen else own_protocol(algorithm.name)
    defaults = {name: getattr(protocol, name) for name in protocol._fields if name in option_types}
    given_options = {name: value for name, value in merged.items() if name in option_types}
    options = RunOptions(data, **{**defaults, **given_options, "algo": algorithm.name})
    if imitation and not algorithm.reads_rewards and options.reward not in (None, "zero"):
        raise OdiceError(f"Imitation learns without rewards, but --reward is {options.reward!r}; leave it out.")
    settings = {
        **(chosen.values() if chosen else {}),
        **{name: value for name, value in merged.items() if name in setting_types},
    }
    return Plan(
        options,
        algorithm.config(**settings),
        chosen,
        typed_env="env" not in from_file or "env" in given,
        default_algo="algo" not in merged,
    )


def default_algo(given: Mapping[str, Any]) -> str:
    """The algorithm of a run that names none: the paper's under a preset and for demonstrations, else `auto`."""
    return "odice" if given.get("preset") or given.get("imitation") else RunOptions.algo


def complete_plan(plan: Plan) -> Plan:
    """The plan, with what the run decides for the algorithm: how long a schedule lasts, and whether it diagnoses
    itself."""
    options, settings, algorithm = plan.options, plan.settings, plan.algorithm
    decided: dict[str, Any] = {}
    if options.diagnostics and algorithm.diagnose:
        decided[algorithm.diagnose] = True
    if algorithm.schedule and algorithm.setting(settings, algorithm.schedule, None) is None:
        decided[algorithm.schedule] = options.steps
    return plan._replace(settings=dataclasses.replace(settings, **decided))


def _check_imitates(algorithm: Entry) -> None:
    if not algorithm.imitates:
        able = ", ".join(name for name, each in algorithms().items() if each.imitates)
        raise OdiceError(
            f"{algorithm.name} learns from rewards, which demonstrations do not have; imitate with one of: {able}."
        )


def row_name(data: Any) -> str | None:
    """The name by which a preset may know a data set: a D4RL name, or a file called after one."""
    return Path(data).stem.replace("_", "-") if isinstance(data, str | Path) else None


def read_config(path: str) -> dict[str, Any]:
    """The settings in a JSON or TOML file."""
    try:
        text = read_text(path, CONFIG_BYTES)
        found = json.loads(text) if Path(path).suffix == ".json" else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise OdiceError(f"{path}: not a valid {Path(path).suffix or 'TOML'} file ({error!s:.160}).") from None
    if not isinstance(found, dict):
        raise OdiceError(f"{path}: a config file holds one object of settings, found a {type(found).__name__}.")
    found = {str(name).replace("-", "_"): value for name, value in found.items()}
    for name in NOT_IN_FILES:
        if name in found:
            raise OdiceError(f"{path}: a file cannot set {name!r}; give it on the command line.")
    return found


def coerce(name: str, value: Any, hint: Any) -> Any:
    """A value as its field's type, or an error that names the field. Whole numbers may stand for floats, lists for
    tuples."""
    if hint is Any:
        return value
    if isinstance(value, Path):
        value = str(value)
    try:
        adapter = pydantic.TypeAdapter(hint, config=pydantic.ConfigDict(arbitrary_types_allowed=True))
        if isinstance(value, bool) and adapter.json_schema().get("type") not in ("boolean", None):
            raise OdiceError(f"{name} must not be {value}: it is not a switch.")
        return adapter.validate_python(value)
    except pydantic.ValidationError as error:
        problem = error.errors()[0]
        if problem["type"] == "literal_error":
            choices = [
                str(each) for part in (hint, *get_args(hint)) for each in get_args(part) if isinstance(each, str)
            ]
            raise unknown_name(name, str(value), choices) from None
        raise OdiceError(f"{name} is {value!r}: {problem['msg'][:1].lower()}{problem['msg'][1:]}.") from None


def _divisor(number: int, limit: int) -> int:
    """The largest divisor of `number` that is at most `limit`."""
    if number <= limit:
        return number
    return max(d for a in range(1, math.isqrt(number) + 1) if number % a == 0 for d in (a, number // a) if d <= limit)
