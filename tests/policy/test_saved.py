"""Policies that were saved with an earlier format still load, and act as they did (docs/reference/formats.md).

The folders in `saved` are never made again: a new version of the format gets new ones beside them.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from odice import Policy
from odice.errors import OdiceError
from odice.files import sealed
from odice.policy.file import READS, VERSION

SAVED = Path(__file__).with_name("saved")
EXPECTED = json.loads((SAVED / "expected.json").read_text())


def test_every_version_that_is_read_has_a_policy_here():
    assert VERSION in READS
    assert {folder.name.rpartition("-")[2] for folder in SAVED.iterdir() if folder.is_dir()} == set(map(str, READS))


NETWORKS = (2,)
"""Versions that one network was written with."""


@pytest.mark.parametrize("version", NETWORKS)
def test_a_policy_for_a_table_acts_as_it_did(version):
    policy = Policy.load(SAVED / f"choices-version-{version}")
    assert [policy.choices[int(policy(row))] for row in EXPECTED["rows"]] == EXPECTED["choices"]
    novelty = [float(policy.guarded(row).score) for row in EXPECTED["rows"]]
    np.testing.assert_allclose(novelty, EXPECTED["novelty"], atol=1e-4)


@pytest.mark.parametrize("version", NETWORKS)
def test_a_policy_for_numbers_acts_as_it_did(version):
    policy = Policy.load(SAVED / f"numbers-version-{version}")
    np.testing.assert_allclose(policy(EXPECTED["observations"]), EXPECTED["actions"], atol=1e-5)
    assert (policy.about["algorithm"], policy.about["step"], policy.guard) == ("odice", 7, None)


def test_a_policy_that_samples_acts_as_it_did():
    policy = Policy.load(SAVED / "sampler-version-3")
    np.testing.assert_allclose(policy(EXPECTED["observations"]), EXPECTED["sampled"], atol=1e-4)
    assert (policy.about["algorithm"], policy.about["step"]) == ("diffusion-dice", 7)


def test_a_policy_of_a_newer_odice_is_refused(tmp_path):
    folder = tmp_path / "policy"
    folder.mkdir()
    old = SAVED / f"sampler-version-{VERSION}"
    content = json.loads((old / "policy.json").read_text())
    content = {key: value for key, value in content.items() if key != "sha256"} | {"version": VERSION + 1}
    (folder / "policy.json").write_text(json.dumps(sealed(content)))
    (folder / "policy.safetensors").write_bytes((old / "policy.safetensors").read_bytes())
    with pytest.raises(OdiceError, match=f"format version {VERSION + 1}, this odice reads .*a newer odice wrote it"):
        Policy.load(folder)
