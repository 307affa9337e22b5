"""Checks of episodes: where they end, why, how they are rewarded there, and whether they occur twice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from odice.data.dataset import Dataset, pick, walk
from odice.data.doctor.finding import Finding
from odice.data.doctor.scan import Scan

SAMPLE = 100_001


def few_episodes(scan: Scan) -> Iterator[Finding]:
    """Too few episodes to set some aside: a tenth of fewer than 10 is none."""
    n = scan.dataset.n_episodes
    if n < 10:
        yield Finding(
            "few-episodes",
            "warning",
            f"There {'is only 1 episode' if n == 1 else f'are only {n} episodes'}, "
            "too few to hold out a tenth for validation.",
            "Collect more, or check that the ends of episodes were recorded; choosing among policies will be a guess.",
            {"episodes": n},
        )


def timeouts_as_terminals(scan: Scan) -> Iterator[Finding]:
    """Episodes that "terminate" at exactly the longest length: time limits written as terminals.

    A true end comes when it comes, so its lengths spread; a pile exactly at the maximum is a clock. The pile must have
    at least 5 episodes, and 5 times what one length in the tenth just below it has on average. Episodes that end in an
    event show it in the reward: if the last rewards of the pile lie apart from all others, it is no timeout.
    """
    data = scan.dataset
    longest = int(data.lengths.max())
    pile = data.terminated & (data.lengths == longest)
    near = data.terminated & (data.lengths < longest) & (data.lengths >= 0.9 * longest)
    count = int(pile.sum())
    lengths_below = longest - int(np.ceil(0.9 * longest))
    if longest < 10 or count < 5 or count < 5 * near.sum() / lengths_below:
        return
    rest = np.ones(data.n_steps, bool)
    rest[data.ends] = False
    least, most = np.float32(np.inf), np.float32(-np.inf)
    for block, part in walk(data.rewards):
        least = np.min(part, where=rest[block], initial=least)
        most = np.max(part, where=rest[block], initial=most)
    last = data.rewards[data.ends[pile]]
    if last.min() > most or last.max() < least:
        return
    yield Finding(
        "timeouts-as-terminals",
        "warning",
        f"{count} of {int(data.terminated.sum())} terminated episodes end at exactly {longest} steps, the longest "
        f"there is, and {int(near.sum())} between {int(np.ceil(0.9 * longest))} and {longest - 1}: this looks like a "
        "time limit.",
        "Write time limits as truncated, not terminated: "
        "as terminals they teach that the future is worth nothing there.",
        {"length": longest, "episodes": count, "terminated": int(data.terminated.sum()), "just_below": int(near.sum())},
    )


def terminal_runs(scan: Scan) -> Iterator[Finding]:
    """Terminal rows in runs, as in D4RL's AntMaze: the log goes on at the goal and every row there is marked."""
    data = scan.dataset
    single = data.terminated & (data.lengths == 1)
    run = single[1:] & data.terminated[:-1]
    long = data.lengths[~single]
    # Bandits have only such episodes; here they must follow real ones, and often.
    if run.sum() >= 5 and long.size and np.median(long) >= 10 and _goes_on(data, np.flatnonzero(run) + 1):
        first = int(np.argmax(run)) + 1
        yield Finding(
            "terminal-runs",
            "note",
            f"{int(run.sum())} episodes are single terminal steps right after another terminal step (the first is "
            f"episode {first}): the log goes on after the end.",
            "Keep the first terminal of each run, or select episodes with more than one step; returns per episode are "
            "off otherwise.",
            {"episodes": int(run.sum()), "first_episode": first},
        )


def _goes_on(data: Dataset, episodes: np.ndarray) -> bool:
    """Whether these one-step episodes stand where the step before them stood. Short episodes of their own start
    anew."""
    step = data.starts[episodes]
    here, before = (pick(data.observations, at).astype(np.float64) for at in (step + episodes, step + episodes - 2))
    elsewhere = np.random.default_rng(0).permutation(before)
    scale = np.maximum(here.std(axis=0), before.std(axis=0))
    moving = scale > 0
    if not moving.any():
        return True
    apart, usual = (np.abs((here - other)[:, moving] / scale[moving]).mean(axis=1) for other in (before, elsewhere))
    return bool(np.median(apart) < 0.5 * np.median(usual))


def shifted_rewards(scan: Scan) -> Iterator[Finding]:
    """Sparse rewards that sit one step before or after the end they belong to.

    Applies where at least 4 of 5 rewards have one value. In a log of s, a, r, s' the reward for reaching the goal is in
    the last row; if at most a tenth of the terminated episodes have it there, but most have it one row before, or most
    following episodes open with it, then the column was shifted when the log was written.
    """
    data = scan.dataset
    usual = usual_reward(data.rewards)
    if usual is None:
        return
    event = data.rewards != usual
    inner = np.flatnonzero(data.terminated & (data.lengths >= 3))
    if inner.size < 5 or not event.any():
        return
    last = event[data.ends[inner]]
    before = event[data.ends[inner] - 1] & ~last
    after = inner[inner < data.n_episodes - 1]
    opens = event[data.starts[after + 1]] & ~event[data.ends[after]]
    if last.mean() > 0.1:
        return
    for fraction, hits, of, way in (
        (before.mean(), before.sum(), inner.size, "one step before the end"),
        (opens.mean() if after.size else 0, opens.sum(), after.size, "in the first step of the next episode"),
    ):
        if fraction >= 0.5:
            yield Finding(
                "shifted-rewards",
                "warning",
                f"{int(hits)} of {of} terminated episodes have their reward {way}, and {int(last.sum())} of "
                f"{inner.size} in the last step: rewards look shifted by one row.",
                "Store in row t the reward that the action of row t brought, so that the goal's reward is in the "
                "terminal row.",
                {"where": way, "episodes": int(hits), "of": int(of), "in_last_step": int(last.sum())},
            )
            return


def reader_evidence(scan: Scan) -> Iterator[Finding]:
    """What the reader saw in the source: next observations that do not fit, missing flags, flags inside episodes."""
    data = scan.dataset
    evidence = data.meta.evidence
    if facts := evidence.get("next_mismatch"):
        count, largest = int(facts["count"]), float(facts.get("largest", np.inf))
        worst = int(facts.get("column", 0)) % len(scan.observation.names)
        # Rounding by another tool is harmless: it stays below a thousandth of what the column moves.
        rounding = largest <= 1e-3 * float(scan.observation.std[worst])
        severity = "note" if rounding else "error" if count > 0.01 * data.n_steps else "warning"
        yield Finding(
            "next-mismatch",
            severity,
            f"In {count:,} of {data.n_steps:,} steps the recorded next observation is not the observation of the "
            f"following row (by {largest:.3g} in {scan.observation.names[worst]}; "
            f"first in row {facts.get('first_row')}).",
            "It differs by rounding only; nothing to do."
            if rounding
            else "Rows are missing or out of order, or ends of episodes are; the following row is what training uses.",
            dict(facts),
        )
    if facts := evidence.get("unfinished"):
        yield _unfinished(facts, data)
    if facts := evidence.get("step_gaps"):
        yield Finding(
            "step-gap",
            "warning",
            f"In {int(facts['count']):,} places the step column jumps by up to {float(facts['largest']):g} where it "
            f"usually moves by {float(facts['usual']):g} (the first after row {facts.get('first_row')}): rows are "
            "missing inside episodes, and training would take the two sides of a gap for successive states.",
            f"Split the episodes there: --max-gap {float(facts['usual']):g}.",
            dict(facts),
        )
    if facts := evidence.get("flags_inside_episode"):
        yield Finding(
            "flags-inside-episode",
            "warning",
            f"{int(facts['count']):,} rows are flagged as an end although the episode's number goes on after them (the "
            f"first is row {facts.get('first_row')}); the episodes were cut there.",
            "Check that the flags mean the end of an episode, and that episode numbers are unique.",
            dict(facts),
        )


def _unfinished(facts: Mapping[str, Any], data: Dataset) -> Finding:
    """Ends without a flag. A column of episode numbers tells where they are, so this is worth a warning only where
    something seems to have ended them: nothing is ever flagged, and more than a tenth differ from the usual length."""
    count, episodes = int(facts["count"]), data.n_episodes
    tail = count == 1 and bool(facts.get("tail"))
    usual = np.bincount(data.lengths).max() / episodes
    return Finding(
        "unfinished",
        "warning" if count == episodes > 1 and usual < 0.9 else "note",
        "The last episode ends without a flag and is kept as truncated."
        if tail
        else f"{count:,} of {episodes:,} episodes end with neither a terminated nor a truncated flag; all are kept as "
        "truncated.",
        "Nothing to do if the recording was simply stopped."
        if tail
        else "If some of them ended for good (a crash, a goal), add a terminated column: its value matters there.",
        dict(facts),
    )


def duplicate_episodes(scan: Scan) -> Iterator[Finding]:
    """Episodes that occur twice, bit for bit (`odice.data.copies`)."""
    data = scan.dataset
    copies = data.copies
    if not copies.size:
        return
    yield Finding(
        "duplicate-episodes",
        "warning",
        f"{len(copies)} of {data.n_episodes} episodes are exact copies of earlier ones (episode {copies[0, 1]} repeats "
        f"episode {copies[0, 0]}).",
        "Remove the copies: they count twice in training. What is held out holds all copies of an episode or none, and "
        "estimates count it once.",
        {"episodes": len(copies), "share": len(copies) / data.n_episodes, "pairs": copies[:100].tolist()},
    )


def usual_reward(rewards: np.ndarray) -> float | None:
    """The value that at least 80 % of the rewards have, if there is one; then it is the median, also of a sample."""
    rows = np.sort(np.random.default_rng(0).integers(0, len(rewards), SAMPLE))
    middle = float(np.median(rewards if len(rewards) <= SAMPLE else pick(rewards, rows)))
    fraction = sum(int((part == middle).sum()) for _, part in walk(rewards)) / len(rewards)
    return middle if fraction >= 0.8 else None
