"""Strict by default: a silent broadcast or dtype promotion is the classic bug of this field, so both are errors here."""

import os

# Must be set before jax starts: two test workers on two cores, one thread each.
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
from hypothesis import HealthCheck, settings

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")

settings.register_profile("odice", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("odice")
