"""Richer networks: a layer before the CLS attention, an MLP behind it, more heads.

Self-attention over the tokens of a sequence knows no positions either, so what it makes
of a token depends on the token and the bag alone: it is computed once per distinct
token, with counts. And attention that is fed attention is attention with other weights:
the sequence's output is Σ_r w_X[r] b_r, so neither layer ever mixes vectors of R^d.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen
from jaxtyping import Array, Float, Int, Key

from .corpus import Corpus
from .design import ACTIVATIONS, FACTORS, Design
from .parameters import Parameters
from .self_attention import two_layer_weights, weigh

Variables = dict[str, Any]


class Tables(NamedTuple):
    """What a network knows of each token before it sees a sequence, and what it adds.

    Attributes:
        scores: E W²p, logits of the CLS attention.
        values: what attention averages: E Vᵀ, or E Uᵀ in front of an MLP.
        queries: E W¹; None with one layer.
        keys: E; None with one layer.
        bias: c of the MLP, or None.
        heads: V behind the MLP, or None.
    """

    scores: Float[Array, " vocabulary"]
    values: Float[Array, "vocabulary width"]
    queries: Float[Array, "vocabulary dim"] | None = None
    keys: Float[Array, "vocabulary dim"] | None = None
    bias: Float[Array, " width"] | None = None
    heads: Float[Array, "heads width"] | None = None


def output(
    tables: Tables,
    tokens: Int[Array, " width"],
    counts: Float[Array, " width"],
    design: Design,
) -> Float[Array, " heads"]:
    """What a network makes of one bag.

    Args:
        tables: of `Network.tables`.
        tokens: distinct ids; any on padding.
        counts: C; zero on padding.
        design: which network.

    Returns:
        One number per head.

    Example:
        >>> tables = Tables(jnp.zeros(2), jnp.array([[1.0], [3.0]]))
        >>> output(tables, jnp.arange(2), jnp.ones(2), Design()).tolist()
        [2.0]
    """
    scores, counts = tables.scores[tokens], counts.astype(tables.scores.dtype)
    if tables.queries is None or tables.keys is None:
        weights = weigh(scores, counts)
    else:
        pairs = tables.queries[tokens] @ tables.keys[tokens].T
        weights = two_layer_weights(scores, pairs, counts, design.residual)
    average = weights @ tables.values[tokens]
    if design.activation is None or tables.bias is None or tables.heads is None:
        return average
    return tables.heads @ ACTIVATIONS[design.activation](average + tables.bias)


def outputs(
    tables: Tables, corpus: Corpus, design: Design
) -> Float[Array, "sequences heads"]:
    """`output` for every bag of a corpus.

    Args:
        tables: of `Network.tables`.
        corpus: n bags.
        design: which network.

    Returns:
        One row per sequence.
    """
    one = jax.vmap(output, in_axes=(None, 0, 0, None))
    return one(tables, corpus.tokens, corpus.counts, design)


class Network(linen.Module):
    """A network over bags of tokens; its parameters are one flat dictionary.

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
        gaussian = linen.initializers.normal(self.dim**-0.5, dtype=float)
        square = (self.dim, self.dim)
        table = (self.vocabulary, self.dim)
        self.embeddings = self.param("embeddings", gaussian, table)
        self.cls = self.param("cls", gaussian, (self.dim,))
        self.heads = self.param("heads", _on_sphere, (self.design.heads, self.dim))
        factors = FACTORS.get(self.design.key_query, 0)
        for layer in range(self.design.layers):
            for place in range(factors):
                name = _factor(self.design, layer, place)
                setattr(self, name, self.param(name, _identity, square))
        if self.design.activation is not None:
            begin = _identity if self.design.hidden == "identity" else gaussian
            self.hidden = self.param("hidden", begin, square)
            self.bias = self.param("bias", linen.initializers.zeros, (self.dim,), float)

    def tables(self) -> Tables:
        """Everything that does not depend on the sequence.

        Returns:
            The tables: a few products with E.
        """
        embeddings, two = self.embeddings, self.design.layers == 2
        behind = self.design.activation is not None
        return Tables(
            scores=embeddings @ self._turned_cls(),
            values=embeddings @ (self.hidden if behind else self.heads).T,
            queries=self._queries() if two else None,
            keys=embeddings if two else None,
            bias=self.bias if behind else None,
            heads=self.heads if behind else None,
        )

    def alignments(
        self,
    ) -> tuple[Float[Array, " vocabulary"], Float[Array, "vocabulary heads"]]:
        """What the figures show of every token.

        Returns:
            E W²p, and E Vᵀ, one column per head.
        """
        return self.embeddings @ self._turned_cls(), self.embeddings @ self.heads.T

    def __call__(self, corpus: Corpus) -> Float[Array, "sequences heads"]:
        """Outputs of every sequence.

        Args:
            corpus: n bags.

        Returns:
            One row per sequence, one column per head.
        """
        return outputs(self.tables(), corpus, self.design)

    def _turned_cls(self) -> Float[Array, " dim"]:
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

    def _matrix(self, layer: int, place: int = 0) -> Float[Array, "dim dim"]:
        """One trained factor of W."""
        return getattr(self, _factor(self.design, layer, place))


def start(network: Network, key: Key[Array, ""]) -> Variables:
    """Variables drawn from a key.

    Args:
        network: which.
        key: a `jax.random.key`.

    Returns:
        {"params": arrays by name}.
    """
    return dict(network.init(key, method="tables"))


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


def alignments(
    network: Network, variables: Variables
) -> tuple[Float[Array, " vocabulary"], Float[Array, "vocabulary heads"]]:
    """What the figures show of every token.

    Args:
        network: which.
        variables: its parameters.

    Returns:
        E W²p, and E Vᵀ, one column per head.
    """
    both: Any = network.apply(variables, method="alignments")
    return both


def widen(variables: Variables, base: Parameters) -> Variables:
    """The variables of a network with E, p and the first head taken from elsewhere.

    Args:
        variables: of `start`.
        base: (E, p, v), as wide as the network.

    Returns:
        New variables; further heads and matrices as they were.
    """
    inner = dict(variables["params"])
    heads = jnp.concatenate([base.head[None], inner["heads"][1:]])
    inner |= {"embeddings": base.embeddings, "cls": base.cls, "heads": heads}
    return {"params": inner}


def count_parameters(variables: Variables) -> dict[str, int]:
    """How many numbers each parameter of a network has.

    Args:
        variables: of `start`.

    Returns:
        Numbers by name, in the order of the alphabet.
    """
    return {name: leaf.size for name, leaf in sorted(variables["params"].items())}


def _factor(design: Design, layer: int, place: int) -> str:
    """Name of a trained factor of W¹ or W²; with one layer there is W² alone."""
    number = 2 if design.layers == 1 else layer + 1
    name = {"product": ("product",), "tied": ("tied",), "separate": ("query", "key")}
    return f"{name[design.key_query][place]}_{number}"


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
    columns, triangular = jnp.linalg.qr(jax.random.normal(key, shape[::-1]))
    # Signs make the law uniform; QR alone prefers one side.
    return columns.T * jnp.sign(jnp.diagonal(triangular))[:, None]
