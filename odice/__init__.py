"""odice: from a fixed log of decisions to a policy, and how far to trust it.

The public API, imported lazily so that `import odice` and `odice --help` do not wait for jax.
"""

from importlib import import_module

__version__ = "0.2.0"

# public name -> module that defines it
_PUBLIC = {
    "Algo": "odice.types",
    "Batch": "odice.types",
    "Dataset": "odice.data.dataset",
    "Divergence": "odice.core.divergences",
    "Evaluation": "odice.evaluation.simulator.evaluate",
    "OdiceError": "odice.errors",
    "Policy": "odice.policy.policy",
    "Run": "odice.training.run",
    "Spec": "odice.types",
    "algorithms": "odice.algos.registry",
    "batches": "odice.training.loop",
    "collect": "odice.collection.recipes",
    "decide": "odice.decision.decide",
    "divergence": "odice.core.divergences",
    "estimate": "odice.evaluation.ope.estimate",
    "evaluate": "odice.evaluation.simulator.evaluate",
    "imitate": "odice.training.imitate",
    "load": "odice.data.load",
    "make": "odice.algos.registry",
    "preset": "odice.presets",
    "register": "odice.algos.registry",
    "register_divergence": "odice.core.divergences",
    "register_reader": "odice.data.load",
    "register_reward_map": "odice.data.preprocess",
    "report": "odice.reports.report",
    "train": "odice.training.train",
    "trial": "odice.evaluation.trial",
}

__all__ = ["__version__", *_PUBLIC]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str):
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'odice' has no attribute {name!r}")


def __dir__():
    return sorted(__all__)
