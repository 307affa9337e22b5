"""Strict by default: a silent broadcast is the classic bug of this field, so rank promotion is an error here."""

import os

# Must be set before jax starts: two test workers on two cores, one thread each.
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import jax
import pytest
from hypothesis import HealthCheck, settings

jax.config.update("jax_numpy_rank_promotion", "raise")

settings.register_profile("odice", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("odice")


@pytest.fixture(autouse=True, scope="session")
def compiled_once(tmp_path_factory):
    """The same small programs are compiled over and over, also in other processes: keep them."""
    folder = str(tmp_path_factory.mktemp("xla"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_COMPILATION_CACHE_DIR", folder)
        patch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
        before = jax.config.jax_compilation_cache_dir, jax.config.jax_persistent_cache_min_compile_time_secs
        jax.config.update("jax_compilation_cache_dir", folder)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        yield
        jax.config.update("jax_compilation_cache_dir", before[0])
        jax.config.update("jax_persistent_cache_min_compile_time_secs", before[1])
