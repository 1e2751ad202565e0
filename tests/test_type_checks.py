"""Shapes of arguments and results are checked in every test."""

import jax.numpy as jnp
import pytest
from jaxtyping import TypeCheckError

from jaxselect.margin.pairs import laplacian
from tests.type_checks import CALLS


@pytest.mark.parametrize("test", ["one", "another"])
def test_a_wrong_shape_is_an_error_in_one_test_and_in_another(test):
    with pytest.raises(TypeCheckError, match="laplacian"):
        laplacian(jnp.ones(3))
    for _ in range(CALLS):
        laplacian(jnp.ones((3, 3)))
