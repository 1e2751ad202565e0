"""A problem: bags of entries whose scores are linear in what is trained.

An entry e of a bag X has the score a_e = A_e·θ + α_e and the value b_e, and attention
q ∝ e^a over a bag has the output f = Σ_e q_e b_e. The flow of θ, its max-margin
problem, its ties and its certificate depend on a model through rows A, offsets α,
values b and labels alone (mathematics, section 8).
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from numpy.typing import ArrayLike

from .checks import BadInput, is_array, shown
from .compilation import compiled_alone, full_precision
from .data.corpus import Corpus, from_bags, from_sequences, labels_among
from .data.loss import LOGISTIC, NEXT_TOKEN, Loss
from .model.parameters import Coordinates, Frame, Parameters, check_problem, frame


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
        shape: of what is trained, if it is no vector: (d, d′) for a matrix.
        importance: whether tokens are words of a vocabulary that labels make important
            or not, by Assumption 1 of the paper.
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
    importance: bool = eqx.field(static=True, default=False)

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
        return self._coordinates.coordinates(vectors)

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
        return self._shaped(self._coordinates.lift_points(points))

    @full_precision
    def lift_direction(
        self, vectors: Float[Array, "*points dim"]
    ) -> Float[Array, "..."]:
        """Compute a direction of the model, such as p_mm, from its coordinates."""
        return self._shaped(self._coordinates.lift_vectors(vectors))

    @property
    def _coordinates(self) -> Coordinates:
        return Coordinates(self.axes, self.residual)

    def _shaped(self, vectors: Float[Array, "*points ambient"]) -> Array:
        if self.shape is None:
            return vectors
        return vectors.reshape(*vectors.shape[:-1], *self.shape)


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
    return _attention(parameters, corpus)


@compiled_alone
@full_precision
def _attention(parameters: Parameters, corpus: Corpus) -> Problem:
    inside = frame(parameters)
    few = inside.parameters
    values = corpus.gather(few.embeddings @ few.head)
    return _in_frame(inside, values, corpus, importance=True)


@full_precision
def cross_attention(
    features: "ArrayLike",
    values: "ArrayLike",
    labels: "ArrayLike",
    *,
    start: "ArrayLike | None" = None,
    mask: "ArrayLike | None" = None,
    weights: "ArrayLike | None" = None,
    loss: Loss = LOGISTIC,
) -> Problem:
    """Make the problem of one query p over given features: a_{it} = x_{it}·p.

    The features may come from image patches or from another encoder.

    Source: Tarzanagh et al., Max-Margin Token Selection in Attention Mechanism, 2023.

    Args:
        features: x_{it}, of shape (sequences, width, dim).
        values: b_{it}, for example x_{it}·v; a third axis for K classes.
        labels: ±1, or a class 0 … K − 1 for values of K classes.
        start: p_0, of shape (dim,); zero by default.
        mask: False at positions that a sequence does not have.
        weights: of the sequences, relative to each other; equal if not given.
        loss: ℓ, a function of the margin y f.

    Returns:
        The problem.

    Raises:
        BadInput: arrays that do not fit each other, numbers that are not finite, labels
            that are none, or a sequence without a position.

    Example:
        >>> x = jnp.array([[[2.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 2.0]]])
        >>> problem = cross_attention(x, x[..., 0], jnp.array([1, 1]))
        >>> problem.rows.shape, problem.values.tolist()
        ((4, 2), [[2.0, 0.0], [1.0, 0.0]])
    """
    x = _numbers("features", features, "sequences, width, dim")
    rows = x.reshape(-1, x.shape[2])
    corpus = _own_tokens(x.shape[:2], values, labels, mask, weights, loss)
    return _problem(rows, start, values, corpus, rows.shape[1:])


@full_precision
def key_query(
    features: "ArrayLike",
    queries: "ArrayLike",
    values: "ArrayLike",
    labels: "ArrayLike",
    *,
    start: "ArrayLike | None" = None,
    mask: "ArrayLike | None" = None,
    weights: "ArrayLike | None" = None,
    loss: Loss = LOGISTIC,
) -> Problem:
    """Make the problem of a key-query matrix W: a_{it} = x_{it}ᵀ W z_i.

    θ is W, by rows vec(x_{it} z_iᵀ); `lift` makes a matrix of it. There are no more
    coordinates than positions.

    Source: Tarzanagh et al., Transformers as Support Vector Machines, 2023.

    Args:
        features: x_{it}, of shape (sequences, width, dim).
        queries: z_i, of shape (sequences, other), for example of the last token.
        values: b_{it}, for example x_{it}·v; a third axis for K classes.
        labels: ±1, or a class 0 … K − 1 for values of K classes.
        start: W_0, of shape (dim, other); zero by default.
        mask: False at positions that a sequence does not have.
        weights: of the sequences, relative to each other; equal if not given.
        loss: ℓ, a function of the margin y f.

    Returns:
        The problem.

    Raises:
        BadInput: as `cross_attention`, or queries that do not fit the features.

    Example:
        >>> x = jnp.array([[[2.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 2.0]]])
        >>> problem = key_query(x, x[:, 1], x[..., 0], jnp.array([1, 1]))
        >>> problem.lift(problem.rows)[0].tolist()  # x zᵀ
        [[0.0, 2.0], [0.0, 0.0]]
    """
    x = _numbers("features", features, "sequences, width, dim")
    z = _numbers("queries", queries, "sequences, dim")
    if len(z) != len(x):
        raise BadInput(f"{len(z)} queries for {len(x)} sequences: wanted one for each")
    shape = x.shape[2], z.shape[1]
    rows = jnp.einsum("itd,ie->itde", x, z).reshape(-1, shape[0] * shape[1])
    corpus = _own_tokens(x.shape[:2], values, labels, mask, weights, loss)
    return _problem(rows, start, values, corpus, shape)


@full_precision
def next_token(
    contexts: "Sequence[ArrayLike] | np.ndarray",
    targets: "ArrayLike",
    embeddings: "ArrayLike",
    *,
    start: "ArrayLike | None" = None,
    weights: "ArrayLike | None" = None,
) -> Problem:
    """Make the problem of next-token prediction by the last token's query.

    a_s = E_sᵀ W E_q with q the last token of the context, and the loss is −log of the
    weight that attention lays on the tokens that equal the target. Sequences with the
    same last token share rows.

    Source: Li et al., Mechanics of Next Token Prediction with Self-Attention, 2024.

    Args:
        contexts: one list of token ids per sequence, or a matrix of them.
        targets: the id that follows each; it must occur in the context.
        embeddings: E, one row per token.
        start: W_0; zero by default.
        weights: of the sequences, relative to each other; equal if not given.

    Returns:
        The problem.

    Raises:
        BadInput: an empty context, an id outside the vocabulary, or a target that does
            not occur in its context, whose loss would be infinite.

    Example:
        >>> problem = next_token([[1, 2, 0], [1, 2, 0]], [1, 2], jnp.eye(3))
        >>> problem.rows.shape, problem.values.tolist()
        ((3, 4), [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    """
    table = _numbers("embeddings", embeddings, "vocabulary, dim")
    vocabulary, dim = table.shape
    follows = np.asarray(targets)
    if follows.shape != (len(contexts),):
        raise BadInput(
            f"targets of shape {follows.shape} for {len(contexts)} contexts: wanted "
            "one token id for each"
        )
    bags = [np.asarray(context) for context in contexts]
    words = from_sequences(bags, np.ones(len(contexts)), vocabulary=vocabulary)
    ids, counts = np.asarray(words.tokens), np.asarray(words.counts)
    found = (ids == follows[:, None]) & (counts > 0)
    if not found.any(axis=1).all():
        row = np.argmin(found.any(axis=1))
        raise BadInput(
            f"target {follows[row]} does not occur in context {row}: no attention "
            "would predict it"
        )
    last = np.array([int(context[-1]) for context in bags])
    both = np.where(counts > 0, ids * vocabulary + last[:, None], -1)
    pairs, tokens = np.unique(both, return_inverse=True)
    first = int(pairs[0] < 0)
    tokens = np.maximum(tokens.reshape(both.shape) - first, 0)
    pairs = pairs[first:]
    corpus = from_bags(
        tokens,
        counts,
        np.ones(len(ids)),
        vocabulary=len(pairs),
        weights=weights,
        loss=NEXT_TOKEN,
    )
    key, query = table[pairs // vocabulary], table[pairs % vocabulary]
    rows = (key[:, :, None] * query[:, None, :]).reshape(len(pairs), dim * dim)
    values = jnp.asarray(found, rows.dtype)
    return _problem(rows, start, values, corpus, (dim, dim))


def _numbers(name: str, given: Any, axes: str) -> Array:
    """Make an array of real numbers, which are finite where they are known."""
    number = axes.count(",") + 1
    found = jnp.asarray(given)
    if found.ndim != number:
        raise BadInput(f"{name} of shape {found.shape}: wanted ({axes})")
    found = found.astype(jnp.result_type(float, found.dtype))
    if not isinstance(found, jax.core.Tracer) and not bool(jnp.isfinite(found).all()):
        place = np.argwhere(~np.isfinite(np.asarray(found)))[0].tolist()
        raise BadInput(f"{name} {place} is not finite: wanted real numbers")
    return found


def _own_tokens(
    bags: tuple[int, ...],
    values: Any,
    labels: Any,
    mask: Any,
    weights: Any,
    loss: Loss,
) -> Corpus:
    """Make bags in which every position is a token of its own."""
    sequences, width = bags
    tokens = np.arange(sequences * width).reshape(bags)
    given = jnp.shape(values)
    if given[:2] != bags or len(given) > 3:
        raise BadInput(
            f"values of shape {given}: wanted {bags}, and an axis of classes"
        )
    if mask is not None and jnp.shape(mask) != bags:
        raise BadInput(f"mask of shape {jnp.shape(mask)}: wanted {bags}")
    there = np.ones(bags) if mask is None else mask
    classes = given[2] if len(given) == 3 else None
    if any(isinstance(each, jax.core.Tracer) for each in (there, labels, weights)):
        shares = None if weights is None else jnp.asarray(weights, float)
        return Corpus(
            tokens=jnp.asarray(tokens, jnp.int32),
            counts=jnp.asarray(there, float),
            labels=jnp.asarray(labels),
            vocabulary=tokens.size,
            weights=None if shares is None else shares / shares.sum(),
            loss=loss,
            classes=classes,
        )
    # `from_bags` takes two classes for the labels ±1.
    names = np.asarray(labels)
    if classes == 2:
        labels_among(names, (0, 1))
    corpus = from_bags(
        tokens,
        np.asarray(there, float),
        2 * names - 1 if classes == 2 else names,
        vocabulary=tokens.size,
        classes=classes or 2,
        weights=weights,
        loss=loss,
    )
    if classes == 2:
        labels = jnp.asarray(names, corpus.labels.dtype)
        corpus = dataclasses.replace(corpus, labels=labels, classes=2)
    return corpus


def _problem(
    rows: Float[Array, "vocabulary dim"],
    start: Any,
    values: Any,
    corpus: Corpus,
    shape: tuple[int, ...],
) -> Problem:
    """Make a problem in few coordinates of the space of θ."""
    if start is None:
        start = jnp.zeros(shape, rows.dtype)
    if jnp.shape(start) != shape:
        raise BadInput(f"start of shape {jnp.shape(start)}: wanted {shape}")
    begin = _numbers("start", jnp.ravel(start), "dim").astype(rows.dtype)
    inside = frame(Parameters(rows, begin, jnp.zeros_like(begin)))
    number = ", ".join(["sequences", "width", "classes"][: jnp.ndim(values)])
    values = _numbers("values", values, number).astype(rows.dtype)
    matrix = None if len(shape) == 1 else shape
    problem = _in_frame(inside, values, corpus, shape=matrix)
    check(problem)
    return problem


def _in_frame(inside: Frame, values: Array, corpus: Corpus, **about: Any) -> Problem:
    """Make the problem of the rows and the start of a frame, and of counts."""
    rows, start = inside.parameters.embeddings, inside.parameters.query
    return Problem(
        rows=rows,
        start=start,
        offsets=corpus.logits(jnp.zeros(len(rows), start.dtype)),
        values=values,
        corpus=corpus,
        offset_errors=jnp.zeros(corpus.tokens.shape, start.dtype),
        axes=inside.axes,
        residual=inside.residual,
        **about,
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
    _margins_in_domain(problem)


def _margins_in_domain(problem: Problem) -> None:
    """Refuse values that take margins y f where the loss is not defined."""
    corpus = problem.corpus
    leaves = problem.values, problem.offsets, corpus.labels
    known = not any(isinstance(leaf, jax.core.Tracer) for leaf in leaves)
    if not np.isfinite(corpus.loss.domain) or not known or corpus.classes is not None:
        return
    values = np.asarray(corpus.labels)[:, None] * np.asarray(problem.values)
    there, least = np.asarray(problem.offsets) > -np.inf, corpus.loss.domain
    lowest = np.where(there, values, np.inf).min(axis=1)
    highest = np.where(there, values, -np.inf).max(axis=1)
    wrong = (lowest < least) | (highest <= least)
    if wrong.any():
        raise BadInput(
            f"margins {lowest[wrong][0]:g} to {highest[wrong][0]:g} in bag "
            f"{wrong.argmax()}: {corpus.loss.name} loss wants them above {least:g}"
        )
