"""The status of a max-margin problem as a function of four numbers."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxselect.margin.max_margin import MaxMarginStatus, _status
from jaxselect.margin.qp import REFUTED, SOLVED, Answer

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
    assert status(*numbers) == MaxMarginStatus[wanted]
    assert status(*numbers, some=False) == MaxMarginStatus.NO_PAIRS


def status(gap, infeasibility=0.0, balance=np.inf, *, some=True):
    numbers = {name: jnp.asarray(value) for name, value in locals().items()}
    some, unused = numbers.pop("some"), jnp.zeros(())
    arrays = dict.fromkeys(("direction", "duals", "active"), unused)
    return _status(Answer(**arrays, **numbers), some)


@pytest.mark.parametrize("numbers", [(1e-10,), (0.0, 1e-10)])
def test_ten_digits_are_not_a_solution(numbers):
    """Neither a gap nor an infeasibility of 1e-10 passes in double precision."""
    assert status(*numbers) == MaxMarginStatus.NOT_CONVERGED
