"""Training compiles the same small programs over and over here."""

from tests.run.conftest import compiled_once  # noqa: F401
