"""One gradient step on a richer network's embeddings, and its prediction.

At the start attention is uniform, except that a token attends more to itself. Lemma 4.1
then holds with a modified importance α̃ for two layers, and with g = φ′(0) Uᵀv in the
place of v behind an MLP (mathematics, section 5a).
"""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Scalar

from experiments.networks.network import Design, Network, Variables, outputs, tables_of
from jaxselect import checks
from jaxselect.checks import BadInput
from jaxselect.data.corpus import Corpus, labels_among
from jaxselect.model.attention import functional_margin
from jaxselect.model.selection import class_importance, importance
from jaxselect.model.step import start_slope


def classes_of(heads: int) -> tuple[int, ...]:
    """Return the labels for a number of heads: ±1 for one, else 0 … K − 1.

    Example:
        >>> classes_of(1), classes_of(3)
        ((-1, 1), (0, 1, 2))
    """
    return (-1, 1) if heads == 1 else tuple(range(heads))


def losses(
    outputs: Float[Array, "sequences heads"], corpus: Corpus
) -> Float[Array, " sequences"]:
    """Compute the loss of every sequence; with K heads it is cross-entropy.

    Example:
        >>> from jaxselect.data.corpus import from_sequences
        >>> bags = from_sequences([[0]], [1], vocabulary=1)
        >>> losses(jnp.zeros((1, 1)), bags).round(4).tolist()
        [0.6931]
    """
    labels_among(corpus.labels, classes_of(outputs.shape[1]))
    output = outputs[:, 0] if outputs.shape[1] == 1 else outputs
    margin = functional_margin(corpus.labels, output, corpus.loss)
    return corpus.loss.value(margin.value)


def network_risk(
    network: Network, variables: Variables, corpus: Corpus
) -> Float[Scalar, ""]:
    """Compute the mean loss of a network over a corpus, in nats."""
    labels_among(corpus.labels, classes_of(network.design.heads))
    return _network_risk(network, variables, corpus)


@partial(jax.jit, static_argnames="network", inline=True)
def _network_risk(
    network: Network, variables: Variables, corpus: Corpus
) -> Float[Scalar, ""]:
    tables = tables_of(network, variables)
    return corpus.mean(losses(outputs(tables, corpus, network.design), corpus))


def network_step(
    network: Network,
    variables: Variables,
    corpus: Corpus,
    step_size: Float[Scalar, ""] | float,
) -> Variables:
    """Take one step E¹ = E⁰ − η₀ ∇_E L, with all other parameters fixed.

    Source: mathematics, section 5a.

    Args:
        network: which.
        variables: at the start.
        corpus: n bags.
        step_size: η₀.

    Returns:
        The variables after the step.
    """
    checks.real("step_size", step_size)
    labels_among(corpus.labels, classes_of(network.design.heads))
    return _network_step(network, variables, corpus, step_size)


@partial(jax.jit, static_argnames="network", inline=True)
def _network_step(
    network: Network,
    variables: Variables,
    corpus: Corpus,
    step_size: Float[Scalar, ""] | float,
) -> Variables:
    slope = jax.grad(_network_risk, argnums=1)(network, variables, corpus)
    inner = dict(variables["params"])
    inner["embeddings"] -= step_size * slope["params"]["embeddings"]
    return {"params": inner}


def two_layer_importance(
    corpus: Corpus, *, residual: bool = True
) -> Float[Array, " vocabulary"]:
    """Compute the importance α̃ of every token under two layers of attention.

    It is α̃_s = mean_X y w_X[s]. For one sequence, with ρ = 1 for the residual and else
    0, w[r] = C_r/T (ρ + Σ_s C_s / (T + (e−1) C_s) + (e−1) C_r / (T + (e−1) C_r)), since
    a token attends to itself e times as much as to any other position.

    Source: mathematics, section 5a.

    Args:
        corpus: n bags with labels ±1.
        residual: as in `Design`.

    Returns:
        α̃; near (1 + ρ) α, and more for repeated and lonely tokens.

    Example:
        >>> from jaxselect.data.corpus import from_sequences
        >>> bags = from_sequences([[0], [1, 1]], [1, -1], vocabulary=3)
        >>> two_layer_importance(bags).round(6).tolist()
        [1.0, -1.0, 0.0]
    """
    labels_among(corpus.labels, (-1, 1))
    return _two_layer_importance(corpus, residual)


@partial(jax.jit, static_argnames="residual", inline=True)
def _two_layer_importance(
    corpus: Corpus, residual: bool
) -> Float[Array, " vocabulary"]:
    count = corpus.counts
    length = count.sum(axis=1, keepdims=True)
    bonus = jnp.expm1(jnp.ones((), count.dtype))
    attended = count / (length + bonus * count)
    weight = attended.sum(axis=1, keepdims=True) + bonus * attended + float(residual)
    signed = corpus.labels.astype(count.dtype)[:, None] * weight * count / length
    return corpus.mean_by_token(signed)


def predicted_alignments(
    corpus: Corpus, *, classes: int, step_size: Float[Scalar, ""] | float
) -> Float[Array, "vocabulary classes"]:
    """Predict E_sᵀv_k after one step: η₀ mean_X (1{y=k} − 1/K) C_X[s] / T_X.

    At the start every f_k is of order d^{−1/2}, so softmax(f) is 1/K and attention
    C/T; then −∂L/∂b^k_s is the mean above, and E_s moves by η₀ Σ_k (−∂L/∂b^k_s) v_k.
    Its change through p is of order d^{−1/2}.

    Source: mathematics, section 2.

    Args:
        corpus: n bags with labels 0 … K − 1.
        classes: K, heads orthonormal.
        step_size: η₀.

    Returns:
        The prediction; its error is of order (1 + η₀) d^{−1/2}.

    Example:
        >>> from jaxselect.data.corpus import from_sequences
        >>> bags = from_sequences([[0], [1]], [0, 1], vocabulary=2, classes=3)
        >>> predicted_alignments(bags, classes=3, step_size=12.0).round(4).tolist()
        [[4.0, -2.0, -2.0], [-2.0, 4.0, -2.0]]
    """
    slope = start_slope(corpus.loss, classes)
    return slope * step_size * class_importance(corpus, classes=classes)


def predicted_change(
    corpus: Corpus, design: Design, step_size: Float[Scalar, ""] | float
) -> Float[Array, "vocabulary heads"]:
    """Predict the change P of E along each direction, from the corpus alone.

    E¹ − E⁰ = P G up to O((1 + η₀) d^{−1/2}), where row k of G is v_k, or behind an MLP
    the response g.

    Source: mathematics, section 5a.

    Args:
        corpus: n bags.
        design: with one head where there are two layers.
        step_size: η₀.

    Returns:
        P; with orthonormal heads and no MLP it is E_s¹ᵀv_k.

    Raises:
        BadInput: a design whose first step is not known from counts.

    Example:
        >>> from jaxselect.data.corpus import from_sequences
        >>> bags = from_sequences([[0], [1]], [1, -1], vocabulary=2)
        >>> predicted_change(bags, Design(), 40.0).tolist()
        [[10.0], [-10.0]]
    """
    if design.layers == 2 and design.heads > 1:
        raise BadInput(f"{design}: wanted one head where there are two layers")
    if design.heads > 1:
        return predicted_alignments(corpus, classes=design.heads, step_size=step_size)
    if design.layers == 2:
        alpha = two_layer_importance(corpus, residual=design.residual)
    else:
        alpha = importance(corpus)
    return start_slope(corpus.loss) * step_size * alpha[:, None]


def change_error(
    before: Variables,
    after: Variables,
    predicted: Float[Array, "vocabulary heads"],
) -> Float[Scalar, ""]:
    """Compute the relative error of a prediction: ‖E¹ − E⁰ − P V‖_F / ‖P‖_F.

    Source: mathematics, section 5a.

    Args:
        before: variables at the start.
        after: result of `network_step`.
        predicted: P, of `predicted_change`.

    Returns:
        A number ≥ 0; it falls as d^{−1/2}.
    """
    change = after["params"]["embeddings"] - before["params"]["embeddings"]
    residual = change - predicted @ before["params"]["heads"]
    return jnp.linalg.norm(residual) / jnp.linalg.norm(predicted)
