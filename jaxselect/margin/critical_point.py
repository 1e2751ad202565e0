"""The offset ρ of the late flow: a critical point of Φ, by Newton's method, and proved.

Φ(z) = Σ_{k active} c_k e^{−D_kᵀz} + p_mmᵀz. Existence of a minimiser near the computed
point, and the ball from which its gradient flow converges to it, are hypotheses that
are checked on the numbers at hand (mathematics, sections 3b and 3e).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve
from jaxtyping import Array, Bool, Float, Scalar

from ..precision import full_precision
from .max_margin import MaxMargin
from .pair_graph import difference_lengths, laplacian, potentials, score_differences
from .pair_strength import ROUNDINGS, PairStrength
from .span import Span

# Largest ‖∇Φ‖ at the end of Newton's method, in roundings of Σ λ: a thousand terms of
# either sign cancel.
STATIONARY = 1e3
# Bound on the iterations of Newton's method: ten times what the default sweep takes.
ITERATIONS = 200
# Step below which log(1 + δ)/δ is one to rounding, and its quotient is not.
WHOLE_STEP = 1e-8
# Largest Newton-Kantorovich number h that counts as a proof; ½ would do in exact
# arithmetic.
KANTOROVICH = 0.125


class Proof(NamedTuple):
    """Proved bounds on the critical point ρ of Φ next to the computed one.

    Attributes:
        kantorovich: h; a strict minimum ρ exists nearby if h ≤ 1/8. NaN without a
            positive definite Hessian.
        error: bound on the distance of ρ from the computed point.
        basin: radius of a ball around ρ from which the flow −∇Φ converges to ρ; ∞ where
            all active c_k are positive, so that Φ is convex.
    """

    kantorovich: Float[Scalar, ""]
    error: Float[Scalar, ""]
    basin: Float[Scalar, ""]

    @property
    def exists(self) -> Bool[Scalar, ""]:
        """Whether a strict minimum of Φ is proved."""
        return self.kantorovich <= KANTOROVICH


@full_precision
def prove(
    embeddings: Float[Array, "vocabulary dim"],
    strength: PairStrength,
    margin: MaxMargin,
    active: Span,
    offset: Float[Array, " dim"],
) -> Proof:
    """Newton–Kantorovich at a computed critical point of Φ, roundings included.

    With H = Σ λ_k D_k D_kᵀ, D_H = max ‖D_k‖_{H⁻¹}, β_H = 1 + 2 Σ_{λ_k<0} |λ_k|
    ‖D_k‖²_{H⁻¹} and Newton's decrement ν = ‖∇Φ‖_{H⁻¹}: h = e β_H D_H ν. In ν count the
    roundings of each λ_k and what is left of D_kᵀp_mm − 1.

    Source: mathematics, section 3e.

    Args:
        embeddings: E.
        strength: c_k; those of inactive pairs do not count.
        margin: the max-margin solution.
        active: the span of the active pairs' centred tokens.
        offset: the computed ρ.

    Returns:
        h, the error of ρ and its basin.

    Example:
        See `limit.limit`.
    """
    eps = jnp.finfo(offset.dtype).eps
    # Where bags cancel to rounding there is no force, but its rounding is one.
    used = margin.active & (strength.magnitude > 0)
    exponent = jnp.where(
        used, strength.log_scale - score_differences(embeddings @ offset), 0.0
    )
    duals = jnp.where(used, strength.factor * jnp.exp(exponent), 0.0)
    factor = _curvature(duals, active)
    number = len(active.size)
    columns = jnp.concatenate([active.left.T, jnp.diag(active.inverse)], axis=1)
    solved = cho_solve(factor, columns)
    gram = active.left @ solved[:, : len(embeddings)]
    own = jnp.diagonal(gram)
    square = jnp.maximum(own[:, None] + own[None, :] - gram - gram.T, 0.0)
    reach = jnp.where(used, jnp.sqrt(square), 0.0)
    trace = jnp.sum(active.inverse * jnp.diagonal(solved[:, -number:]))

    size = jnp.abs(duals)
    known = jnp.abs(strength.factor) * (1 + jnp.abs(exponent))
    unsure = ROUNDINGS * eps * (strength.magnitude + known) + strength.blur
    unsure = jnp.where(used, unsure * jnp.exp(exponent), 0.0)
    scores = embeddings @ margin.direction
    longest = jnp.max(jnp.abs(embeddings) @ jnp.abs(margin.direction))
    off = jnp.max(jnp.where(margin.active, jnp.abs(score_differences(scores) - 1), 0.0))
    off = off + ROUNDINGS * eps * longest

    missing = active.inverse * (active.axes @ margin.direction)
    missing = missing - potentials(duals) @ active.left
    left = jnp.sqrt(jnp.maximum(missing @ cho_solve(factor, missing), 0.0))
    left = left + jnp.sum(unsure * reach)
    left = left + off * jnp.sqrt(jnp.sum(size)) * trace

    beta = 1 + 2 * jnp.sum(jnp.where(duals < 0, size * square, 0.0))
    convex = ~jnp.any(margin.active & (strength.factor <= 0))
    error = 2 * left * jnp.sqrt(trace)
    widest = jnp.max(jnp.where(used, difference_lengths(embeddings), 0.0))
    basin = jnp.log1p(1 / beta) / widest - error
    return Proof(
        kantorovich=jnp.exp(1.0) * beta * jnp.max(reach) * left,
        error=error,
        basin=jnp.where(convex, jnp.inf, basin),
    )


def _curvature(
    duals: Float[Array, "vocabulary vocabulary"], active: Span
) -> tuple[Float[Array, "axes axes"], bool]:
    """Factor of Σ λ_k D_k D_kᵀ in the coordinates σ Wᵀρ: free of the tokens' length."""
    return active.factor(laplacian(duals))


def solve(
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
def minimise(
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
        duals = strength.times_exp(-score_differences(active.left @ scores))
        return duals, wanted - potentials(duals) @ active.left

    def unfinished(state: tuple[Array, Array, Array]) -> Array:
        _, error, iteration = state
        return (error > tolerance) & (iteration < ITERATIONS)

    def newton(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        scores, _, iteration = state
        duals, missing = rest(scores)
        step = -cho_solve(_curvature(duals, active), missing)
        spread = jnp.abs(score_differences(active.left @ step))
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
