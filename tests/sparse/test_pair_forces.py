"""Forces of pairs of ragged bags: against the gradient, and how far each may err.

Source: mathematics, section 7c.
"""

import numpy as np
import pytest
from scipy.sparse import csr_array

from jaxselect.sparse.bags import RaggedBags, sized_score_gradient
from jaxselect.sparse.end import pair_forces
from tests.sparse.problems import problem


def test_forces_are_those_of_the_flow_pair_by_pair():
    """Σ over bags of the pulls towards losers, to the last digits, at any p."""
    model, _, corpus = problem(3)
    bags = RaggedBags.of_corpus(model, corpus)
    rng = np.random.default_rng(0)
    for scale in (0.1, 1.0, 10.0):
        p = scale * rng.normal(size=6)
        scores = (bags.embeddings @ p)[bags.counts.indices]
        begin = bags.counts.indptr[:-1]
        best = np.repeat(
            np.maximum.reduceat(scores, begin), np.diff(bags.counts.indptr)
        )
        selected = scores == best
        found = pair_forces(bags, bags.counts, selected, p)
        pull, row = sized_score_gradient(bags, p)[0], bags.row
        wanted = {}
        for entry in np.flatnonzero(~selected):
            first = bags.counts.indices[(row == row[entry]) & selected][0]
            pair = first, bags.counts.indices[entry]
            wanted[pair] = wanted.get(pair, 0.0) - pull[entry]
        for k, pair in enumerate(zip(found.winners, found.losers, strict=True)):
            force = found.sign[k] * np.exp(found.log_force[k])
            off = abs(force - wanted[pair])
            assert (
                off <= np.exp(found.log_error[k]) < 1e-11 * np.exp(found.log_gross[k])
            )
            assert np.abs(force) <= np.exp(found.log_gross[k]) * (1 + 1e-12)


@pytest.mark.parametrize("share", [1e-3, 1e-2])
def test_a_force_at_leading_order_errs_by_response_times_the_shares(share):
    """Against forces as they are with losers of that weight."""
    rng = np.random.default_rng(1)
    for _ in range(200):
        values, labels = 4 * rng.normal(size=3), rng.choice([-1.0, 1.0], 1)
        logit = np.log([1.0, share * rng.uniform(), share * rng.uniform()])
        bag = RaggedBags(csr_array(np.ones((1, 3))), labels, np.eye(3), values, 1)
        chosen = np.array([True, False, False])
        here = pair_forces(bag, bag.counts, chosen, logit)
        far = pair_forces(bag, bag.counts, chosen, logit - [0, 50, 50])
        off = np.abs(
            here.sign * np.exp(here.log_force) - far.sign * np.exp(far.log_force + 50)
        )
        bound = here.response * here.lost_share
        assert (off <= bound * np.exp(far.log_gross + 50)).all()


@pytest.mark.parametrize("shift", [1e-4, 1e-2])
def test_a_force_errs_by_response_times_the_shift_of_a_tie(shift):
    """Tied tokens off their minimum: scores within the bag change by as much."""
    rng = np.random.default_rng(2)
    for _ in range(200):
        values, labels = 4 * rng.normal(size=3), rng.choice([-1.0, 1.0], 1)
        logit = np.append(rng.normal(size=2), -40.0)
        bag = RaggedBags(csr_array(np.ones((1, 3))), labels, np.eye(3), values, 1)
        chosen = np.array([True, True, False])
        counts = csr_array((np.ones(3), [0, 0, 2], [0, 3]), shape=(1, 3))
        here = pair_forces(bag, counts, chosen, logit, np.full(3, shift))
        move = shift * rng.uniform(-0.5, 0.5, 3)
        there = pair_forces(bag, counts, chosen, logit + move)
        off = np.abs(
            here.sign * np.exp(here.log_force) - there.sign * np.exp(there.log_force)
        )
        assert (off <= np.exp(here.log_error)).all()


@pytest.mark.parametrize("first", [True, False])
def test_the_share_of_a_pair_is_the_largest_over_its_bags(first):
    """Token 1 competes with 0 in two bags, at twice the count in one of them."""
    heavy, light = [1.0, 2.0], [1.0, 1.0]
    counts = csr_array(np.array([heavy, light] if first else [light, heavy]))
    bags = RaggedBags(counts, np.ones(2), np.eye(2), np.array([1.0, -1.0]), 2)
    found = pair_forces(bags, counts, np.array([True, False] * 2), np.array([9.0, 0.0]))
    wanted = np.log(2 * np.exp(-9.0) / (1 + 2 * np.exp(-9.0)))
    assert found.log_share.tolist() == pytest.approx([wanted])
    assert found.lost_share == pytest.approx(np.exp(wanted))
