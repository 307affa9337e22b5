"""odice: from a fixed log of decisions to a policy, and how far to trust it.

The public API, imported lazily so that `import odice` and `odice --help` do not wait for jax.
"""

from importlib import import_module

__version__ = "0.1.0"

# public name -> module that defines it
_PUBLIC = {
    "algorithms": "odice.algos",
    "make": "odice.algos",
    "preset": "odice.presets",
    "load": "odice.data.load",
    "collect": "odice.collection.recipes",
    "train": "odice.run.train",
    "imitate": "odice.run.imitate",
    "Policy": "odice.policy.policy",
    "evaluate": "odice.evaluation.evaluate",
    "OdiceError": "odice.errors",
}

__all__ = ["__version__", *_PUBLIC]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str):
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'odice' has no attribute {name!r}")


def __dir__():
    return sorted(__all__)
