"""Pages and figures are files that are complete or not there."""

import os
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from odice.errors import OdiceError
from odice.reports import html
from odice.reports.curves import learning_curve
from odice.reports.figures import save


@pytest.mark.parametrize(("name", "start"), [("a.png", b"\x89PNG"), ("a.svg", b"<?xml"), ("a.pdf", b"%PDF")])
def test_the_suffix_says_how_a_figure_is_written(name, start, tmp_path):
    path = tmp_path / "new" / name
    assert save(Figure(), path) == path
    assert path.read_bytes().startswith(start)
    assert os.listdir(path.parent) == [name]


def test_a_figure_that_fails_leaves_the_old_one(tmp_path, monkeypatch):
    path = save(Figure(), tmp_path / "a.png")
    before = path.read_bytes()

    def fail(self, target, **options):
        Path(target).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Figure, "savefig", fail)
    with pytest.raises(OSError, match="No space left"):
        save(Figure(), path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["a.png"]


def test_a_page_is_written_or_refused_in_a_sentence(tmp_path):
    page = html.page("page.html", title="Größe <1>", lead="a & b")
    path = html.write(tmp_path / "new" / "page.html", page)
    assert path.read_text("utf-8") == page
    assert "<h1>Größe &lt;1&gt;</h1>" in page
    assert "a &amp; b" in page
    assert os.listdir(path.parent) == ["page.html"]
    with pytest.raises(OdiceError, match=r"page.html/x.html: cannot be written \(Not a directory|File exists"):
        html.write(path / "x.html", page)


def test_a_learning_curve_has_one_entry_for_all_episodes():
    rows = [{"step": step, "returns": [1.0, 3.0], "mean": 2.0} for step in (10, 20, 30)]
    figure = learning_curve(rows, title="t", levels={"data": 1.5})
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["one episode", "mean of the policy"]
    assert [len(dots.get_offsets()) for dots in figure.axes[0].collections] == [2, 2, 2]
