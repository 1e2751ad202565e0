"""Softmax attention of one query over bags of tokens: scores → weights → risk → forces.

With a = E p and b = E v a sequence X attends with q[s] ∝ C_X[s] e^{a_s} and has the
output f = Σ_s q[s] b_s, so the empirical risk L is a function of 2|S| numbers, and its
gradient in E has rank two. Derivatives are written in closed form because the flow
multiplies them by e^τ, at log-times τ where the derivatives alone underflow.

The loss depends on one margin m per sequence: y f, its analogue for K classes, or minus
the loss itself.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Scalar

from ..compilation import full_precision
from ..data.corpus import ByBag, Corpus, Entries
from ..data.loss import Bounds, Loss, Outputs
from .parameters import Parameters


class Attention(NamedTuple):
    """Weights and outputs of attention over bags.

    Attributes:
        log_weights: log q[s] of every entry, −∞ on padding; exact when q underflows.
        output: f = Σ_s q[s] b_s of every bag, a number per head.
        advantage: b_s − f of every entry likewise, exact for the top token too.
        top: slot of the largest weight of every bag.
    """

    log_weights: Float[Array, "*batch width"]
    output: Float[Array, "..."]
    advantage: Float[Array, "..."]
    top: Int[Array, "*batch"]


def attend_bags(logits: Entries, values: Entries, bags: Corpus) -> Attention:
    """Attend over every bag, entry by entry: q ∝ e^{logit}, f = Σ q b.

    Late in training one token s* has nearly all the weight, and b_{s*} − f is far below
    the rounding of f. Measured from the top token it is computed without cancellation:
    b_s − f = (b_s − b_{s*}) − Σ_r q[r] (b_r − b_{s*}), where the term r = s* is zero.
    """
    shifted = logits - jax.lax.stop_gradient(logits.max(axis=1, keepdims=True))
    share = jnp.exp(shifted)
    slots = jnp.arange(logits.shape[1])
    # `argmax` is not vectorised on CPU, where it would cost as much as attention.
    top = jnp.min(jnp.where(shifted == 0, slots, len(slots) - 1), axis=1)
    total = share.sum(axis=1)
    log_weights = shifted - jnp.log(total)[:, None]
    best = bags.at(values, top)
    ahead = values - best[:, None]
    heads = [1] * (values.ndim - logits.ndim)
    mean = (share.reshape(*share.shape, *heads) * ahead).sum(axis=1)
    mean = mean / total.reshape(-1, *heads)
    return Attention(log_weights, best + mean, ahead - mean[:, None], top)


class FunctionalMargin(NamedTuple):
    """Margins of all sequences, and their derivatives in the outputs.

    Attributes:
        value: m = y f; with K classes f_y − log Σ_{k≠y} e^{f_k}.
        gradient: ∂m/∂f: y; with K classes 1 for k = y and −w_k for the others, where w
            is their softmax.
    """

    value: Float[Array, " sequences"]
    gradient: Float[Array, " sequences *classes"]

    @property
    def steepness(self) -> Float[Array, " sequences"]:
        """Bound |∂m/∂f · x| by this times the largest lead in x: one."""
        return jnp.ones_like(self.value)

    def largest_ratio(self, loss: Loss) -> Any:
        """Compute κ̄, a Lipschitz constant of log(−ℓ′) and of the shares of classes.

        It is max ℓ″/|ℓ′| over all margins, or over those above half of m for a loss
        with a domain, which none leaves where forces change by half at most. Shares of
        more than two classes change by e^{2|d|} at most; of two the other has all.

        Source: mathematics, section 1c.
        """
        several = self.gradient.ndim > 1 and self.gradient.shape[1] > 2
        return loss.ratio_above(self.value / 2) + 2 * several

    def bounds_near(self, loss: Loss, distance: Any) -> Bounds:
        """Bounds on derivatives of ℓ(m(f)) at all margins within a distance of m."""
        several = None if self.gradient.ndim == 1 else self.gradient.shape[1]
        return loss.bounds_near(self.value, distance).of_classes(several)

    def along(
        self, vectors: Float[Array, " sequences width *classes"]
    ) -> Float[Array, "sequences width"]:
        """Differentiate m along a change of the output in every slot."""
        if self.gradient.ndim == 1:
            return self.gradient[:, None] * vectors
        return jnp.sum(self.shares[:, None] * self.leads(vectors), axis=-1)

    def size_along(
        self, vectors: Float[Array, " sequences width *classes"]
    ) -> Float[Array, "sequences width"]:
        """Add up the sizes of the terms of `along`, which may cancel over classes."""
        if self.gradient.ndim == 1:
            return jnp.abs(vectors)
        return jnp.sum(self.shares[:, None] * jnp.abs(self.leads(vectors)), axis=-1)

    def fall(
        self, change: Float[Array, " sequences *classes"]
    ) -> Float[Array, " sequences"]:
        """Compute m(f) − m(f − x) without cancellation."""
        if self.gradient.ndim == 1:
            return self.gradient * change
        leads = self.leads(change[:, None])[:, 0]
        return jnp.log1p(jnp.sum(self.shares * jnp.expm1(leads), axis=-1))

    def bends(
        self, vectors: Float[Array, "sequences width classes"]
    ) -> tuple[Array, Array, Array]:
        """Split −∂²m/∂f² into K products of x and z, with logarithms of factors.

        It is the covariance of f_y − f_k under the shares w_k: x = z is the lead over
        class k minus the mean of leads, and its factor w_k.
        """
        deviation = self.leads(vectors) - self.along(vectors)[..., None]
        nonzero = self.shares > 0
        log_shares = jnp.log(jnp.where(nonzero, self.shares, 1.0))
        deviation = jnp.where(nonzero[:, None], deviation, 0.0)
        return jnp.where(nonzero, log_shares, -jnp.inf), deviation, deviation

    @property
    def shares(self) -> Float[Array, "sequences classes"]:
        """Return the shares w_k of the classes k ≠ y; zero for y."""
        return -jnp.minimum(self.gradient, 0.0)

    def leads(
        self, vectors: Float[Array, "sequences width classes"]
    ) -> Float[Array, "sequences width classes"]:
        """x_y − x_k for every class k."""
        right = self.gradient[:, None] > 0
        own = jnp.sum(jnp.where(right, vectors, 0.0), axis=-1, keepdims=True)
        return own - vectors


# Changes of outputs below which G is integrated, by three nodes of Gauss: there their
# error is below rounding, and above a difference loses two digits.
_SMALL = 1e-2
_NODES = (0.5 - 0.15**0.5, 5 / 18), (0.5, 4 / 9), (0.5 + 0.15**0.5, 5 / 18)


class OutputMargin(NamedTuple):
    """Minus a loss G of K outputs in the place of a margin, with its derivatives.

    Attributes:
        value: −G(f, y) of every sequence.
        gradient: −∂G/∂f.
        output: f.
        labels: y.
        loss: G.
    """

    value: Float[Array, " sequences"]
    gradient: Float[Array, "sequences classes"]
    output: Float[Array, "sequences classes"]
    labels: Int[Array, " sequences"]
    loss: Outputs

    @property
    def steepness(self) -> Float[Array, " sequences"]:
        """Compute σ = Σ_k |∂G/∂f_k|."""
        return jnp.sum(jnp.abs(self.gradient), axis=-1)

    def largest_ratio(self, loss: Loss) -> Float[Array, " sequences"]:
        """Compute κ̄ = 2 L₂/σ: where outputs move by 1/κ̄ at most, σ keeps half."""
        least = jnp.finfo(self.value.dtype).tiny ** 0.5
        return 2 * self.loss.second / jnp.maximum(self.steepness, least)

    def bounds_near(self, loss: Loss, distance: Any) -> Bounds:
        """Bounds on derivatives of G at all outputs within a distance of f."""
        first = self.steepness + self.loss.second * distance
        return Bounds(first, self.loss.second, self.loss.third)

    def along(
        self, vectors: Float[Array, "sequences width classes"]
    ) -> Float[Array, "sequences width"]:
        """Differentiate −G along a change of the output in every slot."""
        return jnp.einsum("ik,itk->it", self.gradient, vectors)

    def size_along(
        self, vectors: Float[Array, "sequences width classes"]
    ) -> Float[Array, "sequences width"]:
        """Add up the sizes of the terms of `along`, which may cancel over outputs."""
        return jnp.einsum("ik,itk->it", jnp.abs(self.gradient), jnp.abs(vectors))

    def fall(
        self, change: Float[Array, "sequences classes"]
    ) -> Float[Array, " sequences"]:
        """Compute G(f − x) − G(f), of small x without cancellation."""
        value, gradient = map(jax.vmap, (self.loss.value, self.loss.gradient))
        rises = jnp.stack(
            [
                -part * gradient(self.output - node * change, self.labels)
                for node, part in _NODES
            ]
        )
        near = jnp.einsum("nik,ik->i", rises, change)
        far = value(self.output - change, self.labels) + self.value
        return jnp.where(jnp.max(jnp.abs(change), axis=-1) < _SMALL, near, far)

    def leads(
        self, vectors: Float[Array, "sequences width classes"]
    ) -> Float[Array, "sequences width classes"]:
        """Return the outputs themselves, which bounds are in."""
        return vectors

    def bends(
        self, vectors: Float[Array, "sequences width classes"]
    ) -> tuple[Array, Array, Array]:
        """Split ∂²G/∂f² into K products of x and z, with logarithms of factors, 0."""
        hessian = jax.vmap(jax.jacfwd(self.loss.gradient))(self.output, self.labels)
        products = jnp.einsum("ikl,itl->itk", hessian, vectors)
        return jnp.zeros_like(self.gradient), products, vectors


def functional_margin(
    labels: ByBag, output: ByBag, loss: Loss
) -> FunctionalMargin | OutputMargin:
    """Compute margins m = y f, or f_y − log Σ_{k≠y} e^{f_k} for K classes.

    With the logistic loss of the second margin the risk is cross-entropy: log(1 +
    e^{−m}) = −log π_y and 1 − π_y = σ(−m). For K = 2 both margins agree, with f = f_+ −
    f_−. Of a loss that is none of a margin it is −G (`output_loss`).

    Source: mathematics, section 1c.

    Example:
        >>> from jaxselect.data.loss import LOGISTIC
        >>> one = jnp.array([1]), jnp.array([[0.0, 3.0, 0.0]])
        >>> several = functional_margin(*one, LOGISTIC)
        >>> several.value.round(4).tolist(), several.gradient.tolist()
        ([2.3069], [[-0.5, 1.0, -0.5]])
    """
    if output.ndim == 1:
        label = labels.astype(output.dtype)
        return FunctionalMargin(label * output, label)
    if loss.outputs is not None:
        value = jax.vmap(loss.outputs.value)(output, labels)
        rise = -jax.vmap(loss.outputs.gradient)(output, labels)
        return OutputMargin(-value, rise, output, labels, loss.outputs)
    own = jnp.take_along_axis(output, labels[:, None], axis=1)
    others = jnp.arange(output.shape[1], dtype=labels.dtype)[None] != labels[:, None]
    other_outputs = jnp.where(others, output - own, -jnp.inf)
    shares = jax.nn.softmax(other_outputs, axis=1)
    gradient = jnp.where(others, -shares, 1.0)
    return FunctionalMargin(-jax.nn.logsumexp(other_outputs, axis=1), gradient)


def log_residual(attention: Attention, bags: Corpus) -> ByBag:
    """Compute log of w_X (−ℓ′(m)); −∞ where w_X = 0."""
    margin = functional_margin(bags.labels, attention.output, bags.loss).value
    return bags.loss.log_slope(margin) + bags.log_weights(margin.dtype)


def log_weighted_residual(attention: Attention, bags: Corpus) -> Entries:
    """Compute log of w_X q (−ℓ′(m)); −∞ on padding and where w_X = 0."""
    return attention.log_weights + log_residual(attention, bags)[:, None]


def advances(attention: Attention, bags: Corpus) -> Entries:
    """What weight on an entry adds to m: ∂m/∂f · (b_s − f), y (b_s − f) for ±1."""
    margin = functional_margin(bags.labels, attention.output, bags.loss)
    return margin.along(attention.advantage)


def score_gradient(
    exponent: Any, advance: Any, attention: Attention, bags: Corpus
) -> Entries:
    """Compute the forces e^{exponent} · advance, with advance = ∂m/∂f · (b_s − f).

    That of the top token is minus the sum of the others, so the sum over a bag is zero.
    """
    top = bags.marks(attention.top)
    # The top token's exponent may overflow: it is dropped before, not after, `exp`.
    used = ~top & bags.filled & (advance != 0)
    others = jnp.exp(jnp.where(used, exponent, -jnp.inf)) * advance
    return jnp.where(top, -others.sum(axis=1, keepdims=True), others)


def sized_forces(
    logits: Entries, values: Entries, bags: Corpus
) -> tuple[Entries, Entries]:
    """Compute the terms of −∂L/∂a, and the sizes that their roundings are relative to.

    The force on the top token is minus the sum of the others, which may cancel, as may
    the parts of classes: its size is the sum of theirs.
    """
    attention = attend_bags(logits, values, bags)
    exponent = log_weighted_residual(attention, bags)
    forces = score_gradient(exponent, advances(attention, bags), attention, bags)
    top = bags.marks(attention.top)
    size = jnp.abs(forces)
    if values.ndim > logits.ndim:
        margin = functional_margin(bags.labels, attention.output, bags.loss)
        size = jnp.exp(exponent) * margin.size_along(attention.advantage)
    size = jnp.where(top, 0.0, size)
    return forces, jnp.where(top, size.sum(axis=1, keepdims=True), size)


class ScoreDescent(NamedTuple):
    """The negative gradient of the risk in score space.

    Attributes:
        scores: −∂L/∂a_s = Σ_X w_X (−ℓ′(m)) q_X[s] ∂m/∂f · (b_s − f).
        values: −∂L/∂b_s = Σ_X w_X (−ℓ′(m)) q_X[s] ∂m/∂f, per head; ∂m/∂f = y for one.
    """

    scores: Float[Array, " vocabulary"]
    values: Float[Array, " vocabulary *classes"]


@partial(jax.jit, inline=True)
def negative_gradient(
    scores: Float[Array, " vocabulary"],
    values: Float[Array, " vocabulary *classes"],
    corpus: Corpus,
    log_scale: Float[Scalar, ""] | float = 0.0,
) -> ScoreDescent:
    """Compute e^{log_scale} (−∂L/∂a, −∂L/∂b) without underflow.

    The scale is added to the exponent of every term, so the product is right even where
    the gradient alone is zero in floating point. The terms of one sequence in ∂L/∂a sum
    to zero; that of the top token is computed from the others, since its own advantage
    b_s − f underflows.

    Source: mathematics, sections 1, 1b, 1c and 3a.

    Args:
        scores: a = E p.
        values: b = E v.
        corpus: n labelled sequences.
        log_scale: a natural logarithm; τ = log(1+t) in the flow.

    Returns:
        Both halves of the negative gradient, scaled.

    Example:
        >>> from jaxselect.data.corpus import from_sequences
        >>> corpus = from_sequences([[0, 1]], [1], vocabulary=2)
        >>> late = jnp.array([5000.0, 0.0]), jnp.array([1.0, 0.0])
        >>> negative_gradient(*late, corpus).scores.tolist()
        [0.0, 0.0]
        >>> scaled = negative_gradient(*late, corpus, log_scale=5000.0).scores
        >>> [round(x, 4) for x in scaled.tolist()]
        [0.2689, -0.2689]
    """
    forces = negative_entry_gradient(
        corpus.logits(scores), corpus.gather(values), corpus, log_scale
    )
    return ScoreDescent(*map(corpus.scatter, forces))


@partial(jax.jit, inline=True)
def negative_entry_gradient(
    logits: Float[Array, "sequences width"],
    values: Float[Array, " sequences width *classes"],
    corpus: Corpus,
    log_scale: Float[Scalar, ""] | float = 0.0,
) -> tuple[Float[Array, "sequences width"], Float[Array, " sequences width *classes"]]:
    """Compute the terms of `negative_gradient`, entry by entry.

    Source: mathematics, section 3a.
    """
    attention = attend_bags(logits, values, corpus)
    exponent = log_weighted_residual(attention, corpus) + log_scale
    pull = score_gradient(exponent, advances(attention, corpus), attention, corpus)
    label = functional_margin(corpus.labels, attention.output, corpus.loss).gradient
    size = jnp.exp(exponent)
    if label.ndim > 1:
        size = size[..., None]
    return pull, label[:, None] * size


@partial(jax.jit, inline=True)
def log_strongest_pull(
    logits: Float[Array, "sequences width"],
    values: Float[Array, " sequences width *classes"],
    corpus: Corpus,
) -> Float[Scalar, ""]:
    """Compute the log of the largest single term of ∂L/∂a, without underflow.

    It is the maximum of log (w_X (−ℓ′(m)) q |∂m/∂f · (b − f)|) over all entries except
    the top one of each bag, with the size of each class's part. If single terms are
    much larger than their sum, the forces on tied tokens cancel.

    Source: mathematics, section 3g.

    Example:
        >>> from jaxselect.data.corpus import from_sequences
        >>> corpus = from_sequences([[0, 1]], [1], vocabulary=2)
        >>> late = jnp.array([[5000.0, 0.0]]), jnp.array([[1.0, 0.0]])
        >>> round(log_strongest_pull(*late, corpus).item(), 4)
        -5001.3133
    """
    attention = attend_bags(logits, values, corpus)
    margin = functional_margin(corpus.labels, attention.output, corpus.loss)
    distance = margin.size_along(attention.advantage)
    felt = ~corpus.marks(attention.top) & (distance > 0)
    # One logarithm for each bag, of sizes in units of its largest weight.
    weights = jnp.where(felt, attention.log_weights, -jnp.inf)
    largest = jax.lax.stop_gradient(weights.max(axis=1))
    largest = jnp.where(jnp.isfinite(largest), largest, 0.0)
    size = jnp.max(jnp.exp(weights - largest[:, None]) * distance, axis=1)
    some = size > 0
    # The inner `where` keeps the derivative of log finite where there is no force.
    log_size = largest + jnp.log(jnp.where(some, size, 1.0))
    pulls = log_residual(attention, corpus) + log_size
    return jnp.max(jnp.where(some, pulls, -jnp.inf))


@partial(jax.jit, inline=True)
@full_precision
def token_scores(
    parameters: Parameters,
) -> tuple[Float[Array, " vocabulary"], Float[Array, " vocabulary *classes"]]:
    """Compute scores a = E p and values b = E v of all tokens.

    Source: mathematics, section 1.

    Example:
        >>> from jaxselect.model.parameters import Parameters
        >>> a, b = token_scores(Parameters(jnp.eye(2), jnp.ones(2), jnp.zeros(2)))
        >>> a.tolist(), b.tolist()
        ([1.0, 1.0], [0.0, 0.0])
    """
    embeddings = parameters.embeddings
    return embeddings @ parameters.query, embeddings @ parameters.head
