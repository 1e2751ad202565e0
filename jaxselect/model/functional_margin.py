"""The functional margin of a sequence, m = y f or its analogue.

Every loss here is a function of one number per sequence, for two classes and for K.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..corpora.bags import ByBag


class FunctionalMargin(NamedTuple):
    """Margins of all sequences, and their derivatives in the outputs.

    Attributes:
        value: m = y f; with K classes f_y − log Σ_{k≠y} e^{f_k}.
        gradient: ∂m/∂f: y; with K classes 1 for k = y and −w_k for the others, where w
            is their softmax.
    """

    value: Float[Array, " sequences"]
    gradient: Float[Array, " sequences *classes"]

    def along(
        self, vectors: Float[Array, " sequences width *classes"]
    ) -> Float[Array, "sequences width"]:
        """Derivative of m along changes of the output, one per slot."""
        if self.gradient.ndim == 1:
            return self.gradient[:, None] * vectors
        return jnp.sum(self.shares[:, None] * self.leads(vectors), axis=-1)

    def fall(
        self, change: Float[Array, " sequences *classes"]
    ) -> Float[Array, " sequences"]:
        """m(f) − m(f − x) of changes x of the outputs, without cancellation."""
        if self.gradient.ndim == 1:
            return self.gradient * change
        leads = self.leads(change[:, None])[:, 0]
        return jnp.log1p(jnp.sum(self.shares * jnp.expm1(leads), axis=-1))

    @property
    def shares(self) -> Float[Array, "sequences classes"]:
        """w_k of the classes k ≠ y; zero for y."""
        return -jnp.minimum(self.gradient, 0.0)

    def leads(
        self, vectors: Float[Array, "sequences width classes"]
    ) -> Float[Array, "sequences width classes"]:
        """x_y − x_k for every class k."""
        right = self.gradient[:, None] > 0
        own = jnp.sum(jnp.where(right, vectors, 0.0), axis=-1, keepdims=True)
        return own - vectors


def functional_margin(labels: ByBag, output: ByBag) -> FunctionalMargin:
    """Margins m = y f, or f_y − log Σ_{k≠y} e^{f_k} for K classes.

    With the logistic loss the second is cross-entropy: log(1 + e^{−m}) = −log π_y, and
    1 − π_y = σ(−m). For K = 2 it is the first, with f = f_+ − f_−.

    Source: mathematics, section 1c.

    Args:
        labels: y = ±1; with K classes 0 … K − 1.
        output: f, a number per sequence, or K.

    Returns:
        Margins and their derivatives.

    Example:
        >>> several = functional_margin(jnp.array([1]), jnp.array([[0.0, 3.0, 0.0]]))
        >>> several.value.round(4).tolist(), several.gradient.tolist()
        ([2.3069], [[-0.5, 1.0, -0.5]])
    """
    if output.ndim == 1:
        label = labels.astype(output.dtype)
        return FunctionalMargin(label * output, label)
    own = jnp.take_along_axis(output, labels[:, None], axis=1)
    others = jnp.arange(output.shape[1], dtype=labels.dtype)[None] != labels[:, None]
    other_outputs = jnp.where(others, output - own, -jnp.inf)
    shares = jax.nn.softmax(other_outputs, axis=1)
    gradient = jnp.where(others, -shares, 1.0)
    return FunctionalMargin(-jax.nn.logsumexp(other_outputs, axis=1), gradient)
