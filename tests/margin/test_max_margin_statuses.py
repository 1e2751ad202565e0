"""The status of a max-margin problem as a function of four numbers."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxselect.margin.max_margin import MaxMarginStatus, _status
from jaxselect.margin.qp import (
    ALLOWED,
    LARGEST_GAP,
    REFUTED,
    SOLVED,
    Answer,
    allowed_gap,
)

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
    # Duals that do not cancel, that cancel to a hundredth, and of no known length.
    for allowed in (0.0, 100.0, np.nan):
        found = status(*numbers, dtype(allowed * EPS[dtype]))
        assert found == MaxMarginStatus[wanted]
    assert status(*numbers, some=False) == MaxMarginStatus.NO_PAIRS


def status(gap, infeasibility=0.0, balance=np.inf, allowed=0.0, *, some=True):
    numbers = {name: jnp.asarray(value) for name, value in locals().items()}
    some, unused = numbers.pop("some"), jnp.zeros(())
    arrays = dict.fromkeys(("direction", "duals", "active"), unused)
    return _status(Answer(**arrays, **numbers), some)


@pytest.mark.parametrize("numbers", [(1e-10,), (0.0, 1e-10)])
def test_ten_digits_are_not_a_solution(numbers):
    """Neither a gap nor an infeasibility of 1e-10 passes in double precision."""
    assert status(*numbers) == MaxMarginStatus.NOT_CONVERGED


@pytest.mark.parametrize("cancellation", [1e3, 1e5])
def test_a_gap_on_both_sides_of_what_rounding_allows(cancellation):
    """With duals that cancel it may be larger; the infeasibility may not."""
    allowed = allowed_gap(jnp.asarray(cancellation))
    gap = ALLOWED * EPS[np.float64] * cancellation
    assert gap > SOLVED * EPS[np.float64] or cancellation == 1e3
    assert status(BELOW * gap, allowed=allowed) == MaxMarginStatus.SOLVED
    refused = max(gap, SOLVED * EPS[np.float64])
    assert status(ABOVE * refused, allowed=allowed) == MaxMarginStatus.NOT_CONVERGED
    lost = status(0.0, ABOVE * SOLVED * EPS[np.float64], allowed=allowed)
    assert lost == MaxMarginStatus.NOT_CONVERGED


@pytest.mark.parametrize("dtype", EPS)
def test_rounding_never_allows_more_than_nine_digits(dtype):
    """However duals cancel; in single precision it allows no more than 4096 eps."""
    allowed = allowed_gap(jnp.asarray(np.finfo(dtype).max, dtype))
    assert allowed == dtype(EPS[dtype]) ** LARGEST_GAP
    assert allowed < (5e-10 if dtype == np.float64 else SOLVED * EPS[dtype])
