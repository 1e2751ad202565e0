"""Pulls of a bag on the scores of its tokens, entry by entry, in any layout."""

from typing import Any

from ..corpora.bags import AbstractBags, ByBag, Entries
from .attention import Attention
from .functional_margin import functional_margin


def log_residual(attention: Attention, bags: AbstractBags) -> ByBag:
    """Log of w_X (−ℓ′(m)), −∞ where w_X = 0."""
    margin = functional_margin(bags.labels, attention.output).value
    return bags.loss.log_slope(margin) + bags.log_weights(margin.dtype)


def log_weighted_residual(attention: Attention, bags: AbstractBags) -> Entries:
    """Log of w_X q (−ℓ′(m)), −∞ on padding and where w_X = 0."""
    return attention.log_weights + bags.spread(log_residual(attention, bags))


def advances(attention: Attention, bags: AbstractBags) -> Entries:
    """Derivative of m along b_s − f: y (b_s − f) for two classes."""
    margin = functional_margin(bags.labels, attention.output)
    if margin.gradient.ndim > 1:
        return margin.along(attention.advantage)
    return bags.spread(margin.gradient) * attention.advantage


def score_gradient(
    exponent: Any, advance: Any, attention: Attention, bags: AbstractBags
) -> Entries:
    """Pulls e^{exponent} · advance; the top token's is minus the others' sum.

    The sum over a bag is zero.
    """
    array, top = bags.arrays, bags.marks(attention.top)
    # The top token's exponent may overflow: it is dropped before, not after, `exp`.
    used = ~top & bags.filled & (advance != 0)
    others = array.exp(array.where(used, exponent, -array.inf)) * advance
    return array.where(top, -bags.spread(bags.total(others)), others)


def partners(advance: Any, attention: Attention, bags: AbstractBags) -> Entries:
    """Partners u of the pulls in their change: see `score_curvature`."""
    margin = functional_margin(bags.labels, attention.output).value
    tilt = 0.5 * bags.loss.ratio(margin)
    weights = bags.arrays.exp(attention.log_weights)
    return weights * (1 + bags.spread(tilt) * advance)
