"""From a log to what the loop needs, in four stages: read, split, fit, transitions.

read         the log, checked by the doctor; the environment to score in
split        the episodes to train on, and those that are held out
fit          the preprocessing, fitted to the episodes to train on; after it every setting is known
transitions  flat arrays (or a stream of them), and the fixed samples by which the run judges its policy
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from odice.caching import Later
from odice.data import preprocess
from odice.data.columns import make_columns
from odice.data.dataset import Dataset, walk
from odice.data.demonstrations import demonstrations, with_suboptimal
from odice.data.doctor import check
from odice.data.load import load
from odice.data.preprocess import Fitted
from odice.data.store import Streamed, stored
from odice.data.transitions import rows_of, to_transitions, why_left_out
from odice.errors import OdiceError
from odice.evaluation.simulator.evaluate import Evaluator
from odice.policy.guard import Guard
from odice.training.credit import credit
from odice.training.holdout import Probe, make_guard, make_probe
from odice.training.settings import Settings
from odice.training.skill import balance, drawn_rows, enough
from odice.types import Algo, Spec, Transitions

ABOUT_REWARDS = ("zero-rewards", "constant-rewards", "shifted-rewards", "few-episodes")
"""Findings of the doctor that mean nothing to imitation."""


class About(NamedTuple):
    """What a run remembers of its log."""

    facts: dict[str, Any]
    """Where the data come from, how much there is, and the fingerprint."""
    notes: list[str]
    """What a person should know before the run starts."""
    reference: tuple[float, float] | None
    """Returns that count as 0 and 100, where the log names them."""
    evaluator: Evaluator | None
    """The environment to score in, with its first instance made."""


class Log(NamedTuple):
    """What was read."""

    dataset: Dataset
    """The episodes to learn from; demonstrations stand before suboptimal data."""
    about: About


class Split(NamedTuple):
    """The episodes to train on, and those that are held out of training."""

    trained: Dataset
    held: Dataset | None
    share: float
    """The share that is held out."""


class Prepared(NamedTuple):
    """Everything a run knows about its data and its task."""

    settings: Settings
    """With what the log decided."""
    about: About
    fitted: Fitted
    source: Transitions | Streamed
    """What batches are made of: arrays of the host."""
    spec: Spec
    """What the algorithm sees."""
    probe: Probe
    """Transitions by which the policy is judged, some of them held out of training."""
    guard: Later[Guard]
    """What the policy will know of the observations it was trained on."""
    value_limit: float
    """|V| beyond this is no value of these rewards."""
    log: Dataset | None = None
    """The log as it was read, where the run stops by it."""


def prepare(settings: Settings) -> Prepared:
    """Read and check the data, fit the preprocessing and build the transitions."""
    log = read(settings)
    evaluator = log.about.evaluator
    try:
        judged_by = None
        if settings.options.patience is not None:
            from odice.training.patience import log_to_judge_by  # imports the estimators

            judged_by = log_to_judge_by(settings.options, log.dataset)
        parts = split(settings, log.dataset)
        fitted = preprocess.fit(settings.preprocess, parts.trained, settings.options.convention)
        settings = settings.with_data(parts.trained, fitted, parts.share)
        if evaluator:
            evaluator.check(*parts.trained.spec)
        return transitions(settings, log.about, parts, fitted)._replace(log=judged_by)
    except BaseException:
        if evaluator:
            evaluator.close()
        raise


# --- read -------------------------------------------------------------------------------------------------------------


def read(settings: Settings) -> Log:
    """Read the log, or demonstrations and the suboptimal data that go with them, and check it."""
    options, without = settings.options, ABOUT_REWARDS if settings.options.imitation else ()
    dataset = _load(settings, options.data)
    env_id, low, high = settings.env_of(dataset), dataset.meta.ref_min, dataset.meta.ref_max
    reference = None if low is None or high is None else (low, high)
    evaluator = None
    if env_id is not None:
        evaluator = Evaluator(env_id, reference=reference, allow_import=settings.may_import)
    try:
        dataset, notes = _checked(settings, dataset, evaluator, without)
        facts: dict[str, Any] = {"source": str(dataset.meta.source), "fingerprint": dataset.fingerprint}
        if dataset.meta.schema is not None:
            facts["schema"] = dict(dataset.meta.schema)
        if options.imitation:
            dataset = _chosen(settings, dataset, facts)
        if options.suboptimal is not None:
            others, more = _checked(settings, _load(settings, options.suboptimal), evaluator, without)
            facts["suboptimal"] = {"source": str(others.meta.source), "fingerprint": others.fingerprint}
            dataset, notes = with_suboptimal(dataset, others), notes + more
    except BaseException:
        if evaluator:
            evaluator.close()
        raise
    if evaluator is None:
        notes.append("no environment is known for these data: training without evaluation (name one with --env)")
    return Log(dataset, About(facts, notes, reference, evaluator))


def _load(settings: Settings, data: Any) -> Dataset:
    options = settings.options
    on_disk = options.stream and isinstance(data, str | Path)
    open_data = stored if on_disk else load  # a log that is streamed is copied once, to a store next to it
    readers: dict[str, Any] = options.table(options.schema)
    if options.obs_keys:
        readers["obs_keys"] = options.obs_keys
    return open_data(data, format=options.format, data_dir=options.data_dir, **readers)


def _checked(
    settings: Settings, dataset: Dataset, evaluator: Evaluator | None, without: tuple[str, ...]
) -> tuple[Dataset, list[str]]:
    """The data with the environment's action bounds, and what the doctor says of them, but for the kinds `without`."""
    dataset = _bounded(dataset, evaluator)
    report = check(dataset, allow=(*settings.options.allow, *without))
    findings = [finding for finding in report.findings if finding.severity != "note" and finding.code not in without]
    return dataset, [f"{finding.severity}: {finding.message}" for finding in findings]


def _bounded(dataset: Dataset, evaluator: Evaluator | None) -> Dataset:
    """The data set with the environment's action bounds, where it declares none itself and keeps within those."""
    meta = dataset.meta
    if evaluator is None or dataset.discrete or meta.action_low is not None or meta.action_high is not None:
        return dataset
    space = evaluator.action_space
    low, high = (np.asarray(getattr(space, name, np.nan), np.float32) for name in ("low", "high"))
    if low.shape != dataset.actions.shape[1:] or not np.isfinite([low, high]).all():
        return dataset
    if any(((part < low) | (part > high)).any() for _, part in walk(dataset.actions)):
        return dataset  # then something is wrong, and the doctor says so
    bounds = {"action_low": tuple(low.astype(float).tolist()), "action_high": tuple(high.astype(float).tolist())}
    return replace(dataset, meta=replace(meta, **bounds))


def _chosen(settings: Settings, dataset: Dataset, facts: dict[str, Any]) -> Dataset:
    """The episodes to imitate."""
    options = settings.options
    chosen = demonstrations(dataset, options.episode, options.final_obs or "recorded")
    facts |= {"demonstrations": chosen.n_episodes, "demonstrated_returns": [round(r, 3) for r in chosen.returns[:10]]}
    if options.episode:
        facts["episode"] = list(options.episode)
    if settings.best_episodes < 1.0:
        raise OdiceError("top_returns chooses episodes by their rewards; to imitate, choose them with --episode.")
    return chosen


# --- split ------------------------------------------------------------------------------------------------------------


def split(settings: Settings, dataset: Dataset) -> Split:
    """Choose the episodes to train on and those to hold out: the same for every seed of a run."""
    _check_finite(dataset)
    share = settings.holdout_share(dataset)
    # Before the best episodes are chosen: what is held out has to stand for the log as it is.
    held, trained = dataset.split(share) if share else (None, dataset)
    if settings.best_episodes < 1.0:
        least = np.quantile(trained.returns, 1.0 - settings.best_episodes)
        trained = trained.by_return(1.0 - settings.best_episodes)
        held = None if held is None or not (held.returns >= least).any() else held.select(held.returns >= least)
    return Split(trained, held, share)


def _check_finite(dataset: Dataset) -> None:
    """Refuse numbers that are not finite, whatever findings are allowed."""
    if name := dataset.not_finite():
        raise OdiceError(
            f"{dataset.meta.source}: the {name} hold numbers that are not finite, and nothing can be learned from "
            "those; find them with `odice data inspect`, then correct them or leave their episodes out."
        )


# --- transitions ------------------------------------------------------------------------------------------------------


def transitions(settings: Settings, about: About, parts: Split, fitted: Fitted) -> Prepared:
    """Build what batches are made of, and the samples by which the policy is judged.

    Args:
        settings: With what the data have decided.
        about: What the run remembers of its log; facts and notes are added.
        parts: The episodes to train on, and those held out.
        fitted: The preprocessing.
    """
    options, (dataset, held, _), discount = settings.options, parts, settings.discount
    convention, facts = options.convention, about.facts
    if options.stream:
        seen = dataset
        columns, chosen, settings = measure_log(settings, _as_seen(settings, dataset, fitted))
        source = rows = Streamed(dataset, convention, fitted, columns, chosen)
    else:
        seen = fitted.apply(dataset)
        # the credit is measured on the observations that a streamed data set has, so that both give the same bits
        measured = "credit" in settings.algorithm.reads(settings.config)
        columns, chosen, settings = measure_log(settings, _as_seen(settings, dataset, fitted) if measured else seen)
        rows = to_transitions(seen, convention, columns)._replace(chosen=chosen)
        if options.suboptimal is not None:
            rows = rows._replace(expert=_expert_rows(seen, facts["demonstrations"], convention))
        source = rows
    if options.imitation and source.size < settings.config.batch_size:
        raise OdiceError(
            f"{dataset.meta.source}: the demonstrations have {source.size} transitions, fewer than one batch of "
            f"{settings.config.batch_size}; name more episodes, or set --batch-size to {source.size} or less."
        )
    facts |= {"steps": dataset.n_steps, "episodes": dataset.n_episodes, "transitions": source.size}
    if held is not None:
        facts |= {"held_out_episodes": held.n_episodes, "holdout": parts.share}
    if left_out := why_left_out(dataset, convention):
        about.notes.append(left_out)
    held_rows = None if held is None else to_transitions(fitted.apply(held), convention)
    return Prepared(
        settings=settings,
        about=about,
        fitted=fitted,
        source=source,
        spec=seen.spec,
        probe=make_probe(rows, seen, held_rows, convention, discount, fitted if options.stream else None),
        guard=make_guard(dataset, held, convention),
        value_limit=_value_limit(dataset, fitted, discount),
    )


def _expert_rows(seen: Dataset, episodes: int, convention: Any) -> Any:
    """The rows of the first so many episodes: demonstrations stand before the suboptimal data."""
    count = int(rows_of(seen, convention).kept[:episodes].sum())
    if not count:
        raise OdiceError(f"{seen.meta.source}: the demonstrations have no step whose next state is known.")
    return np.arange(count, dtype=np.int32)


def _as_seen(settings: Settings, dataset: Dataset, fitted: Fitted) -> Dataset:
    """A streamed data set with the rewards, and where a column needs them the actions, that the algorithm sees."""
    dataset = replace(dataset, rewards=fitted.reward(dataset.rewards))
    if "next_action" not in settings.algorithm.reads(settings.config):
        return dataset
    return replace(dataset, actions=fitted.unact(np.asarray(dataset.actions)))


def measure_log(settings: Settings, seen: Dataset) -> tuple[dict[str, np.ndarray], np.ndarray | None, Settings]:
    """The columns that the algorithm reads, the rows that its policy learns from (None is all of them), and the
    settings with what was measured to make them."""
    algorithm, config = settings.algorithm, settings.config
    wanted = algorithm.reads(config)
    columns = make_columns((name for name in wanted if name != "credit"), seen, settings.discount)
    if "credit" not in wanted:
        return columns, None, settings
    measured = credit(seen, settings.discount, settings.options.convention)
    if algorithm.setting(config, algorithm.balance, 0.0) is None:
        why = "the log (how far the model of the world errs)"
        settings = settings.replace(why, **{str(algorithm.balance): round(balance(measured.skill.ratio), 3)})
    rows, share = rows_of(seen, settings.options.convention), algorithm.setting(config, algorithm.chosen_share, 1.0)
    if settings.derives_chosen_share and enough(share, rows.size) > share:
        share = round(enough(share, rows.size), 3)
        settings = settings.replace("the log, which is small", **{str(algorithm.chosen_share): share})
    chosen = drawn_rows(measured.skill.steps, rows, share)
    return {**columns, "credit": measured.advantage}, chosen, settings


def _value_limit(dataset: Dataset, fitted: Fitted, discount: float) -> float:
    """A thousand times the largest discounted sum of rewards there could be."""
    extremes = np.array([dataset.rewards.min(), dataset.rewards.max()], np.float32)
    if not fitted.reward_values:
        extremes = fitted.reward(extremes)
    return 1000.0 * max(1.0, float(np.abs(extremes).max())) / (1.0 - min(discount, 0.99))


# --- other ------------------------------------------------------------------------------------------------------------


def check_expert(algo: Algo, settings: Settings) -> str | None:
    """Refuse an algorithm that needs suboptimal data and has none; a note where it cannot tell them apart."""
    name, given = settings.options.algo, settings.options.suboptimal is not None
    if algo.expert and not given:
        raise OdiceError(
            f"{name} learns from demonstrations and suboptimal data: `odice imitate --algo {name} --data "
            "DEMONSTRATIONS --suboptimal SOURCE`."
        )
    return f"{name} learns from demonstrations and suboptimal data alike" if given and not algo.expert else None
