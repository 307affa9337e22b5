"""The type checker that `conftest.py` hooks into the imports."""

from beartype import beartype


def checked(function):
    """beartype, but not for configs: those are a user's input and answer in words of their own."""
    return function if function.__qualname__.endswith("Config.__init__") else beartype(function)
