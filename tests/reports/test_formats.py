"""A report as a page, as text and as figures: what is in it, and that names from files are only text."""

import csv
import io
import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest

import odice
from odice.cli.main import main
from odice.errors import OdiceError
from odice.reports import tables
from odice.reports.charts import Series, line_chart, ticks
from odice.reports.curves import comparison_figure
from odice.reports.figures import columns_for
from odice.reports.pages import run_page
from tests.reports.made import make_run

EVIL = '"><script>alert(1)</script>|`*&_{}$%\\=\x1b[31m'


@pytest.fixture
def runs(tmp_path):
    """Two data sets, two methods, three seeds; one run is not finished."""
    for data, base in (("maze", 100.0), ("hopper", 60.0)):
        for algo, gain in (("odice", 1.5), ("bc", 1.0)):
            for seed in range(3):
                level = base * gain + seed
                make_run(
                    tmp_path / "runs" / data / algo / f"{seed}",
                    [[level], [level + 2]],
                    data=data,
                    algo=algo,
                    seed=seed,
                    finished=(data, algo, seed) != ("maze", "bc", 2),
                    health={"verdict": "learned"},
                )
    return tmp_path / "runs"


@pytest.fixture
def comparison(runs):
    return odice.report(runs)


class Page(HTMLParser):
    """Checks that every element is closed, and collects them."""

    VOID = ("meta", "line", "circle", "polygon", "polyline", "br")

    def __init__(self, page):
        super().__init__()
        self.open, self.seen, self.words = [], [], []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    def count(self, tag):
        return sum(name == tag for name, _ in self.seen)


def test_the_page_is_whole_and_fetches_nothing(comparison):
    page = run_page(comparison)
    parsed = Page(page)
    assert not re.search(r"https?://|src=|href=|url\(|@import", page)
    assert parsed.count("svg") == 3  # two data sets, and the profiles
    assert parsed.count("table") == 5
    assert parsed.count("script") == 1
    assert parsed.count("polygon") == 6  # a band for each method in each figure
    words = " ".join(parsed.words)
    for each in ("Overview", "Results", "Learning curves", "Over all data", "Probability of improvement", "Runs"):
        assert each in words
    assert "unfinished: 2,000 of 2,000 updates" in words
    assert "2 + 1 unfinished" in words
    assert "3 learned" in words


def test_every_number_of_a_table_sorts_as_a_number(comparison):
    cells = re.findall(r'<td[^>]*data-sort="([^"]*)"[^>]*>([^<]*)', run_page(comparison))
    assert len(cells) > 50
    for sort, shown in cells:
        first = re.match(r"\[?(-?[\d,]+\.?\d*)", shown)
        assert first, shown
        assert float(sort) == pytest.approx(float(first[1].replace(",", "")), abs=0.06)


def test_names_from_files_are_text_everywhere(tmp_path):
    make_run(tmp_path / "a", [[1.0], [2.0]], algo=EVIL, source=EVIL, data="x", lam=EVIL, health={"verdict": EVIL})
    make_run(tmp_path / "b", [[1.0], [2.0]], algo=EVIL, source=EVIL, data="x", lam=1)
    result = odice.report(tmp_path)
    page = run_page(result)
    parsed = Page(page)
    assert parsed.count("script") == 1
    assert "<script>alert" not in page
    assert not [attrs for _, attrs in parsed.seen if any(name.startswith("on") for name in attrs)]
    for made in (page, tables.markdown(result), tables.latex(result), tables.comma_separated(result)):
        assert "\x1b" not in made
    assert "<script>" not in tables.markdown(result)
    lines = tables.markdown(result).splitlines()
    bars = {len(re.findall(r"(?<!\\)\|", line)) for line in lines if line.startswith("|")}
    assert len(bars) <= 3, "a name added a column"
    assert not re.search(r"(?<!\\)[%$#&_](?!\\)", re.sub(r" & |\$\\pm\$|^%.*$", "", tables.latex(result), flags=re.M))


def test_a_spreadsheet_computes_nothing(tmp_path):
    make_run(tmp_path / "a", algo="=1+1", source="@SUM(A1)")
    row = list(csv.reader(io.StringIO(tables.comma_separated(odice.report(tmp_path)))))[1]
    assert row[:2] == ["'@SUM(A1)", "'=1+1"]


def test_csv_has_every_digit(comparison):
    rows = list(csv.DictReader(io.StringIO(tables.comma_separated(comparison))))
    assert len(rows) == 4
    row = next(row for row in rows if (row["data"], row["method"]) == ("maze", "odice"))
    assert float(row["mean"]) == pytest.approx(76.0)  # returns 151, 152, 153 of 200
    assert float(row["std"]) == pytest.approx(0.5)
    assert (row["unit"], row["seeds"], row["unfinished"], row["final_evaluations"]) == ("score", "3", "0", "2")


def test_markdown_and_latex_mark_the_best(comparison):
    text, tex = tables.markdown(comparison), tables.latex(comparison)
    assert "| maze | 50.8 ± 0.4 | **76.0 ± 0.5** |" in text
    assert r"maze & 50.8 $\pm$ 0.4 & \textbf{76.0 $\pm$ 0.5} \\" in tex
    assert tex.count(r"\begin{table}") == tex.count(r"\end{table}") == 4
    assert "here at least 2 evaluations" in text


def test_returns_are_labelled(tmp_path):
    make_run(tmp_path / "a", [[0.5]], reference=None)
    text = tables.markdown(odice.report(tmp_path))
    assert "return ± std" in text
    assert "returns, not normalized" in text
    assert "| 0.500 |" in text


def test_the_figure_has_a_panel_for_each_data_set_and_the_profiles(comparison):
    figure = comparison_figure(comparison)
    shown = [axes.get_title("left") for axes in figure.axes if axes.get_visible()]
    assert shown == ["hopper", "maze", "Performance profiles"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["bc", "odice"]
    line = figure.axes[1].get_lines()[1]
    assert line.get_ydata().tolist() == pytest.approx([75.5, 76.5])


@pytest.mark.parametrize(("panels", "most", "columns"), [(2, 3, 2), (5, 3, 3), (8, 3, 2), (14, 4, 3), (16, 4, 4)])
def test_panels_leave_few_places_empty_and_many_of_them_are_no_strip(panels, most, columns):
    assert columns_for(panels, most) == columns


def test_a_legend_of_long_names_is_not_cut(tmp_path):
    """Four names of 60 letters are wider than two panels: they stand in fewer columns."""
    for data in ("hopper", "maze"):
        for i in range(5):
            setting = {"note": f"{'a long word ' * 4}{i}"}
            make_run(tmp_path / data / f"{i}", [[1.0], [2.0]], data=data, **setting)
    figure = comparison_figure(odice.report(tmp_path))
    figure.draw_without_rendering()
    frame, legend = figure.bbox, figure.legends[0].get_window_extent()
    assert frame.x0 <= legend.x0 < legend.x1 <= frame.x1


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0, 100, [0, 20, 40, 60, 80, 100]), (3, 3, [2.4, 2.6, 2.8, 3.0, 3.2, 3.4, 3.6]), (-7, 41, [-10, 0, 10, 20, 30, 40, 50])],
)  # fmt: skip
def test_ticks_are_round_and_cover_the_values(low, high, expected):
    assert ticks(low, high) == pytest.approx(expected)


def test_a_chart_of_one_point_is_a_dot_and_of_none_is_nothing():
    assert "<circle" in line_chart([Series("a", 0, [5], [1.0], [1.0], [1.0])], title="t", x_label="x", y_label="y")
    assert line_chart([], title="t", x_label="x", y_label="y") == ""


def test_the_command_prints_and_writes(runs, tmp_path, capsys):
    out = [tmp_path / f"out/report{suffix}" for suffix in (".html", ".md", ".tex", ".csv", ".png", ".pdf")]
    assert main(["report", str(runs), "--out", *map(str, out)]) == 0
    printed = capsys.readouterr().out
    assert "76.0 ± 0.5" in printed
    assert "maze, bc, seed 2: unfinished: 2,000 of 2,000 updates" in printed
    starts = [path.read_bytes()[:9] for path in out]
    assert starts[0] == b"<!doctype"
    assert starts[4].startswith(b"\x89PNG")
    assert starts[5].startswith(b"%PDF")
    assert main(["report", str(runs), "--format", "csv"]) == 0
    assert capsys.readouterr().out == out[3].read_text("utf-8")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "holds no run"),
        (["nowhere", "--out", "report.docx"], ".html, .md, .tex, .csv"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_2(arguments, said, capsys):
    assert main(["report", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert said in captured.err
    assert len(captured.err.strip().splitlines()) == 1


def test_a_figure_needs_evaluations_and_a_place(runs, tmp_path):
    make_run(tmp_path / "none", [])
    with pytest.raises(OdiceError, match="no evaluation in these runs"):
        odice.report(tmp_path / "none", out=tmp_path / "a.png")
    (tmp_path / "file").write_text("")
    with pytest.raises(OdiceError, match="cannot be written"):
        odice.report(runs, out=tmp_path / "file" / "a.png")


@pytest.mark.slow
def test_seeds_end_with_a_table(tmp_path):
    script = f"""
import numpy as np
from odice.cli.main import main
from tests.training.line import line_log
np.savez({str(tmp_path / "log.npz")!r}, **line_log())
raise SystemExit(main(["train", "--data", {str(tmp_path / "log.npz")!r}, "--algo", "bc", "--steps", "20", "--seeds", "2",
    "--out", {str(tmp_path / "runs")!r}, "--policy-hidden", "16", "--batch-size", "16"]))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "not judged yet" in done.stdout
    assert "Results" in done.stdout
