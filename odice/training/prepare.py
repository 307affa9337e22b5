"""From a source of data to what the loop needs: checked, transformed, on the device, and an environment to score in."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from odice.data.dataset import Dataset, walk
from odice.data.demonstrations import beside, demonstrations
from odice.data.doctor import check
from odice.data.load import load
from odice.data.preprocess import Fitted, fit
from odice.data.store import Streamed, stored
from odice.data.to_go import high, outcomes
from odice.data.transitions import Convention, rows_of, to_transitions, why_left_out
from odice.envs.make import make
from odice.errors import OdiceError
from odice.evaluation.simulator.evaluate import Evaluator
from odice.policy.guard import Guard
from odice.training.holdout import Probe, hold_out, make_guard, make_probe
from odice.training.patience import log_to_judge_by
from odice.training.plan import Plan
from odice.types import Algo, Batch, Spec, Transitions

ABOUT_REWARDS = ("zero-rewards", "constant-rewards", "shifted-rewards", "few-episodes")
"""Findings of the doctor that mean nothing to imitation."""
SAMPLE = 256
"""Transitions of the fixed sample that diagnostics look at."""


class Prepared(NamedTuple):
    """Everything a run knows about its data and its task."""

    spec: Spec
    """What the algorithm sees."""
    source: Transitions | Streamed
    fitted: Fitted
    facts: dict[str, Any]
    """Where the data came from, how much there is, and its fingerprint."""
    notes: tuple[str, ...]
    """What a person should know before the run starts."""
    env_id: str | None
    reference: tuple[float, float] | None
    value_limit: float
    """|V| beyond this is no value of these rewards."""
    raw: Spec
    """What the environment has."""
    probe: Probe
    """Transitions by which the policy is judged, some of them held out of training."""
    guard: Guard
    """What the policy will know of the observations it was trained on."""
    value_start: float
    """A high return of these rewards."""
    log: Dataset | None = None
    """The whole log, as it is, where the run stops by it."""


def prepare(plan: Plan) -> Prepared:
    """Read and check the data, fit the preprocessing and build the transitions."""
    options = plan.options
    dataset, facts, notes = _demonstrations(plan) if options.imitation else _log(plan)
    log = log_to_judge_by(options, dataset)
    best = _best_episodes(plan)
    if best < 1.0:
        dataset = dataset.by_return(1.0 - best)
    _check_finite(dataset)
    dataset, held = hold_out(plan, dataset)
    fitted = fit(plan.preprocess, dataset, options.convention)
    if options.stream:
        seen, source = (
            dataset,
            Streamed(dataset, options.convention, fitted, _outcome(plan, _rewarded(dataset, fitted))),
        )
    else:
        seen = fitted.apply(dataset)
        arrays = to_transitions(seen, options.convention, _outcome(plan, seen))
        if options.suboptimal is not None:
            arrays = arrays._replace(expert=_expert_rows(seen, facts["demonstrations"], options.convention))
        source = jax.device_put(arrays)
    if options.imitation and source.size < plan.settings.batch_size:
        raise OdiceError(
            f"{dataset.meta.source}: the demonstrations have {source.size} transitions, fewer than one batch of "
            f"{plan.settings.batch_size}; name more episodes, or set --batch-size to {source.size} or less."
        )
    env_id = _env_id(plan, dataset)
    if env_id is None:
        notes.append("no environment is known for these data: training without evaluation (name one with --env)")
    facts |= {"steps": dataset.n_steps, "episodes": dataset.n_episodes, "transitions": source.size}
    if left_out := why_left_out(dataset, options.convention):
        notes.append(left_out)
    low, high = dataset.meta.ref_min, dataset.meta.ref_max
    reference = None if low is None or high is None else (low, high)
    limit, start = _value_limit(dataset, fitted, plan.discount), _value_start(plan, dataset, fitted)
    rows = None
    if held is not None:
        facts["held_out_episodes"] = held.n_episodes
        rows = to_transitions(fitted.apply(held), options.convention)
    probe = make_probe(source, seen, rows, options.convention, plan.discount, fitted if options.stream else None)
    guard, raw = make_guard(dataset, held, options.convention), dataset.spec
    return Prepared(
        seen.spec, source, fitted, facts, tuple(notes), env_id, reference, limit, raw, probe, guard, start, log
    )


def _check_finite(dataset: Dataset) -> None:
    """What nobody can allow: one number that is not finite makes every loss and every weight so."""
    parts = {"observations": dataset.observations, "actions": dataset.actions, "rewards": dataset.rewards}
    for name, array in parts.items():
        if not all(np.isfinite(part).all() for _, part in walk(array)):
            raise OdiceError(
                f"{dataset.meta.source}: the {name} hold numbers that are not finite, and nothing can be learned from "
                "those; find them with `odice data inspect`, then correct them or leave their episodes out."
            )


Read = tuple[Dataset, dict[str, Any], list[str]]
"""A data set, where it came from, and what the doctor says of it."""


def _log(plan: Plan, data: Any = None, without: tuple[str, ...] = ()) -> Read:
    """The plan's data (or others, read in the same way), looked over. Findings of the kinds `without` do not matter
    here."""
    options = plan.options
    data = options.data if data is None else data
    readers: dict[str, Any] = options.table(options.schema)
    if options.obs_keys:
        readers["obs_keys"] = options.obs_keys
    on_disk = options.stream and isinstance(data, str | Path)
    open_data = stored if on_disk else load  # a log that is streamed is copied once, to a store beside it
    dataset = _bounded(open_data(data, format=options.format, data_dir=options.data_dir, **readers), plan)
    report = check(dataset, allow=(*options.allow, *without))
    heard = [finding for finding in report.findings if finding.severity != "note" and finding.code not in without]
    facts = {"source": str(dataset.meta.source), "fingerprint": dataset.fingerprint}
    return dataset, facts, [f"{finding.severity}: {finding.message}" for finding in heard]


def _best_episodes(plan: Plan) -> float:
    """The fraction of the episodes, those with the highest return, that the algorithm declares it learns from."""
    return plan.algorithm.setting(plan.settings, plan.algorithm.best_episodes, 1.0)


def _env_id(plan: Plan, dataset: Dataset) -> str | None:
    """The environment to evaluate in: the one that was asked for, else the one that the data name."""
    env_id = plan.options.env or dataset.meta.env_id
    return None if env_id == "none" else env_id


def may_import(plan: Plan, env_id: str | None) -> bool:
    """Whether a person typed this name: no file chooses what is imported."""
    return plan.typed_env and plan.options.env == env_id


def _bounded(dataset: Dataset, plan: Plan) -> Dataset:
    """The data set with the environment's action bounds, where it declares none itself and keeps within those."""
    env_id, meta = _env_id(plan, dataset), dataset.meta
    if env_id is None or dataset.discrete or meta.action_low is not None or meta.action_high is not None:
        return dataset
    env = make(env_id, allow_import=may_import(plan, env_id))
    space = env.action_space
    env.close()
    low, high = (np.asarray(getattr(space, name, np.nan), np.float32) for name in ("low", "high"))
    if low.shape != dataset.actions.shape[1:] or not np.isfinite([low, high]).all():
        return dataset
    if any(((part < low) | (part > high)).any() for _, part in walk(dataset.actions)):
        return dataset  # then something is wrong, and the doctor says so
    bounds = {"action_low": tuple(low.astype(float).tolist()), "action_high": tuple(high.astype(float).tolist())}
    return replace(dataset, meta=replace(meta, **bounds))


def _demonstrations(plan: Plan) -> Read:
    """The chosen episodes, and behind them the suboptimal data if there are any."""
    options = plan.options
    dataset, facts, notes = _log(plan, without=ABOUT_REWARDS)
    chosen = demonstrations(dataset, options.episode, options.final_obs or "recorded")
    facts |= {"demonstrations": chosen.n_episodes, "demonstrated_returns": [round(r, 3) for r in chosen.returns[:10]]}
    if options.episode:
        facts["episode"] = list(options.episode)
    if _best_episodes(plan) < 1.0:
        raise OdiceError("top_returns chooses episodes by their rewards; to imitate, choose them with --episode.")
    if options.suboptimal is None:
        return chosen, facts, notes
    others, about, more = _log(plan, options.suboptimal, without=ABOUT_REWARDS)
    facts["suboptimal"] = about
    return beside(chosen, others), facts, notes + more


def _expert_rows(seen: Dataset, episodes: int, convention: Convention) -> Any:
    """The rows of the first so many episodes: demonstrations stand before the suboptimal data."""
    count = int(rows_of(seen, convention).kept[:episodes].sum())
    if not count:
        raise OdiceError(f"{seen.meta.source}: the demonstrations have no step whose next state is known.")
    return np.arange(count, dtype=np.int32)


def check_expert(algo: Algo, plan: Plan) -> str | None:
    """Refuse an algorithm that needs suboptimal data and has none; say so if there are some and it cannot tell them
    apart."""
    name, given = plan.options.algo, plan.options.suboptimal is not None
    if algo.expert and not given:
        raise OdiceError(
            f"{name} learns from demonstrations beside suboptimal data: `odice imitate --algo {name} --data "
            "DEMONSTRATIONS --suboptimal SOURCE`."
        )
    return f"{name} learns from demonstrations and suboptimal data alike" if given and not algo.expert else None


def _value_limit(dataset: Dataset, fitted: Fitted, discount: float) -> float:
    """A thousand times the largest discounted sum of rewards there could be."""
    extremes = np.array([dataset.rewards.min(), dataset.rewards.max()], np.float32)
    if not fitted.reward_values:
        extremes = fitted.reward(extremes)
    return 1000.0 * max(1.0, float(np.abs(extremes).max())) / (1.0 - min(discount, 0.99))


def _value_start(plan: Plan, dataset: Dataset, fitted: Fitted) -> float:
    """A high return to go of the rewards that the algorithm sees, where it wants to know."""
    if not _wants_start(plan):
        return 0.0
    return high(_rewarded(dataset, fitted), plan.discount)


def _rewarded(dataset: Dataset, fitted: Fitted) -> Dataset:
    """The data set with the rewards that the algorithm sees."""
    return replace(dataset, rewards=fitted.reward(dataset.rewards))


def _outcome(plan: Plan, seen: Dataset) -> np.ndarray | None:
    """How the log went on after each step, where the algorithm asks for it."""
    wanted = plan.algorithm.setting(plan.settings, plan.algorithm.outcome, 0.0)
    return outcomes(seen, plan.discount) if wanted else None


def _wants_start(plan: Plan) -> bool:
    return bool(plan.algorithm.value_start) and getattr(plan.settings, plan.algorithm.value_start or "") is None


def decided_by_log(plan: Plan, prepared: Prepared) -> Plan:
    """The plan, with the setting that the log decides."""
    if not _wants_start(plan):
        return plan
    decided: dict[str, Any] = {plan.algorithm.value_start or "": prepared.value_start}
    return plan._replace(settings=replace(plan.settings, **decided))


def sample(source: Transitions | Streamed) -> Batch:
    """A fixed sample of the data, the same in every run on them."""
    rows = np.random.default_rng(0).integers(0, source.size, SAMPLE)
    return source.gather(rows) if isinstance(source, Streamed) else source.batch(jax.numpy.asarray(rows))


def open_evaluator(plan: Plan, prepared: Prepared) -> Evaluator | None:
    """The environments to score in, if any; refused before training starts if they do not fit the data."""
    if prepared.env_id is None:
        return None
    evaluator = Evaluator(prepared.env_id, reference=prepared.reference, allow_import=may_import(plan, prepared.env_id))
    try:
        evaluator.check(*prepared.raw)
    except OdiceError:
        evaluator.close()
        raise
    return evaluator
