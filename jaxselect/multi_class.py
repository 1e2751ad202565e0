"""K classes: one head per class, cross-entropy, and what counts say of each class."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Scalar

from .corpus import Corpus, class_importance


def cross_entropy(
    label: Int[Scalar, ""], output: Float[Array, " heads"]
) -> Float[Scalar, ""]:
    """Cross-entropy −log softmax(f)_y of one sequence.

    Args:
        label: class y, 0 … K − 1.
        output: f, one number per head.

    Returns:
        The loss, ≥ 0, in nats.

    Example:
        >>> round(cross_entropy(jnp.array(1), jnp.zeros(4)).item(), 4)
        1.3863
    """
    return -jax.nn.log_softmax(output)[label]


def class_posteriors(
    corpus: Corpus, classes: int
) -> Float[Array, "vocabulary classes"]:
    """P(k | s) from counts.

    Args:
        corpus: n bags with labels 0 … K − 1.
        classes: K.

    Returns:
        Rows that add up to one; NaN for a token that never occurs.

    Example:
        >>> from jaxselect.corpus import from_sequences
        >>> bags = from_sequences([[0], [0], [1]], [0, 1, 2], 2, classes=3)
        >>> class_posteriors(bags, 3).tolist()
        [[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]
    """
    per_slot = corpus.counts[:, :, None] * _is_class(corpus, classes)[:, None, :]
    total = jnp.zeros((corpus.vocabulary, classes), corpus.counts.dtype)
    total = total.at[corpus.tokens].add(per_slot)
    return total / total.sum(axis=1, keepdims=True)


def class_posterior_difference(
    corpus: Corpus, classes: int
) -> Float[Array, "vocabulary classes"]:
    """How much likelier class k is than another one: P(k|s) − mean_{j≠k} P(j|s).

    For two classes it is P(1 | s) − P(0 | s).

    Args:
        corpus: n bags with labels 0 … K − 1.
        classes: K.

    Returns:
        Numbers in [−1/(K − 1), 1]; NaN for a token that never occurs.

    Example:
        >>> from jaxselect.corpus import from_sequences
        >>> bags = from_sequences([[0], [0], [1]], [0, 1, 2], 2, classes=3)
        >>> class_posterior_difference(bags, 3).tolist()
        [[0.25, 0.25, -0.5], [-0.5, -0.5, 1.0]]
    """
    posterior = class_posteriors(corpus, classes)
    return posterior - (1 - posterior) / (classes - 1)


def predicted_alignments(
    corpus: Corpus, classes: int, step_size: Float[Scalar, ""] | float
) -> Float[Array, "vocabulary classes"]:
    """E_sᵀv_k after one step: η₀ mean_X (1{y=k} − 1/K) C_X[s] / T_X.

    At the start every f_k is of order d^{−1/2}, so softmax(f) is 1/K and attention
    C/T; then −∂L/∂b^k_s is the mean above, and E_s moves by η₀ Σ_k (−∂L/∂b^k_s) v_k.
    What moves it through p is of order d^{−1/2}.

    Args:
        corpus: n bags with labels 0 … K − 1.
        classes: K, heads orthonormal.
        step_size: η₀.

    Returns:
        The prediction; its error is of order (1 + η₀) d^{−1/2}.

    Example:
        >>> from jaxselect.corpus import from_sequences
        >>> bags = from_sequences([[0], [1]], [0, 1], 2, classes=3)
        >>> predicted_alignments(bags, 3, 12.0).round(4).tolist()
        [[4.0, -2.0, -2.0], [-2.0, 4.0, -2.0]]
    """
    return step_size * class_importance(corpus, classes)


def _is_class(corpus: Corpus, classes: int) -> Float[Array, "sequences classes"]:
    """One where the sequence is of the class."""
    known = jnp.arange(classes, dtype=corpus.labels.dtype)
    return (corpus.labels[:, None] == known[None]).astype(corpus.counts.dtype)
