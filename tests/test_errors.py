"""The sentences of errors."""

import pytest

from odice.cli.main import COMMANDS
from odice.errors import unknown_name


@pytest.mark.parametrize(("typed", "hint"), [("trian", "'trial' or 'train'?"), ("evalute", "'evaluate'?"), ("q", "")])
def test_the_nearest_names_are_suggested_all_that_are_equally_near(typed, hint):
    said = str(unknown_name("command", typed, COMMANDS))
    assert (f"Did you mean {hint} Valid" in said) if hint else ("Did you mean" not in said)
