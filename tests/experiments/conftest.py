"""Programs configure JAX for their process: here they share one."""

import jax
import numpy as np
import pytest

from experiments.common import edges


@pytest.fixture(autouse=True)
def unconfigured():
    """JAX's settings as they were before, whatever a study wanted."""
    names = ("jax_enable_x64", "jax_default_matmul_precision")
    before = {name: jax.config.values[name] for name in names}
    yield
    for name, value in before.items():
        jax.config.update(name, value)


@pytest.fixture(autouse=True)
def invented_edges(monkeypatch):
    """Selection from η₀ = 30 on and no other edge: they take seconds to compute."""

    def over(shape, dims):
        found = np.full((len(edges.NAMES), len(dims)), np.nan)
        found[0] = 30.0
        return found, np.isfinite(found)

    monkeypatch.setattr(edges, "over", over)
