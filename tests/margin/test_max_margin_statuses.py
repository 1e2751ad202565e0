"""The status of a max-margin problem as a function of three numbers."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxselect.margin._thresholds import REFUTED, SOLVED
from jaxselect.margin.max_margin import MaxMarginStatus, _status

EPS = {dtype: np.finfo(dtype).eps for dtype in (np.float64, np.float32)}
ABOVE, BELOW = 1.0 + 1e-3, 1.0 - 1e-3


@pytest.mark.parametrize("dtype", EPS)
@pytest.mark.parametrize(
    ("gap", "infeasibility", "balance", "wanted"),
    [
        (0.0, 0.0, np.inf, "SOLVED"),
        (BELOW * SOLVED, BELOW * SOLVED, np.inf, "SOLVED"),
        (ABOVE * SOLVED, 0.0, np.inf, "NOT_CONVERGED"),
        (0.0, ABOVE * SOLVED, np.inf, "NOT_CONVERGED"),
        (np.nan, 0.0, np.inf, "NOT_CONVERGED"),
        (0.0, np.nan, np.inf, "NOT_CONVERGED"),
        (np.inf, np.inf, 0.0, "INFEASIBLE"),
        (np.inf, np.inf, BELOW * REFUTED, "INFEASIBLE"),
        (np.inf, np.inf, ABOVE * REFUTED, "NOT_CONVERGED"),
        (np.inf, np.inf, np.nan, "NOT_CONVERGED"),
        (np.inf, np.inf, np.inf, "NOT_CONVERGED"),
    ],
)
def test_a_status_on_both_sides_of_its_thresholds(
    gap, infeasibility, balance, wanted, dtype
):
    """The numbers are in roundings of the precision."""
    numbers = [dtype(x * EPS[dtype]) for x in (gap, infeasibility, balance)]
    numbers = [jnp.asarray(x) for x in numbers]
    yes, no = jnp.asarray(True), jnp.asarray(False)
    assert _status(*numbers, yes) == MaxMarginStatus[wanted]
    assert _status(*numbers, no) == MaxMarginStatus.NO_PAIRS


@pytest.mark.parametrize("place", [0, 1])
def test_ten_digits_are_not_a_solution(place):
    """Neither a gap nor an infeasibility of 1e-10 passes in double precision."""
    numbers = [jnp.asarray(0.0), jnp.asarray(0.0), jnp.asarray(jnp.inf)]
    numbers[place] = jnp.asarray(1e-10)
    assert _status(*numbers, jnp.asarray(True)) == MaxMarginStatus.NOT_CONVERGED
