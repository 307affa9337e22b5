"""Strict by default: a silent broadcast is the classic bug of this field, so rank promotion is an error here.

Shapes are checked too: what `odice.core` and `odice.algos` promise in annotations is tested at every call.
"""

import ctypes
import gc
import os
import signal
import sys
from pathlib import Path

import pytest

from odice.training.compilation import open_folder

# Must be set before jax starts: several test workers, one thread each.
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Most of the time of a first test run is compilation: what was compiled is kept, for all workers, processes and runs.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ and (folder := open_folder()):
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
# Programs of tests run for a second at most: to optimize them takes longer than it saves.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

# A shell's background job ignores Ctrl-C, and a run respects that; the tests of Ctrl-C must not.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

import jax
import jaxtyping
from hypothesis import HealthCheck, settings

import tests.checked  # so that the hook finds it
from odice.training import credit

jax.config.update("jax_numpy_rank_promotion", "raise")
jaxtyping.install_import_hook(["odice.core", "odice.algos"], f"{tests.checked.__name__}.checked")

settings.register_profile("odice", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("odice")

TESTS = Path(__file__).parent

PACKAGES_THAT_TRAIN = {
    "algos",
    "cli",
    "collection",
    "decision",
    "evaluation",
    "experiments",
    "sweeps",
    "training",
    "worlds",
}
"""Folders of tests that compile programs or start processes: slow unless marked fast."""


def pytest_ignore_collect(collection_path, config):
    """Without the slow tests, do not import files that have no others: each worker would."""
    if "not slow" not in config.option.markexpr or not collection_path.name.startswith("test_"):
        return None
    folder = collection_path.relative_to(TESTS).parts[0] if collection_path.is_relative_to(TESTS) else ""
    return (folder in PACKAGES_THAT_TRAIN and "mark.fast" not in collection_path.read_text()) or None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        folder = item.path.relative_to(TESTS).parts[0]
        if folder in PACKAGES_THAT_TRAIN and not item.get_closest_marker("fast"):
            item.add_marker("slow")
    # The longest files first: a worker that takes one up at the end works alone.
    items.sort(key=lambda item: not item.path.name.startswith("test_docs"))


def pytest_collection_finish():
    """Look for garbage less often, and not in what is there for good: tracing makes many objects that live long."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 50)


@pytest.fixture(scope="module")
def full_optimization():
    """Compile as users do, for tests of bits that an optimization may change: a fused gather, a fused product."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", False)
    jax.clear_caches()
    yield
    jax.config.update("jax_disable_most_optimizations", before)
    jax.clear_caches()


FULL_CREDIT, credit.UPDATES = credit.UPDATES, 160
"""`auto` learns the credit of a log before each run: a tenth of its updates will do where a test is not about it."""


@pytest.fixture(scope="module")
def full_credit():
    """Learn credit as users do."""
    short, credit.UPDATES = credit.UPDATES, FULL_CREDIT
    yield
    credit.UPDATES = short


MAX_MEMORY, STEP = 1_200_000_000, 300_000_000
"""Bytes of a test process at which it drops its compiled programs (they stay in the cache on disk), and how many more
it may then have until it does so again: not all memory comes back."""


def resident() -> int:
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if statm.exists() else 0


@pytest.fixture(scope="session")
def memory():
    return {"most": MAX_MEMORY}


@pytest.fixture(autouse=True)
def bounded_memory(memory):
    """Drop compiled programs when there are many: each test compiles its own, and jax keeps them all."""
    yield
    if resident() > memory["most"]:
        jax.clear_caches()
        gc.collect()
        if sys.platform == "linux":
            ctypes.CDLL(None).malloc_trim(0)  # glibc keeps freed memory otherwise
        memory["most"] = max(MAX_MEMORY, resident() + STEP)
