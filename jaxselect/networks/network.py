"""Richer networks: a layer before the CLS attention, an MLP after it, more heads."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen
from jaxtyping import Array, Float, Key, Scalar

from .. import checks
from ..checks import BadInput, as_annotated
from ..compilation import one_program
from ..data.corpus import Corpus
from ..model.parameters import gaussian_reduced
from .design import FACTORS, Design
from .tables import Tables, outputs

Variables = dict[str, Any]


class Network(linen.Module):
    """A network over bags of tokens; its parameters are one flat dictionary.

    Source: mathematics, section 5.

    Attributes:
        vocabulary: |S|.
        dim: d.
        design: which network.

    Example:
        >>> network = Network(vocabulary=3, dim=5, design=Design(layers=2))
        >>> count_parameters(start(network, jax.random.key(0)))
        {'cls': 5, 'embeddings': 15, 'heads': 5}
    """

    vocabulary: int
    dim: int
    design: Design = Design()

    def setup(self) -> None:
        """Declare the parameters: E_s, p ~ N(0, I/d), heads uniform on the sphere."""
        checks.whole("vocabulary", self.vocabulary, most=checks.MOST_TOKENS)
        checks.whole("dim", self.dim)
        if not isinstance(self.design, Design):
            raise BadInput(f"design {self.design!r}: wanted a Design")
        gaussian = linen.initializers.normal(self.dim**-0.5, dtype=float)
        square = (self.dim, self.dim)
        table = (self.vocabulary, self.dim)
        self.embeddings = self.param("embeddings", gaussian, table)
        self.cls = self.param("cls", gaussian, (self.dim,))
        self.heads = self.param("heads", _on_sphere, (self.design.heads, self.dim))
        factors = FACTORS.get(self.design.key_query, 0)
        for layer in range(self.design.layers):
            for index in range(factors):
                name = _factor(self.design, layer, index)
                setattr(self, name, self.param(name, _identity, square))
        if self.design.activation is not None:
            init = _identity if self.design.hidden == "identity" else gaussian
            self.hidden = self.param("hidden", init, square)
            self.bias = self.param("bias", linen.initializers.zeros, (self.dim,), float)

    def tables(self) -> Tables:
        """Everything that does not depend on the sequence.

        Returns:
            The tables: a few products with E.
        """
        embeddings, two = self.embeddings, self.design.layers == 2
        has_mlp = self.design.activation is not None
        return Tables(
            scores=embeddings @ self._turned_query(),
            values=embeddings if has_mlp else embeddings @ self.heads.T,
            queries=self._queries() if two else None,
            keys=embeddings if two and self.design.key_query != "none" else None,
            hidden=self.hidden if has_mlp else None,
            bias=self.bias if has_mlp else None,
            heads=self.heads if has_mlp else None,
        )

    def alignments(
        self,
    ) -> tuple[Float[Array, " vocabulary"], Float[Array, "vocabulary heads"]]:
        """E_sᵀv and E_sᵀp of every token, for the figures.

        Returns:
            E W²p, and E Vᵀ, one column per head.
        """
        return self.embeddings @ self._turned_query(), self.embeddings @ self.heads.T

    def __call__(self, corpus: Corpus) -> Float[Array, "sequences heads"]:
        """Outputs of every sequence.

        Args:
            corpus: n bags.

        Returns:
            One row per sequence, one column per head.
        """
        return outputs(self.tables(), corpus, self.design)

    def _turned_query(self) -> Float[Array, " dim"]:
        """W²p: the last matrix in front of the CLS embedding."""
        last = self.design.layers - 1
        match self.design.key_query:
            case "none":
                return self.cls
            case "product":
                return self._matrix(last) @ self.cls
            case "tied":
                return self._matrix(last).T @ (self._matrix(last) @ self.cls)
        return self._matrix(last).T @ (self._matrix(last, 1) @ self.cls)

    def _queries(self) -> Float[Array, "vocabulary dim"]:
        """E W¹."""
        match self.design.key_query:
            case "none":
                return self.embeddings
            case "product":
                return self.embeddings @ self._matrix(0)
            case "tied":
                return self.embeddings @ (self._matrix(0).T @ self._matrix(0))
        return self.embeddings @ (self._matrix(0).T @ self._matrix(0, 1))

    def _matrix(self, layer: int, index: int = 0) -> Float[Array, "dim dim"]:
        """One trained factor of W."""
        return getattr(self, _factor(self.design, layer, index))


@as_annotated
@one_program("network")
def start(network: Network, key: Key[Array, ""]) -> Variables:
    """Variables drawn from a key.

    Args:
        network: which.
        key: a `jax.random.key`.

    Returns:
        {"params": arrays by name}.
    """
    return dict(network.init(key, method="tables"))


@as_annotated
def start_reduced(
    network: Network, key: Key[Array, ""], dim: Float[Scalar, ""] | float
) -> Variables:
    """The law of `start` at any d, up to a rotation, in |S| + K + 1 coordinates.

    E, p and the heads span no more, and training stays in their span; W = I there too.

    Source: mathematics, section 4.

    Args:
        network: without an MLP, as wide as |S| + K + 1.
        key: a `jax.random.key`.
        dim: d, a whole number ≥ K; traced.

    Returns:
        {"params": arrays by name}; heads orthonormal.

    Raises:
        BadInput: an MLP, whose matrix is random in all of R^d, another width, or a
            dimension without room for K heads.

    Example:
        >>> network = Network(vocabulary=3, dim=5, design=Design(layers=2))
        >>> variables = start_reduced(network, jax.random.key(0), 1e9)
        >>> variables["params"]["embeddings"].shape
        (3, 5)
    """
    vocabulary, heads = network.vocabulary, network.design.heads
    if network.design.activation is not None or network.dim != vocabulary + heads + 1:
        raise BadInput(
            f"{network.design} of width {network.dim}: wanted no MLP, and width "
            f"{vocabulary + heads + 1}"
        )
    if not isinstance(dim, jax.core.Tracer) and dim < heads:
        raise BadInput(f"dim {dim}: wanted {heads} or more for {heads} heads")
    return _start_reduced(network, key, dim)


@one_program("network")
def _start_reduced(
    network: Network, key: Key[Array, ""], dim: Float[Scalar, ""] | float
) -> Variables:
    vocabulary, heads = network.vocabulary, network.design.heads
    base = gaussian_reduced(key, vocabulary=vocabulary + heads - 1, dim=dim)
    rows = jnp.concatenate([base.head[None], base.embeddings[vocabulary:]])
    inner = dict(start(network, jax.random.key(0))["params"])
    embeddings = base.embeddings[:vocabulary]
    inner |= {"embeddings": embeddings, "cls": base.query, "heads": _orthonormal(rows)}
    return {"params": inner}


@as_annotated
@one_program("network")
def tables_of(network: Network, variables: Variables) -> Tables:
    """`Network.tables` at given variables.

    Args:
        network: which.
        variables: its parameters.

    Returns:
        The tables.
    """
    tables: Any = network.apply(variables, method="tables")
    return tables


@as_annotated
@one_program("network")
def alignments(
    network: Network, variables: Variables
) -> tuple[Float[Array, " vocabulary"], Float[Array, "vocabulary heads"]]:
    """E_sᵀv and E_sᵀp of every token, for the figures.

    Args:
        network: which.
        variables: its parameters.

    Returns:
        E W²p, and E Vᵀ, one column per head.
    """
    both: Any = network.apply(variables, method="alignments")
    return both


@as_annotated
def count_parameters(variables: Variables) -> dict[str, int]:
    """How many numbers each parameter of a network has.

    Args:
        variables: of `start`.

    Returns:
        Numbers by name, in the order of the alphabet.
    """
    return {name: leaf.size for name, leaf in sorted(variables["params"].items())}


def _factor(design: Design, layer: int, index: int) -> str:
    """Name of a trained factor of W¹ or W²."""
    number = 2 if design.layers == 1 else layer + 1
    name = {"product": ("product",), "tied": ("tied",), "separate": ("query", "key")}
    return f"{name[design.key_query][index]}_{number}"


def _identity(key: Key[Array, ""], shape: tuple[int, ...]) -> Float[Array, "dim dim"]:
    """I; the key is flax's convention."""
    return jnp.eye(shape[0])


def _on_sphere(
    key: Key[Array, ""], shape: tuple[int, ...]
) -> Float[Array, "heads dim"]:
    """Heads of unit norm, orthonormal where there is room for that."""
    if shape[0] > shape[1]:
        rows = jax.random.normal(key, shape)
        return rows / jnp.linalg.norm(rows, axis=1, keepdims=True)
    return _orthonormal(jax.random.normal(key, shape[::-1]).T)


def _orthonormal(rows: Float[Array, "heads dim"]) -> Float[Array, "heads dim"]:
    """Rows made orthonormal one after the other, each on its own side."""
    columns, triangular = jnp.linalg.qr(rows.T)
    # Signs make the law uniform; QR alone prefers one side.
    return columns.T * jnp.sign(jnp.diagonal(triangular))[:, None]
