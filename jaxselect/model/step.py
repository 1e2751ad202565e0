"""Gradient steps on the embeddings, and the prediction of Lemma 4.1.

E¹ = E⁰ − η₀ ∇_E L with −∇_E L = (−∂L/∂a) pᵀ + (−∂L/∂b) vᵀ, a change of rank two. For
large d it is close to −ℓ′(0) η₀ α vᵀ, with α the importance of the tokens.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Scalar

from ..checks import at_least, between, whole
from ..compilation import compiled_alone, full_precision
from ..data.corpus import Corpus
from ..data.loss import Loss
from .attention import negative_gradient, token_scores
from .parameters import Parameters, check_problem
from .selection import class_importance, importance

Embed: TypeAlias = Callable[[Parameters, Corpus, Float[Scalar, ""] | float], Parameters]
"""How the embeddings are made: from (E⁰, p_0, v), a corpus and η₀ to (E¹, p_0, v)."""

# A step size above this share of √max makes squared norms of E overflow: E¹ moves by
# η₀ α_s v/2 with |α_s| ≤ 1, and ‖E¹‖² is a sum over up to a million numbers.
_SHARE_OF_ROOT = 2.0**-10


def within_range(step_size: Any, dtype: jnp.dtype | str) -> None:
    """Refuse a concrete η₀ that is negative, NaN, or makes norms of E overflow."""
    most = _SHARE_OF_ROOT * float(jnp.finfo(dtype).max) ** 0.5
    between("step_size", step_size, -most, most)
    at_least("step_size", step_size, 0.0)


def embedding_step(
    parameters: Parameters, corpus: Corpus, step_size: Float[Scalar, ""] | float
) -> Parameters:
    """Take one gradient step E¹ = E⁰ − η₀ ∇_E L on the embeddings.

    −∇_E L = (−∂L/∂a) pᵀ + (−∂L/∂b) vᵀ has rank two, or K + 1 with K heads.

    Source: mathematics, section 2.

    Args:
        parameters: (E⁰, p, v).
        corpus: n labelled sequences.
        step_size: η₀ ≥ 0.

    Returns:
        (E¹, p, v).

    Raises:
        BadInput: another vocabulary, labels that do not suit the head, a step size that
            is negative or NaN, or makes squared norms of E overflow.

    Example:
        >>> from jaxselect import from_sequences, gaussian
        >>> bags = from_sequences([[0], [1]], [1, -1], vocabulary=2)
        >>> before = gaussian(jax.random.key(0), vocabulary=2, dim=10_000)
        >>> after = embedding_step(before, bags, step_size=40.0)
        >>> (after.embeddings @ after.head).round().tolist()
        [10.0, -10.0]
    """
    check_problem(parameters, corpus)
    within_range(step_size, parameters.embeddings.dtype)
    return _embedding_step(parameters, corpus, step_size)


@compiled_alone
@full_precision
def _embedding_step(
    parameters: Parameters, corpus: Corpus, step_size: Float[Scalar, ""] | float
) -> Parameters:
    descent = negative_gradient(*token_scores(parameters), corpus)
    change = jnp.outer(descent.scores, parameters.query)
    change = change + _along_heads(descent.values, parameters.head)
    return eqx.tree_at(
        lambda tree: tree.embeddings,
        parameters,
        parameters.embeddings + step_size * change,
    )


@dataclass(frozen=True)
class embedding_steps:
    """Make a function that takes k gradient steps η₀ on E alone.

    E_{j+1} = E_j − η₀ ∇_E L(E_j), so E_k = E_0 + A_k p_0ᵀ + B_k vᵀ. Pass it to a trial,
    to rates or to a grid as `embed=embedding_steps(4)`.

    Source: mathematics, section 2a.

    Attributes:
        number: k ≥ 0; a traced k admits derivatives in forward mode only.

    Example:
        >>> from jaxselect import from_sequences, gaussian
        >>> bags = from_sequences([[0], [1]], [1, -1], vocabulary=2)
        >>> before = gaussian(jax.random.key(0), vocabulary=2, dim=10_000)
        >>> after = embedding_steps(2)(before, bags, 10.0)
        >>> bool(abs(after.embeddings @ after.head)[0] < 5.0)  # the second is shorter
        True
    """

    number: Int[Scalar, ""] | int

    def __post_init__(self) -> None:
        """Refuse a number of steps below one."""
        if not isinstance(self.number, jax.core.Tracer):
            object.__setattr__(self, "number", whole("steps", self.number, least=0))

    def __call__(
        self,
        parameters: Parameters,
        corpus: Corpus,
        step_size: Float[Scalar, ""] | float,
    ) -> Parameters:
        """The parameters after the steps; see `embedding_step`."""
        check_problem(parameters, corpus)
        within_range(step_size, parameters.embeddings.dtype)
        size = jnp.asarray(step_size, parameters.embeddings.dtype)
        return jax.lax.fori_loop(
            0,
            self.number,
            lambda _, found: _embedding_step(found, corpus, size),
            parameters,
        )


def start_slope(loss: Loss, heads: int = 1) -> float:
    """Factor of η₀ α in the first step: −ℓ′(0) for one head, ½ for the logistic loss.

    At the start all outputs are equal. With K heads the margin is then −log(K − 1), and
    its derivative in f_k is K/(K − 1) times 1{y=k} − 1/K; for cross-entropy the factor
    is 1. Of a loss of outputs α does not tell: NaN.

    Source: mathematics, sections 1b and 1c.

    Example:
        >>> from jaxselect.data.loss import EXPONENTIAL, LOGISTIC
        >>> start_slope(LOGISTIC), start_slope(LOGISTIC, 3), start_slope(EXPONENTIAL)
        (0.5, 1.0, 1.0)
    """
    if loss.outputs is not None:
        return np.nan
    others = heads - 1.0
    margin = -np.log(others) if heads > 1 else np.zeros(())
    # A number, also while a program is traced, and of a loss made of JAX alone.
    with jax.ensure_compile_time_eval():
        slope = float(loss.slope(margin))
    return slope if heads == 1 else slope * heads / others


def _along_heads(
    values: Float[Array, " vocabulary *classes"], head: Float[Array, " dim *classes"]
) -> Float[Array, "vocabulary dim"]:
    """Changes of E along the heads: x vᵀ, or Σ_k x_k v_kᵀ."""
    return jnp.outer(values, head) if head.ndim == 1 else values @ head.T


def predicted_alignment(
    corpus: Corpus, step_size: Float[Scalar, ""] | float
) -> Float[Array, " vocabulary *classes"]:
    """Predict E_sᵀv after the step by Lemma 4.1: −ℓ′(0) η₀ α_s.

    For the logistic loss −ℓ′(0) = ½; for cross-entropy it is η₀ α_s^k for class k. Its
    error is of order (1 + η₀) d^{−1/2}.

    Source: mathematics, sections 1b and 2.

    Example:
        >>> from jaxselect.data.corpus import from_sequences
        >>> bags = from_sequences([[0], [1]], [1, -1], vocabulary=2)
        >>> predicted_alignment(bags, step_size=40.0).tolist()
        [10.0, -10.0]
    """
    if corpus.classes is None:
        return start_slope(corpus.loss) * step_size * importance(corpus)
    slope = start_slope(corpus.loss, corpus.classes)
    return slope * step_size * class_importance(corpus, classes=corpus.classes)


def alignment_error(
    before: Parameters,
    after: Parameters,
    corpus: Corpus,
    step_size: Float[Scalar, ""] | float,
) -> Float[Scalar, ""]:
    """Measure the relative error of Lemma 4.1: ‖E¹ − E⁰ − c α vᵀ‖_F / ‖c α‖.

    c = −ℓ′(0) η₀, of the `embedding_step` from E⁰ to E¹. The initial embeddings cancel,
    so this measures the step alone. It falls like d^{−1/2} and, to leading order, does
    not depend on η₀.

    Source: mathematics, section 2.

    Example:
        >>> from jaxselect import from_sequences, gaussian_reduced
        >>> bags = from_sequences([[0], [1]], [1, -1], vocabulary=2)
        >>> before = gaussian_reduced(jax.random.key(0), vocabulary=2, dim=1e8)
        >>> after = embedding_step(before, bags, 10.0)
        >>> bool(alignment_error(before, after, bags, 10.0) < 1e-3)
        True
    """
    wanted = predicted_alignment(corpus, step_size)
    change = after.embeddings - before.embeddings
    residual = change - _along_heads(wanted, before.head)
    return jnp.linalg.norm(residual) / jnp.linalg.norm(wanted)
