"""What the tests of runs share."""

import pytest


@pytest.fixture(autouse=True, scope="module")  # a session's would reach the tests of other folders
def small_pieces():
    """Two or more pieces in a row of metrics, so that what happens between pieces happens inside rows too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("odice.training.settings.CHUNK_STEPS", 10)
        yield
