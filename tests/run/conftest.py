"""Compiled programs are kept for the session."""

import jax
import pytest


@pytest.fixture(autouse=True, scope="session")
def compiled_once(tmp_path_factory):
    """The same small programs are compiled over and over here, also in other processes: keep them."""
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


@pytest.fixture(autouse=True, scope="module")  # a session's would reach the tests of other folders
def small_pieces():
    """Two or more pieces in a row of metrics, so that what happens between pieces happens inside rows too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("odice.run.settings.PIECE_STEPS", 10)
        yield
