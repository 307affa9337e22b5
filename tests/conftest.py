"""Strict by default: a silent broadcast is the classic bug of this field, so rank promotion is an error here.

Shapes are checked too: what `odice.core` and `odice.algos` promise in annotations is tested at every call.
"""

import os
import signal

from odice.training.compilation import open_folder

# Must be set before jax starts: two test workers on two cores, one thread each.
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Most of the time of a first test run is compilation: what was compiled is kept, for all workers, processes and runs.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ and (folder := open_folder()):
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

# A shell's background job ignores Ctrl-C, and a run respects that; the tests of Ctrl-C must not.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

import jax
import jaxtyping
from hypothesis import HealthCheck, settings

import tests.checked  # so that the hook finds it

jax.config.update("jax_numpy_rank_promotion", "raise")
jaxtyping.install_import_hook(["odice.core", "odice.algos"], f"{tests.checked.__name__}.checked")

settings.register_profile("odice", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("odice")
