"""Orbits of the two-class equations: SciPy in time, closed forms, slow growth.

Source: mathematics, sections 6, 6a and 6b.
"""

import jax
import numpy as np
import pytest

from experiments.theory import two_classes as module
from experiments.theory.two_classes import (
    Ensemble,
    amplification,
    critical_alignment,
    two_class_ode,
)
from tests.theory import independent
from tests.theory.independent import Sizes

BASE = Ensemble(200.0, 8.0, 8.0, 48.0)
orbit_of = jax.jit(two_class_ode)

# Returns at log t = 5 … 500, asymmetries that never grow, and q = ½ at the start.
ORBITS = [
    (Sizes(200, 8, 8, 48), 7.0, 1e-3),
    (Sizes(200, 8, 8, 48), 3.9, 1e-3),
    (Sizes(200, 8, 8, 48), 1.8, 1e-3),
    (Sizes(240, 16, 6, 60), 3.7, 1e-9),
    (Sizes(96, 12, 24, 24), 2.0, 1e-2),
    (Sizes(100, 40, 20, 60), 2.5, 1e-5),
    (Sizes(100, 40, 20, 60), 30.0, 1e-3),
    (Sizes(200, 8, 8, 48), 10.0, 1e-1),
    (Sizes(200, 2, 8, 48), 1.0, 1e-2),
]


@pytest.mark.parametrize(("sizes", "gamma", "delta"), ORBITS)
def test_an_orbit_is_the_flow_of_both_scores(sizes, gamma, delta):
    """However late the return; SciPy has time, and no orbit's one equation."""
    wanted = independent.integrate(sizes, gamma, delta)
    here = orbit_of(Ensemble(*sizes), gamma, delta)
    np.testing.assert_allclose(here.log_time, wanted.log_time, rtol=2e-5)
    # Second order in steps of 1/32, and logarithms themselves: the worst, of both,
    # is where ν = 2·10⁴ bends the orbit most sharply.
    np.testing.assert_allclose(here.log_unpaired, wanted.log_unpaired, 1e-4, 1e-3)
    np.testing.assert_allclose(here.ratio, wanted.ratio, 2e-3)


def test_small_asymmetries_grow_as_predicted():
    """To first order by e^A, and the less, the nearer γ is to γ_c."""
    delta = 1e-12
    for gamma in (1.0, 2.0):
        grown = np.log(orbit_of(BASE, gamma, delta).ratio / (2 * delta))
        # Weights part by (1 − q) times the scores' difference, before and at q*.
        gain = amplification(BASE, gamma)
        assert gain - 2 < grown < gain
    edge = critical_alignment(BASE)
    assert amplification(BASE, 1.001 * edge) == 0 < amplification(BASE, 0.99 * edge)
    # With two tokens the important one starts at q = ½, where the pull is largest.
    assert critical_alignment(BASE._replace(length=2.0)) == 0


def test_an_asymmetry_below_rounding_grows_all_the_same():
    """log δ grows by A: from e^{−A/2} the classes part wholly, from e^{−A−5} never."""
    gamma = 4.0
    shape = Ensemble(240.0, 16.0, 6.0, 60.0)
    gain = float(amplification(shape, gamma))
    assert np.exp(-0.5 * gain) < 1e-17
    assert orbit_of(shape, gamma, np.exp(-0.5 * gain)).ratio > 5
    assert orbit_of(shape, gamma, np.exp(-gain - 5)).ratio < 0.1


def test_an_orbit_that_is_not_back_is_not_known(monkeypatch):
    monkeypatch.setattr(module, "STEPS", 40)
    # A function of this test alone, which no other has traced with more steps.
    fresh = jax.jit(lambda *start: two_class_ode.__wrapped__(*start))
    found = fresh(BASE, 3.9, 1e-3)
    assert all(np.isnan(value) for value in found)
