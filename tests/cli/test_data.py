"""`odice data`: the summary, the findings, JSON, HTML, exit codes, and one sentence for bad input."""

import json
import re

import numpy as np
import polars as pl
import pytest

from odice.cli.main import main

pytestmark = pytest.mark.fast


@pytest.fixture
def log(tmp_path):
    """Twenty episodes of 10 to 30 steps of a decaying oscillation, as a CSV without findings."""
    rng = np.random.default_rng(0)
    parts = []
    for e in range(20):
        n = int(rng.integers(10, 31))
        t = np.arange(n)
        x = np.cos(0.2 * t + e) + 0.01 * rng.normal(size=n)
        parts.append(
            pl.DataFrame(
                {
                    "flight": e,
                    "obs_height": x,
                    "obs_speed": np.sin(0.2 * t + e),
                    "action": rng.uniform(-1, 1, n),
                    "reward": rng.normal(size=n),
                    "terminated": t == n - 1,
                    "truncated": False,
                }
            )
        )
    path = tmp_path / "log.csv"
    pl.concat(parts).write_csv(path)
    return path


def run(capsys, *argv):
    code = main(["data", *map(str, argv)])
    out, err = capsys.readouterr()
    return code, out, err


def test_summary_for_people(capsys, log):
    code, out, err = run(capsys, "inspect", log, "--episode-column", "flight")
    assert (code, err) == (0, "")
    for part in ("20 (20 terminated, 0 truncated)", "2 numbers", "fingerprint", "found nothing wrong", "█"):
        assert part in out


def test_json(capsys, log):
    code, out, _ = run(
        capsys, "inspect", log, "--episode-column", "flight", "--json", "--action-low", "-1", "--action-high", "1"
    )
    report = json.loads(out)
    assert code == 0
    assert report["findings"] == []
    assert report["summary"]["episodes"] == 20
    assert report["summary"]["actions"][0]["bounds"] == [-1, 1]
    assert [one["name"] for one in report["summary"]["observations"]] == ["obs_height", "obs_speed"]


def test_errors_make_exit_code_1(capsys, log):
    lines = log.read_text().splitlines()
    lines[5] = re.sub(r"^(\d+),[^,]*", r"\1,nan", lines[5])
    log.write_text("\n".join(lines))
    assert run(capsys, "inspect", "--data", log)[:2] == run(capsys, "inspect", log)[:2]  # as `odice train` says it
    code, out, _ = run(capsys, "inspect", log)
    assert code == 1
    assert "not-finite" in out
    assert "obs_height" in out
    assert run(capsys, "inspect", log, "--allow", "not-finite")[0] == 0
    assert run(capsys, "inspect", log, "--allow", "all")[0] == 0
    code, _, err = run(capsys, "inspect", log, "--allow", "not-finit")
    assert code == 2
    assert "Did you mean 'not-finite'" in err


def test_html_is_one_safe_page(capsys, log, tmp_path):
    hostile = tmp_path / "<img src=x onerror=alert(1)>.csv"
    hostile.write_text(log.read_text().replace("obs_speed", "obs_<b>speed</b>"))
    page = tmp_path / "out" / "page.html"
    code, _, _ = run(capsys, "inspect", hostile, "--html", page)
    assert code == 0
    text = page.read_text()
    assert text.startswith("<!doctype html>")
    assert text.count("<svg") == 2
    assert "<img" not in text
    assert "<b>speed" not in text
    assert "&lt;b&gt;speed" in text
    assert "<script" not in text
    assert not re.search(r"(src|href)=", text.replace("src=x", ""))
    assert "http" not in text.replace("http-equiv", "")
    assert [p.name for p in page.parent.iterdir()] == ["page.html"]


def test_schema_flags_and_file(capsys, log, tmp_path):
    schema = tmp_path / "schema.toml"
    schema.write_text('episode = "flight"\nobservation = ["obs_speed"]\naction_low = -1\naction_high = 1\n')
    code, out, _ = run(capsys, "inspect", log, "--schema", schema, "--json")
    summary = json.loads(out)["summary"]
    assert (code, summary["obs_dim"], summary["actions"][0]["bounds"]) == (0, 1, [-1, 1])
    columns = ["--observation-columns", "obs_height,obs_speed"]
    _, out, _ = run(capsys, "inspect", log, "--schema", schema, *columns, "--json")
    assert json.loads(out)["summary"]["obs_dim"] == 2


def test_unfinished_episodes_are_said_once_on_stderr(capsys, log):
    log.write_text("\n".join(log.read_text().splitlines()[:-3]))
    code, out, err = run(capsys, "inspect", log)
    assert code == 0
    assert err.startswith("odice: warning:")
    assert err.count("\n") == 1
    assert "unfinished" in out


@pytest.mark.parametrize(
    ("argv", "part"),
    [
        (["inspect", "no-such-file.csv"], "no such file"),
        (["inspect", "{log}", "--reward-column", "rewrad"], "did you mean 'reward'"),
        (["inspect", "{log}", "--schema", "none.toml"], "cannot be opened"),
        (["inspect", "{log}", "--format", "tabel"], "Did you mean 'table'"),
        (["inspect", "hopper-medium-v2", "--data-dir", "{dir}"], "hopper-medium-v2"),
        (["convert", "{log}", "--out", "{dir}/x.txt"], "cannot tell the format"),
        (["convert", "{log}", "--out", "{log}"], "exists already"),
    ],
)
def test_bad_input_is_one_sentence(capsys, log, argv, part):
    before = sorted(log.parent.iterdir())
    code, out, err = run(capsys, *(a.format(log=log, dir=log.parent) for a in argv))
    assert (code, out) == (2, "")
    assert part in err
    assert err.count("\n") == 1
    assert sorted(log.parent.iterdir()) == before


def test_html_that_cannot_be_written(capsys, log):
    code, _, err = run(capsys, "inspect", log, "--html", log / "page.html")
    assert code == 2
    assert "cannot be written" in err


@pytest.mark.parametrize("name", ["copy.parquet", "copy.hdf5"])
def test_convert_keeps_the_data(capsys, log, name):
    out = log.parent / name
    code, text, _ = run(capsys, "convert", log, "--out", out)
    assert code == 0
    _, first, _ = run(capsys, "inspect", log, "--json")
    _, second, _ = run(capsys, "inspect", out, "--json")
    prints = [json.loads(one)["summary"]["fingerprint"] for one in (first, second)]
    assert prints[0] == prints[1]
    assert prints[0] in text


def test_help(capsys):
    with pytest.raises(SystemExit) as done:
        main(["data", "inspect", "--help"])
    assert done.value.code == 0
    assert "--html" in capsys.readouterr().out
