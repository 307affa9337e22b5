"""Run directories made by hand, with numbers that are known."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

REFERENCE = (0.0, 200.0)
"""A return of 200 is a score of 100."""


def make_run(
    folder: Path,
    returns: Sequence[Sequence[float]] = ((100.0, 120.0),),
    *,
    algo: str = "odice",
    seed: int = 0,
    data: str = "hopper-medium",
    source: str | None = None,
    finished: bool = True,
    reference: Sequence[float] | None = REFERENCE,
    health: Any = None,
    steps: int | None = None,
    env: str | None = None,
    **settings: Any,
) -> Path:
    """One run; `returns` are those of the episodes of each evaluation, a thousand updates apart."""
    folder.mkdir(parents=True)
    done = 1000 * len(returns)
    config = {"algo": algo, "steps": steps or done, "seed": seed, "data": f"sha-{data}", "env": None}
    facts = {"source": source or f"/logs/{data}.parquet"}
    (folder / "config.json").write_text(json.dumps({"config": {**config, "settings": settings}, "data": facts}))
    rows = [
        {"step": 1000 * (i + 1), "returns": list(one), "mean": sum(one) / len(one), "worst": min(one)}
        | {"reference": None if reference is None else list(reference), "env_id": env}
        for i, one in enumerate(returns)
    ]
    _write(folder / "evaluations.jsonl", rows)
    _write(folder / "timing.jsonl", [{"step": row["step"], "updates_per_second": 500.0 + seed} for row in rows])
    if finished:
        verdict = {} if health is None else {"health": health}
        (folder / "result.json").write_text(json.dumps({"step": done, "state_sha256": "0", **verdict}))
    return folder


def _write(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
