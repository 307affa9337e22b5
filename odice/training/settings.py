"""Every setting of a run, decided once: `resolve` before the log is read, `Settings.with_data` after.

A value comes from the first of these that has one: the flag (or Python argument), the config file, the preset, the
algorithm's own defaults, the run's defaults; what is still open then is decided by the log. `Settings.sources` says
which it was, for every value, and `odice train --dry-run` prints it.
"""

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
from odice.data.dataset import Dataset
from odice.data.preprocess import REWARD_MAPS, Fitted, Preprocess
from odice.data.to_go import high
from odice.errors import OdiceError, unknown_name
from odice.files import read_text
from odice.plugins import load_plugins
from odice.presets import OWN, Preset, own_protocol, preset
from odice.training.options import RunOptions

ROW_STEPS = 1000
"""A row of metrics covers at most this many updates."""
CHUNK_STEPS = 50
"""Updates per compiled call, at most: between two calls the loop checks whether it should stop."""
CONFIG_BYTES = 1 << 20
"""A config file is smaller than this."""
NOT_IN_FILES = ("plugin", "config", "resume")
"""Options that only a person can give: a file may not choose what is imported."""
HOLDOUT_SHARE, HOLDOUT_EPISODES = 0.1, 50
"""Without a preset this share of the episodes is held out of training, where there are at least so many."""
GIVEN, DEFAULT = "given", "default"
"""The source of a value that a person typed, on the command line or in Python; and of one that nobody chose."""


class Settings(NamedTuple):
    """A run with everything decided."""

    options: RunOptions
    config: Any
    """The algorithm's config."""
    preset: Preset | None = None
    sources: Mapping[str, str] = {}
    """Where the value of each option and of each field of the config comes from, by its name."""

    @property
    def algorithm(self) -> Entry:
        return entry(self.options.algo)

    @property
    def row_steps(self) -> int:
        """Updates per row of metrics: evaluations fall on rows."""
        return _divisor(self.options.eval_every or OWN.eval_every, ROW_STEPS)

    @property
    def chunk_steps(self) -> int:
        """Updates per compiled call."""
        return _divisor(self.row_steps, CHUNK_STEPS)

    @property
    def discount(self) -> float:
        """The algorithm's discount, or the usual one where it has none."""
        return self.algorithm.setting(self.config, self.algorithm.discount, 0.99)

    @property
    def best_episodes(self) -> float:
        """The share of the episodes, those with the highest return, that the algorithm learns from."""
        return self.algorithm.setting(self.config, self.algorithm.best_episodes, 1.0)

    @property
    def may_import(self) -> bool:
        """Whether the environment's name may import a module: only one that a person typed."""
        return self.sources.get("env") == GIVEN

    @property
    def preprocess(self) -> Preprocess:
        """What is done to the log before training."""
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
        """What makes two runs on the same log the same run: all that changes a number in its files."""
        shared = ("algo", "steps", "seed", "eval_every", "eval_episodes", "reward", "normalize_obs", "convention")
        imitation = ("imitation", "episode", "absorbing", "final_obs") if self.options.imitation else ()
        shaped = [
            name for name in ("reward_scale", "reward_shift", "patience") if getattr(self.options, name) is not None
        ]
        named = (*shared, "clip_actions", "diagnostics", *imitation, *shaped)
        options = {name: getattr(self.options, name) for name in named}
        return {**options, "settings": settings_dict(self.config)}

    def replace(self, source: str, **values: Any) -> Settings:
        """The settings with other values of options or of the config, and where those come from."""
        fields = {item.name for item in dataclasses.fields(RunOptions)}
        options = {name: value for name, value in values.items() if name in fields}
        config = {name: value for name, value in values.items() if name not in fields}
        return self._replace(
            options=dataclasses.replace(self.options, **options),
            config=dataclasses.replace(self.config, **config) if config else self.config,
            sources={**self.sources, **dict.fromkeys(values, source)},
        )

    # --- what the log decides -----------------------------------------------------------------------------------------

    def env_of(self, dataset: Dataset) -> str | None:
        """The environment to evaluate in: the one that was given, else the one that the log names; None for `none`."""
        env_id = self.options.env or dataset.meta.env_id
        return None if env_id == "none" else env_id

    def holdout_share(self, dataset: Dataset) -> float:
        """The share of the episodes to hold out. Presets are published protocols, and demonstrations are few: there
        nothing is held out unless somebody asks for it."""
        options, share = self.options, self.options.holdout
        if share is not None:
            if share and (options.stream or options.imitation):
                flag = "--stream" if options.stream else "--imitation"
                why = "would copy a log larger than memory" if options.stream else "would take away demonstrations"
                raise OdiceError(f"--holdout {share:g} {why}; leave out --holdout, or {flag}.")
            return share
        free = self.preset is None and not options.stream and not options.imitation
        return HOLDOUT_SHARE if free and dataset.n_episodes >= HOLDOUT_EPISODES else 0.0

    @property
    def wants_value_start(self) -> bool:
        """Whether the log decides at which value the algorithm's values start."""
        name = self.algorithm.value_start
        return name is not None and getattr(self.config, name) is None

    @property
    def derives_chosen_share(self) -> bool:
        """Whether a small log makes the share of the steps that the policy learns from larger."""
        return self.sources.get(str(self.algorithm.chosen_share), "").startswith("distance")

    def with_data(self, trained: Dataset, fitted: Fitted, held_out: float) -> Settings:
        """The settings with all that was left to the log.

        Args:
            trained: The episodes that are trained on.
            fitted: The preprocessing, fitted to those.
            held_out: The share of the episodes that is held out.
        """
        decided = self
        if self.options.env is None:
            decided = decided.replace("the log", env=trained.meta.env_id)
        if self.options.holdout is None:
            decided = decided.replace("the log (its number of episodes)", holdout=held_out)
        if self.wants_value_start:
            rewarded = dataclasses.replace(trained, rewards=fitted.reward(trained.rewards))
            start = {str(self.algorithm.value_start): high(rewarded, self.discount)}
            decided = decided.replace("the log (a high return)", **start)
        return decided


def resolve(data: Any, **given: Any) -> Settings:
    """Decide every setting that does not depend on the log.

    Args:
        data: What to learn from.
        **given: Options of the run and fields of the algorithm's config; None counts as not given.

    Raises:
        OdiceError: A name or a value is wrong.
    """
    given = {name: value for name, value in given.items() if value is not None}
    load_plugins(given.get("plugin", ()))
    from_file = read_config(given["config"]) if "config" in given else {}
    algorithm = entry(str(given.get("algo") or from_file.get("algo") or default_algo({**from_file, **given})))
    types = _types(algorithm)
    for source, where in ((from_file, f"setting in {given.get('config')}"), (given, f"setting of {algorithm.name}")):
        for name, value in source.items():
            if name not in types:
                raise unknown_name(where, name, types)
            source[name] = coerce(name, value, types[name])

    named = {**from_file, **given}
    chosen = _preset(algorithm, named.get("preset"), bool(named.get("imitation")), row_name(data))
    layers: list[Mapping[str, tuple[Any, str]]] = [
        *_defaults(algorithm, chosen),
        {name: (value, f"file {given.get('config')}") for name, value in from_file.items()},
        {name: (value, GIVEN) for name, value in given.items()},
    ]
    decided = {name: item for layer in layers for name, item in layer.items() if name in types}
    if algorithm.diagnose and decided["diagnostics"][0]:
        decided[algorithm.diagnose] = (True, "--diagnostics")
    if algorithm.schedule and decided[algorithm.schedule][0] is None:
        decided[algorithm.schedule] = (decided["steps"][0], "the length of the run")
    values = {name: value for name, (value, _) in decided.items()}
    fields = {item.name for item in dataclasses.fields(algorithm.config)}
    options = RunOptions(data, **{name: value for name, value in values.items() if name not in fields})
    if options.imitation and not algorithm.reads_rewards and options.reward not in (None, "zero"):
        raise OdiceError(f"Imitation learns without rewards, but --reward is {options.reward!r}; leave it out.")
    config = algorithm.config(**{name: value for name, value in values.items() if name in fields})
    settings = Settings(options, config, chosen, {name: source for name, (_, source) in decided.items()})
    for name, (value, source) in (algorithm.derived(config) if algorithm.derived else {}).items():
        settings = settings.replace(source, **{name: value})
    return settings


def default_algo(given: Mapping[str, Any]) -> str:
    """The algorithm of a run that names none: the paper's under a preset and for demonstrations, else `auto`."""
    return "odice" if given.get("preset") or given.get("imitation") else RunOptions.algo


def _types(algorithm: Entry) -> dict[str, Any]:
    """The type of every option but `data`, and of every field of the algorithm's config."""
    options = get_type_hints(RunOptions)
    del options["data"]
    return {**get_type_hints(algorithm.config), **options, "suboptimal": Any}  # from Python it need not be a name


def _preset(algorithm: Entry, name: str | None, imitation: bool, row: str | None) -> Preset | None:
    """The preset that was named; to imitate without one, what holds for imitation."""
    if imitation and not algorithm.imitates:
        able = ", ".join(name for name, each in algorithms().items() if each.imitates)
        raise OdiceError(
            f"{algorithm.name} learns from rewards, which demonstrations do not have; imitate with one of: {able}."
        )
    if not name and not imitation:
        return None
    return preset(name or "imitation", algorithm.name, row, imitation=imitation)


def _defaults(algorithm: Entry, chosen: Preset | None) -> list[dict[str, tuple[Any, str]]]:
    """The values that hold where nobody gives another, each with its source, the weakest first."""
    options = {item.name: (item.default, DEFAULT) for item in dataclasses.fields(RunOptions) if item.name != "data"}
    options["algo"] = (algorithm.name, DEFAULT)
    own = f"default of {algorithm.name}"
    config = {name: (value, own) for name, value in _field_defaults(algorithm.config).items()}
    protocol = chosen.protocol if chosen else own_protocol(algorithm.name)
    title = f"preset {chosen.name}" if chosen else own
    around = {name: (value, f"{title} ({protocol.source})") for name, value in protocol._asdict().items()}
    del around["source"]
    settings = chosen.settings if chosen else {}
    return [
        options,
        config,
        around,
        {name: (setting.value, f"{title} ({setting.source})") for name, setting in settings.items()},
    ]


def _field_defaults(config: type) -> dict[str, Any]:
    """The default of every field of a config that has one."""
    defaults = {}
    for item in dataclasses.fields(config):
        if item.default is not dataclasses.MISSING:
            defaults[item.name] = item.default
        elif item.default_factory is not dataclasses.MISSING:
            defaults[item.name] = item.default_factory()
    return defaults


def row_name(data: Any) -> str | None:
    """The name by which a preset may know a data set: a D4RL name, or a file called after one."""
    return Path(data).stem.replace("_", "-") if isinstance(data, str | Path) else None


def read_config(path: str) -> dict[str, Any]:
    """The settings in a JSON or TOML file."""
    try:
        text = read_text(path, CONFIG_BYTES)
        content = json.loads(text) if Path(path).suffix == ".json" else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise OdiceError(f"{path}: not a valid {Path(path).suffix or 'TOML'} file ({error!s:.160}).") from None
    if not isinstance(content, dict):
        raise OdiceError(f"{path}: a config file holds one object of settings, found a {type(content).__name__}.")
    content = {str(name).replace("-", "_"): value for name, value in content.items()}
    for name in NOT_IN_FILES:
        if name in content:
            raise OdiceError(f"{path}: a file cannot set {name!r}; give it on the command line.")
    return content


def coerce(name: str, value: Any, hint: Any) -> Any:
    """A value as its field's type, or an error that names the field. Whole numbers may stand for floats, lists for
    tuples."""
    if hint is Any:
        return value
    if isinstance(value, Path):
        value = str(value)
    try:
        adapter = pydantic.TypeAdapter(hint, config=pydantic.ConfigDict(arbitrary_types_allowed=True))
        if isinstance(value, bool):
            known = adapter.json_schema()
            if not {part.get("type") for part in known.get("anyOf", [known])} & {"boolean", None}:
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
