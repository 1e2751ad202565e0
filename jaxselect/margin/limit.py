"""The late flow that a selection predicts, by closed forms and a convex problem.

Once the selected sets are final, dp/dt = Σ_k c_k e^{−D_kᵀp} D_k over the pairs (s*, r)
that meet in a sequence, and p_t = p_mm log t + ρ + o(1). The rate of the direction,
1/(‖p_mm‖ log t), and its constant, ‖(I − p̂p̂ᵀ)ρ‖, follow without integrating anything
(mathematics, section 3b).
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Scalar

from ..arguments import as_annotated
from ..corpora.checks import for_corpus
from ..corpora.corpus import Corpus
from ..model.frame import Frame, frame
from ..model.parameters import Parameters
from ..precision import full_precision
from ..status import Status
from .critical_point import minimise, prove, solve
from .max_margin import MaxMargin, MaxMarginStatus
from .pair_graph import centred, potentials, score_differences
from .pair_strength import PairStrength, pair_strength
from .span import Span, projector, span


class LimitStatus(Status):
    """Whether the late flow was predicted."""

    PREDICTED = 0, "A strict minimum ρ of Φ is proved next to the computed one."
    SEVERAL_SELECTED = (
        1,
        "A sequence keeps several tokens; their mutual weights are not predicted here.",
    )
    NOT_ATTRACTING = (
        2,
        "Some active pairs pull towards the losing token (c_k ≤ 0), and no strict "
        "minimum of Φ is proved.",
    )
    NO_MAX_MARGIN = (
        3,
        "The max-margin problem of this selection has no solution at hand.",
    )
    NOT_CONVERGED = 4, "Newton's method did not reach rounding."
    NOT_SETTLED = 5, "The flow to the selection broke off."
    NO_MINIMISER = (
        6,
        "All active c_k are positive, but no minimiser of Φ is proved: to rounding, "
        "some active pair has no positive dual, and its score difference grows.",
    )


class Limit(eqx.Module):
    """The late flow p_t = p_mm log t + ρ.

    Attributes:
        growth: p_mm.
        offset: ρ.
        error_constant: lim ‖p_t‖ · ‖p_t/‖p_t‖ − p_mm/‖p_mm‖‖ = ‖(I − p̂p̂ᵀ)ρ‖.
        strength: c_k of every competing pair.
        history: the part of ρ that only the path decides: see `limit`.
        history_dim: dimension of the space that this part lives in.
        history_change: largest change of a score difference by this part between two
            log-times of the flow; ∞ where it is not known, zero where there is none.
        offset_error: bound on the distance from ρ to `offset`, history apart.
        basin: radius of a ball around ρ from which the late flow converges to ρ.
        status: a `LimitStatus`.
    """

    growth: Float[Array, " dim"]
    offset: Float[Array, " dim"]
    error_constant: Float[Scalar, ""]
    strength: PairStrength
    history: Float[Array, " dim"]
    history_dim: Int[Scalar, ""]
    history_change: Float[Scalar, ""]
    offset_error: Float[Scalar, ""]
    basin: Float[Scalar, ""]
    status: Int[Scalar, ""]

    def query_at(self, log_time: Float[Scalar, ""] | float) -> Float[Array, " dim"]:
        """The predicted p at a late log-time: p_mm log t + ρ."""
        return self.growth * log_time + self.offset

    def log_time_at(self, norm: Float[Scalar, ""] | float) -> Float[Scalar, ""]:
        """The late log-time at which ‖p_mm log t + ρ‖ is the given norm."""
        square, mixed = self.growth @ self.growth, self.growth @ self.offset
        deficit = norm**2 - self.offset @ self.offset
        return (jnp.sqrt(mixed**2 + square * deficit) - mixed) / square

    def placed(self, inside: Frame) -> "Limit":
        """The late flow of a problem in R^d, of that in its frame."""
        vectors = lambda late: (late.growth, late.history)  # noqa: E731
        late = eqx.tree_at(vectors, self, replace_fn=inside.lift_vectors)
        return eqx.tree_at(
            lambda late: late.offset, late, replace_fn=inside.lift_points
        )


@for_corpus(by_head=True)
@full_precision
def limit(
    parameters: Parameters,
    corpus: Corpus,
    selected: Bool[Array, "sequences width"],
    pairs: Bool[Array, "vocabulary vocabulary"],
    margin: MaxMargin,
    *,
    late_query: Float[Array, " dim"] | None = None,
    earlier_query: Float[Array, " dim"] | None = None,
) -> Limit:
    """Predict the late flow from (E, p_0, v), the counts and the selection.

    On the span of the active D_k, ρ is the unique minimiser of
    Σ_{k active} c_k e^{−D_kᵀρ} + p_mmᵀρ: at it the c_k e^{−D_kᵀρ} are duals of p_mm.
    Orthogonal to every D_k, ρ is what p_0 was. The part in between, in the span that
    only inactive pairs reach, was set before the flow was late: it is taken from
    `late_query` where that is given, else left at zero and counted in `history_dim`.

    Source: mathematics, sections 3b and 4b.

    Args:
        parameters: (E, p_0, v), with p_0 from before the flow.
        corpus: n labelled bags.
        selected: the final selection, in bag layout.
        pairs: the competing pairs of that selection.
        margin: its max-margin solution.
        late_query: p late in a flow, if there was one.
        earlier_query: p earlier in it, for `history_change`.

    Returns:
        The prediction, differentiable in E, p_0 and v in both modes.

    Example:
        See `trial_certificate.certify`.
    """
    inside, growth = frame(parameters), margin.direction
    parameters, embeddings = inside.parameters, inside.parameters.embeddings
    few = inside.coordinates(growth)
    margin = eqx.tree_at(lambda margin: margin.direction, margin, few)
    strength = pair_strength(embeddings @ parameters.head, corpus, selected)
    repelling = jnp.any(margin.active & (strength.factor <= 0))
    in_phi = strength._replace(factor=jnp.where(margin.active, strength.factor, 0.0))
    spans = _spans(embeddings, pairs, margin)
    tiny = jnp.finfo(few.dtype).tiny
    along = few / jnp.maximum(margin.norm, tiny)

    history = jnp.zeros_like(parameters.query)
    change = jnp.where(spans.path_dim > 0, jnp.inf, jnp.zeros_like(tiny))
    if late_query is not None:
        history = spans.path_part(inside.coordinates(late_query), along)
    if late_query is not None and earlier_query is not None:
        moved = spans.path_part(inside.coordinates(late_query - earlier_query), along)
        moved = jnp.abs(score_differences(embeddings @ moved))
        change = jnp.max(jnp.where(pairs, moved, 0.0))
    fixed = parameters.query - spans.by_any @ parameters.query + history

    offset, converged = minimise(in_phi, margin, spans.active)
    proof = prove(embeddings, strength, margin, spans.active, offset)
    proof = jax.lax.stop_gradient(proof)
    offset = _with_derivatives(embeddings, in_phi, margin, spans, offset, fixed)

    across = offset - along * (along @ offset)
    off_span = jnp.linalg.norm(growth - inside.lift_vectors(spans.by_active @ few))
    # The span of the active pairs holds p_mm but for half of the digits, or lacks one.
    complete = off_span <= jnp.sqrt(jnp.finfo(few.dtype).eps) * margin.norm
    solved = (margin.status == MaxMarginStatus.SOLVED) & complete
    several = jnp.any(selected.sum(axis=1) > 1)
    return Limit(
        growth=growth,
        offset=inside.lift_points(offset),
        error_constant=jnp.linalg.norm(across),
        strength=strength,
        history=inside.lift_vectors(history),
        history_dim=spans.path_dim.astype(jnp.int32),
        history_change=jax.lax.stop_gradient(change),
        offset_error=proof.error,
        basin=proof.basin,
        status=_status(solved, several, repelling, converged, proof.exists),
    )


@as_annotated
def norm_to_error(late: Limit, error: Float[Scalar, ""] | float) -> Float[Scalar, ""]:
    """‖p‖ at which the late flow has a given direction error.

    The error is 2 sin(θ/2) with θ the angle to p_mm, and ‖p‖ sin θ = ‖(I − p̂p̂ᵀ)ρ‖.

    Source: mathematics, section 3f.

    Args:
        late: of `limit`.
        error: ‖p/‖p‖ − p_mm/‖p_mm‖‖, in (0, √2).

    Returns:
        ‖p‖; the error constant over the error, where that is small.
    """
    sine, _ = _angle(error, late.offset.dtype)
    return late.error_constant / sine


@as_annotated
def log_time_to_error(
    late: Limit, error: Float[Scalar, ""] | float
) -> Float[Scalar, ""]:
    """Log t at which the late flow has a given direction error.

    p̂_mmᵀp = ‖p_mm‖ log t + p̂_mmᵀρ = ‖p‖ cos θ, with θ as in `norm_to_error`.

    Source: mathematics, section 3f.

    Args:
        late: of `limit`.
        error: ‖p/‖p‖ − p_mm/‖p_mm‖‖, in (0, √2).

    Returns:
        log t.
    """
    sine, cosine = _angle(error, late.offset.dtype)
    along = late.error_constant * cosine / sine
    square = late.growth @ late.growth
    return (along * jnp.sqrt(square) - late.growth @ late.offset) / square


class _Spans(NamedTuple):
    """Spans of the differences D_k of all competing pairs, and of the active ones.

    Attributes:
        by_any: projector on the span of all pairs.
        by_active: projector on that of the active pairs.
        active: the latter, factored.
        path_dim: difference of their dimensions.
    """

    by_any: Float[Array, "dim dim"]
    by_active: Float[Array, "dim dim"]
    active: Span
    path_dim: Int[Scalar, ""]

    def path_part(
        self, query: Float[Array, " dim"], along: Float[Array, " dim"]
    ) -> Float[Array, " dim"]:
        """The part of p in the span that only inactive pairs reach."""
        # p_mm lies in both spans; taken out first, p_mm log t leaves no rounding.
        slow = query - along * (along @ query)
        part = self.by_any @ slow - self.by_active @ slow
        return jnp.where(self.path_dim > 0, part, 0.0)


def _spans(
    embeddings: Float[Array, "vocabulary dim"],
    pairs: Bool[Array, "vocabulary vocabulary"],
    margin: MaxMargin,
) -> _Spans:
    # In a loop the factorisation is compiled once: each is a fifth of what a TPU's
    # compiler does for a trial. Two batched ones must not be side by side: in jaxlib's
    # pool of two threads they can wait for each other for ever. The margin's comes
    # first, by a condition that always holds.
    any_rows = centred(embeddings, pairs & (margin.iterations >= 0))
    tied_rows = centred(embeddings, margin.active)
    rows = jax.lax.stop_gradient(jnp.stack([any_rows, tied_rows]))
    spans = jax.lax.map(span, rows)
    any_pair, active = (jax.tree.map(lambda x, i=i: x[i], spans) for i in range(2))
    return _Spans(
        by_any=projector(any_rows, any_pair),
        by_active=projector(tied_rows, active),
        active=active,
        path_dim=any_pair.rank - active.rank,
    )


def _with_derivatives(
    embeddings: Float[Array, "vocabulary dim"],
    in_phi: PairStrength,
    margin: MaxMargin,
    spans: _Spans,
    offset: Float[Array, " dim"],
    fixed: Float[Array, " dim"],
) -> Float[Array, " dim"]:
    """ρ with its implicit derivative: one Newton step from the fixed solution."""
    here = jax.lax.stop_gradient(offset + fixed)
    duals = in_phi.times_exp(-score_differences(embeddings @ here))
    left = here - spans.by_active @ here - fixed
    residual = margin.direction - potentials(duals) @ embeddings + left
    return here - solve(jax.lax.stop_gradient(duals), spans.active, residual)


def _status(
    solved: Bool[Scalar, ""],
    several: Bool[Scalar, ""],
    repelling: Bool[Scalar, ""],
    converged: Bool[Scalar, ""],
    exists: Bool[Scalar, ""],
) -> Int[Scalar, ""]:
    """The first hypothesis of the prediction that does not hold."""
    status = jnp.where(repelling, LimitStatus.NOT_ATTRACTING, LimitStatus.NO_MINIMISER)
    lost = ~converged & ~repelling
    status = jnp.where(lost, LimitStatus.NOT_CONVERGED, status)
    status = jnp.where(converged & exists, LimitStatus.PREDICTED, status)
    status = jnp.where(several, LimitStatus.SEVERAL_SELECTED, status)
    return jnp.where(solved, status, LimitStatus.NO_MAX_MARGIN)


def _angle(
    error: Float[Scalar, ""] | float, dtype: jnp.dtype
) -> tuple[Float[Scalar, ""], Float[Scalar, ""]]:
    """Sine and cosine of the angle θ with 2 sin(θ/2) = error."""
    half = jnp.asarray(error, dtype) / 2
    return 2 * half * jnp.sqrt(1 - half**2), 1 - 2 * half**2
