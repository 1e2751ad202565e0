"""One token in the place of all that are tied: the same bags to everything else."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from jaxselect.model.ragged_bags import RaggedBags
from jaxselect.model.ragged_objective import curvature, pull, risk
from jaxselect.pairs.merged_ties import merge_ties
from jaxselect.pairs.ragged_pairs import contract_ties
from tests.tolerances import assert_close

TOKENS, BAGS = 9, 14


def drawn(seed):
    """Bags of random tokens, two classes of ties in them, p, and axes across these."""
    rng = np.random.default_rng(seed)
    counts = rng.poisson(0.6, (BAGS, TOKENS)) * 1.0
    counts[:, 8] += 1
    counts[0, :3], counts[1, 2:5] = 2, 1
    counts = csr_array(counts)
    embeddings, cls = rng.normal(size=(TOKENS, 6)), rng.normal(size=6)
    labels = rng.choice([-1.0, 1.0], BAGS)
    bags = RaggedBags(counts, labels, embeddings, rng.normal(size=TOKENS), BAGS)
    chosen = bags.token == 8
    chosen[bags.row == 0] = np.isin(bags.token[bags.row == 0], [0, 1])
    chosen[bags.row == 1] = np.isin(bags.token[bags.row == 1], [3, 4])
    apart = embeddings[[0, 3]] - embeddings[[1, 4]]
    axes = np.linalg.qr(apart.T)[0]
    return bags, contract_ties(counts, chosen)[0], axes, cls


@pytest.mark.parametrize("seed", range(4))
def test_risk_and_derivatives_across_ties_are_those_of_all_tokens(seed):
    bags, classes, axes, cls = drawn(seed)
    fewer = merge_ties(bags, classes, bags.embeddings @ (axes @ (axes.T @ cls)))
    assert fewer.counts.nnz < bags.counts.nnz

    def across(vectors):
        return vectors - (vectors @ axes) @ axes.T

    moved = cls + across(np.arange(6.0))
    for place in (cls, moved):
        assert_close(risk(fewer, place), risk(bags, place))
        assert_close(across(pull(fewer, place)), across(pull(bags, place)))
        found, wanted = (
            across(across(curvature(given, place)).T) for given in (fewer, bags)
        )
        assert_close(found, wanted)


def test_bags_without_ties_stay():
    bags, _, _, cls = drawn(0)
    fewer = merge_ties(bags, bags.counts, bags.embeddings @ cls)
    assert (fewer.counts != bags.counts).nnz == 0
