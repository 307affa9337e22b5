"""A run that was made: its folder, what came out, and its policies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odice.d4rl import brief
from odice.errors import OdiceError
from odice.notebook import facts, picture
from odice.policy.policy import Policy
from odice.training.directory import log_checksum, read_record, write_record
from odice.training.loggers import rows

if TYPE_CHECKING:
    import polars
    from matplotlib.figure import Figure

ESTIMATE = "estimate.json"


@dataclass(frozen=True, repr=False)
class Run:
    """One run on disk, or several seeds of it."""

    path: Path
    result: dict[str, Any]
    """The final step, the last and the best scores, the state's SHA-256; empty while it is not finished."""
    seeds: tuple[Run, ...] = ()
    """The runs of the single seeds, where there are several."""

    @classmethod
    def open(cls, path: str | Path) -> Run:
        """The run in a folder, finished or not; of a folder of seeds all of them."""
        path = Path(path)
        if (path / "config.json").exists():
            result = path / "result.json"
            return cls(path, read_record(result) if result.exists() else {})
        inner = sorted(path.glob("*/config.json")) if path.is_dir() else []
        if not inner:
            raise OdiceError(f"{path} holds no run: there is no config.json in it or one folder below.")
        return cls(path, {}, tuple(cls.open(config.parent) for config in inner))

    @property
    def config(self) -> dict[str, Any]:
        """Everything that was decided and recorded before the run started."""
        return read_record(self._one() / "config.json")

    @property
    def policy(self) -> Policy:
        """The policy at the end of the run."""
        return Policy.load(self._one() / "policy" / "last")

    @property
    def best_policy(self) -> Policy:
        """The policy of the best evaluation. It is chosen with the environment's help: report the last one too."""
        return Policy.load(self._one() / "policy" / "best")

    @property
    def estimate(self) -> dict[str, Any]:
        """What `odice evaluate --data` or `odice decide` last said about its policy; empty if neither was run."""
        path = self._one() / ESTIMATE
        return read_record(path) if path.exists() else {}

    def remember(self, estimate: Mapping[str, Any]) -> None:
        """Keep what a log says about the policy, for `odice report`."""
        write_record(self._one() / ESTIMATE, estimate)

    @property
    def metrics(self) -> polars.DataFrame:
        """One row per `metrics.jsonl` row: the step and the mean of every metric since the row before."""
        return self._frame("metrics.jsonl")

    @property
    def evaluations(self) -> polars.DataFrame:
        """One row per evaluation, with every episode's return and length."""
        return self._frame("evaluations.jsonl")

    def plot(self, metrics: Sequence[str] = ()) -> Figure:
        """A figure of the evaluations and of these metrics (by default the losses, the mean value and weight)."""
        from odice.training.plots import run_figure

        return picture(run_figure(self, metrics))

    def __repr__(self) -> str:
        what = f"{len(self.seeds)} seeds" if self.seeds else self._ending()
        return f"Run({str(self.path)!r}: {what})"

    def _repr_html_(self) -> str:
        if self.seeds:
            return facts(f"Run: {self.path}", {run.path.name: run._ending() for run in self.seeds})
        config, data = self.config["config"], self.config["data"]
        rows = {name: config.get(name) for name in ("algo", "preset", "env", "seed")}
        health = self.result.get("health", {}).get("says")
        return facts(f"Run: {self.path}", {**rows, "data": data["source"], "result": self._ending(), "health": health})

    def _ending(self) -> str:
        return self.summary() if self.result else "not finished"

    def summary(self) -> str:
        """How a finished run ended, in a sentence."""
        if self.seeds:
            each = [f"{run.path.name}: {run.summary() if run.result else 'not finished'}" for run in self.seeds]
            return "\n".join([*each, self.over_seeds()])
        last, best = self.result["last"], self.result["best"]
        score = ""
        if last:
            normalized = f" (score {last['score']:.1f})" if "score" in last else ""
            score = (
                f" last return {brief(last['mean'])}{normalized}, best {brief(best['mean'])} at step {best['step']:,};"
            )
        how, which = "finished", "last"
        if chosen := self.result.get("selected"):
            which = "selected"
            score += f" by the log alone step {chosen['step']:,} is the best ({chosen['answer']});"
            how = "stopped early after" if self.result["stopped_early"] else how
        return f"{how} {self.result['step']:,} updates;{score} the policy is in {self.path / 'policy' / which}"

    def over_seeds(self) -> str:
        """Mean and range over the seeds that are finished: of the last evaluation and, where there are scores, of
        those."""
        done = [run.result["last"] for run in self.seeds if run.result]
        head = f"{len(done)} of {len(self.seeds)} seeds finished"
        for key, name in (("score", "score"), ("mean", "return")):
            values = [last[key] for last in done if last and key in last]
            if values and len(values) == len(done):
                mean = sum(values) / len(values)
                return (
                    f"{head}: last {name} {brief(mean)} on average, from {brief(min(values))} to {brief(max(values))}"
                )
        return f"{head}; the runs are in {self.path}"

    def _frame(self, name: str) -> polars.DataFrame:
        import polars

        return polars.DataFrame(rows(self._one() / name, log_checksum(self.result, name)), infer_schema_length=None)

    def _one(self) -> Path:
        if self.seeds:
            raise OdiceError(f"{self.path} holds {len(self.seeds)} runs; choose one of run.seeds.")
        return self.path
