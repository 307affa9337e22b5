"""The options of a run, all but the algorithm's settings: data, length, evaluation, files.

Every field is a flag of `odice train`, an argument of `odice.train` and an entry of a config file. So are the fields of
the algorithm's config (`training.settings`).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

from odice.data.demonstrations import FinalObs
from odice.data.preprocess import REWARD_MAPS
from odice.data.schema import TableFlags
from odice.data.transitions import Convention
from odice.errors import OdiceError, unknown_name
from odice.presets import PRESETS

MOST_SEED = 2**31 - 1
"""JAX's keys are made from 32 bits."""


@dataclass(frozen=True)
class RunFlags:
    """The run around the algorithm. A value of None is filled in from the preset, or from the data."""

    data: str
    """What to learn from: a file (HDF5, NPZ, Parquet, CSV) or folder of them, a Minari id, or a D4RL name."""
    algo: str = "auto"
    """The algorithm (`odice list` names them). With a preset, and to imitate, the default is odice."""
    preset: Literal["paper", "reference", "corl"] | None = None
    """Published settings to start from: `paper` is the text, `reference` the authors' code, `corl` CORL's."""
    env: str | None = None
    """Environment to evaluate in; by default the one the data names. `none` trains without evaluation."""
    steps: int | None = None
    """Gradient updates; 10,000 with `auto`, else 20,000 (imitation: 500,000), unless the preset says otherwise."""
    seed: int = 0
    """Seed of the networks and of the batches."""
    seeds: int | None = None
    """Train this many seeds, from `seed` on, each in its own folder `OUT/seed-N`."""
    out: str | None = None
    """The run's folder; by default runs/DATA/ALGO/seed-N."""
    config: str | None = None
    """A JSON or TOML file with any of these settings; flags win over it."""
    resume: bool = False
    """Require a run to continue: an error if OUT has none. (Without it, the same command continues a run, too.)"""
    checkpoint_every: int = 10_000
    """Updates between two checkpoints; at most this many are lost when the process is killed."""
    keep: int = 3
    """Checkpoints to keep; the best one is kept as well."""
    eval_every: int | None = None
    """Updates between two evaluations; 1,000 (imitation: 5,000) unless the preset says otherwise."""
    eval_episodes: int | None = None
    """Episodes per evaluation; 10 unless the preset says otherwise."""
    eval_seconds: float = 600.0
    """Time limit of one evaluation, in seconds; the run goes on without it."""
    reward: str | None = None
    """Reward map, applied before training: none, return-spread, return-range, minus-1, zero-to-minus-3, ..."""
    reward_scale: float | None = None
    """Multiply the rewards by this, after the reward map."""
    reward_shift: float | None = None
    """Add this to the rewards, last."""
    normalize_obs: bool | None = None
    """Normalize observations by the data's mean and standard deviation, in training and when the policy acts; on unless
    a preset says otherwise."""
    clip_actions: float | None = None
    """Clip logged actions, mapped to [-1, 1], to +- this; the JAX codes of IQL, SQL and f-DVL use 0.99999."""
    convention: Convention = "bootstrap"
    """Which steps are used: `bootstrap` keeps every terminal step and every step whose next state is known; `qlearning`
    drops time-limit steps as D4RL does, and is what presets for offline RL use."""
    holdout: float | None = None
    """Share of the episodes to hold out of training, for health checks and estimates; 0.1 without a preset if there are
    50 episodes or more."""
    patience: int | None = None
    """Stop after this many evaluation steps without a better estimate from the log alone (as `odice select` ranks);
    `policy/selected` is the best policy. No simulator is used."""
    imitation: bool = False
    """Learn from demonstrations, without rewards; what `odice imitate` sets."""
    episode: tuple[int, ...] = ()
    """Imitation: numbers of the episodes to learn from, counted from 0; by default all."""
    suboptimal: str | None = None
    """Imitation: additional, imperfect data to learn from; DemoDICE, SMODICE, LobsDICE and RGM need some."""
    absorbing: bool | None = None
    """Imitation: put an absorbing state after every terminal one, marked in an extra column, as ValueDICE does."""
    final_obs: FinalObs | None = None
    """Imitation: the next state of a step that a time limit cut. `recorded`: the final observation (a step without one
    is left out); `next-reset`: the first observation of the next episode, a mistake of the authors' code."""
    allow: tuple[str, ...] = ()
    """Findings of the data doctor to accept (`odice data inspect` explains them); `all` accepts everything."""
    data_dir: str | None = None
    """Folder with the files of D4RL names; else the variable ODICE_DATA."""
    format: str | None = None
    """Reader to use if the name and the content do not show the format: d4rl, minari, arrays, table, store."""
    obs_keys: tuple[str, ...] = ()
    """Minari: the parts of a dict observation to learn from, in this order; by default all of them."""
    schema: str | None = None
    """TOML or JSON file that names the columns of a table."""
    stream: bool = False
    """Read batches from disk, for data larger than memory. A log is first copied to a store next to it."""
    log: tuple[str, ...] = ()
    """Also log to `tensorboard` or `wandb`; each needs its extra."""
    diagnostics: bool = False
    """Log gradient norms and cosine, the feature product grad V(s).grad V(s'), and V's range."""
    parallel: Literal["auto", "processes", "vmap"] = "auto"
    """How several seeds run: one process per core (CPU), or all in one `vmap` (accelerator)."""
    devices: int | Literal["all"] | None = None
    """Divide every batch over this many devices (GPUs, TPU cores), or `all`; by default one is used."""
    coordinator: str | None = None
    """HOST:PORT of the first of several processes that train one run together; `auto` under Slurm, MPI or on a TPU
    pod. Each process is started with the same command but for --process."""
    process: str | None = None
    """I/N: this is the I-th of N processes, from 1/N to N/N; the first one listens at --coordinator and writes the
    run."""
    quiet: bool = False
    """Print nothing but warnings and errors."""
    plugin: tuple[str, ...] = ()
    """Python modules to import first, which register algorithms, divergences, readers or environments of your own."""

    def __post_init__(self):
        at_least = {"steps": 1, "seed": 0, "seeds": 1, "checkpoint_every": 1, "keep": 1}
        at_least |= {"eval_every": 1, "eval_episodes": 1, "patience": 1}
        for name, least in at_least.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise OdiceError(f"{name} must be at least {least}, got {value}.")
        if self.seed + (self.seeds or 1) - 1 > MOST_SEED:
            raise OdiceError(f"seed must be at most {MOST_SEED}, got {self.seed + (self.seeds or 1) - 1}.")
        if self.holdout is not None and not 0 <= self.holdout <= 0.5:
            raise OdiceError(f"holdout is a share of the episodes from 0 to 0.5, got {self.holdout}.")
        if self.preset is not None and self.preset not in PRESETS:
            raise unknown_name("preset", self.preset, PRESETS)
        if self.reward is not None and self.reward not in REWARD_MAPS:
            raise unknown_name("reward map", self.reward, REWARD_MAPS)
        for name in ("reward_scale", "reward_shift"):
            if not math.isfinite(getattr(self, name) or 0.0):
                raise OdiceError(f"{name} must be a finite number, got {getattr(self, name)}.")
        self._check_devices()
        if self.imitation:
            self._check_imitation()
        elif self.episode or self.suboptimal or self.absorbing or self.final_obs == "next-reset":
            raise OdiceError(
                "episode, suboptimal, absorbing and final_obs belong to imitation; use `odice imitate`, "
                "or add --imitation."
            )

    def _check_devices(self) -> None:
        if isinstance(self.devices, int) and self.devices < 1:
            raise OdiceError(f"devices must be at least 1, or `all`; got {self.devices}.")
        if self.devices is not None and self.seeds and self.parallel == "processes":
            raise OdiceError("--devices divides the work of one process; leave out --parallel processes.")
        if self.coordinator is None:
            if self.process is not None:
                raise OdiceError("--process says which process this is; name the first one's with --coordinator.")
            return
        if self.coordinator != "auto" and not re.fullmatch(r".+:\d{1,5}", self.coordinator):
            raise OdiceError(f"--coordinator is {self.coordinator!r}; it is HOST:PORT of the first process, or `auto`.")
        if self.coordinator != "auto" and self.process is None:
            raise OdiceError("--coordinator HOST:PORT needs --process I/N: which of how many processes this is.")
        if self.devices not in (None, "all"):
            raise OdiceError("Several processes use all of their devices; leave out --devices.")
        for name in ("seeds", "patience"):
            if getattr(self, name) is not None:
                raise OdiceError(f"--{name} is for one process; leave it out, or leave out --coordinator.")

    def _check_imitation(self) -> None:
        if self.stream:
            raise OdiceError("Imitation keeps its chosen episodes in memory; leave out --stream.")
        if self.absorbing and self.convention != "bootstrap":
            raise OdiceError(
                "Absorbing states follow the last step of an episode, so they need --convention bootstrap."
            )


@dataclass(frozen=True)
class RunOptions(TableFlags, RunFlags):
    """All options of a run: the run itself, and the columns of a table."""
