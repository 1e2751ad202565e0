"""The verdict on a flow: where it ended, decided by certificates, not by its length.

That the end is the limit is certified by what the selection predicts: the active pairs
must lie on p_mm log t + ρ, and the inactive ones must have nearly finished.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Scalar

from ..checks import between
from ..corpora.checks import for_corpus
from ..corpora.corpus import Corpus
from ..flow.result import Flow, FlowStatus
from ..margin.certificate import inactive_pair_bound, late_flow_residual
from ..margin.limit import Limit, LimitStatus
from ..margin.max_margin import MaxMarginStatus
from ..model.frame import frame
from ..model.parameters import Parameters
from ..model.selection import coverage
from ..precision import full_precision
from .ending import Ending, ending
from .trial_status import TrialStatus

# Distance from the predicted line, and bound on what may still come, of a flow that has
# converged; in scores.
TOLERANCE = 1e-3
# Rounding of a score difference at the end of a flow, in roundings of the largest
# score: the stages of a step cancel to a hundredth of their size.
SCORE_ROUNDINGS = 256
# Factor of the tolerance of `history_change` in single precision, where p ~ 10⁴ is
# known to 10⁻³ and no gradient corrects this part of it.
SINGLE_PRECISION = 100
# A class is captured where less than this share of its sequences keeps its tokens.
CAPTURED_SHARE = 0.5


class Certificate(eqx.Module):
    """A flow's end, held against what its selection predicts.

    Attributes:
        ending: selection, pairs, max-margin solution and late flow.
        late_flow_residual: largest distance of an active margin from its late flow.
        inactive_pair_bound: bound on what inactive pairs may still move a score by.
        positive: share of positive sequences with all important tokens selected; NaN
            where none has any, or where labels are no signs.
        negative: share of negative ones.
        coverage: that share for each class, +1 before −1.
        status: a `TrialStatus`.
    """

    ending: Ending
    late_flow_residual: Float[Scalar, ""]
    inactive_pair_bound: Float[Scalar, ""]
    positive: Float[Scalar, ""]
    negative: Float[Scalar, ""]
    coverage: Float[Array, " classes"]
    status: Int[Scalar, ""]


@for_corpus(by_head=True)
@full_precision
def certify(
    parameters: Parameters, corpus: Corpus, flow: Flow, *, tolerance: float = TOLERANCE
) -> Certificate:
    """The certificate of a flow's end, against its selection's predicted limit.

    Source: mathematics, sections 3e and 4b.

    Args:
        parameters: (E¹, p_0, v), which the flow started from.
        corpus: n labelled bags.
        flow: of p, with E¹ and v fixed.
        tolerance: see `classify_end`.

    Returns:
        The certificate; its status is that of `classify_end`.

    Raises:
        BadInput: a tolerance that is no finite number > 0.

    Example:
        >>> import jax
        >>> from jaxselect.flow.cls_flow import cls_flow
        >>> from jaxselect.corpora.corpus import from_sequences
        >>> bags = from_sequences([[0, 2], [1, 2]], [1, -1], vocabulary=3)
        >>> head = jnp.array([1.0, -1.0, 0.0])
        >>> start = Parameters(jnp.eye(3), jnp.zeros(3), head)
        >>> flow = jax.jit(cls_flow)(start, bags, until_norm=1e4)
        >>> found = jax.jit(certify)(start, bags, flow)
        >>> TrialStatus(found.status.item()).name
        'SELECTED_ALL'
        >>> late = found.ending.late
        >>> late.growth.round(3).tolist(), bool(found.inactive_pair_bound < 1e-3)
        ([0.333, 0.333, -0.667], True)
        >>> round(jnp.linalg.norm(finish(flow, late, 1e6).query).item(), 3)
        1000000.0
    """
    between("tolerance", tolerance, 0.0, float("inf"))
    inside = frame(parameters)
    embeddings, query = inside.parameters.embeddings, inside.coordinates(flow.query)
    scores = embeddings @ query
    earlier = inside.coordinates(flow.earlier_query)
    end = ending(inside.parameters, corpus, query, flow.log_time, earlier)
    covered = coverage(end.selected, corpus)
    if corpus.classes is None:
        positive, negative = worst = (covered[0], covered[1])
    else:
        # No class alone has a status: the worst decides.
        positive = negative = jnp.full_like(covered[0], jnp.nan)
        worst = jnp.nanmin(covered), jnp.nanmin(covered)
    late = end.margin, end.late, query, flow.log_time
    residual = late_flow_residual(embeddings, *late)
    bound = inactive_pair_bound(
        inside.parameters, corpus, end.selected, end.pairs, *late, tolerance=tolerance
    )
    return Certificate(
        ending=end.placed(inside),
        late_flow_residual=residual,
        inactive_pair_bound=bound,
        positive=positive,
        negative=negative,
        coverage=covered,
        status=classify_end(
            flow_status=flow.status,
            margin_status=end.margin.status,
            limit_status=end.late.status,
            late_flow_residual=residual,
            inactive_pair_bound=bound,
            history_change=end.late.history_change,
            positive=worst[0],
            negative=worst[1],
            largest_score=jnp.max(jnp.abs(scores)),
            tolerance=tolerance,
        ),
    )


def classify_end(
    *,
    flow_status: Int[Scalar, ""],
    margin_status: Int[Scalar, ""],
    limit_status: Int[Scalar, ""],
    late_flow_residual: Float[Scalar, ""],
    inactive_pair_bound: Float[Scalar, ""],
    history_change: Float[Scalar, ""],
    positive: Float[Scalar, ""],
    negative: Float[Scalar, ""],
    largest_score: Float[Scalar, ""],
    tolerance: float = TOLERANCE,
) -> Int[Scalar, ""]:
    """The status of a trial.

    A trial has converged if its selection has a max-margin solution, if a strict
    minimum ρ of Φ is proved, and if neither `late_flow_residual` nor
    `inactive_pair_bound` nor `history_change` exceeds the tolerance. Added to that of
    the residual is the rounding of the largest score, 256 ε max |pᵀE_s|: below 1e-9 in
    double precision at ‖p‖ = 10⁴.

    Source: mathematics, section 3e.

    Args:
        flow_status: a `FlowStatus`.
        margin_status: the `MaxMarginStatus` of the selection that the flow ended in.
        limit_status: the `LimitStatus` of the limit predicted from that selection.
        late_flow_residual: of `certificate.late_flow_residual`, in units of scores.
        inactive_pair_bound: of `certificate.inactive_pair_bound`, in scores.
        history_change: of `Limit.history_change`, in scores.
        positive: share of positive sequences with all important tokens selected; NaN
            where none has any.
        negative: share of negative ones.
        largest_score: max |pᵀE_s|.
        tolerance: largest of the three that counts as converged, in scores.

    Returns:
        A `TrialStatus`.

    Example:
        See `certify`.
    """
    status = _outcome(positive, negative)
    rounding = SCORE_ROUNDINGS * jnp.finfo(late_flow_residual.dtype).eps * largest_score
    coarse = 1 if late_flow_residual.dtype == jnp.float64 else SINGLE_PRECISION
    settled = inactive_pair_bound <= tolerance
    on_line = (late_flow_residual <= tolerance + rounding) & (
        history_change <= coarse * tolerance
    )
    converged = (limit_status == LimitStatus.PREDICTED) & settled & on_line
    status = jnp.where(converged, status, TrialStatus.UNRESOLVED)
    broken = margin_status == MaxMarginStatus.NOT_CONVERGED
    status = jnp.where(broken, TrialStatus.FAILED, status)
    # A flow that did not reach its norm has the status of its own.
    own = jnp.asarray(list(_OF_FLOW.values()), status.dtype)[flow_status]
    short = flow_status != FlowStatus.REACHED
    return jnp.where(short, own, status).astype(jnp.int32)


_OF_FLOW = {
    FlowStatus.REACHED: TrialStatus.UNRESOLVED,
    FlowStatus.NORM_NOT_REACHED: TrialStatus.NORM_NOT_REACHED,
    FlowStatus.TIES_UNPROVED: TrialStatus.TIES_UNPROVED,
    FlowStatus.OUT_OF_STEPS: TrialStatus.OUT_OF_STEPS,
    FlowStatus.FAILED: TrialStatus.FAILED,
    FlowStatus.TIME_UNRESOLVED: TrialStatus.UNRESOLVED,
    FlowStatus.SELECTION_CHANGED: TrialStatus.TIES_UNPROVED,
}


def _outcome(
    positive: Float[Scalar, ""], negative: Float[Scalar, ""]
) -> Int[Scalar, ""]:
    """The coverage of a converged trial, by the shares of both classes."""
    full_positive, full_negative = positive == 1, negative == 1
    status = jnp.asarray(TrialStatus.PARTIAL, jnp.int32)
    captured = full_positive & (negative < CAPTURED_SHARE)
    status = jnp.where(captured, TrialStatus.CAPTURED_POSITIVE, status)
    captured = full_negative & (positive < CAPTURED_SHARE)
    status = jnp.where(captured, TrialStatus.CAPTURED_NEGATIVE, status)
    # A class without important tokens has none to miss.
    bare_positive, bare_negative = jnp.isnan(positive), jnp.isnan(negative)
    everything = (full_positive | bare_positive) & (full_negative | bare_negative)
    status = jnp.where(everything, TrialStatus.SELECTED_ALL, status)
    nothing = bare_positive & bare_negative
    return jnp.where(nothing, TrialStatus.NOTHING_TO_SELECT, status)


def finish(flow: Flow, late: Limit, until_norm: Float[Scalar, ""] | float) -> Flow:
    """Carry a flow on to a larger norm by its predicted late form.

    Source: mathematics, sections 3b and 3e.

    Args:
        flow: integrated until its selection was final.
        late: the prediction of this flow's own end; to be trusted where it is
            PREDICTED and the flow is on it, which `certify` measures.
        until_norm: ‖p‖ to carry on to.

    Returns:
        The flow, ended at that norm by p_mm log t + ρ without further steps.

    Example:
        See `certify`.
    """
    log_time = late.log_time_at(until_norm)
    return eqx.tree_at(
        lambda tree: (tree.query, tree.log_time),
        flow,
        (late.query_at(log_time), log_time),
    )
