"""A certificate by the risk alone: below a barrier all flows select the best entries.

As long as the risk exceeds its infimum by less than it would if one bag attended to its
second best entry, every bag's margin is above that of its second best entry. Then each
term of the force along a separating θ∗ is positive, and the flow cannot stop. Neither
log t nor the start is needed, and what was trained before, by any rule, need not have
followed a flow. With K classes the barrier is lower, and that of any smooth loss of
outputs holds for weights near the best entries (mathematics, section 3n).
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Scalar

from ..compilation import full_precision
from ..model.attention import FunctionalMargin, OutputMargin, functional_margin
from ..problem import Problem
from ..status import Reason
from .max_margin import MaxMargin
from .pairs import ROUNDINGS


class BestEntries(eqx.Module):
    """The best entry of every bag, and how far the risk is from selecting it alone.

    Source: mathematics, section 3n.

    Attributes:
        selected: the entry of largest margin m(b_e) of every bag, e∗.
        excess: w_X (ℓ(m) − ℓ(m(b_{e∗}))) of every bag, from above; their sum is L − L∗.
        barrier: w_X (ℓ(g − φ) − ℓ(g)) with g = m(b_{e∗}), from below; for labels ±1
            g − φ is the margin of the second best entry. ∞ for a bag of one entry or of
            weight zero.
        attained: whether no mixture of entries is better than e∗ in any bag.
        reach: φ of every bag.
    """

    selected: Bool[Array, "sequences width"]
    excess: Float[Array, " sequences"]
    barrier: Float[Array, " sequences"]
    attained: Bool[Scalar, ""]
    reach: Float[Array, " sequences"]

    @property
    def below(self) -> Bool[Scalar, ""]:
        """Whether L − L∗ is less than the barrier of every bag."""
        return self.attained & (self.excess.sum() < self.barrier.min())

    def certifies(
        self, selected: Bool[Array, "sequences width"], margin: MaxMargin
    ) -> Bool[Scalar, ""]:
        """Whether a selection with this max-margin solution is the end from there."""
        same = jnp.all(selected == self.selected)
        return self.below & same & (margin.status == Reason.NONE)


@full_precision
def best_entries(problem: Problem, query: Float[Array, " dim"]) -> BestEntries:
    """Find the best entry of every bag, and compare the risk at θ with its barrier.

    The excess is a sum of differences, ℓ(g_∗ − Σ_e q_e (g_∗ − g_e)) − ℓ(g_∗), without
    cancellation.

    Source: mathematics, section 3n.

    Example:
        >>> from jaxselect import cross_attention
        >>> x = jnp.array([[[2.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 2.0]]])
        >>> problem = cross_attention(x, x[..., 0], jnp.array([1, 1]))
        >>> found = best_entries(problem, problem.start)
        >>> found.selected.tolist()
        [[True, False], [True, False]]
        >>> bool(found.excess.sum() < found.barrier.min())
        True
    """
    corpus, values, present = problem.corpus, problem.values, problem.present
    eps = jnp.finfo(problem.start.dtype).eps * ROUNDINGS
    heads = values.shape[2:]
    labels = jnp.repeat(corpus.labels, values.shape[1])
    gain = functional_margin(labels, values.reshape(-1, *heads), corpus.loss).value
    gain = jnp.where(present, gain.reshape(present.shape), -jnp.inf)
    slot = jnp.argmax(gain, axis=1)
    best, others = corpus.marks(slot) & present, present & ~corpus.marks(slot)

    top = corpus.at(values, slot)
    margin = functional_margin(corpus.labels, top, corpus.loss)
    less = top[:, None] - values
    size = jnp.abs(top)[:, None] + jnp.abs(values)
    if heads:
        size = 2 * size.max(axis=-1)
    size = margin.steepness[:, None] * size
    logits = problem.logits(problem.scores(query))
    scores = jnp.where(present, jnp.abs(logits), 0.0)
    error = jnp.max(eps * (1 + scores) + problem.offset_errors, axis=1)[:, None]
    weights = jax.nn.softmax(logits, axis=1) * jnp.exp(2 * error)
    weights = jnp.where(others, weights, 0.0)
    fall = margin.fall(jnp.einsum("it,it...->i...", weights, less))
    fall = fall + eps * jnp.einsum("it,it->i", weights, size)
    several = others.any(axis=1)
    least = jnp.min(jnp.where(others, margin.along(less) - eps * size, jnp.inf), axis=1)
    attained = jnp.all(least > 0)
    least = jnp.where(several & (least > 0), least, 1.0)
    if isinstance(margin, OutputMargin):
        weight = weights.sum(axis=1)
        weight_error = -jnp.expm1(-2 * error[:, 0]) * weight
        apart = jnp.where(others[..., None], less, 0.0)
        fall, reach = _of_outputs(margin, apart, weight, least, fall, weight_error)
    else:
        reach = least**2 / (least + 0.375 * _class_range(margin, less, others) ** 2)
    excess = corpus.weighted(corpus.loss.excess(margin.value, fall)) * (1 + eps)
    barrier = corpus.weighted(corpus.loss.excess(margin.value, reach)) * (1 - eps)
    return BestEntries(
        selected=best,
        excess=jnp.where(several, excess, 0.0),
        barrier=jnp.where(several, barrier, jnp.inf),
        attained=attained,
        reach=reach,
    )


def _of_outputs(
    margin: OutputMargin,
    apart: Float[Array, "sequences width classes"],
    weight: Float[Array, " sequences"],
    least: Float[Array, " sequences"],
    fall: Float[Array, " sequences"],
    weight_error: Float[Array, " sequences"],
) -> tuple[Float[Array, " sequences"], Float[Array, " sequences"]]:
    """Bound G(f) − G(b_{e∗}) from above, ∞ where Q is not below Q̄, and give ¾ γ Q̄.

    `apart` is b_{e∗} − b_e, zero for what is no other entry; Q is known to within
    `weight_error`.

    Source: mathematics, theorem 3n.5.
    """
    eps = jnp.finfo(fall.dtype).eps * ROUNDINGS
    far = jnp.max(jnp.abs(apart), axis=(1, 2))
    most = jnp.max(margin.size_along(apart), axis=1)
    second = margin.loss.second
    near = least / (most + 2 * second * far**2)
    fall = fall + eps * jnp.abs(margin.value)
    fall = fall + weight_error * far * (margin.steepness + second * far)
    fall = jnp.where(weight < near * (1 - eps), fall, jnp.inf)
    return fall, 0.75 * least * near


def _class_range(
    margin: FunctionalMargin,
    less: Float[Array, " sequences width *classes"],
    others: Bool[Array, "sequences width"],
) -> Float[Array, " sequences"]:
    """Compute R, the largest range of b_{e∗} − b_e over the classes k ≠ y."""
    if less.ndim == 2:
        return jnp.zeros_like(margin.value)
    other = margin.gradient[:, None] <= 0
    highest = jnp.max(jnp.where(other, less, -jnp.inf), axis=-1)
    lowest = jnp.min(jnp.where(other, less, jnp.inf), axis=-1)
    return jnp.max(jnp.where(others, highest - lowest, 0.0), axis=1)
