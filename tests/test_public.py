"""What a person meets first: the import, the help, the listing, the errors."""

import subprocess
import sys
from pathlib import Path

import pytest

import odice
from odice.cli.main import COMMANDS, main, usage
from odice.errors import OdiceError
from odice.types import Spec


def test_import_does_not_load_jax():
    code = (
        "import sys, odice, odice.cli.main; sys.exit(any(m in sys.modules for m in ('jax', 'numpy', 'tyro', 'rich')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_public_name_exists():
    for name in odice.__all__:
        assert getattr(odice, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        odice.trian  # noqa: B018


def test_algorithms_lists_the_registry():
    entries = odice.algorithms()
    assert {"odice", "sdice", "vdice-true"} <= set(entries)
    assert all(entry.summary for entry in entries.values())


@pytest.mark.parametrize("argv", [[], ["--help"], ["-h"]])
def test_help_names_every_command(argv, capsys):
    assert main(argv) == 0
    out = capsys.readouterr().out
    assert all(command in out for command in COMMANDS)


def test_version(capsys):
    assert main(["--version"]) == 0
    assert odice.__version__ in capsys.readouterr().out


def test_a_reader_that_goes_away_is_no_error():
    command = f"{sys.executable} -m odice.cli.main --help | true"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_unknown_command_is_one_sentence_and_exit_2(capsys):
    assert main(["teory"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Did you mean 'theory'" in captured.err
    assert len(captured.err.strip().splitlines()) == 1


def test_list_shows_what_there_is(capsys):
    assert main(["list"]) == 0
    out = capsys.readouterr().out
    assert all(word in out for word in ("odice", "reference", "pearson", "orthogonal"))


def test_unknown_names_list_the_valid_ones():
    spec = Spec(3, 2)
    with pytest.raises(OdiceError, match=r"Unknown algorithm 'oddice'. Did you mean 'odice'\? Valid: .*sdice"):
        odice.make("oddice", spec)
    with pytest.raises(OdiceError, match=r"Unknown preset 'papr'. Did you mean 'paper'"):
        odice.preset("papr", "odice")
    with pytest.raises(OdiceError, match=r"setting of odice 'lamda'. Did you mean 'lam'"):
        odice.make("odice", spec, lamda=0.5)


BUILDING = """
COLUMNS MLP Algo Batch CategoricalPolicy Check Critic Critics Deterministic Divergence DivergenceLike Draws Ensemble
Extraction GaussianPolicy Init Learned Learner LossPair Metrics NextState Policy Rule RuleGradient Spec SquashedPolicy
TanhPolicy Transitions adam advantage_weight classification_loss divergence draw effective_sample_size expectile
from_formulas grad_norm huber interpolate log_odds min_over_heads next_state orthogonal policy_network polyak positive
require residual residual_extraction residual_weight rule rule_gradient semi tempered true validate value_gradient
value_network weighted_cloning
"""


def test_what_algorithms_are_built_from_keeps_its_names():
    """A name may be added. Taking one away breaks algorithms in other packages."""
    from odice import building

    names = set(BUILDING.split())
    assert names == set(building.__all__)
    assert all(hasattr(building, name) for name in names)
    page = (Path(__file__).parents[1] / "docs" / "reference" / "building.md").read_text("utf-8")
    assert [name for name in names if f"`{name}`" not in page and name != "Policy"] == []


def test_help_fits_a_terminal():
    assert max(map(len, usage().splitlines())) <= 80
