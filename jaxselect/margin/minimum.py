"""Strict minima next to computed points, proved by Newton–Kantorovich in the norm of H.

A computed gradient is never exactly zero. Let H > 0 be the Hessian at a point, ν =
‖H^{−½}∇‖ there, and let a move by δ with ‖H^{½}δ‖ ≤ R change the Hessian by at most
Λ ‖H^{½}δ‖ H, as quadratic forms. Then

    Λ ν < ½  and  2ν ≤ R

prove a strict minimum within 2ν of the point in the norm of H (mathematics, sections 3e
and 7b). Curvatures of tokens may differ by a factor of 10⁹, hence the norm of H.
"""

from typing import Any, NamedTuple, TypeAlias

import jax.numpy as jnp
from jaxtyping import Float

from ..data.corpus import ByBag, Corpus, Entries
from ..model.attention import (
    OutputMargin,
    attend_bags,
    functional_margin,
    sized_forces,
)
from .pairs import ROUNDINGS

# A number is a float, or an array without axes.
Number: TypeAlias = Any
# Largest Λ ν that counts as a proof: a quarter of what the theorem allows, as Λ and H
# are computed in floating point.
KANTOROVICH = 0.125


class Minimum(NamedTuple):
    """A computed minimum, and the numbers that prove a true one near it.

    Source: mathematics, sections 3e and 7b.

    Attributes:
        point: the point.
        decrement: ν, bound on ‖H^{−½}∇‖ there, roundings included.
        stiffness: μ, bound below on the eigenvalues of H; where it is not positive
            nothing is proved.
        lipschitz: Λ.
        reach: R.
        basin: distance from which the flow −∇ surely ends in the minimum.
    """

    point: Float[Any, " axes"]
    decrement: Number
    stiffness: Number
    lipschitz: Number
    reach: Number
    basin: Number

    @property
    def kantorovich(self) -> Number:
        """Λ ν."""
        return self.lipschitz * self.decrement

    @property
    def radius(self) -> Number:
        """2 ν/√μ, which bounds the distance of the point from the minimum."""
        return 2 * self.decrement / abs(self.stiffness) ** 0.5

    @property
    def proved(self) -> Any:
        """Whether a strict minimum lies within `radius`."""
        small = (self.stiffness > 0) & (self.kantorovich <= KANTOROVICH)
        return small & (2 * self.decrement <= self.reach)


def inverse_root(
    hessian: Float[Any, "axes axes"],
) -> tuple[Number, Float[Any, "axes axes"]]:
    """Compute the least eigenvalue of H and H^{−½}, eigenvalues less their rounding.

    The eigenvalue is not positive, and the root finite but wrong, where H is not
    positive definite to rounding; without an axis the eigenvalue is ∞.

    Source: mathematics, section 7b.

    Example:
        >>> import numpy as np
        >>> least, root = inverse_root(np.diag([4.0, 9.0]))
        >>> round(float(least), 9), np.diag(root).round(9).tolist()
        (4.0, [0.5, 0.333333333])
    """
    spectrum, vectors = jnp.linalg.eigh(hessian)
    eps = jnp.finfo(spectrum.dtype).eps
    rounding = 16 * len(spectrum) * eps * jnp.max(jnp.abs(spectrum), initial=0.0)
    least = jnp.min(spectrum, initial=jnp.inf) - rounding
    scale = jnp.sqrt(jnp.where(least > 0, spectrum - rounding, 1.0))
    return least, vectors / scale[None]


def rest_at(
    point: Float[Any, " axes"],
    root: tuple[Number, Float[Any, "axes axes"]],
    decrement: Number,
    change: tuple[Float[Any, "axes axes"], Number],
) -> Minimum:
    """Make the certificate of a point from bounds.

    With Ω the largest eigenvalue of B relative to H, Λ = Ω/√μ, R = √μ r, and the basin
    is ½ min(r, 1/Ω) − 4ν/√μ.

    Source: mathematics, theorem 7b.1.

    Args:
        point: the point.
        root: μ and H^{−½}, by `inverse_root`.
        decrement: ν.
        change: B with |D³[u, u, δ]| ≤ ‖δ‖ uᵀBu on a ball, and its radius r.

    Returns:
        The numbers, whether or not they prove anything.

    Example:
        >>> import numpy as np
        >>> one = np.ones((1, 1))
        >>> found = rest_at(np.zeros(1), inverse_root(one), 0.01, (one, 1.0))
        >>> bool(found.proved), round(float(found.basin), 9)
        (True, 0.46)
    """
    least, half = root
    form, ball = change
    tiny = jnp.finfo(form.dtype).tiny
    most = jnp.max(jnp.linalg.eigvalsh(half.T @ form @ half), initial=tiny)
    soft = jnp.sqrt(jnp.where(least > 0, least, 1.0))
    basin = jnp.minimum(ball, 1 / most) / 2 - 4 * decrement / soft
    return Minimum(
        point=point,
        decrement=decrement,
        stiffness=least,
        lipschitz=most / soft,
        reach=ball * soft,
        basin=jnp.where(least > 0, jnp.maximum(basin, 0.0), 0.0),
    )


def newton_decrement(
    embeddings: Float[Any, "vocabulary axes"],
    logits: Entries,
    values: Entries,
    bags: Corpus,
    point: Float[Any, " axes"],
    root: Float[Any, "axes axes"],
) -> Number:
    """Bound ν = ‖Rᵀ∇L‖ with R = H^{−½}, adding up roundings of forces token by token.

    The forces of a bag add up to zero, so embeddings may be measured from any origin.
    Their mean weighted by the sizes of the forces gives the smallest rounding error: a
    token on which small forces act has the rounding of its own forces alone.

    Source: mathematics, section 7b.

    Args:
        embeddings: E, in axes of the span that the bags move p in.
        logits: of every entry at p.
        values: b of every entry.
        bags: the bags.
        point: p.
        root: R.

    Returns:
        The bound.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxselect.data.corpus import from_sequences
        >>> bags = from_sequences([[0, 1]], [1], vocabulary=2)
        >>> both = jnp.eye(2), jnp.zeros((1, 2)), jnp.array([[1.0, 0.0]])
        >>> round(float(newton_decrement(*both, bags, jnp.zeros(2), jnp.eye(2))), 4)
        0.1335
    """
    scores = embeddings @ point
    forces, sizes = map(bags.scatter, sized_forces(logits, values, bags))
    total = sizes.sum()
    middle = sizes @ embeddings / jnp.where(total > 0, total, 1.0)
    seen = (embeddings - middle[None]) @ root
    # A rounding of a score is one of its weight, relative.
    largest = jnp.max(jnp.where(bags.filled, jnp.abs(logits), 0.0), initial=0.0)
    largest = jnp.maximum(largest, jnp.max(jnp.abs(scores), initial=0.0))
    roundings = ROUNDINGS + largest
    error = roundings * jnp.finfo(scores.dtype).eps * sizes
    return jnp.linalg.norm(forces @ seen) + error @ jnp.linalg.norm(seen, axis=1)


def change_of_curvature(
    embeddings: Float[Any, "vocabulary axes"],
    logits: Entries,
    values: Entries,
    bags: Corpus,
    diameters: ByBag,
    narrow: Any = False,
) -> tuple[Float[Any, "axes axes"], Number]:
    """Compute B with |D³L[u, u, δ]| ≤ ‖δ‖ uᵀBu on a ball around p, and its radius.

    B = Σ_X w_X D g(A) Σ_s q_s (|b_s − f| + A) (E_s − Ē)(E_s − Ē)ᵀ, where D is the
    diameter of the bag, Ē the mean of its E_s, A that of |b_s − f|, and g = 3.3 L₁ +
    7.2 L₂ A + 1.9 L₃ A² with bounds L₁, L₂, L₃ of the loss's derivatives at the margins
    that the bag has on the ball. With several classes |·| is the range over classes,
    and the bounds are those of `Bounds.of_classes`; of a loss of outputs it is the
    largest |·| of an output. A token of small weight contributes
    little to B and little to the curvature, so their quotient stays bounded.

    Source: mathematics, lemma 7b.2 and section 1c.

    Args:
        embeddings: E, in axes of the span that the bags move p in.
        logits: of every entry at p.
        values: b of every entry.
        bags: the bags.
        diameters: D = max ‖E_s − E_r‖ of every bag.
        narrow: whether the ball is so small that −ℓ′ of no bag grows by more than a
            seventh on it.

    Returns:
        B, and the radius 1/(8 max D); of the narrow ball 1/(8 max D (1 + r A)), r the
        largest ratio ℓ″/|ℓ′|; ∞ where equal embeddings leave no diameter, and zero
        where the loss has no bounds.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxselect.data.corpus import from_sequences
        >>> bags = from_sequences([[0, 1]], [1], vocabulary=2)
        >>> both = jnp.eye(2), jnp.zeros((1, 2)), jnp.array([[1.0, 0.0]])
        >>> apart = jnp.array([2**0.5])
        >>> _, ball = change_of_curvature(*both, bags, apart)
        >>> round(ball.item(), 4)
        0.0884
    """
    loss, dtype = bags.loss, embeddings.dtype
    attention = attend_bags(logits, values, bags)
    share = jnp.exp(attention.log_weights)
    margin = functional_margin(bags.labels, attention.output, bags.loss)
    off = jnp.abs(attention.advantage)
    # A loss with a domain is narrow where no margin moves by more than half of it.
    ratio = loss.ratio_above(margin.value / 2)
    if isinstance(margin, OutputMargin):
        off, ratio = off.max(axis=-1), margin.largest_ratio(loss)
    elif values.ndim > logits.ndim:
        off = jnp.ptp(attention.advantage, axis=-1)
    off = jnp.where(bags.filled, off, 0.0)
    spread = jnp.sum(share * off, axis=1)
    slopes = jnp.where(narrow, 1 + ratio * spread, 1.0)
    widest = jnp.max(diameters * slopes, initial=0.0)
    radius = 1 / (8 * jnp.where(widest > 0, widest, 1.0))
    moved = spread * jnp.expm1(diameters * radius)
    near = margin.bounds_near(loss, moved)
    grown = diameters * near.third_of_risk(spread)
    grown = grown * jnp.exp(bags.log_weights(dtype))
    # Derivatives without a bound on the ball prove nothing.
    bounded = jnp.isfinite(grown).all()
    grown = jnp.where(bounded, grown, 0.0)
    weight = grown[:, None] * share * (off + spread[:, None])
    radius = jnp.where(widest > 0, radius, jnp.inf)
    form = bags.spread_of(embeddings, share, weight)
    return form, jnp.where(bounded, radius, 0.0)
