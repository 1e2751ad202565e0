"""The verdict on a flow: where it ended, decided by certificates, not by its length.

That the end is the limit is certified by what the selection predicts. The active pairs
must lie on p_mm log t + ρ, and the inactive ones must have nearly finished: one whose
margin m is hardly above one pulls like t^−(m − 1), long after all else has settled.
"""

import enum

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Scalar

from .corpus import Corpus
from .gradient_flow import Flow, FlowStatus
from .limit import Limit, LimitStatus
from .max_margin import MaxMargin, MaxMarginStatus
from .pair_graph import lead
from .pair_strength import pair_strength
from .parameters import Parameters


class TrialStatus(enum.IntEnum):
    """Where a trial ended; the first four are certified (see `verdict`)."""

    SELECTED_ALL = 0
    """At the max-margin direction of a selection with every important token."""
    CAPTURED_POSITIVE = 1
    """Likewise, but all positive tokens are selected and most negative ones are not."""
    CAPTURED_NEGATIVE = 2
    """Likewise, with the classes exchanged."""
    PARTIAL = 3
    """Likewise, of a selection that misses some important tokens."""
    NOT_YET = 4
    """At the norm asked for, but not on the predicted late flow of any selection."""
    NORM_NOT_REACHED = 5
    """‖p‖ did not reach the norm asked for in the time or the steps allowed, or tokens
    changed places too suddenly to be followed."""
    FAILED = 6
    """The integration or the max-margin solver broke down."""
    BALANCED = 7
    """In a stable balance at a smaller norm: sequences of both classes hold tokens at
    finite odds, so that no single one of them is selected there."""


def verdict(
    flow: Flow,
    margin: MaxMargin,
    late: Limit,
    drift: Float[Scalar, ""],
    pending: Float[Scalar, ""],
    positive: Float[Scalar, ""],
    negative: Float[Scalar, ""],
    largest_score: Float[Scalar, ""],
    tolerance: float,
) -> Int[Scalar, ""]:
    """The status of a trial.

    A trial has converged if its selection has a max-margin solution, if the convex
    problem of the limit has a solution ρ, so that this selection sustains itself, and
    if neither `drift` nor `pending` exceeds the tolerance. To that of the drift comes
    what rounding makes of the largest score: the stages of a step of the flow cancel to
    a hundredth of their size. It is below 1e-9 in double precision at ‖p‖ = 10⁴.

    Args:
        flow: the flow of p.
        margin: the max-margin solution of the selection that it ended in.
        late: the limit predicted from that selection.
        drift: see `drift`.
        pending: see `pending`.
        positive: share of positive sequences with all important tokens selected.
        negative: share of negative ones.
        largest_score: max |pᵀE_s|.
        tolerance: largest drift and largest pending that count as converged.

    Returns:
        A `TrialStatus`.

    Example:
        See `trial.run_trial`.
    """
    all_positive, all_negative = positive == 1, negative == 1
    status = jnp.where(
        all_positive & (negative < 0.5),
        TrialStatus.CAPTURED_POSITIVE,
        TrialStatus.PARTIAL,
    )
    captured = all_negative & (positive < 0.5)
    status = jnp.where(captured, TrialStatus.CAPTURED_NEGATIVE, status)
    status = jnp.where(all_positive & all_negative, TrialStatus.SELECTED_ALL, status)
    rounding = 256 * jnp.finfo(drift.dtype).eps * largest_score
    settled = (drift <= tolerance + rounding) & (pending <= tolerance)
    converged = (late.status == LimitStatus.PREDICTED) & settled
    status = jnp.where(converged, status, TrialStatus.NOT_YET)
    broken = margin.status == MaxMarginStatus.NOT_CONVERGED
    status = jnp.where(broken, TrialStatus.FAILED, status)
    short = flow.status != FlowStatus.REACHED
    status = jnp.where(short, TrialStatus.NORM_NOT_REACHED, status)
    balanced = flow.status == FlowStatus.BALANCED
    status = jnp.where(balanced, TrialStatus.BALANCED, status)
    failed = flow.status == FlowStatus.FAILED
    return jnp.where(failed, TrialStatus.FAILED, status).astype(jnp.int32)


def drift(
    after: Parameters, flow: Flow, margin: MaxMargin, late: Limit
) -> Float[Scalar, ""]:
    """Largest distance of an active margin from the late flow that is predicted.

    Args:
        after: (E¹, p_0, v).
        flow: the flow of p.
        margin: the max-margin solution of its selection.
        late: the prediction p_mm log t + ρ.

    Returns:
        max |Dᵀ(p − p_mm log t − ρ)| over the active pairs, in units of scores.

    Example:
        See `pending`.
    """
    off = lead(after.embeddings @ (flow.cls - late.cls_at(flow.log_time)))
    return jnp.max(jnp.where(margin.active, jnp.abs(off), 0.0))


def pending(
    after: Parameters,
    corpus: Corpus,
    selected: Bool[Array, "sequences width"],
    flow: Flow,
    margin: MaxMargin,
    late: Limit,
) -> Float[Scalar, ""]:
    """How far the inactive pairs may still move p, over the error constant.

    A pair of margin m = Dᵀp_mm > 1 pulls with λ = c e^{s − Dᵀp}, which falls as
    e^{−(m − 1) s}, so it adds λ D / (m − 1) to p from here on: Σ λ ‖D‖ / (m − 1).

    Args:
        after: (E¹, p_0, v).
        corpus: n bags with labels ±1.
        selected: the selection the flow ended in, in bag layout.
        flow: the flow of p.
        margin: the max-margin solution of that selection.
        late: the prediction, for the error constant.

    Returns:
        A bound on the relative change to come of the error constant.

    Example:
        >>> from jaxselect.corpus import from_sequences
        >>> from jaxselect.gradient_flow import cls_flow
        >>> from jaxselect.limit import limit
        >>> from jaxselect.max_margin import max_margin
        >>> from jaxselect.selection import competing_pairs
        >>> bags = from_sequences([[0, 1, 2]], [1], vocabulary=3)
        >>> tokens = jnp.array([[1.0, 0.0], [0.0, 0.0], [-0.5, -0.4]])
        >>> after = Parameters(tokens, jnp.array([0.0, 0.1]), jnp.array([1.0, 0.0]))
        >>> chosen = jnp.array([[True, False, False]])
        >>> margin = max_margin(tokens, competing_pairs(chosen, bags))
        >>> def at(norm):
        ...     flow = cls_flow(after, bags, until_norm=norm)
        ...     late = limit(after, bags, chosen, margin, flow.cls)
        ...     return pending(after, bags, chosen, flow, margin, late).item()
        >>> at(100.0) < 1e-12 < 1e-2 < at(3.0)
        True
    """
    embeddings = after.embeddings
    strength = pair_strength(embeddings @ after.head, corpus, selected)
    exponent = flow.log_time - lead(embeddings @ flow.cls)
    beyond = lead(embeddings @ margin.direction) - 1
    pulls = (strength.factor != 0) & ~margin.active & (beyond > 0)
    pull = jnp.where(pulls, jnp.abs(strength.times_exp(exponent)), 0.0)
    square = jnp.sum(embeddings**2, axis=1)
    overlap = embeddings @ embeddings.T
    apart = jnp.sqrt(jnp.maximum(square[:, None] + square[None, :] - 2 * overlap, 0.0))
    to_come = jnp.sum(pull * apart / jnp.where(pulls, beyond, 1.0))
    return to_come / jnp.maximum(late.error_constant, jnp.finfo(to_come.dtype).tiny)
