"""Shapes of arguments and results are checked in every test."""

import numpy as np
import pytest
from jaxtyping import TypeCheckError

from jaxselect.model.parameters import span_axes
from tests.type_checks import CALLS


@pytest.mark.parametrize("test", ["one", "another"])
def test_a_wrong_shape_is_an_error_in_one_test_and_in_another(test):
    with pytest.raises(TypeCheckError, match="span_axes"):
        span_axes(np.ones(3))
    for _ in range(CALLS):
        span_axes(np.ones((2, 3)))
