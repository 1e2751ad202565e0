"""The certificate of a flow's end: the hypotheses of a theorem, evaluated on it.

Three numbers are measured at one log-time τ_0: the distance δ_0 of the active pairs
from ρ, a bound on all that the inactive forces can still do, and the recent change of
the part of p that only the path decides. If they are small, p stays on p_mm log t + ρ
for ever (mathematics, section 3e).
"""

import dataclasses
import math
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Scalar

from ..checks import BadInput, at_least, between, of_kind, reals
from ..compilation import full_precision
from ..data.corpus import Corpus
from ..flow.cls import Flow
from ..model.attention import attend_bags, functional_margin, log_weighted_residual
from ..model.selection import (
    coverage,
    selected_tokens,
)
from ..problem import Problem, check, nothing_to_select, usable
from ..status import Reason, Status
from .limit import Limit, limit
from .max_margin import MaxMargin, max_margin
from .pairs import (
    ROUNDINGS,
    AbstractPairs,
    lead_range,
    pairs_of,
    response_to_weights,
)
from .perturbation import RestingTies, farthest, tie_motion

# Distance from the predicted line, and bound on what later forces may do, of a flow
# that has converged; in scores. Chosen: a score that moves by no more decides nothing.
TOLERANCE = 1e-3
# Rounding of a score difference at the end of a flow, in roundings of the largest
# score: the stages of a step cancel to a hundredth of their size.
SCORE_ROUNDINGS = 256
# Factor of the tolerance of `history_change` in single precision, where p ~ 10⁴ is
# known to 10⁻³ and no gradient corrects this part of it.
SINGLE_PRECISION = 100
# By how much ‖p‖, and log t with it, grows until an end that is not certified is judged
# again.
FURTHER = 10.0
# A class is captured where less than this share of its sequences keeps its tokens.
CAPTURED_SHARE = 0.5
# Largest share of a sequence off its selected token, times κ̄ and the spread of its
# values, for which the pair sum stands for the gradient. Derived: below it
# e^{κ̄|b − f|} ≤ 1.14, κ̄ the Lipschitz constant of log(−ℓ′); with K heads plus two.
UNSELECTED = 0.125
# Constant of the bound on what the pair sum leaves out. Derived: 2.2, rounded up.
NONLINEAR = 4
# Largest growth of a product of two weights for which that holds for ever. Derived: an
# eighth grows to less than all of a margin's half.
GROWTH = 4.0
# Largest relative change of forces by ties off their rest, to first order, for which
# its bound holds. Derived (lemma 3g.5).
FORCES_HOLD = 0.5
# Largest ratio of a gross force to its value at leading order, ties at rest. Derived:
# −ℓ′ and 1/(1 − ε) are larger by 8/7 at most while shares are below their bound, and
# forces by a half with ties off their rest.
GROSS = 2.0


class TrialStatus(Status):
    """How a run ends; the first seven statuses are certified from the computed p.

    SELECTED_ALL, CAPTURED_… and PARTIAL compare a selection with the important tokens.
    Where none is important, or importance is not defined (`Problem.importance`), the
    same end is SELECTED.
    """

    SELECTED_ALL = (
        0,
        "Certified: p tends to the max-margin direction of a selection with every "
        "important token.",
    )
    CAPTURED_POSITIVE = (
        1,
        "Certified: p tends to the max-margin direction of a selection that holds the "
        "important tokens of all positive sequences, and of less than half of the "
        "negative ones.",
    )
    CAPTURED_NEGATIVE = (
        2,
        "Certified: p tends to the max-margin direction of a selection that holds the "
        "important tokens of all negative sequences, and of less than half of the "
        "positive ones.",
    )
    PARTIAL = (
        3,
        "Certified: p tends to the max-margin direction of a selection that misses "
        "some important tokens.",
    )
    SELECTED = (
        4,
        "Certified: p tends to the max-margin direction of its selection.",
    )
    TIED = (
        5,
        "Certified: some tokens rest at finite odds; orthogonal to their differences, "
        "p tends to the max-margin direction of the remaining selection.",
    )
    AT_REST = (
        6,
        "Certified: every sequence keeps all tokens that it has; p converges.",
    )
    TIES_UNPROVED = (
        7,
        "Not certified: tokens are tied and their pulls cancel, but it is not proved "
        "that they rest at a strict minimum, or what becomes of the other tokens.",
    )
    UNRESOLVED = (
        8,
        "Not certified: the hypotheses of no certificate hold where the flow ended.",
    )
    FAILED = (
        9,
        "Not certified: the integration or the max-margin solver broke down, or the "
        "numbers are out of range.",
    )


# The statuses that a certificate stands behind.
CERTIFIED = tuple(status for status in TrialStatus if status <= TrialStatus.AT_REST)


class PredictedEnd(eqx.Module):
    """The selection at a given p, its max-margin solution and its late flow.

    Source: mathematics, sections 3 and 3b.

    Attributes:
        selected: the selected tokens of every sequence, (n, w).
        margin: max-margin solution p_mm of its competing pairs.
        late: the late flow p_mm log t + ρ.
    """

    selected: Bool[Array, "sequences width"]
    margin: MaxMargin
    late: Limit

    @property
    def pairs(self) -> AbstractPairs:
        """The competing pairs of the selection."""
        return self.margin.pairs


class Certificate(eqx.Module):
    """The end of a flow, compared with the limit that its selection predicts.

    Source: mathematics, section 3e.

    Attributes:
        ending: selection, pairs, max-margin solution and late flow.
        late_flow_residual: max |D_kᵀ(p − p_mm log t − ρ)| over the active pairs.
        perturbation_bound: B, bound on how far a score difference of a competing pair
            may leave the flow of −∇Φ from this p on, by inactive pairs, omitted terms
            and ties; it is one where it is below the tolerance.
        coverage: of each class, the share of the sequences whose important tokens are
            all selected; NaN if none has one. Labels ±1 are in the order +1, −1.
        status: a `TrialStatus`.
        reason: the `Reason` why no convergence to a late flow is certified.
    """

    ending: PredictedEnd
    late_flow_residual: Float[Scalar, ""]
    perturbation_bound: Float[Scalar, ""]
    coverage: Float[Array, " classes"]
    status: Int[Scalar, ""]
    reason: Int[Scalar, ""]


@full_precision
def predict_end(
    problem: Problem,
    query: Float[Array, " dim"],
    log_time: Float[Scalar, ""] | float,
    earlier_query: Float[Array, " dim"] | None = None,
    *,
    selected: Bool[Array, "sequences width"] | None = None,
    pairs: AbstractPairs | None = None,
) -> PredictedEnd:
    """Compute the selection at p, its pairs, max-margin solution and late flow.

    Source: mathematics, sections 3 and 4b.

    Args:
        problem: with the p_0 from before the flow.
        query: p at the end of a flow.
        log_time: log(1+t) there; tokens within half of it of the top score are
            selected.
        earlier_query: p at an earlier time of the flow, for `Limit.history_change`.
        selected: the selection of another rule, in the place of that one.
        pairs: those of this selection, if they are known.

    Returns:
        A `PredictedEnd`.

    Raises:
        BadInput: not a problem, or a p that does not fit it.
    """
    check(problem)
    at_least("log_time", log_time, 0.0)
    for name, point in (("query", query), ("earlier_query", earlier_query)):
        if name == "query" or point is not None:
            given = reals(name, point, "dim", beside=problem.start)
            if given.shape != problem.start.shape:
                wanted = problem.start.shape
                raise BadInput(f"{name} of shape {given.shape}: wanted {wanted}")
    return _predict_end(problem, query, log_time, earlier_query, selected, pairs)


def _predict_end(
    problem: Problem,
    query: Float[Array, " dim"],
    log_time: Float[Scalar, ""] | float,
    earlier_query: Float[Array, " dim"] | None,
    selected: Bool[Array, "sequences width"] | None = None,
    pairs: AbstractPairs | None = None,
) -> PredictedEnd:
    """Predict the end of a flow, which may have broken off before an earlier time."""
    if selected is None:
        selected = selection(problem, query, log_time)
    if pairs is None:
        pairs = pairs_of(selected, problem.corpus)
    margin = max_margin(problem.rows, pairs)
    late = limit(
        problem,
        selected,
        margin,
        late_query=query,
        earlier_query=earlier_query,
    )
    return PredictedEnd(selected=selected, margin=margin, late=late)


def selection(
    problem: Problem, query: Float[Array, " dim"], log_time: Float[Scalar, ""] | float
) -> Bool[Array, "sequences width"]:
    """Find the selected entries at p, by the scores a + α less the logs of counts.

    So biases of positions take part, and how often a token occurs does not.

    Source: mathematics, section 3.
    """
    corpus = problem.corpus
    counts = corpus.logits(jnp.zeros_like(problem.rows[:, 0]))
    offsets = jnp.where(corpus.present, problem.offsets - counts, 0.0)
    return selected_tokens(problem.scores(query), corpus, log_time, offsets)


@full_precision
def certify(
    problem: Problem,
    flow: Flow,
    *,
    tolerance: float = TOLERANCE,
    ties: RestingTies | None = None,
) -> Certificate:
    """Certify that a flow converges to the limit that its selection predicts.

    It is if its late flow is predicted, p lies in the basin, and three numbers are at
    most the tolerance: the bound B on what inactive pairs and all else may do,
    |D_kᵀ(p − p_mm log t − ρ)| of every active pair, and the last change of the part of
    ρ that the path decides.

    Source: mathematics, sections 3e and 4b.

    Args:
        problem: which the flow started from.
        flow: flow of p.
        tolerance: upper bound of these three numbers, `late_flow_residual`,
            `perturbation_bound` and `history_change`, in scores.
        ties: the ties of a contracted problem (`ties.contract`).

    Returns:
        The certificate.

    Raises:
        BadInput: a tolerance that is no number > 0 and ≤ 10⁻³, or not a problem.

    Example:
        >>> import jax
        >>> from jaxselect import Parameters, attention, cls_flow, from_sequences
        >>> bags = from_sequences([[0, 2], [1, 2]], [1, -1], vocabulary=3)
        >>> head = jnp.array([1.0, -1.0, 0.0])
        >>> start = attention(Parameters(jnp.eye(3), jnp.zeros(3), head), bags)
        >>> flow = jax.jit(cls_flow)(start, until_norm=1e4)
        >>> found = jax.jit(certify)(start, flow)
        >>> TrialStatus(found.status.item()).name
        'SELECTED_ALL'
        >>> late = found.ending.late
        >>> late.growth.round(3).tolist(), bool(found.perturbation_bound < 1e-3)
        ([0.333, 0.333, -0.667], True)
    """
    between("tolerance", tolerance, 0.0, math.nextafter(TOLERANCE, math.inf))
    check(problem)
    of_kind("flow", flow, Flow)
    end = _predict_end(problem, flow.query, flow.log_time, flow.earlier_query)
    return certificate_of(problem, flow, end, tolerance=tolerance, ties=ties)


def certificate_of(
    problem: Problem,
    flow: Flow,
    end: PredictedEnd,
    *,
    tolerance: float = TOLERANCE,
    ties: RestingTies | None = None,
    later: "Perturbations | None" = None,
) -> Certificate:
    """Certify a given ending.

    The perturbations `later` on are those of the flow, unless they are given. Then p
    need not have reached its line yet: theorem 3e.4 does not ask for it.
    """
    corpus = problem.corpus
    tied = jnp.asarray(False) if ties is None else ties.tied
    nothing = nothing_to_select(problem) & ~tied
    selected = jnp.where(nothing, corpus.present, end.selected)
    end = dataclasses.replace(end, selected=selected)
    covered = covered_by(problem, selected)
    here = flow.query, flow.log_time
    residual = late_flow_residual(problem.rows, end.margin, end.late, *here)
    off_line = 0.0 * residual
    if later is None:
        off_line = residual
        later = perturbations(problem, end, here, tolerance, ties=ties)
    bound = later.bound(end.late.basin)
    largest = jnp.max(jnp.abs(problem.scores(flow.query)))
    # What only the path decides is a part of p, and rounded as p is.
    rounded = ROUNDINGS * jnp.finfo(largest.dtype).eps * largest
    rounded = jnp.where(end.late.history_dim > 0, rounded, 0.0)
    found = Measured(
        flow_status=flow.status,
        limit_status=end.late.status,
        late_flow_residual=off_line,
        perturbation_bound=bound,
        history_change=end.late.history_change + rounded,
        displacement=later.displacement,
        largest_score=largest,
    )
    reason = jnp.where(nothing, Reason.NOTHING, reason_against(found, tolerance))
    sound = jnp.all(jnp.array([*usable(problem).values()]))
    reason = jnp.where(sound, reason, Reason.NUMBERS).astype(jnp.int32)
    outcome, paired = outcome_of(corpus, covered), end.pairs.held.any()
    status = classify_end(reason, outcome, tied, paired)
    return Certificate(
        ending=end,
        late_flow_residual=residual,
        perturbation_bound=bound,
        coverage=covered,
        status=status,
        reason=reason,
    )


def covered_by(
    problem: Problem, selected: Bool[Array, "sequences width"]
) -> Float[Array, " classes"]:
    """Compute `coverage` where importance is defined; else NaN."""
    covered = coverage(selected, problem.corpus)
    return covered if problem.importance else jnp.full_like(covered, jnp.nan)


class Measured(NamedTuple):
    """What is measured of an end, and judged; numbers are in scores."""

    flow_status: Int[Scalar, ""]
    limit_status: Int[Scalar, ""]
    late_flow_residual: Float[Scalar, ""]
    perturbation_bound: Float[Scalar, ""]
    history_change: Float[Scalar, ""]
    displacement: Float[Scalar, ""]
    largest_score: Float[Scalar, ""]


def reason_against(found: Measured, tolerance: float = TOLERANCE) -> Int[Scalar, ""]:
    """Return the `Reason` against an end.

    A run has converged if its selection has a max-margin solution, if a strict minimum
    ρ of Φ is proved, and if no number exceeds the tolerance. The residual may exceed it
    by the rounding of the largest score, 256 ε max |pᵀE_s|, below 1e-9 in double
    precision at ‖p‖ = 10⁴.

    Source: mathematics, section 3e.
    """
    rounding = _rounding(found.largest_score)
    double = found.late_flow_residual.dtype == jnp.float64
    coarse = 1 if double else SINGLE_PRECISION
    holds = {
        Reason.LINE: found.late_flow_residual <= tolerance + rounding,
        Reason.PERTURBATIONS: found.perturbation_bound <= tolerance,
        Reason.HISTORY: found.history_change <= coarse * tolerance,
        Reason.TIES: found.displacement <= tolerance,
    }
    own = [jnp.where(true, Reason.NONE, reason) for reason, true in holds.items()]
    every = jnp.stack([found.flow_status, found.limit_status, *own])
    return every[jnp.argmax(every != Reason.NONE)].astype(jnp.int32)


def _rounding(largest_score: Float[Scalar, ""]) -> Float[Scalar, ""]:
    """Bound the rounding of a score difference at the end of a flow."""
    return SCORE_ROUNDINGS * jnp.finfo(largest_score.dtype).eps * largest_score


def resolves(largest_score: Float[Scalar, ""]) -> Bool[Scalar, ""]:
    """Whether score differences are known to the tolerance of a certificate."""
    return _rounding(largest_score) <= TOLERANCE


# How a run ends that is not certified for some reason; of all others it is UNRESOLVED.
_ENDS = {
    Reason.FORCES_CANCEL: TrialStatus.TIES_UNPROVED,
    Reason.FAILED: TrialStatus.FAILED,
    Reason.TIES_DISTURBED: TrialStatus.TIES_UNPROVED,
    Reason.NOT_CONVERGED: TrialStatus.FAILED,
    Reason.NUMBERS: TrialStatus.FAILED,
    Reason.NOTHING: TrialStatus.AT_REST,
}


def classify_end(
    reason: Int[Scalar, ""],
    outcome: Int[Scalar, ""],
    tied: Bool[Scalar, ""],
    paired: Bool[Scalar, ""],
) -> Int[Scalar, ""]:
    """Return the `TrialStatus` of an end: its outcome if it is certified.

    Some tokens are `tied`, and some compete beside these (`paired`), or not.
    """
    ends = [_ENDS.get(each, TrialStatus.UNRESOLVED) for each in Reason]
    certified = reason == Reason.NONE
    status = jnp.where(certified, outcome, jnp.asarray(ends, outcome.dtype)[reason])
    # Ties rest while what is left converges, or does not move at all.
    rests = jnp.where(certified, TrialStatus.TIED, TrialStatus.TIES_UNPROVED)
    nothing_moves = ~paired & (reason == Reason.NORM_NOT_REACHED)
    rests = jnp.where(nothing_moves, TrialStatus.AT_REST, rests)
    broken = (status == TrialStatus.FAILED) | (reason == Reason.OUT_OF_STEPS)
    return jnp.where(tied & ~broken, rests, status).astype(jnp.int32)


def outcome_of(corpus: Corpus, covered: Float[Array, " classes"]) -> Int[Scalar, ""]:
    """Return the `TrialStatus` of a certified end by its coverage."""
    if corpus.classes is not None:
        # No class but a sign has a status of its own: the worst decides.
        covered = jnp.nanmin(covered, keepdims=True)
    positive, negative = covered[0], covered[-1]
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
    return jnp.where(nothing, TrialStatus.SELECTED, status)


def late_flow_residual(
    embeddings: Float[Array, "vocabulary dim"],
    margin: MaxMargin,
    late: Limit,
    query: Float[Array, " dim"],
    log_time: Float[Scalar, ""],
) -> Float[Scalar, ""]:
    """Compute the largest distance of an active margin from its late flow, in scores.

    It is max |D_kᵀ(p − p_mm log t − ρ)| over the active pairs.

    Source: mathematics, section 3e.
    """
    off = margin.pairs.leads(embeddings @ (query - late.query_at(log_time)))
    return jnp.max(jnp.where(margin.active, jnp.abs(off), 0.0))


class Perturbations(NamedTuple):
    """What may still move p off its line: displacements of p from now on.

    Attributes:
        distance: bound on ‖p − p_mm τ − ρ‖ now; of a convex list plus what inactive
            pairs with c_k > 0 add.
        longest: D, the length of the longest pair.
        inactive: by the forces of inactive pairs.
        omitted: by the terms that the pair sum leaves out.
        ties: by ties that are not quite at rest.
        displacement: what ties themselves may be off their rest, in scores.
        force: bound on the force of every pair, per unit of τ.
    """

    distance: Float[Scalar, ""]
    longest: Float[Scalar, ""]
    inactive: Float[Scalar, ""]
    omitted: Float[Scalar, ""]
    ties: Float[Scalar, ""]
    displacement: Float[Scalar, ""]
    force: Float[Array, "*pairs"]

    def bound(self, basin: Float[Scalar, ""]) -> Float[Scalar, ""]:
        """Bound B on the change of a score difference; ∞ beyond the basin."""
        displacements = self.inactive, self.omitted, self.ties
        within = jnp.isfinite(farthest(self.distance, displacements, basin))
        return jnp.where(within, self.longest * sum(displacements), jnp.inf)


def perturbations(
    problem: Problem,
    end: PredictedEnd,
    here: tuple[Float[Array, " dim"], Float[Scalar, ""]],
    tolerance: float,
    *,
    ties: RestingTies | None = None,
    convex: bool = False,
) -> Perturbations:
    """List what may still move p, `here` at τ_0, off p_mm τ + ρ, while B ≤ tolerance.

    With δ_0 = ‖p − p_mm τ − ρ‖, a force grows by G = e^{2δ_0 D + ε} later at most,
    ε the tolerance, and one of margin m falls like e^{−(m − 1)τ} beside. An inactive
    pair moves p by |λ| ‖D‖ e^{2δ_0‖D‖ + ε}/(m − 1).

    A `convex` list leaves out inactive pairs with c_k > 0, by theorem 7c.4: on the line
    they move p by |λ| ‖D‖ e^{δ_0‖D‖}/(m − 1), which is added to the distance and, in
    scores, to ε; off it they only draw p nearer.

    Source: mathematics, sections 3e, 3g and 7c.
    """
    query, log_time = here
    embeddings, late, pairs = problem.rows, end.late, end.pairs
    scores = embeddings @ query
    distance = jnp.linalg.norm(query - late.query_at(log_time)) + late.offset_error
    length = jnp.where(pairs.held, pairs.lengths(embeddings), 0.0)
    longest = jnp.max(length)

    excess = pairs.leads(embeddings @ end.margin.direction) - 1
    inactive = pairs.held & ~end.margin.active
    eps = jnp.finfo(scores.dtype).eps
    strength = late.strength
    unknown = ROUNDINGS * eps * strength.magnitude + strength.error
    size = jnp.abs(strength.factor) + unknown
    exponent = strength.log_scale + log_time - pairs.leads(scores)
    # A pair that meets in no sequence has no strength, whatever its exponent.
    meets = pairs.held & (size > 0)
    fades = meets & (excess > 0)

    def moved_by(exponent: Array) -> tuple[Array, Array]:
        force = jnp.where(meets, size * jnp.exp(jnp.where(meets, exponent, 0.0)), 0.0)
        moves = force * length / jnp.where(fades, excess, 1.0)
        return force, jnp.where(meets & ~fades, jnp.inf, moves)

    attracts = convex & inactive & (strength.factor > unknown)
    _, moves = moved_by(exponent + distance * length)
    drawn = jnp.sum(jnp.where(attracts, moves, 0.0))
    allowed = tolerance + longest * drawn
    force, moves = moved_by(exponent + 2 * distance * length + allowed)

    growth = jnp.exp(2 * (2 * distance * longest + allowed))
    ranges = 0.0 if ties is None else ties.ranges
    gross = _gross_forces(problem, end.selected, query, log_time, growth, ranges)
    omitted = gross.omitted * longest
    if not math.isfinite(problem.corpus.loss.largest_ratio):
        # Weights that grow by more may leave the margins that κ̄ was taken over.
        omitted = jnp.where(growth <= GROWTH, omitted, jnp.inf)
    tied = displacement = jnp.zeros_like(distance)
    if ties is not None:
        # Relative change of the forces of a bag by a unit of displacement.
        response = ties.widths * gross.response
        on_ties = GROSS * growth * (gross.force @ response)
        motion = tie_motion(ties.rest, ties.moved, on_ties, log_time)
        from_room = tie_motion(ties.rest, ties.room(TOLERANCE), on_ties, log_time)
        # Beyond it forces of tied bags are not what they are at rest but for a part.
        small = jnp.max(response) * motion.largest <= FORCES_HOLD
        tied = jnp.where(small, longest * on_ties * from_room.integral, jnp.inf)
        tied = jnp.where(ties.tied, tied, 0.0)
        widest = jnp.max(ties.widths)
        displacement = jnp.where(ties.tied, widest * motion.largest, 0.0)
    return Perturbations(
        distance=distance + drawn,
        longest=longest,
        inactive=jnp.sum(jnp.where(inactive & ~attracts, moves, 0.0)),
        omitted=omitted,
        ties=tied,
        displacement=displacement,
        force=force,
    )


class _GrossForces(NamedTuple):
    """Forces of losing tokens without their signs, in scores, per unit of τ.

    Attributes:
        force: of every bag, Σ_r e^τ w_X g_X q_r w, w the range of b before a
            contraction.
        response: r_X, the relative change of its forces by that of its weights.
        omitted: bound on ∫|gradient − pair sum| dτ from then on, per unit of D.
    """

    force: Float[Array, " sequences"]
    response: Float[Array, " sequences"]
    omitted: Float[Scalar, ""]


def _gross_forces(
    problem: Problem,
    selected: Bool[Array, "sequences width"],
    query: Float[Array, " dim"],
    log_time: Float[Scalar, ""],
    growth: Float[Scalar, ""] | float = 1.0,
    ranges: Float[Array, " sequences"] | float = 0.0,
) -> _GrossForces:
    """Compute gross forces, for one selected token, and what the pair sum omits.

    `growth` is G², of a product of two weights from then on; `ranges` are those of b
    over tied tokens, too.
    """
    corpus, values = problem.corpus, problem.values
    logits = problem.logits(problem.scores(query))
    attention = attend_bags(logits, values, corpus)
    present = corpus.present
    loses = present & ~selected
    weight = jnp.where(loses, jnp.exp(attention.log_weights), 0.0).sum(axis=1)
    margin = functional_margin(corpus.labels, attention.output, corpus.loss)
    # Below the bound on unselected weights no margin falls by a half.
    change = margin.largest_ratio(corpus.loss)
    spread = lead_range(margin, values, present)
    unselected = weight * (1 + change * spread)
    exponent = log_weighted_residual(attention, corpus) + log_time
    force = jnp.exp(jnp.where(loses, exponent, -jnp.inf)).sum(axis=1)
    force = margin.steepness * force
    small = jnp.max(unselected) * jnp.sqrt(growth) <= UNSELECTED
    omitted = NONLINEAR * growth * (unselected @ (force * spread))
    omitted = jnp.where(small, omitted, jnp.inf)
    wide = jnp.maximum(spread, ranges)
    response = response_to_weights(wide, corpus.loss, margin)
    return _GrossForces(force * wide, response, omitted)
