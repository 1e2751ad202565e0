"""The verdict on a flow: where it ended, decided by certificates, not by its length.

That the end is the limit is certified by what the selection predicts. The active pairs
must lie on p_mm log t + ρ, and the inactive ones must have nearly finished: one whose
margin m is hardly above one pulls like t^−(m − 1), long after all else has settled.
"""

import enum

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Float, Int, Scalar

from ..flow.cls_flow import Flow, FlowStatus
from ..margin.limit import Limit, LimitStatus
from ..margin.max_margin import MaxMargin, MaxMarginStatus


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


def finish(flow: Flow, late: Limit, until_norm: Float[Scalar, ""] | float) -> Flow:
    """Carry a flow on to a larger norm by its predicted late form.

    Args:
        flow: integrated until its selection was final.
        late: the prediction, with `reached` this flow's p; to be trusted where its
            status is PREDICTED and the flow is on it (`trial.judge` measures how well).
        until_norm: ‖p‖ to carry on to.

    Returns:
        The flow, ended at that norm by p_mm log t + ρ without further steps.

    Example:
        >>> from jaxselect.model.corpus import from_sequences
        >>> from jaxselect.flow.cls_flow import cls_flow
        >>> from jaxselect.margin.max_margin import max_margin
        >>> bags = from_sequences([[0, 1]], [1], vocabulary=2)
        >>> start = Parameters(jnp.eye(2), jnp.zeros(2), jnp.array([1.0, 0.0]))
        >>> chosen = jnp.array([[True, False]])
        >>> margin = max_margin(start.embeddings, competing_pairs(chosen, bags))
        >>> near = cls_flow(start, bags, until_norm=100.0)
        >>> far = finish(near, limit(start, bags, chosen, margin, near.cls), 1e6)
        >>> round(jnp.linalg.norm(far.cls).item(), 3)
        1000000.0
    """
    log_time = late.log_time_at(until_norm)
    return eqx.tree_at(
        lambda tree: (tree.cls, tree.log_time), flow, (late.cls_at(log_time), log_time)
    )
