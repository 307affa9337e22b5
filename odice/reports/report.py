"""`odice.report`: compare runs and write the comparison."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from odice.errors import OdiceError
from odice.reports import html, tables
from odice.reports.compare import Comparison, compare
from odice.reports.pages import run_page
from odice.reports.runs import FINAL
from odice.training.run import Run

TEXTS: dict[str, Callable[[Comparison], str]] = {
    ".html": run_page,
    ".md": tables.markdown,
    ".tex": tables.latex,
    ".csv": tables.comma_separated,
}
FIGURES = (".png", ".pdf", ".svg")


def report(
    runs: str | Path | Run | Sequence[str | Path | Run], out: str | Path | None = None, *, last: int = FINAL
) -> Comparison:
    """Compare the seeds, methods and data sets of run directories.

    Args:
        runs: run directories, or folders of them; nothing else is read.
        out: a file to write, by its suffix as .html (one page), .md, .tex, .csv, or .png, .pdf, .svg (curves).
        last: the number of a run is the mean of so many evaluations at its end.
    """
    if out is not None:
        check_suffix(out)
    comparison = compare([runs] if isinstance(runs, str | Path | Run) else runs, last)
    if out is not None:
        write(comparison, out)
    return comparison


def check_suffix(out: str | Path) -> None:
    """Refuse a file that could not be written, before anything is read."""
    if Path(out).suffix.lower() not in (*TEXTS, *FIGURES):
        raise OdiceError(
            f"{out}: a report is written as {', '.join((*TEXTS, *FIGURES))}; choose one of these suffixes."
        )


def write(comparison: Comparison, out: str | Path) -> Path:
    """Write a comparison in the format of the suffix, completely or not at all."""
    out = Path(out)
    suffix = out.suffix.lower()
    if suffix in TEXTS:
        return html.write(out, TEXTS[suffix](comparison))
    from odice.reports.curves import comparison_figure
    from odice.reports.figures import save

    try:
        return save(comparison_figure(comparison), out)
    except OSError as error:
        raise OdiceError(f"{out}: cannot be written ({error.strerror}); choose another place.") from error
