"""Strict settings for every test: float64, no silent promotion, threads that behave."""

import os

# Before anything imports NumPy: OpenBLAS reads it once.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import hypothesis
import jax
import matplotlib

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_debug_key_reuse", True)
matplotlib.use("Agg")

# Compiling is slow and bursty: a deadline per example would only measure that.
hypothesis.settings.register_profile(
    "jaxselect", deadline=None, max_examples=25, derandomize=True, database=None
)
hypothesis.settings.load_profile("jaxselect")
