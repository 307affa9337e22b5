"""The page in a real browser, where there is one: its script may run, tables sort, curves tell their values."""

import json
import re
import shutil
import subprocess

import pytest

import odice
from tests.reports.made import make_run

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium")]

DRIVER = """
const results = [...document.querySelectorAll('section')].find(one => one.firstChild.textContent === 'Results');
const first = head => [...results.querySelectorAll('tbody tr')].map(row => row.cells[head].textContent);
const button = name => [...results.querySelectorAll('th button')].find(one => one.textContent === name);
button('last').click(); const down = first(5); button('last').click(); const up = first(5);
const svg = document.querySelector('figure.chart svg'), box = svg.getBoundingClientRect();
svg.dispatchEvent(new PointerEvent('pointermove', {clientX: box.right - 12, clientY: box.top + 40}));
const wide = Math.max(...[...document.querySelectorAll('section')].map(one => one.scrollWidth - one.clientWidth));
document.title = JSON.stringify({down, up, tip: document.querySelector('.tip').innerText, wide,
  evil: window.evil === undefined ? null : window.evil});
"""


def dom(path, width):
    command = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={path.parent}/profile"]
    command += [f"--window-size={width},900", "--virtual-time-budget=3000", "--dump-dom", path.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


@pytest.fixture
def page(tmp_path):
    for i, level in enumerate((90.0, 10.0, 200.0)):
        make_run(tmp_path / "runs" / f"{i}", [[level], [level + 2]], algo=f"a{i}")
    evil = "<img src=x onerror=evil=1><script>evil=2</script>"
    make_run(tmp_path / "runs" / "evil", [[1.0], [2.0]], algo=evil, data="evil", source=evil)
    out = tmp_path / "report.html"
    odice.report(tmp_path / "runs", out=out)
    return out


def test_the_script_runs_under_the_pages_own_policy(page):
    assert '<div class="tip" hidden' in dom(page, 1200)


@pytest.mark.parametrize("width", [1200, 500])
def test_tables_sort_curves_tell_and_names_do_nothing(page, width):
    free = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page.read_text("utf-8"))
    driven = page.with_name("driven.html")
    driven.write_text(free.replace("</body>", f"<script>{DRIVER}</script></body>"), "utf-8")
    title = re.search("<title>(.*?)</title>", dom(driven, width), re.S)
    assert title
    seen = json.loads(title[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
    assert seen["up"] == seen["down"][::-1]
    assert seen["down"] == sorted(seen["down"], key=float, reverse=True)
    assert seen["evil"] is None
    assert seen["wide"] <= 0, "a section is wider than the page"
    assert "updates 2,000" in seen["tip"]


def test_paper_has_charts_side_by_side_and_no_lonely_heads(tmp_path):
    """Four charts fit on one sheet; one to a sheet, as they were, would make at least six."""
    for i in range(4):
        for seed in range(2):
            make_run(tmp_path / "runs" / f"{i}{seed}", [[90.0], [92.0 + seed]], seed=seed, data=f"log-{i}")
    out = tmp_path / "report.html"
    odice.report(tmp_path / "runs", out=out)
    command = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile"]
    command += ["--no-pdf-header-footer", f"--print-to-pdf={tmp_path}/report.pdf", out.as_uri()]
    subprocess.run(command, capture_output=True, timeout=120, check=True)
    sheets = len(re.findall(rb"/Type */Page\b", (tmp_path / "report.pdf").read_bytes()))
    assert 1 <= sheets <= 4
