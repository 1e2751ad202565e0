"""Residuals of the limit of a joint flow, in closed form.

Source: mathematics, section 3i.
"""

import jax
import jax.numpy as jnp
import numpy as np

from experiments.theory.joint import joint_limit
from jaxselect.data.corpus import from_sequences
from tests.tolerances import assert_close

limit = jax.jit(joint_limit)
# Token 0 in three positive bags of four, token 1 in one, token 2 in all negative ones.
SEQUENCES = [[token, 3] for token in (0, 0, 0, 1, 2, 2, 2, 2)]
LABELS = [1] * 4 + [-1] * 4
BAGS = from_sequences(SEQUENCES, LABELS, vocabulary=4)
SHARES = np.array([3, 1, 4]) / 8
SIGNS = np.array([1.0, 1.0, -1.0])
HARD = jnp.array([900.0, 900.0, 900.0, 0.0])


def values(margins):
    """Values of the important tokens, by their margins; the other one has none."""
    return jnp.append(SIGNS * margins, 0.0)


def unit(vector):
    return vector / np.linalg.norm(vector)


def test_values_that_differ_by_the_logarithms_of_frequency_are_stationary_late():
    """With margins m + log π every token's loss share is alike, and b ∝ 1 + O(1/m)."""
    off = []
    for size in (1e2, 1e4):
        margins = size + np.log(SHARES)
        found = limit(HARD, values(margins), BAGS)
        assert_close(found.stationarity, np.linalg.norm(unit(margins) - unit(SIGNS**2)))
        off.append(found.stationarity)
        assert found.selected.tolist() == [True] * 3 + [False]
        wanted = SHARES.sum() * 0 + (margins**2).sum() / margins.min() ** 2
        assert_close(found.square, wanted)
        # λ is the share of a sequence: each token has a third of the loss.
        assert_close(found.slackness, (margins / margins.min() - 1).mean(), worse=1e3)
    assert off[1] < 0.011 * off[0]


def test_equal_margins_of_tokens_of_unequal_frequency_are_not_stationary():
    """All λ_X are alike there, and h_b is ∝ π, not ∝ b."""
    found = limit(HARD, values(np.full(3, 50.0)), BAGS)
    assert_close(found.stationarity, np.linalg.norm(unit(np.ones(3)) - unit(SHARES)))
    assert_close([found.slackness, found.square], [0.0, 3.0])


def test_the_balance_is_the_ratio_of_the_variances_of_values():
    """M_± = Σ λ q (1 − q) b²: at scores x on positive, z on negative tokens.

    The margins q b are made equal, so that λ is.
    """
    lead = np.array([3.0, 3.0, 2.0])
    weight = 1 / (1 + np.exp(-lead))
    found = limit(jnp.append(lead, 0.0), values(6.0 / weight), BAGS)
    strength = weight * (1 - weight) * (6.0 / weight) ** 2
    wanted = strength[0] * SHARES[:2].sum() / (strength[2] * SHARES[2])
    assert_close(found.balance, wanted, worse=10)
    assert wanted < 0.6


def test_a_value_below_half_of_the_smallest_margin_is_not_selected():
    for part, chosen in ((0.49, False), (0.51, True)):
        b = values(np.array([8.0, 8.0, 8.0])).at[3].set(-8.0 * part)
        assert limit(HARD, b, BAGS).selected.tolist() == [True, True, True, chosen]


def test_a_sequence_of_weight_zero_is_not_there():
    """Wrong by any margin."""
    scores = jnp.array([3.0, 4.0, 5.0, 0.5])
    b = values(np.array([5.0, 4.0, 6.0])).at[3].set(0.2)
    more = from_sequences(
        [*SEQUENCES, [0, 1]], [*LABELS, -1], vocabulary=4, weights=[1] * 8 + [0]
    )
    found, other = limit(scores, b, BAGS), limit(scores, b, more)
    for name in ("square", "stationarity", "slackness", "balance"):
        assert_close(getattr(other, name), getattr(found, name), worse=10)


def test_a_bag_on_the_wrong_side_has_no_limit():
    found = limit(HARD, values(np.array([5.0, -1.0, 5.0])), BAGS)
    assert np.isnan([found.square, found.slackness]).all()
    assert not found.selected.any()
