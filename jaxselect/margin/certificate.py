"""Hypotheses of the finite certificate: the late flow keeps its selection and its line.

At a log-time τ_0 the active pairs are at a distance δ_0 from ρ, the inactive ones still
have a force to spend, and the part of p that only the path decides was constant for a
while (mathematics, sections 3d and 3e).
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Scalar

from ..arguments import as_annotated
from ..corpora.checks import for_corpus
from ..corpora.corpus import Corpus
from ..model.attention import attend_corpus
from ..model.functional_margin import functional_margin
from ..model.objective import log_weighted_residual
from ..model.parameters import Parameters
from ..precision import full_precision
from .limit import Limit
from .max_margin import MaxMargin
from .pair_graph import difference_lengths, score_differences
from .pair_strength import ROUNDINGS

# Largest share of a sequence off its selected token, times κ̄ and the spread of its
# values, for which the pair sum stands for the gradient. Derived: below it
# e^{κ̄|b − f|} ≤ 1.14, κ̄ the Lipschitz constant of log(−ℓ′); with K heads plus two.
UNSELECTED = 0.125
# Constant of the bound on what the pair sum leaves out. Derived: 2.2, rounded up.
NONLINEAR = 4


@as_annotated
@full_precision
def late_flow_residual(
    embeddings: Float[Array, "vocabulary dim"],
    margin: MaxMargin,
    late: Limit,
    query: Float[Array, " dim"],
    log_time: Float[Scalar, ""],
) -> Float[Scalar, ""]:
    """Largest distance of an active margin from the predicted late flow.

    Source: mathematics, section 3e.

    Args:
        embeddings: E.
        margin: the max-margin solution of a selection.
        late: the prediction p_mm log t + ρ from it.
        query: p, late in a flow.
        log_time: log(1+t) there.

    Returns:
        max |Dᵀ(p − p_mm log t − ρ)| over the active pairs, in units of scores.

    Example:
        See `inactive_pair_bound`.
    """
    off = score_differences(embeddings @ (query - late.query_at(log_time)))
    return jnp.max(jnp.where(margin.active, jnp.abs(off), 0.0))


@for_corpus(by_head=True)
@full_precision
def inactive_pair_bound(
    parameters: Parameters,
    corpus: Corpus,
    selected: Bool[Array, "sequences width"],
    pairs: Bool[Array, "vocabulary vocabulary"],
    margin: MaxMargin,
    late: Limit,
    query: Float[Array, " dim"],
    log_time: Float[Scalar, ""],
    *,
    tolerance: float,
) -> Float[Scalar, ""]:
    """Bound on all that inactive pairs may still move a score difference.

    A pair of margin m = Dᵀp_mm > 1 pulls with λ = c e^{τ − Dᵀp}, which falls like
    e^{−(m − 1)τ} as long as p stays within 2δ_0 + ε of where it is, with δ_0 =
    ‖p − p_mm τ − ρ‖. Then all of them, and what the pair sum leaves out, move p by
    S = Σ |λ| ‖D‖ e^{2δ_0‖D‖ + ε} / (m − 1) + (nonlinear terms) at most,
    and a score difference by max ‖D‖ S.

    Source: mathematics, section 3e.

    Args:
        parameters: (E, ·, v).
        corpus: n labelled bags.
        selected: one token per sequence, in bag layout.
        pairs: the competing pairs of that selection.
        margin: their max-margin solution.
        late: the prediction from it.
        query: p, late in a flow.
        log_time: log(1+t) there.
        tolerance: ε, the bound up to which the result holds.

    Returns:
        max ‖D‖ S, in scores; ∞ where a hypothesis fails. A result above the tolerance
        bounds nothing.

    Example:
        See `trial_certificate.certify`.
    """
    embeddings = parameters.embeddings
    scores = embeddings @ query
    distance = jnp.linalg.norm(query - late.query_at(log_time)) + late.offset_error
    length = jnp.where(pairs, difference_lengths(embeddings), 0.0)
    longest = jnp.max(length)

    excess = score_differences(embeddings @ margin.direction) - 1
    inactive = pairs & ~margin.active
    eps = jnp.finfo(scores.dtype).eps
    strength = late.strength
    size = jnp.abs(strength.factor) + ROUNDINGS * eps * strength.magnitude
    size = size + strength.blur
    exponent = strength.log_scale + log_time - score_differences(scores)
    exponent = exponent + 2 * distance * length + tolerance
    # A pair that meets in no sequence has no strength, whatever its exponent.
    relevant = inactive & (size > 0)
    force = jnp.where(relevant, size * jnp.exp(jnp.where(relevant, exponent, 0.0)), 0.0)
    fades = jnp.where(relevant, jnp.where(excess > 0, excess, 0.0), 1.0)
    spent = jnp.sum(jnp.where(relevant, force * length / fades, 0.0))

    left_out = _left_out(parameters, corpus, selected, query, log_time)
    growth = jnp.exp(2 * (2 * distance * longest + tolerance))
    bound = longest * (spent + left_out * longest * growth)
    # Within the basin all along, where Φ has one.
    inside = distance + bound / jnp.where(longest > 0, longest, 1.0) <= late.basin
    return jnp.where(inside, bound, jnp.inf)


def _left_out(
    parameters: Parameters,
    corpus: Corpus,
    selected: Bool[Array, "sequences width"],
    query: Float[Array, " dim"],
    log_time: Float[Scalar, ""],
) -> Float[Scalar, ""]:
    """Bound on |gradient − pair sum| in score space, per unit of τ, for one winner."""
    values = parameters.embeddings @ parameters.head
    attention = attend_corpus(parameters.embeddings @ query, values, corpus)
    present = corpus.present
    loses = present & ~selected
    weight = jnp.where(loses, jnp.exp(attention.log_weights), 0.0).sum(axis=1)
    of_bag, change = corpus.values_by_entry(values), corpus.loss.largest_ratio
    here = present
    if values.ndim > 1:
        # Shares w_k of classes change by e^{2|d|} at most (mathematics, section 1c); of
        # two classes the other has all of it.
        margin = functional_margin(corpus.labels, attention.output)
        of_bag, change = margin.leads(of_bag), change + 2 * (values.shape[1] > 2)
        here = present[..., None]
    highest = jnp.max(jnp.where(here, of_bag, -jnp.inf), axis=1)
    lowest = jnp.min(jnp.where(here, of_bag, jnp.inf), axis=1)
    spread = highest - lowest
    if values.ndim > 1:
        spread = spread.max(axis=1)
    # A sequence of weight zero has nothing present.
    spread = jnp.where(present.any(axis=1), spread, 0.0)
    unselected = jnp.max(weight * (1 + change * spread))
    exponent = log_weighted_residual(attention, corpus) + log_time
    force = jnp.exp(jnp.where(loses, exponent, -jnp.inf)) * spread[:, None]
    small = unselected <= UNSELECTED
    return jnp.where(small, NONLINEAR * unselected * force.sum(), jnp.inf)
