"""Published numbers of others: each fault planted below is noticed by a row."""

import jax
import numpy as np
import pytest

from experiments.beyond import peers
from jaxselect.status import Reason


@pytest.fixture(autouse=True)
def relaxed():
    """Promotion as a study has it."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def missed(rows):
    """Quantities that do not come out."""
    return {row.quantity for row in rows if row.within is not None and not row.agrees}


def test_norms_of_their_programs_and_one_constraint_of_wrong_sign(monkeypatch):
    assert not missed(peers.margins())
    solve = peers.SOLVE

    def turned(tokens, pairs):
        pairs = pairs.copy()
        first = tuple(np.argwhere(pairs)[0])
        pairs[first], pairs[first[::-1]] = False, True
        return solve(tokens, pairs)

    monkeypatch.setattr(peers, "SOLVE", turned)
    # The second token alone keeps its norm: the first is no support vector.
    assert len(missed(peers.margins())) >= 4


def test_a_draw_without_a_solution_that_is_called_solved(monkeypatch):
    monkeypatch.setattr(peers, "DRAWS", 10)
    settings = peers.Settings(sequences=(5,), dims=(2,))

    def contradicted():
        point = peers.rank_point(5, 2)
        arrays = {k: np.array(v).reshape(1, 1) for k, v in point._asdict().items()}
        row, *_ = peers.rank_rows(settings, arrays)
        return row.ours, row.agrees

    assert contradicted() == (0, True)
    separate, drawn = peers.separate, iter(range(10))

    def mistaken(*arguments, **rest):
        found, norm, status = separate(*arguments, **rest)
        wrong = next(drawn) == 3
        other = Reason.NONE if status else Reason.INFEASIBLE
        return found, norm, other if wrong else status

    monkeypatch.setattr(peers, "separate", mistaken)
    assert contradicted() == (1, False)
