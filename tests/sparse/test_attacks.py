"""Certificates under attack: a sample, and that the truth does refute what is false."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.sparse import csr_array

from jaxselect.data.sparse import from_csr
from jaxselect.model.parameters import Parameters
from jaxselect.sparse.end import End, flow_end
from jaxselect.sparse.flow import Trajectory, sparse_flow
from tests.sparse.attacks import FAMILIES, attack, followed
from tests.sparse.truth import Attack, refuted


@pytest.mark.parametrize("seed", range(len(FAMILIES)))
def test_no_certificate_is_refuted(seed):
    problem = attack(seed)
    end = followed(problem)
    assert end.ending.status == End.UNPROVED or not refuted(problem, end)


def settled_only_in_looks():
    """The token that returns at log t = 109.28, where its flow looks settled, at 34."""
    differences = np.array([[1.0, 0.0], [1.0, 1.0], [1.01, -10.0]])
    embeddings = np.zeros((6, 3))
    embeddings[1:4, :2] = -differences
    embeddings[4:] = 50.0
    counts = np.zeros((6, 6))
    for row, (one, number) in enumerate([(1, 1), (2, 400), (3, 10)]):
        counts[row, [0, one]] = number, 1
    counts[3:, 0] = 1
    start, head = np.array([3.0, -3.0, 0.0]), np.array([1.0, 1.0, 0.0])
    return Attack("by hand", embeddings, head, start, counts, np.ones(6))


def test_the_truth_refutes_an_end_that_only_looks_settled():
    problem = settled_only_in_looks()
    model = Parameters(
        *map(jnp.asarray, (problem.embeddings, problem.start, problem.head))
    )
    bags = from_csr(csr_array(problem.counts), np.ones(6))
    flow = sparse_flow(model, bags)
    ending = flow_end(model, bags, flow)
    assert ending.status is End.UNPROVED and ending.pace < 0.05
    nothing = np.zeros((0, 3))
    claimed = ending._replace(status=End.SELECTED)
    end = Trajectory(
        np.asarray(flow.query), 34.0, claimed, (), (flow,), np.zeros(0), nothing
    )
    against = refuted(problem, end)
    assert "selection changes" in against
    # A mean over six bags in place of three is slower by log 2, and little else.
    assert 105 < float(against.split("[")[1].rstrip("]")) < 115


def test_the_truth_refutes_a_line_that_is_another():
    """A budget of nothing, around a line that p has not reached yet."""
    problem = attack(list(FAMILIES).index("plain"))
    end = followed(problem)
    assert end.ending.status != End.UNPROVED
    limit = end.ending.limit._replace(budget=-1.0)
    wrong = end._replace(ending=end.ending._replace(limit=limit))
    assert "from its line" in refuted(problem, wrong)
