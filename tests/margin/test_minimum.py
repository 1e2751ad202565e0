"""What numbers at one point prove of a strict minimum near it.

Source: mathematics, sections 3e and 7b.
"""

import numpy as np
import pytest

from jaxselect.margin.minimum import inverse_root, rest_at


@pytest.mark.parametrize("stiffness", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("number", [1e-9, 0.1, 0.499, 0.501, 2.0])
def test_the_theorem_is_sharp(number, stiffness):
    """L′ = ½ B x² − μ x + ν √μ vanishes at μ (1 − √(1 − 2h))/B, if h < ½ at all."""
    change = 3.0
    decrement = number * stiffness**1.5 / change
    root = inverse_root(np.array([[stiffness]]))
    form = np.array([[change]]), 1e9
    found = rest_at(np.zeros(1), root, decrement, form)
    assert found.kantorovich == pytest.approx(number)
    assert found.proved == (number < 0.5)
    if number < 0.5:
        minimum = stiffness * (1 - np.sqrt(1 - 2 * number)) / change
        assert minimum <= found.radius <= 2 * minimum


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
