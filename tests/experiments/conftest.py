"""Programs configure JAX for their process: here they share one."""

import jax
import pytest


@pytest.fixture(autouse=True)
def unconfigured():
    """JAX's settings as they were before, whatever a study wanted."""
    names = ("jax_enable_x64", "jax_default_matmul_precision")
    before = {name: jax.config.values[name] for name in names}
    yield
    for name, value in before.items():
        jax.config.update(name, value)
