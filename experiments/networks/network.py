"""Richer networks: a layer before the attention of p, an MLP after it, more heads.

A `Design` holds the static choices, a `Network` its parameters (mathematics, section
5). Choices that the paper leaves open are settings:

* Residual: h_s = E_s + Σ_r A_X[s, r] E_r by default. With it E_sᵀW²p, which is plotted
  there, is a term of the logit of token s; without it h_s hardly depends on s at the
  start.
* Scaling: none. With E_s ~ N(0, I/d) products of embeddings are of order one at most.
* Start: W¹ = W² = I, which is the model without matrices.
* MLP: vᵀφ(U z + c) with U ~ N(0, I/d), c = 0 and hidden width d, so that E_sᵀv exists.

Self-attention over a bag has no positions: its output at a token depends on the token
and the bag alone, and is computed once per distinct token, with counts. It is linear in
E given its weights, h_s = ρ E_s + Σ_r A[s, r] E_r, so the output of two layers is Σ_r
w_r b_r with other weights w, and no sums of vectors in R^d are formed. `Tables` hold
the quantities that do not depend on the sequence.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen
from jaxtyping import Array, Float, Int, Key, Scalar

from jaxselect import checks
from jaxselect.checks import BadInput
from jaxselect.data.corpus import Corpus, same_vocabulary
from jaxselect.model.parameters import gaussian_reduced

# Activations of an MLP, by name.
ACTIVATIONS: dict[str, Callable] = {
    "identity": lambda x: x,
    "relu": jax.nn.relu,
    "gelu": jax.nn.gelu,
    "tanh": jnp.tanh,
}
# How many matrices make one W.
FACTORS = {"product": 1, "tied": 1, "separate": 2}


def attention_weights(
    scores: Float[Array, " width"], counts: Float[Array, " width"]
) -> Float[Array, " width"]:
    """Compute q[s] ∝ C[s] e^{a_s} over one bag; zero on padding."""
    filled = counts > 0
    # The inner `where` keeps the derivative of log finite on padding.
    log_counts = jnp.log(jnp.where(filled, counts, 1))
    return jax.nn.softmax(jnp.where(filled, scores + log_counts, -jnp.inf))


@dataclasses.dataclass(frozen=True)
class Design:
    """The static choices that make a network.

    Attributes:
        layers: 1, CLS attention; 2, self-attention over the tokens first.
        key_query: matrices W in the logits: "none" for W = I; "product", W itself is
            trained; "tied", W = MᵀM; "separate", W = QᵀK with both trained.
        residual: add E_s to what the first of two layers makes of token s.
        activation: φ of an MLP behind the attention, "identity", "relu", "gelu" or
            "tanh"; None for no MLP.
        hidden: U at the start, "gaussian" or "identity".
        heads: 1 for labels ±1, K for classes 0 … K − 1.
    """

    layers: int = 1
    key_query: str = "none"
    residual: bool = True
    activation: str | None = None
    hidden: str = "gaussian"
    heads: int = 1

    def __post_init__(self) -> None:
        """Refuse what is no network."""
        wanted = {
            "layers": (1, 2),
            "key_query": ("none", *FACTORS),
            "activation": (None, *ACTIVATIONS),
            "residual": (True, False),
            "hidden": ("gaussian", "identity"),
        }
        for name, known in wanted.items():
            if getattr(self, name) not in known:
                raise BadInput(
                    f"{name} is {getattr(self, name)!r}; wanted one of {known}"
                )
        checks.whole("heads", self.heads)


@jax.custom_vjp
def _inner_products(rows: Float[Array, "width dim"]) -> Float[Array, "width width"]:
    """Compute H Hᵀ, with the gradient (G + Gᵀ) H, one product instead of two."""
    return rows @ rows.T


_inner_products.defvjp(
    lambda rows: (rows @ rows.T, rows),
    lambda rows, slope: ((slope + slope.T) @ rows,),
)


def two_layer_weights(
    scores: Float[Array, " width"],
    logits: Float[Array, "width width"],
    counts: Float[Array, " width"],
    residual: bool,
) -> Float[Array, " width"]:
    """Compute the weight of each token in the output of two attention layers.

    With A[s, r] ∝ C[r] e^{logits[s, r]}, ρ = 1 with the residual and 0 without it,
    scores a'_s = ρ a_s + Σ_r A[s, r] a_r and q = `attention_weights`(a', C),
    w_r = ρ q_r + Σ_s q_s A[s, r], and f = Σ_r w_r b_r.

    Source: mathematics, section 5.

    Args:
        scores: a_s = E_sᵀW²p.
        logits: E_sᵀW¹E_r, those of the first layer.
        counts: C; zero on padding.
        residual: whether ρ is 1 or 0.

    Returns:
        w, adding up to 1 + ρ.

    Example:
        >>> one = two_layer_weights(jnp.zeros(2), jnp.zeros((2, 2)), jnp.ones(2), True)
        >>> one.tolist()
        [1.0, 1.0]
    """
    mixing = jax.vmap(attention_weights, in_axes=(0, None))(logits, counts)
    mixed = mixing @ scores
    attended = attention_weights(mixed + scores if residual else mixed, counts)
    passed = attended @ mixing
    return passed + attended if residual else passed


class Tables(NamedTuple):
    """Quantities of a network that do not depend on the sequence.

    Attributes:
        scores: E W²p, logits of the CLS attention.
        values: what attention averages: E Vᵀ, or E in front of an MLP.
        queries: E W¹; None with one layer.
        keys: E; None with one layer, or where the queries are the keys too.
        hidden: U of the MLP, or None.
        bias: c of the MLP, or None.
        heads: V behind the MLP, or None.
    """

    scores: Float[Array, " vocabulary"]
    values: Float[Array, "vocabulary width"]
    queries: Float[Array, "vocabulary dim"] | None = None
    keys: Float[Array, "vocabulary dim"] | None = None
    hidden: Float[Array, "dim dim"] | None = None
    bias: Float[Array, " dim"] | None = None
    heads: Float[Array, "heads dim"] | None = None


# Fields of `Tables` with a row for each token; the others belong to all of them.
BY_TOKEN = ("scores", "values", "queries", "keys")


def look_up(tables: Tables, tokens: Int[Array, "*bags width"]) -> Tables:
    """Gather the rows of the given token ids."""
    return Tables._make(
        field[tokens] if name in BY_TOKEN and field is not None else field
        for name, field in zip(Tables._fields, tables, strict=True)
    )


def output(
    rows: Tables, counts: Float[Array, " width"], design: Design
) -> Float[Array, " heads"]:
    """Compute the output of a network for one bag, one number per head.

    `rows` belong to the bag's distinct tokens; rows on padding, where C is zero, are
    ignored.

    Source: mathematics, section 5.

    Example:
        >>> rows = Tables(jnp.zeros(2), jnp.array([[1.0], [3.0]]))
        >>> output(rows, jnp.ones(2), Design()).tolist()
        [2.0]
    """
    counts = counts.astype(rows.scores.dtype)
    if rows.queries is None:
        weights = attention_weights(rows.scores, counts)
    else:
        if rows.keys is None:
            logits = _inner_products(rows.queries)
        else:
            logits = rows.queries @ rows.keys.T
        weights = two_layer_weights(rows.scores, logits, counts, design.residual)
    average = weights @ rows.values
    if design.activation is None:
        return average
    if rows.hidden is None or rows.bias is None or rows.heads is None:
        raise BadInput(f"{design}: the tables are those of a network without an MLP")
    hidden = ACTIVATIONS[design.activation](rows.hidden @ average + rows.bias)
    return rows.heads @ hidden


@partial(jax.jit, static_argnames="design", inline=True)
def outputs(
    tables: Tables, corpus: Corpus, design: Design
) -> Float[Array, "sequences heads"]:
    """Compute `output` for every bag of a corpus, one row per sequence."""
    same_vocabulary(tables.scores, corpus.vocabulary)
    return outputs_of_rows(look_up(tables, corpus.tokens), corpus.counts, design)


def outputs_of_rows(
    rows: Tables, counts: Float[Array, "sequences width"], design: Design
) -> Float[Array, "sequences heads"]:
    """Compute `output` for every bag whose rows were looked up."""
    axes = Tables._make(0 if name in BY_TOKEN else None for name in Tables._fields)
    return jax.vmap(output, in_axes=(axes, 0, None))(rows, counts, design)


# Parameters of a network, as flax keeps them.
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
        """Compute the quantities that do not depend on the sequence."""
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
        """Compute the scores E W²p and values E Vᵀ of all tokens, for every head."""
        return self.embeddings @ self._turned_query(), self.embeddings @ self.heads.T

    def __call__(self, corpus: Corpus) -> Float[Array, "sequences heads"]:
        """Outputs f, one row per sequence, one column per head."""
        return outputs(self.tables(), corpus, self.design)

    def _turned_query(self) -> Float[Array, " dim"]:
        """Compute W²p, the query after the last matrix."""
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


@partial(jax.jit, static_argnames="network", inline=True)
def start(network: Network, key: Key[Array, ""]) -> Variables:
    """Draw the parameters of a network from a key, as flax variables."""
    return dict(network.init(key, method="tables"))


def start_reduced(
    network: Network, key: Key[Array, ""], dim: Float[Scalar, ""] | float
) -> Variables:
    """Draw from the law of `start` in |S| + K + 1 rotated coordinates, at any d.

    These coordinates span E, p and the heads, and training stays in their span; W = I
    in them, too.

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


@partial(jax.jit, static_argnames="network", inline=True)
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


@partial(jax.jit, static_argnames="network", inline=True)
def tables_of(network: Network, variables: Variables) -> Tables:
    """Compute `Network.tables` at given variables."""
    tables: Any = network.apply(variables, method="tables")
    return tables


@partial(jax.jit, static_argnames="network", inline=True)
def alignments(
    network: Network, variables: Variables
) -> tuple[Float[Array, " vocabulary"], Float[Array, "vocabulary heads"]]:
    """Compute the scores E W²p and the values E Vᵀ of all tokens at given variables."""
    both: Any = network.apply(variables, method="alignments")
    return both


def count_parameters(variables: Variables) -> dict[str, int]:
    """Count the numbers in each parameter of a network, sorted by name."""
    return {name: leaf.size for name, leaf in sorted(variables["params"].items())}


def _factor(design: Design, layer: int, index: int) -> str:
    """Return the name of a trained factor of W¹ or W²."""
    number = 2 if design.layers == 1 else layer + 1
    name = {"product": ("product",), "tied": ("tied",), "separate": ("query", "key")}
    return f"{name[design.key_query][index]}_{number}"


def _identity(key: Key[Array, ""], shape: tuple[int, ...]) -> Float[Array, "dim dim"]:
    """Return the identity matrix; flax passes a key, which is not used."""
    return jnp.eye(shape[0])


def _on_sphere(
    key: Key[Array, ""], shape: tuple[int, ...]
) -> Float[Array, "heads dim"]:
    """Draw heads of unit norm, orthonormal if the dimension allows it."""
    if shape[0] > shape[1]:
        rows = jax.random.normal(key, shape)
        return rows / jnp.linalg.norm(rows, axis=1, keepdims=True)
    return _orthonormal(jax.random.normal(key, shape[::-1]).T)


def _orthonormal(rows: Float[Array, "heads dim"]) -> Float[Array, "heads dim"]:
    """Orthonormalise the rows one after the other, keeping their orientation."""
    columns, triangular = jnp.linalg.qr(rows.T)
    # Signs make the law uniform; QR alone prefers one side.
    return columns.T * jnp.sign(jnp.diagonal(triangular))[:, None]
