"""The demo: the default algorithm learns to hop from the log of another learner, without a download."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from odice.data.load import load
from odice.errors import OdiceError
from odice.evaluation.simulator.evaluate import Evaluation, evaluate
from odice.evaluation.simulator.video import record
from odice.files import complete_file
from odice.reports.curves import learning_curve
from odice.reports.figures import save
from odice.training.loggers import rows
from odice.training.run import Run
from odice.training.train import train

DATA = "bundled/hopper-replay"
SETTINGS: dict[str, Any] = {"algo": "auto"}  # and nothing else: the default has to be good enough
STEPS = 10_000
EPISODES = 20


class Demo(NamedTuple):
    """The results of the demo."""

    data: np.ndarray
    """Returns of the data's episodes."""
    evaluation: Evaluation
    run: Run
    curve: Path
    table: Path
    video: Path | OdiceError
    """The video, or why there is none."""


def demo(out: str | Path, *, steps: int = STEPS, seed: int = 0, say: Callable[[str], None] = print) -> Demo:
    """Train, evaluate on new episodes, draw the curve and record a video; a second call continues the training."""
    out = Path(out)
    dataset = load(DATA)
    env_id = dataset.meta.env_id or ""
    returns = dataset.returns
    say(
        f"{DATA}: {dataset.n_episodes:,} episodes, {dataset.n_steps:,} steps of {env_id}; "
        f"mean return {returns.mean():.0f}, best {returns.max():.0f}"
    )
    run = train(DATA, out=str(out / "run"), steps=steps, seed=seed, eval_every=max(1, steps // 10), **SETTINGS)
    assert isinstance(run, Run)
    evaluation = evaluate(run.policy, env_id, episodes=EPISODES, seed=seed + 1_000_000)
    levels = {"mean of the data": float(returns.mean()), "best episode of the data": float(returns.max())}
    figure = learning_curve(rows(run.path / "evaluations.jsonl"), title=f"{SETTINGS['algo']} on {DATA}", levels=levels)
    curve = save(figure, out / "learning-curve.png")
    table = _write(out / "evaluation.md", returns, evaluation)
    try:
        video: Path | OdiceError = out / "hopper.gif"
        record(run.policy, env_id, video, seed=seed + 1_000_000)
    except OdiceError as error:  # a machine that cannot draw can still learn
        video = error
    return Demo(returns, evaluation, run, curve, table, video)


def lines(returns: np.ndarray, evaluation: Evaluation) -> list[tuple[str, str, str, str, str]]:
    """The evaluation as rows: who, episodes, mean return, best, worst."""
    numbers = lambda x: (f"{len(x):,}", f"{x.mean():.0f}", f"{x.max():.0f}", f"{x.min():.0f}")
    return [("the data", *numbers(returns)), ("the learned policy", *numbers(evaluation.returns))]


def _write(path: Path, returns: np.ndarray, evaluation: Evaluation) -> Path:
    head = ("", "episodes", "mean return", "best", "worst")
    body = [head, ("---",) * len(head), *lines(returns, evaluation)]
    with complete_file(path) as temporary:
        temporary.write_text("".join(f"| {' | '.join(row)} |\n" for row in body), "utf-8")
    return path
