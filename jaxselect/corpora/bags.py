"""Maps between tokens, entries and bags that every layout of bags provides.

An *entry* is a slot of a bag: a token, or padding. Numbers go from tokens to entries
and back, and from entries to bags and back. Attention, risk and gradient are written
once over these, in arrays of JAX or of NumPy.
"""

from abc import ABC, abstractmethod
from typing import Any, TypeAlias

import jax.numpy as jnp
from jaxtyping import Array, Float

from .loss import Loss

# Arrays of JAX or of NumPy: (vocabulary, *classes), (sequences, *classes), entries.
ByToken: TypeAlias = Any
ByBag: TypeAlias = Any
Entries: TypeAlias = Any


class AbstractBags(ABC):
    """Labelled bags X with weights w_X of a risk L = Σ_X w_X ℓ(m_X).

    Attributes:
        labels: y of every bag.
        loss: ℓ as a function of the margin.
    """

    labels: Any
    loss: Loss

    @property
    @abstractmethod
    def arrays(self) -> Any:
        """The module of the arrays: `jax.numpy` or `numpy`."""

    @property
    @abstractmethod
    def filled(self) -> Any:
        """Whether an entry is a token, not padding."""

    @abstractmethod
    def log_weights(self, dtype: Any) -> Any:
        """The log w_X, one for all if equal."""

    @abstractmethod
    def logits(self, scores: ByToken) -> Entries:
        """The a_s + log C_X[s] of every entry, −∞ on padding."""

    @abstractmethod
    def gather(self, by_token: ByToken) -> Entries:
        """Tokens → entries."""

    def values_by_entry(self, values: ByToken) -> Entries:
        """Tokens' values → entries."""
        return self.gather(values)

    @abstractmethod
    def spread(self, by_bag: ByBag) -> Entries:
        """Bags → entries."""

    @abstractmethod
    def total(self, entries: Entries) -> ByBag:
        """Sum over every bag."""

    @abstractmethod
    def largest(self, entries: Entries) -> ByBag:
        """Maximum over every bag, constant in derivatives."""

    @abstractmethod
    def scatter(self, entries: Entries) -> ByToken:
        """Sum over every token."""

    @abstractmethod
    def first(self, marks: Entries) -> ByBag:
        """Slot of the first marked entry of every bag."""

    @abstractmethod
    def at(self, entries: Entries, slots: ByBag) -> ByBag:
        """The entry in one slot of every bag."""

    @abstractmethod
    def marks(self, slots: ByBag) -> Entries:
        """Whether an entry is in its bag's slot: the reverse of `first`."""


def padded_logits(
    scores: Float[Array, "*bags width"], counts: Float[Array, "*bags width"]
) -> Float[Array, "*bags width"]:
    """Logits a + log C, −∞ on padding.

    Args:
        scores: a of the tokens in a bag.
        counts: C; zero for padding.

    Returns:
        What a softmax is taken of.

    Example:
        >>> padded_logits(jnp.ones(2), jnp.array([1.0, 0.0])).tolist()
        [1.0, -inf]
    """
    filled = counts > 0
    # The inner `where` keeps the derivative of log finite on padding.
    return jnp.where(filled, scores + jnp.log(jnp.where(filled, counts, 1)), -jnp.inf)
