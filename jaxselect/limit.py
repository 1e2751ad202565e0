"""What the selection alone predicts of the late flow, in closed form and convex.

Once the selected sets are final, dp/dt = Σ_k c_k e^{−D_kᵀp} D_k over the pairs (s*, r)
that meet in a sequence, and p_t = p_mm log t + ρ + o(1). The rate of the direction,
1/(‖p_mm‖ log t), and its constant, ‖(I − p̂p̂ᵀ)ρ‖, follow without integrating anything
(MODEL section 3b).
"""

import enum

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_factor, cho_solve
from jaxtyping import Array, Bool, Float, Int, Scalar

from .corpus import Corpus
from .gradient_flow import Flow
from .max_margin import MaxMargin, MaxMarginStatus, laplacian
from .parameters import Parameters
from .selection import competing_pairs
from .span import span_projector


class LimitStatus(enum.IntEnum):
    """Whether the late flow was predicted."""

    PREDICTED = 0
    """ρ solves its convex problem to rounding."""
    SEVERAL_SELECTED = 1
    """A sequence keeps several tokens; their mutual weights are not predicted here."""
    NOT_ATTRACTING = 2
    """Some active pairs push towards the token that lost, and no ρ balances them."""
    NO_MAX_MARGIN = 3
    """The max-margin problem of this selection has no solution at hand."""
    NOT_CONVERGED = 4
    """Newton's method did not reach rounding."""


class Limit(eqx.Module):
    """The late flow p_t = p_mm log t + ρ.

    Attributes:
        growth: p_mm.
        offset: ρ.
        error_constant: lim ‖p_t‖ · ‖p_t/‖p_t‖ − p_mm/‖p_mm‖‖ = ‖(I − p̂p̂ᵀ)ρ‖.
        history: the part of ρ that only the path decides: see `limit`.
        history_dim: dimension of the space that this part lives in.
        status: a `LimitStatus`.
    """

    growth: Float[Array, " dim"]
    offset: Float[Array, " dim"]
    error_constant: Float[Scalar, ""]
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


def limit(
    parameters: Parameters,
    corpus: Corpus,
    selected: Bool[Array, "sequences width"],
    margin: MaxMargin,
    reached: Float[Array, " dim"] | None = None,
) -> Limit:
    """Predict the late flow from (E, p_0, v), the counts and the selection.

    On the span of the active D_k, ρ is the unique minimiser of
    Σ_{k active} c_k e^{−D_kᵀρ} + p_mmᵀρ: at it the c_k e^{−D_kᵀρ} are duals of p_mm.
    Orthogonal to every D_k, ρ is what p_0 was. What lies between, the span that only
    inactive pairs reach, was set before the flow was late: it is taken from `reached`
    where that is given, else left at zero and counted in `history_dim`.

    Args:
        parameters: (E, p_0, v), with p_0 from before the flow.
        corpus: n bags with labels ±1.
        selected: the final selection, in bag layout.
        margin: the max-margin solution of that selection.
        reached: p late in a flow, if there was one.

    Returns:
        The prediction, differentiable in E, p_0 and v in both modes.

    Example:
        >>> from jaxselect.corpus import from_sequences
        >>> from jaxselect.max_margin import max_margin
        >>> bags = from_sequences([[0, 2], [1, 2]], [1, -1], vocabulary=3)
        >>> start = Parameters(
        ...     jnp.eye(3), jnp.zeros(3), jnp.array([1.0, -1.0, 0.0])
        ... )
        >>> chosen = jnp.array([[True, False], [True, False]])
        >>> margin = max_margin(start.embeddings, competing_pairs(chosen, bags))
        >>> late = limit(start, bags, chosen, margin)
        >>> LimitStatus(late.status.item()).name
        'PREDICTED'
    """
    embeddings = parameters.embeddings
    values = embeddings @ parameters.head
    pairs = competing_pairs(selected, corpus)
    coefficients = pair_coefficients(values, corpus, selected)
    weights = jnp.where(margin.active, coefficients, 0.0)

    by_active = span_projector(_pair_gram(embeddings, margin.active))
    by_any = span_projector(_pair_gram(embeddings, pairs))
    history = jnp.zeros_like(parameters.cls)
    if reached is not None:
        history = by_any @ reached - by_active @ reached
    fixed = parameters.cls - by_any @ parameters.cls + history

    start = _start(embeddings, weights, margin, by_active)
    # p_mm is a sum of active differences up to the accuracy it was solved to.
    spanned = by_active @ margin.direction
    offset, converged = _minimise(embeddings, weights, spanned, by_active, start)
    # One Newton step from the fixed solution carries the implicit derivative.
    here = jax.lax.stop_gradient(offset + fixed)
    gradient, curvature = _objective_derivatives(embeddings, weights, here)
    free = jnp.eye(len(here), dtype=here.dtype) - by_active
    residual = margin.direction - gradient + free @ here - fixed
    factor = cho_factor(jax.lax.stop_gradient(curvature + free))
    offset = here - cho_solve(factor, residual)

    along = margin.direction / jnp.maximum(margin.norm, jnp.finfo(here.dtype).tiny)
    across = offset - along * (along @ offset)
    rank = jnp.trace(by_any) - jnp.trace(by_active)
    several = jnp.any(selected.sum(axis=1) > 1)
    repelled = jnp.any(margin.active & (coefficients <= 0))
    status = jnp.where(repelled, LimitStatus.NOT_ATTRACTING, LimitStatus.NOT_CONVERGED)
    status = jnp.where(converged, LimitStatus.PREDICTED, status)
    status = jnp.where(several, LimitStatus.SEVERAL_SELECTED, status)
    off_span = jnp.linalg.norm(margin.direction - spanned)
    complete = off_span <= jnp.sqrt(jnp.finfo(here.dtype).eps) * margin.norm
    solved = (margin.status == MaxMarginStatus.SOLVED) & complete
    return Limit(
        margin.direction,
        offset,
        jnp.linalg.norm(across),
        history,
        jnp.round(rank).astype(jnp.int32),
        jnp.where(solved, status, LimitStatus.NO_MAX_MARGIN),
    )


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
        >>> from jaxselect.corpus import from_sequences
        >>> from jaxselect.gradient_flow import cls_flow
        >>> from jaxselect.max_margin import max_margin
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


def pair_coefficients(
    values: Float[Array, " vocabulary"],
    corpus: Corpus,
    selected: Bool[Array, "sequences width"],
) -> Float[Array, "vocabulary vocabulary"]:
    """Strength c_{s*r} of a pair in the late flow, for one selected token a sequence.

    c_{s*r} = (1/n) Σ_{X∋s*,r} σ(−y b_{s*}) (C_X[r] / C_X[s*]) y (b_{s*} − b_r).

    Args:
        values: b = E v.
        corpus: n bags with labels ±1.
        selected: one token per sequence, in bag layout.

    Returns:
        c, zero for pairs that never meet; positive where the winner deserves to win.

    Example:
        >>> from jaxselect.corpus import from_sequences
        >>> bags = from_sequences([[0, 1]], [1], vocabulary=2)
        >>> chosen = jnp.array([[True, False]])
        >>> c = pair_coefficients(jnp.array([1.0, -1.0]), bags, chosen)
        >>> round(c[0, 1].item(), 4), c[1, 0].item()
        (0.5379, 0.0)
    """
    slot = jnp.argmax(selected, axis=1)[:, None]
    counts = corpus.counts.astype(values.dtype)
    label = corpus.labels.astype(values.dtype)[:, None]
    winner = jnp.take_along_axis(corpus.tokens, slot, axis=1)
    ratio = counts / jnp.take_along_axis(counts, slot, axis=1)
    residual = jax.nn.sigmoid(-label * values[winner])
    ahead = label * (values[winner] - values[corpus.tokens])
    strength = jnp.where(selected, 0.0, residual * ratio * ahead) / len(label)
    square = jnp.zeros((corpus.vocabulary, corpus.vocabulary), values.dtype)
    return square.at[winner, corpus.tokens].add(strength)


def _pair_gram(
    embeddings: Float[Array, "vocabulary dim"],
    pairs: Bool[Array, "vocabulary vocabulary"],
) -> Float[Array, "dim dim"]:
    """Σ over the pairs of D Dᵀ."""
    return embeddings.T @ laplacian(pairs.astype(embeddings.dtype)) @ embeddings


def _objective_derivatives(
    embeddings: Float[Array, "vocabulary dim"],
    weights: Float[Array, "vocabulary vocabulary"],
    offset: Float[Array, " dim"],
) -> tuple[Float[Array, " dim"], Float[Array, "dim dim"]]:
    """Σ λ_k D_k and Σ λ_k D_k D_kᵀ with λ_k = c_k e^{−D_kᵀρ}."""
    scores = embeddings @ offset
    exponent = scores[None, :] - scores[:, None]
    duals = weights * jnp.exp(jnp.where(weights == 0, 0.0, exponent))
    charge = duals.sum(axis=1) - duals.sum(axis=0)
    return charge @ embeddings, embeddings.T @ laplacian(duals) @ embeddings


def _start(
    embeddings: Float[Array, "vocabulary dim"],
    weights: Float[Array, "vocabulary vocabulary"],
    margin: MaxMargin,
    projector: Float[Array, "dim dim"],
) -> Float[Array, " dim"]:
    """The ρ that best explains the duals λ at hand: D_kᵀρ ≈ log(c_k / λ_k).

    Least squares with weights λ; c spans as many decades as σ(−y b) does, and exp would
    overflow from a start that ignores it.
    """
    duals = jnp.where(weights > 0, margin.duals, 0.0)
    known = duals > 0
    ratio = jnp.where(known, weights, 1.0) / jnp.where(known, duals, 1.0)
    wanted = duals * jnp.log(ratio)
    charge = wanted.sum(axis=1) - wanted.sum(axis=0)
    system = embeddings.T @ laplacian(duals) @ embeddings
    system = system + jnp.eye(len(system), dtype=system.dtype) - projector
    return projector @ cho_solve(cho_factor(system), charge @ embeddings)


def _minimise(
    embeddings: Float[Array, "vocabulary dim"],
    weights: Float[Array, "vocabulary vocabulary"],
    direction: Float[Array, " dim"],
    projector: Float[Array, "dim dim"],
    start: Float[Array, " dim"],
) -> tuple[Float[Array, " dim"], Bool[Scalar, ""]]:
    """Newton's method for ρ on the span of the active pairs, damped.

    Third derivatives are bounded by the second times δ = max |D_kᵀ step|, for which a
    step of log(1 + δ)/δ descends from anywhere (T. Sun and Q. Tran-Dinh, Generalized
    self-concordant functions, 2019), and is a whole step at the end.
    """
    embeddings, weights, direction, projector, start = jax.lax.stop_gradient(
        (embeddings, weights, direction, projector, start)
    )
    dtype = direction.dtype
    size = jnp.maximum(direction @ direction, jnp.finfo(dtype).tiny)
    free = jnp.eye(len(direction), dtype=dtype) - projector
    # Σ λ = ‖p_mm‖² terms the size of an embedding cancel in the gradient to ‖p_mm‖.
    longest = jnp.max(jnp.linalg.norm(embeddings, axis=1))
    tolerance = 1e4 * jnp.finfo(dtype).eps * size * longest

    def unfinished(state: tuple[Array, Array, Array]) -> Array:
        _, error, iteration = state
        return (error > tolerance) & (iteration < 200)

    def newton(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        offset, _, iteration = state
        gradient, curvature = _objective_derivatives(embeddings, weights, offset)
        step = -cho_solve(cho_factor(curvature + free), direction - gradient)
        scores = embeddings @ step
        spread = jnp.abs(scores[:, None] - scores[None, :])
        delta = jnp.max(jnp.where(weights != 0, spread, 0.0))
        # A pair's score may not be moved beyond what one exponential can follow.
        damping = jnp.where(delta > 1e-8, jnp.log1p(delta) / delta, 1.0)
        offset = offset + damping * step
        gradient, _ = _objective_derivatives(embeddings, weights, offset)
        return offset, jnp.linalg.norm(direction - gradient), iteration + 1

    state = (start, jnp.asarray(jnp.inf, dtype), jnp.asarray(0))
    offset, error, _ = jax.lax.while_loop(unfinished, newton, state)
    return projector @ offset, error <= tolerance
