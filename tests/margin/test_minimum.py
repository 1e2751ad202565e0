"""What numbers at one point prove of a strict minimum near it.

Source: mathematics, sections 3e and 7b.
"""

import numpy as np
import pytest

from jaxselect.margin.minimum import inverse_root, rest_at


@pytest.mark.parametrize("stiffness", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("number", [1e-9, 0.1, 0.124, 0.126, 0.499])
def test_the_theorem_is_sharp(number, stiffness):
    """L′ = ½ B x² − μ x + ν √μ vanishes at μ (1 − √(1 − 2h))/B, if h < ½ at all; an
    eighth is asked for."""
    change = 3.0
    decrement = number * stiffness**1.5 / change
    root = inverse_root(np.array([[stiffness]]))
    form = np.array([[change]]), 1e9
    found = rest_at(np.zeros(1), root, decrement, form)
    assert found.kantorovich == pytest.approx(number)
    assert found.proved == (number < 0.125)
    minimum = stiffness * (1 - np.sqrt(1 - 2 * number)) / change
    assert minimum <= found.radius <= 2 * minimum


@pytest.mark.parametrize(("stiffness", "ball"), [(1.0, 0.2), (100.0, 0.02)])
def test_a_proof_does_not_leave_the_ball_that_its_bound_holds_for(stiffness, ball):
    """2ν/√μ = ball."""
    root, change = inverse_root(np.array([[stiffness]])), np.array([[1e-3]])
    for part, proved in ((0.99, True), (1.01, False)):
        decrement = part * ball * np.sqrt(stiffness) / 2
        found = rest_at(np.zeros(1), root, decrement, (change, ball))
        assert found.kantorovich < 1e-3 and found.proved == proved


def test_eigenvalues_are_as_small_as_rounding_allows():
    """16 roundings of the largest one for each axis, in μ and in H^{−½}."""
    least, root = inverse_root(np.diag([1.0, 1e-12]))
    blur = 32 * np.finfo(float).eps
    assert least == 1e-12 - blur
    np.testing.assert_allclose(root.max(axis=0) ** -2, [least, 1 - blur], rtol=1e-15)


@pytest.mark.parametrize("least", [0.0, -1.0])
def test_a_point_that_is_no_minimum_has_no_basin(least):
    change = np.eye(2), 1.0
    found = rest_at(np.zeros(2), inverse_root(np.diag([1.0, least])), 1e-9, change)
    assert not found.proved and found.basin == 0
