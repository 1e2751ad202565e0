"""What the selection alone predicts of the late flow, in closed form and convex.

Once the selected sets are final, dp/dt = Σ_k c_k e^{−D_kᵀp} D_k over the pairs (s*, r)
that meet in a sequence, and p_t = p_mm log t + ρ + o(1). The rate of the direction,
1/(‖p_mm‖ log t), and its constant, ‖(I − p̂p̂ᵀ)ρ‖, follow without integrating anything
(mathematics, section 3b).
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve
from jaxtyping import Array, Bool, Float, Int, Scalar

from ..arguments import as_annotated
from ..model.checks import same_vocabulary
from ..model.corpus import Corpus
from ..model.frame import Frame, frame
from ..model.parameters import Parameters
from ..precision import full_precision
from ..status import Status
from .max_margin import MaxMargin, MaxMarginStatus
from .pair_graph import centred, laplacian, lead, potentials
from .pair_strength import PairStrength, pair_strength
from .span import Span, projector, span

# ρ is stationary to this many roundings of Σ λ: a thousand terms of either sign cancel.
STATIONARY = 1e3
# Ten times what the worst of the default sweep takes.
ITERATIONS = 200
# Below it log(1 + δ)/δ is one to rounding, and its quotient is not.
WHOLE_STEP = 1e-8


class LimitStatus(Status):
    """Whether the late flow was predicted."""

    PREDICTED = 0, "ρ solves its convex problem to rounding."
    SEVERAL_SELECTED = (
        1,
        "A sequence keeps several tokens; their mutual weights are not predicted here.",
    )
    NOT_ATTRACTING = (
        2,
        "Some active pairs push towards the token that lost, and no ρ balances them.",
    )
    NO_MAX_MARGIN = (
        3,
        "The max-margin problem of this selection has no solution at hand.",
    )
    NOT_CONVERGED = 4, "Newton's method did not reach rounding."
    NOT_SETTLED = 5, "The flow that was to tell the selection broke off."


class Limit(eqx.Module):
    """The late flow p_t = p_mm log t + ρ.

    Attributes:
        growth: p_mm.
        offset: ρ.
        error_constant: lim ‖p_t‖ · ‖p_t/‖p_t‖ − p_mm/‖p_mm‖‖ = ‖(I − p̂p̂ᵀ)ρ‖.
        strength: c_k of every competing pair.
        history: the part of ρ that only the path decides: see `limit`.
        history_dim: dimension of the space that this part lives in.
        status: a `LimitStatus`.
    """

    growth: Float[Array, " dim"]
    offset: Float[Array, " dim"]
    error_constant: Float[Scalar, ""]
    strength: PairStrength
    history: Float[Array, " dim"]
    history_dim: Int[Scalar, ""]
    status: Int[Scalar, ""]

    def cls_at(self, log_time: Float[Scalar, ""] | float) -> Float[Array, " dim"]:
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
        late = eqx.tree_at(vectors, self, replace_fn=inside.directions)
        return eqx.tree_at(lambda late: late.offset, late, replace_fn=inside.places)


@as_annotated
@full_precision
def limit(
    parameters: Parameters,
    corpus: Corpus,
    selected: Bool[Array, "sequences width"],
    pairs: Bool[Array, "vocabulary vocabulary"],
    margin: MaxMargin,
    *,
    late_cls: Float[Array, " dim"] | None = None,
) -> Limit:
    """Predict the late flow from (E, p_0, v), the counts and the selection.

    On the span of the active D_k, ρ is the unique minimiser of
    Σ_{k active} c_k e^{−D_kᵀρ} + p_mmᵀρ: at it the c_k e^{−D_kᵀρ} are duals of p_mm.
    Orthogonal to every D_k, ρ is what p_0 was. What lies between, the span that only
    inactive pairs reach, was set before the flow was late: it is taken from `late_cls`
    where that is given, else left at zero and counted in `history_dim`.

    Source: mathematics, sections 3b and 4b.

    Args:
        parameters: (E, p_0, v), with p_0 from before the flow.
        corpus: n bags with labels ±1.
        selected: the final selection, in bag layout.
        pairs: the competing pairs of that selection.
        margin: its max-margin solution.
        late_cls: p late in a flow, if there was one.

    Returns:
        The prediction, differentiable in E, p_0 and v in both modes.

    Example:
        >>> from jaxselect.model.corpus import from_sequences
        >>> from jaxselect.margin.max_margin import max_margin
        >>> from jaxselect.model.selection import competing_pairs
        >>> bags = from_sequences([[0, 2], [1, 2]], [1, -1], vocabulary=3)
        >>> start = Parameters(
        ...     jnp.eye(3), jnp.zeros(3), jnp.array([1.0, -1.0, 0.0])
        ... )
        >>> chosen = jnp.array([[True, False], [True, False]])
        >>> pairs = competing_pairs(chosen, bags)
        >>> margin = jax.jit(max_margin)(start.embeddings, pairs)
        >>> late = jax.jit(limit)(start, bags, chosen, pairs, margin)
        >>> LimitStatus(late.status.item()).name
        'PREDICTED'
    """
    same_vocabulary(parameters.embeddings, corpus.vocabulary)
    inside, growth = frame(parameters), margin.direction
    parameters, embeddings = inside.parameters, inside.parameters.embeddings
    few = inside.coordinates(growth)
    margin = eqx.tree_at(lambda margin: margin.direction, margin, few)
    values = embeddings @ parameters.head
    strength = pair_strength(values, corpus, selected)
    repelled = jnp.any(margin.active & (strength.factor <= 0))
    pull = jnp.where(margin.active, strength.factor, 0.0)
    attracting = PairStrength(factor=pull, log_scale=strength.log_scale)
    tiny = jnp.finfo(values.dtype).tiny
    along = margin.direction / jnp.maximum(margin.norm, tiny)

    # In a loop the factorisation is compiled once: each is a fifth of what a TPU's
    # compiler does for a trial. Nor may two batched ones be side by side: in jaxlib's
    # pool of two threads they can wait for each other for ever. So the margin's comes
    # first, by a condition that always holds.
    any_rows = centred(embeddings, pairs & (margin.iterations >= 0))
    tied_rows = centred(embeddings, margin.active)
    rows = jax.lax.stop_gradient(jnp.stack([any_rows, tied_rows]))
    spans = jax.lax.map(span, rows)
    any_pair, active = (jax.tree.map(lambda x, i=i: x[i], spans) for i in range(2))
    by_active, by_any = projector(tied_rows, active), projector(any_rows, any_pair)
    history = jnp.zeros_like(parameters.cls)
    if late_cls is not None:
        # p_mm lies in both spans; taken out first, p_mm log t leaves no rounding.
        slow = inside.coordinates(late_cls)
        slow = slow - along * (along @ slow)
        history = by_any @ slow - by_active @ slow
    fixed = parameters.cls - by_any @ parameters.cls + history

    offset, converged = _minimise(attracting, margin, active)
    # One Newton step from the fixed solution carries the implicit derivative.
    here = jax.lax.stop_gradient(offset + fixed)
    duals = attracting.times_exp(-lead(embeddings @ here))
    left = here - by_active @ here - fixed
    residual = margin.direction - potentials(duals) @ embeddings + left
    offset = here - _solve(jax.lax.stop_gradient(duals), active, residual)

    across = offset - along * (along @ offset)
    several = jnp.any(selected.sum(axis=1) > 1)
    status = jnp.where(repelled, LimitStatus.NOT_ATTRACTING, LimitStatus.NOT_CONVERGED)
    status = jnp.where(converged, LimitStatus.PREDICTED, status)
    status = jnp.where(several, LimitStatus.SEVERAL_SELECTED, status)
    off_span = jnp.linalg.norm(growth - inside.directions(by_active @ few))
    # The span of the active pairs holds p_mm but for half of the digits, or lacks one.
    complete = off_span <= jnp.sqrt(jnp.finfo(here.dtype).eps) * margin.norm
    solved = (margin.status == MaxMarginStatus.SOLVED) & complete
    return Limit(
        growth=growth,
        offset=inside.places(offset),
        error_constant=jnp.linalg.norm(across),
        strength=strength,
        history=inside.directions(history),
        history_dim=(any_pair.rank - active.rank).astype(jnp.int32),
        status=jnp.where(solved, status, LimitStatus.NO_MAX_MARGIN),
    )


def _curvature(
    duals: Float[Array, "vocabulary vocabulary"], active: Span
) -> tuple[Float[Array, "axes axes"], bool]:
    """Factor of Σ λ_k D_k D_kᵀ in the coordinates σ Wᵀρ: free of the tokens' length."""
    return active.factor(laplacian(duals))


def _solve(
    duals: Float[Array, "vocabulary vocabulary"],
    active: Span,
    residual: Float[Array, " dim"],
) -> Float[Array, " dim"]:
    """(Σ λ_k D_k D_kᵀ + I − N)⁻¹ residual."""
    inside = active.axes @ residual
    solved = cho_solve(_curvature(duals, active), active.inverse * inside)
    return residual + active.axes.T @ (active.inverse * solved - inside)


def _start(
    strength: PairStrength, margin: MaxMargin, active: Span
) -> Float[Array, " axes"]:
    """The scores that best explain the duals λ at hand: D_kᵀρ ≈ log(c_k / λ_k)."""
    # Least squares with weights λ; c spans as many decades as σ(−y b) does, and exp
    # would overflow from a start that ignores it.
    duals = jnp.where(strength.factor > 0, margin.duals, 0.0)
    known = duals > 0
    ratio = jnp.where(known, strength.factor, 1.0) / jnp.where(known, duals, 1.0)
    charge = potentials(duals * (strength.log_scale + jnp.log(ratio)))
    return cho_solve(_curvature(duals, active), charge @ active.left)


@full_precision
def _minimise(
    strength: PairStrength, margin: MaxMargin, active: Span
) -> tuple[Float[Array, " dim"], Bool[Scalar, ""]]:
    """Newton's method for ρ on the span of the active pairs, damped."""
    # Third derivatives are bounded by the second times δ = max |D_kᵀ step|, for which a
    # step of log(1 + δ)/δ descends from anywhere (T. Sun and Q. Tran-Dinh, Generalized
    # self-concordant functions, 2019), and is a whole step at the end.
    strength, margin = jax.lax.stop_gradient((strength, margin))
    dtype = margin.norm.dtype
    wanted = active.inverse * (active.axes @ margin.direction)
    # Σ λ = ‖p_mm‖² terms cancel in the pull on a token.
    size = jnp.maximum(margin.norm**2, jnp.finfo(dtype).tiny)
    tolerance = STATIONARY * jnp.finfo(dtype).eps * size

    def rest(scores: Array) -> tuple[Array, Array]:
        duals = strength.times_exp(-lead(active.left @ scores))
        return duals, wanted - potentials(duals) @ active.left

    def unfinished(state: tuple[Array, Array, Array]) -> Array:
        _, error, iteration = state
        return (error > tolerance) & (iteration < ITERATIONS)

    def newton(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        scores, _, iteration = state
        duals, missing = rest(scores)
        step = -cho_solve(_curvature(duals, active), missing)
        spread = jnp.abs(lead(active.left @ step))
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
