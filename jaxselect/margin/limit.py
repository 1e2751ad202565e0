"""The late flow that a selection predicts, from closed forms and a convex problem.

Once the selected sets are final, dp/dt = Σ_k c_k e^{−D_kᵀp} D_k over the pairs (s*, r)
that meet in a sequence, and p_t = p_mm log t + ρ + o(1). On the span of the active
pairs the offset ρ is the minimiser of Φ(z) = Σ_{k active} c_k e^{−D_kᵀz} + p_mmᵀz, by
Newton's method. The computed numbers prove that ρ exists near the computed point, and
give a ball in which −∇Φ leads to it. The rate of the direction, 1/(‖p_mm‖ log t), and
its constant, ‖(I − p̂p̂ᵀ)ρ‖, follow without integrating anything (mathematics, sections
3b and 3e).
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve, solve_triangular
from jaxtyping import Array, Bool, Float, Int, Scalar

from ..checks import of_kind
from ..compilation import full_precision
from ..flow.adjoint import Doubt
from ..model.selection import check_selected
from ..problem import Problem, check
from ..status import Reason
from .max_margin import MaxMargin
from .minimum import Minimum
from .pairs import ROUNDINGS, AbstractPairs, PairStrength, pair_strength
from .span import Span, projector, span

# Largest ‖∇Φ‖ at the end of Newton's method, in roundings of Σ λ: a thousand terms of
# either sign cancel.
STATIONARY = 1e3
# Bound on the iterations of Newton's method: ten times what the default sweep takes.
ITERATIONS = 200
# Step below which log(1 + δ)/δ is one to rounding, and its quotient is not.
WHOLE_STEP = 1e-8


class Limit(eqx.Module):
    """The late flow p_t = p_mm log t + ρ.

    Source: mathematics, section 3b.

    Attributes:
        growth: p_mm.
        offset: ρ.
        error_constant: lim ‖p_t‖ · ‖p_t/‖p_t‖ − p_mm/‖p_mm‖‖ = ‖(I − p̂p̂ᵀ)ρ‖.
        strength: c_k of every competing pair.
        history: the part of ρ that only the path decides (see `limit`).
        history_dim: dimension of the space of `history`.
        history_change: largest change of a score difference by `history` between two
            log-times of the flow; ∞ if it is not known, zero if `history_dim` is zero.
        offset_error: bound on ‖`offset` − ρ‖ without the part `history`.
        basin: radius of a ball around ρ from which the late flow converges to ρ.
        status: the `Reason` why it is not predicted; NONE if it is, and a strict
            minimum ρ of Φ is proved next to the computed one.
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
        """Predict p at a late log-time: p_mm log t + ρ."""
        return self.growth * log_time + self.offset


@full_precision
def limit(
    problem: Problem,
    selected: Bool[Array, "sequences width"],
    margin: MaxMargin,
    *,
    late_query: Float[Array, " dim"] | None = None,
    earlier_query: Float[Array, " dim"] | None = None,
    spans: "Spans | None" = None,
) -> Limit:
    """Predict the late flow of a problem from its selection.

    On the span of the active D_k, ρ is the minimiser of Σ_{k active} c_k e^{−D_kᵀρ} +
    p_mmᵀρ, where the numbers c_k e^{−D_kᵀρ} are duals of p_mm. Orthogonal to every D_k,
    ρ equals p_0. In the span that only inactive pairs reach, ρ was determined earlier
    on the path: this part is read from `late_query` if that is given, else it is zero.
    Its dimension is `history_dim`.

    Source: mathematics, sections 3b and 4b.

    Args:
        problem: with the p_0 from before the flow.
        selected: the final selection, (n, w).
        margin: its max-margin solution.
        late_query: p late in the flow.
        earlier_query: p at an earlier time of the flow, for `history_change`.
        spans: those of this margin, if they are known.

    Returns:
        The prediction, differentiable in the problem in both modes.

    Raises:
        BadInput: not a problem.
    """
    check(problem)
    check_selected(selected, problem.corpus)
    of_kind("margin", margin, MaxMargin)
    embeddings, growth, pairs = problem.rows, margin.direction, margin.pairs
    strength = pair_strength(problem, selected, pairs)
    repelling = jnp.any(margin.active & (strength.factor <= 0))
    in_phi = strength._replace(factor=jnp.where(margin.active, strength.factor, 0.0))
    spans = spans_of(embeddings, margin) if spans is None else spans

    history = jnp.zeros_like(problem.start)
    change = jnp.where(spans.path_dim > 0, jnp.inf, jnp.zeros_like(margin.norm))
    if late_query is not None:
        history = spans.path_part(late_query)
    if late_query is not None and earlier_query is not None:
        moved = spans.path_part(late_query - earlier_query)
        moved = jnp.abs(pairs.leads(embeddings @ moved))
        change = jnp.max(jnp.where(pairs.held, moved, 0.0))
    fixed = problem.start - spans.by_any @ problem.start + history

    offset, converged = minimise(in_phi, margin, spans.active)
    proof = prove(embeddings, strength, margin, spans.active, offset)
    proof = jax.lax.stop_gradient(proof)
    offset = _with_derivatives(embeddings, in_phi, margin, spans, offset, fixed)

    across = offset - spans.along * (spans.along @ offset)
    off_span = jnp.linalg.norm(growth - spans.by_active @ growth)
    # The span of the active pairs holds p_mm but for half of the digits, or lacks one.
    complete = off_span <= jnp.sqrt(jnp.finfo(growth.dtype).eps) * margin.norm
    proved = converged & proof.proved & complete & pairs.held.any()
    status = jnp.where(repelling, Reason.NOT_ATTRACTING, Reason.NO_MINIMISER)
    status = jnp.where(proved, Reason.NONE, status)
    several = jnp.any(selected.sum(axis=1) > 1)
    status = jnp.where(several, Reason.SEVERAL_SELECTED, status)
    status = jnp.where(margin.status == Reason.NONE, status, margin.status)
    return Limit(
        growth=growth,
        offset=offset,
        error_constant=jnp.linalg.norm(across),
        strength=strength,
        history=history,
        history_dim=spans.path_dim.astype(jnp.int32),
        history_change=jax.lax.stop_gradient(change),
        offset_error=proof.radius,
        basin=proof.basin,
        status=status.astype(jnp.int32),
    )


def norm_to_error(late: Limit, error: Float[Scalar, ""] | float) -> Float[Scalar, ""]:
    """Compute ‖p‖ at which the late flow has a given direction error in (0, √2).

    The error ‖p/‖p‖ − p_mm/‖p_mm‖‖ is 2 sin(θ/2) with θ the angle to p_mm, and ‖p‖ sin
    θ = ‖(I − p̂p̂ᵀ)ρ‖, the error constant.

    Source: mathematics, section 3f.
    """
    sine, _ = _angle(error, late.offset.dtype)
    return late.error_constant / sine


def log_time_to_error(
    late: Limit, error: Float[Scalar, ""] | float
) -> Float[Scalar, ""]:
    """Compute log t at which the late flow has a given direction error in (0, √2).

    It solves p̂_mmᵀp = ‖p_mm‖ log t + p̂_mmᵀρ = ‖p‖ cos θ, with θ as in
    `norm_to_error`.

    Source: mathematics, section 3f.
    """
    sine, cosine = _angle(error, late.offset.dtype)
    along = late.error_constant * cosine / sine
    square = late.growth @ late.growth
    return (along * jnp.sqrt(square) - late.growth @ late.offset) / square


def _angle(
    error: Float[Scalar, ""] | float, dtype: jnp.dtype
) -> tuple[Float[Scalar, ""], Float[Scalar, ""]]:
    """Compute sine and cosine of the angle θ with 2 sin(θ/2) = error."""
    half = jnp.asarray(error, dtype) / 2
    return 2 * half * jnp.sqrt(1 - half**2), 1 - 2 * half**2


class Spans(NamedTuple):
    """Spans of the differences D_k of all competing pairs, and of the active ones.

    Attributes:
        by_any: projector on the span of all pairs.
        by_active: projector on that of the active pairs.
        active: the latter, factored.
        along: p_mm/‖p_mm‖, which lies in both.
        path_dim: difference of their dimensions.
    """

    by_any: Float[Array, "dim dim"]
    by_active: Float[Array, "dim dim"]
    active: Span
    along: Float[Array, " dim"]
    path_dim: Int[Scalar, ""]

    @property
    def doubt(self) -> Doubt:
        """How a derivative of a flow is judged: by the part of ρ that it decides."""
        fixed = jax.lax.stop_gradient(self)
        return Doubt(self.path_dim > 0, jax.tree_util.Partial(_path_part, fixed))

    def path_part(self, query: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """Project p on the span that only inactive pairs reach."""
        # Taken out first, p_mm log t leaves no rounding.
        slow = query - self.along * (self.along @ query)
        part = self.by_any @ slow - self.by_active @ slow
        return jnp.where(self.path_dim > 0, part, 0.0)


def _path_part(spans: Spans, flow: Any) -> Float[Array, " dim"]:
    return spans.path_part(flow.query)


def spans_of(embeddings: Float[Array, "vocabulary dim"], margin: MaxMargin) -> Spans:
    """Compute the spans of all pairs and of the active ones, with derivatives."""
    # In a loop the factorisation is compiled once: each is a fifth of what a TPU's
    # compiler does for a trial. Two batched ones must not be side by side: in jaxlib's
    # pool of two threads they can wait for each other without end. The margin's comes
    # first, by a condition that always holds.
    pairs = margin.pairs
    any_rows = pairs.centred(embeddings, pairs.held & (margin.iterations >= 0))
    tied_rows = pairs.centred(embeddings, margin.active)
    rows = jax.lax.stop_gradient(jnp.stack([any_rows, tied_rows]))
    tiny = jnp.finfo(rows.dtype).tiny
    spans = jax.lax.map(span, rows)
    any_pair, active = (jax.tree.map(lambda x, i=i: x[i], spans) for i in range(2))
    return Spans(
        by_any=projector(any_rows, any_pair),
        by_active=projector(tied_rows, active),
        active=active,
        along=margin.direction / jnp.maximum(margin.norm, tiny),
        path_dim=any_pair.rank - active.rank,
    )


def minimise(
    strength: PairStrength, margin: MaxMargin, active: Span
) -> tuple[Float[Array, " dim"], Bool[Scalar, ""]]:
    """Compute ρ on the span of the active pairs by damped Newton steps.

    Source: mathematics, section 3b.
    """
    # Third derivatives are bounded by the second times δ = max |D_kᵀ step|, for which a
    # step of log(1 + δ)/δ descends from anywhere (T. Sun and Q. Tran-Dinh, Generalized
    # self-concordant functions, 2019), and is a whole step at the end.
    strength, margin = jax.lax.stop_gradient((strength, margin))
    pairs, dtype = margin.pairs, margin.norm.dtype
    wanted = active.inverse * (active.axes @ margin.direction)
    # Σ λ = ‖p_mm‖² terms cancel in the force on a token.
    size = jnp.maximum(margin.norm**2, jnp.finfo(dtype).tiny)
    tolerance = STATIONARY * jnp.finfo(dtype).eps * size

    def rest(scores: Array) -> tuple[Array, Array]:
        duals = strength.times_exp(-pairs.leads(active.left @ scores))
        return duals, wanted - pairs.divergence(duals) @ active.left

    def unfinished(state: tuple[Array, Array, Array]) -> Array:
        _, error, iteration = state
        return (error > tolerance) & (iteration < ITERATIONS)

    def newton(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        scores, _, iteration = state
        duals, missing = rest(scores)
        step = -cho_solve(_curvature(pairs, duals, active), missing)
        spread = jnp.abs(pairs.leads(active.left @ step))
        delta = jnp.max(jnp.where(strength.factor != 0, spread, 0.0))
        # A pair's score may not be moved beyond what one exponential can follow.
        damping = jnp.where(delta > WHOLE_STEP, jnp.log1p(delta) / delta, 1.0)
        scores = scores + damping * step
        _, missing = rest(scores)
        return scores, jnp.linalg.norm(missing), iteration + 1

    start = _start(strength, margin, active)
    state = (start, jnp.asarray(jnp.inf, dtype), jnp.asarray(0))
    scores, error, _ = jax.lax.while_loop(unfinished, newton, state)
    return (active.inverse * scores) @ active.axes, error <= tolerance


def _start(
    strength: PairStrength, margin: MaxMargin, active: Span
) -> Float[Array, " axes"]:
    """Fit scores to given duals λ by least squares: D_kᵀρ ≈ log(c_k / λ_k)."""
    # Least squares with weights λ; c spans as many decades as σ(−y b) does, and exp
    # would overflow from a start that ignores it.
    duals = jnp.where(strength.factor > 0, margin.duals, 0.0)
    known = duals > 0
    ratio = jnp.where(known, strength.factor, 1.0) / jnp.where(known, duals, 1.0)
    charge = margin.pairs.divergence(duals * (strength.log_scale + jnp.log(ratio)))
    return cho_solve(_curvature(margin.pairs, duals, active), charge @ active.left)


def _with_derivatives(
    embeddings: Float[Array, "vocabulary dim"],
    in_phi: PairStrength,
    margin: MaxMargin,
    spans: Spans,
    offset: Float[Array, " dim"],
    fixed: Float[Array, " dim"],
) -> Float[Array, " dim"]:
    """Attach the implicit derivative to ρ by one Newton step from the solution."""
    here = jax.lax.stop_gradient(offset + fixed)
    pairs = margin.pairs
    duals = in_phi.times_exp(-pairs.leads(embeddings @ here))
    left = here - spans.by_active @ here - fixed
    residual = margin.direction - pairs.divergence(duals) @ embeddings + left
    return here - _solve(pairs, jax.lax.stop_gradient(duals), spans.active, residual)


def _solve(
    pairs: AbstractPairs,
    duals: Float[Array, "*pairs"],
    active: Span,
    residual: Float[Array, " dim"],
) -> Float[Array, " dim"]:
    """Solve (Σ λ_k D_k D_kᵀ + I − N) x = residual."""
    inside = active.axes @ residual
    factor = _curvature(pairs, duals, active)
    solved = cho_solve(factor, active.inverse * inside)
    return residual + active.axes.T @ (active.inverse * solved - inside)


def _curvature(
    pairs: AbstractPairs, duals: Float[Array, "*pairs"], active: Span
) -> tuple[Float[Array, "axes axes"], bool]:
    """Factorise Σ λ_k D_k D_kᵀ in coordinates σ Wᵀρ, free of tokens' lengths."""
    return active.factor(pairs.gram(active.left, duals))


def prove(
    embeddings: Float[Array, "vocabulary dim"],
    strength: PairStrength,
    margin: MaxMargin,
    active: Span,
    offset: Float[Array, " dim"],
) -> Minimum:
    """Prove that Φ has a strict minimum ρ near a computed point.

    With H = Σ λ_k D_k D_kᵀ, D_H = max ‖D_k‖_{H⁻¹} and β_H = 1 + 2 Σ_{λ_k<0} |λ_k|
    ‖D_k‖²_{H⁻¹}, Λ = e β_H D_H and R = 1/D_H; μ = 1/tr H⁻¹. ν includes the roundings of
    each λ_k and the residuals D_kᵀp_mm − 1. Strengths of inactive pairs are not used.
    The basin is ∞ where all active c_k are positive beyond their errors, so that Φ is
    convex. Without a positive definite Hessian all numbers are NaN.

    Source: mathematics, section 3e.
    """
    pairs, eps = margin.pairs, jnp.finfo(offset.dtype).eps
    # Where bags cancel to rounding there is no force, but its rounding is one.
    used = margin.active & (strength.magnitude > 0)
    exponent = jnp.where(
        used, strength.log_scale - pairs.leads(embeddings @ offset), 0.0
    )
    duals = jnp.where(used, strength.factor * jnp.exp(exponent), 0.0)
    missing = active.inverse * (active.axes @ margin.direction)
    missing = missing - pairs.divergence(duals) @ active.left
    # With H = RᵀR, lengths in the norm of H⁻¹ are those of R⁻ᵀ times the vectors.
    root, lower = _curvature(pairs, duals, active)
    vectors = active.left.T, jnp.diag(active.inverse), missing[:, None]
    together = jnp.concatenate(vectors, axis=1)
    solved = solve_triangular(root, together, trans="T", lower=lower)
    number = len(active.left)
    reach = jnp.where(used, pairs.lengths(solved[:, :number].T), 0.0)
    trace = jnp.sum(solved[:, number:-1] ** 2)

    size = jnp.abs(duals)
    known = jnp.abs(strength.factor) * (1 + jnp.abs(exponent))
    uncertain = ROUNDINGS * eps * (strength.magnitude + known) + strength.error
    # A sign within the error of c_k decides nothing.
    convex = ~jnp.any(margin.active & (strength.factor <= uncertain))
    unsure = jnp.where(used, uncertain * jnp.exp(exponent), 0.0)
    scores = embeddings @ margin.direction
    longest = jnp.max(jnp.abs(embeddings) @ jnp.abs(margin.direction))
    off = jnp.max(jnp.where(margin.active, jnp.abs(pairs.leads(scores) - 1), 0.0))
    off = off + ROUNDINGS * eps * longest

    left = jnp.linalg.norm(solved[:, -1]) + jnp.sum(unsure * reach)
    left = left + off * jnp.sqrt(jnp.sum(size)) * trace

    beta = 1 + 2 * jnp.sum(jnp.where(duals < 0, size * reach**2, 0.0))
    widest = jnp.max(jnp.where(used, pairs.lengths(embeddings), 0.0))
    farthest = jnp.max(reach)
    found = Minimum(
        point=offset,
        decrement=left,
        stiffness=1 / trace,
        lipschitz=jnp.exp(1.0) * beta * farthest,
        reach=1 / farthest,
        basin=jnp.inf,
    )
    basin = jnp.log1p(1 / beta) / widest - found.radius
    return found._replace(basin=jnp.where(convex, found.basin, basin))
