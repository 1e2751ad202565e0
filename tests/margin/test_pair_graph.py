"""Pairs of tokens as a graph."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxselect.margin.pairs import PairMask, laplacian
from tests.tolerances import assert_close


def test_laplacian_is_the_energy_of_the_pairs():
    rng = np.random.default_rng(0)
    weights, scores = rng.random((6, 6)), rng.normal(size=6)
    ahead = scores[:, None] - scores[None, :]
    assert_close(
        scores @ laplacian(jnp.asarray(weights)) @ scores, (weights * ahead**2).sum()
    )


def test_centred_tokens_span_the_differences_and_keep_their_scores():
    """Two chains, one running backwards through the names, and a token in no pair."""
    pairs = np.zeros((9, 9), bool)
    for s, r in ((8, 6), (6, 4), (2, 4), (2, 0), (1, 3), (5, 3)):
        pairs[s, r] = True
    tokens = jax.random.normal(jax.random.key(0), (9, 12))
    graph = PairMask(jnp.asarray(pairs))
    rows = graph.centred(tokens, graph.held)
    winner, loser = np.nonzero(pairs)
    assert_close(rows[winner] - rows[loser], tokens[winner] - tokens[loser])
    differences = tokens[winner] - tokens[loser]
    assert jnp.linalg.matrix_rank(rows) == len(winner)
    both = jnp.concatenate([rows, differences])
    assert jnp.linalg.matrix_rank(both) == len(winner)
    assert not rows[7].any()


def test_without_pairs_no_lead_is_smallest():
    pairs = jnp.zeros((3, 3), bool)
    scores = jnp.array([2.0, 5.0, 1.0])
    assert PairMask(pairs).least(scores) == 0
    assert PairMask(pairs.at[0, 1].set(True)).least(scores) == -3
