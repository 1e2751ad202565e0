"""A problem: bags of entries whose scores are linear in what is trained.

An entry e of a bag X has the score a_e = A_e·θ + α_e and the value b_e, and attention
q ∝ e^a over a bag has the output f = Σ_e q_e b_e. The flow of θ, its max-margin
problem, its ties and its certificate depend on a model through rows A, offsets α,
values b and labels alone (mathematics, sections 3 and 3g).
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .checks import BadInput, is_array, shown
from .compilation import full_precision
from .data.corpus import Corpus
from .model.parameters import Frame, Parameters, check_problem, frame


class Problem(eqx.Module):
    """A risk L(θ) = Σ_X w_X ℓ(m_X) of attention whose scores are linear in θ.

    Several entries may share a row of A. θ, A and θ_0 are in coordinates of a space
    that holds them: `lift` leads back to the model's own.

    Attributes:
        rows: A, one row per token.
        start: θ_0.
        offsets: α of every entry; −∞ where there is none. log C_X[s] for an entry that
            stands for C_X[s] equal tokens.
        values: b of every entry, a number per head.
        corpus: the tokens of every bag, labels, weights and loss.
        offset_errors: bound on the error of every α against the others of its bag.
        axes: F, coordinates θ ↦ F θ; None where they are the model's own.
        residual: θ_0 less its part in the coordinates; zero but for its derivative.
        shape: of what is trained: (d,) for a query, (d, d′) for a matrix.
    """

    rows: Float[Array, "vocabulary dim"]
    start: Float[Array, " dim"]
    offsets: Float[Array, "sequences width"]
    values: Float[Array, " sequences width *classes"]
    corpus: Corpus
    offset_errors: Float[Array, "sequences width"]
    axes: Float[Array, "ambient dim"] | None = None
    residual: Float[Array, " ambient"] | None = None
    shape: tuple[int, ...] | None = eqx.field(static=True, default=None)

    @property
    def present(self) -> Bool[Array, "sequences width"]:
        """Entries of bags of positive weight."""
        return self.corpus.present

    @full_precision
    def scores(self, query: Float[Array, " dim"]) -> Float[Array, " vocabulary"]:
        """Compute A θ."""
        return self.rows @ query

    def logits(
        self, scores: Float[Array, " vocabulary"]
    ) -> Float[Array, "sequences width"]:
        """Compute A_e·θ + α_e from A θ; −∞ where there is no entry."""
        return self.corpus.gather(scores) + self.offsets

    def starting_at(self, query: Float[Array, " dim"]) -> "Problem":
        """Replace θ_0."""
        return dataclasses.replace(self, start=query)

    @full_precision
    def coordinates(
        self, vectors: Float[Array, "*points ambient"]
    ) -> Float[Array, "*points dim"]:
        """Compute Fᵀx for vectors x of the model."""
        return self._frame.coordinates(vectors)

    @full_precision
    def lift(self, points: Float[Array, "*points dim"]) -> Float[Array, "..."]:
        """Compute what is trained from coordinates of points of a flow.

        Example:
            >>> from jaxselect.data.corpus import from_sequences
            >>> from jaxselect.model.parameters import gaussian
            >>> import jax
            >>> wide = gaussian(jax.random.key(0), vocabulary=3, dim=1000)
            >>> bags = from_sequences([[0, 1], [2]], [1, -1], vocabulary=3)
            >>> few = attention(wide, bags)
            >>> few.start.shape, few.lift(few.start).shape
            ((4,), (1000,))
        """
        return self._shaped(self._frame.lift_points(points))

    @full_precision
    def lift_direction(
        self, vectors: Float[Array, "*points dim"]
    ) -> Float[Array, "..."]:
        """Compute a direction of the model, such as p_mm, from its coordinates."""
        return self._shaped(self._frame.lift_vectors(vectors))

    @property
    def _frame(self) -> Frame:
        there = Parameters(self.rows, self.start, self.start)
        return Frame(there, self.axes, self.residual, None)

    def _shaped(self, vectors: Float[Array, "*points ambient"]) -> Array:
        if self.shape is None:
            return vectors
        return vectors.reshape(*vectors.shape[:-1], *self.shape)


@full_precision
def attention(parameters: Parameters, corpus: Corpus) -> Problem:
    """Make the problem of the paper's model: rows E, values E v, θ = p.

    Source: mathematics, sections 1 and 4b.

    Args:
        parameters: (E, p_0, v).
        corpus: n labelled bags.

    Returns:
        The problem, in at most |S| + 2 coordinates; differentiable once in E, p_0, v
        and the counts, in both modes.

    Raises:
        BadInput: parameters and a corpus that do not go together.

    Example:
        >>> from jaxselect.data.corpus import from_sequences
        >>> bags = from_sequences([[0, 1]], [1], vocabulary=2)
        >>> start = Parameters(jnp.eye(2), jnp.zeros(2), jnp.array([1.0, 0.0]))
        >>> attention(start, bags).values.tolist()
        [[1.0, 0.0]]
    """
    check_problem(parameters, corpus)
    inside = frame(parameters)
    few = inside.parameters
    return Problem(
        rows=few.embeddings,
        start=few.query,
        offsets=corpus.logits(jnp.zeros(len(few.embeddings), few.query.dtype)),
        values=corpus.gather(few.embeddings @ few.head),
        corpus=corpus,
        offset_errors=jnp.zeros(corpus.tokens.shape, few.query.dtype),
        axes=inside.axes,
        residual=inside.residual,
    )


def check(problem: Any) -> None:
    """Refuse what is no problem, or one whose arrays do not go together.

    Entry points call it before anything is traced.

    Raises:
        BadInput: another kind of argument, or shapes that do not fit.

    Example:
        >>> check(jnp.zeros(3))
        Traceback (most recent call last):
        jaxselect.checks.BadInput: problem of type ArrayImpl: wanted a Problem, ...
    """
    if not isinstance(problem, Problem):
        kind = type(problem).__name__
        raise BadInput(
            f"problem of type {kind}: wanted a Problem, such as "
            "attention(parameters, corpus)"
        )
    corpus, bags = problem.corpus, jnp.shape(problem.corpus.tokens)
    real = is_array(problem.rows, jnp.floating, 2)
    if not real or jnp.shape(problem.start) != problem.rows.shape[1:]:
        raise BadInput(
            f"rows {shown(problem.rows)} and start {shown(problem.start)}: wanted "
            "real numbers of shapes (tokens, dim) and (dim,)"
        )
    if len(problem.rows) != corpus.vocabulary:
        raise BadInput(
            f"{len(problem.rows)} rows beside {corpus.vocabulary} tokens: wanted one "
            "row for each"
        )
    heads = () if corpus.classes is None else (corpus.classes,)
    for name, given, wanted in (
        ("offsets", problem.offsets, bags),
        ("values", problem.values, bags + heads),
        ("offset_errors", problem.offset_errors, bags),
    ):
        if jnp.shape(given) != wanted:
            raise BadInput(f"{name} {shown(given)}: wanted the shape {wanted}")
