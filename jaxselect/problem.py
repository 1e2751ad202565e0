"""A problem: bags of entries whose scores are linear in what is trained.

An entry e of a bag X has the score a_e = A_e·θ + α_e and the value b_e, and attention
q ∝ e^a over a bag has the output f = Σ_e q_e b_e. The flow of θ, its max-margin
problem, its ties and its certificate depend on a model through rows A, offsets α,
values b and labels alone (mathematics, section 8).
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Scalar
from numpy.typing import ArrayLike

from .checks import BadInput, array, in_memory, is_array, of_kind, reals, shown
from .compilation import compiled_alone, full_precision, is_traced
from .data.corpus import (
    Corpus,
    as_wide,
    check_corpus,
    from_bags,
    from_sequences,
    labels_among,
    labels_of,
    map_blocks,
    sequences_of,
    weights_of,
)
from .data.loss import (
    LOGISTIC,
    LOSSES,
    NEXT_TOKEN,
    Loss,
    check_margins,
    check_outputs,
)
from .model.attention import attend_bags, functional_margin
from .model.parameters import Parameters, Products, check_problem, frame, times

# Arrays of the rows x zᵀ that are there at a time, while they are rotated into few
# coordinates.
COPIES = 4


class Stratum(NamedTuple):
    """Some bags of a problem, as wide as the widest of them.

    Attributes:
        offsets: α of every entry.
        values: b of every entry.
        corpus: the bags, with their weights in the whole corpus.
    """

    offsets: Float[Array, "sequences width"]
    values: Float[Array, " sequences width *classes"]
    corpus: Corpus

    def logits(
        self, scores: Float[Array, " vocabulary"]
    ) -> Float[Array, "sequences width"]:
        """Compute a + α of every entry from the scores of all tokens."""
        return self.corpus.gather(scores) + self.offsets


class Problem(eqx.Module):
    """A risk L(θ) = Σ_X w_X ℓ(m_X) of attention whose scores are linear in θ.

    Several entries may share a row of A. θ, A and θ_0 are in coordinates of a space
    that holds them: `lift` leads back to the model's own.

    Attributes:
        rows: A, one row per token.
        start: θ_0.
        offsets: α of every entry, finite, and −∞ where there is none: the logarithm of
            the number of equal tokens that it stands for, and what else is not trained,
            such as a bias of a position.
        values: b of every entry, a number per head.
        corpus: the tokens of every sequence, labels, weights and loss.
        offset_errors: bound on the error of every α against others of its sequence;
            zero where it is made of counts.
        value_errors: bound on the error of the values of every sequence; zero where
            they are given.
        axes: F, coordinates θ ↦ F θ; None where they are the model's own.
        products: for a matrix, U and V: F leads to coordinates M of U M Vᵀ. None where
            they are the model's own.
        residual: θ_0 less its part in the coordinates; zero but for its derivative.
        shape: of what is trained, if it is no vector: (d, d′) for a matrix.
        importance: whether tokens are words of a vocabulary that labels make important
            or not, by Assumption 1 of the paper.
        ids: of every entry, the id that the caller gave its token; None where entries
            are positions.
        groups: sequences of similar width (`stratified`); none for one of all.
        widths: of the groups.
    """

    rows: Float[Array, "vocabulary dim"]
    start: Float[Array, " dim"]
    offsets: Float[Array, "sequences width"]
    values: Float[Array, " sequences width *classes"]
    corpus: Corpus
    offset_errors: Float[Array, "sequences width"]
    value_errors: Float[Array, " sequences"]
    axes: Float[Array, "ambient dim"] | None = None
    residual: Float[Array, " ambient"] | None = None
    products: Products | None = None
    shape: tuple[int, ...] | None = eqx.field(static=True, default=None)
    importance: bool = eqx.field(static=True, default=False)
    ids: Int[Array, "sequences width"] | None = None
    groups: tuple[Int[Array, " _"], ...] = ()
    widths: tuple[int, ...] = eqx.field(static=True, default=())

    def map_sequences(
        self, function: Callable, *each: Array, numbers: Callable[[int], int]
    ) -> Array:
        """Map a function over the sequences, cut to the width of their group.

        Args:
            function: of one sequence of each array, to a number or one for each entry.
            each: arrays of sequences, or of their entries.
            numbers: how many numbers it keeps for a sequence of a given width.

        Returns:
            Its results; zero beyond the width of a group.
        """
        shape, found = self.corpus.tokens.shape, []
        groups: tuple[Any, ...] = self.groups or (slice(None),)
        for some, width in zip(groups, self.widths or shape[1:], strict=True):
            here = [x[(some, slice(width))[: x.ndim]] for x in each]
            found.append(map_blocks(function, *here, numbers=numbers(width)))
        if not self.groups:
            return found[0]
        whole = jnp.zeros(shape[: found[0].ndim], found[0].dtype)
        for some, part in zip(groups, found, strict=True):
            there = (some, *map(slice, part.shape[1:]))
            whole = whole.at[there].set(part)
        return whole

    def by_width(self) -> tuple[Stratum, ...]:
        """Cut the sequences into their groups."""
        corpus, number = self.corpus, len(self.corpus.tokens)
        if not self.groups:
            return (Stratum(self.offsets, self.values, corpus),)
        weights = corpus.weights
        if weights is None:
            weights = jnp.full(number, 1 / number, self.offsets.dtype)
        strata = []
        for width, bags in zip(self.widths, self.groups, strict=True):
            part = dataclasses.replace(
                corpus,
                tokens=as_wide(corpus.tokens[bags], width),
                counts=as_wide(corpus.counts[bags], width),
                labels=corpus.labels[bags],
                weights=weights[bags],
            )
            offsets = as_wide(self.offsets[bags], width, -jnp.inf)
            values = as_wide(self.values[bags], width)
            strata.append(Stratum(offsets, values, part))
        return tuple(strata)

    @property
    def present(self) -> Bool[Array, "sequences width"]:
        """Entries of sequences of positive weight."""
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

    def parts(
        self, scores: Float[Array, " vocabulary"]
    ) -> list[tuple[Array, Array, Corpus]]:
        """Compute the logits of every group, with its values and sequences."""
        return [(part.logits(scores), *part[1:]) for part in self.by_width()]

    @full_precision
    def risk(self, trained: "ArrayLike") -> Float[Scalar, ""]:
        """Compute L(θ) = Σ_X w_X ℓ(m_X) of a query or a matrix; differentiable.

        Source: mathematics, section 8.

        Example:
            >>> x = jnp.array([[[2.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 2.0]]])
            >>> problem = cross_attention(x, x[..., 0], jnp.array([1, 1]))
            >>> round(problem.risk(jnp.zeros(2)).item(), 4)
            0.3937
            >>> [round(x, 4) for x in jax.grad(problem.risk)(jnp.zeros(2)).tolist()]
            [-0.1817, 0.1616]
        """
        query = self.coordinates(jnp.ravel(jnp.asarray(trained)))
        logits, corpus = self.logits(self.scores(query)), self.corpus
        output = attend_bags(logits, self.values, corpus).output
        margin = functional_margin(corpus.labels, output, corpus.loss).value
        return corpus.mean(corpus.loss.value(margin))

    def starting_at(self, query: Float[Array, " dim"]) -> "Problem":
        """Replace θ_0."""
        return dataclasses.replace(self, start=query)

    @full_precision
    def coordinates(
        self, vectors: Float[Array, "*points ambient"]
    ) -> Float[Array, "*points dim"]:
        """Compute Fᵀx for vectors x of the model."""
        if self.products is not None:
            vectors = self.products.coordinates(vectors)
        return vectors if self.axes is None else times(vectors, self.axes)

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
        return self._lifted(points, self.residual)

    @full_precision
    def lift_direction(
        self, vectors: Float[Array, "*points dim"]
    ) -> Float[Array, "..."]:
        """Compute a direction of the model, such as p_mm, from its coordinates."""
        return self._lifted(vectors, None)

    def _lifted(self, vectors: Array, residual: Array | None) -> Array:
        if self.axes is not None:
            vectors = times(vectors, self.axes.T)
        if residual is not None:
            vectors = vectors + jnp.broadcast_to(residual, vectors.shape)
        if self.products is not None:
            vectors = self.products.lift(vectors)
        if self.shape is None:
            return vectors
        return vectors.reshape(*vectors.shape[:-1], *self.shape)


# Share of all entries that one more group has to save. Chosen: each is compiled.
_SAVES = 0.02
# Widths are multiples of so many numbers, since XLA vectorises no other exponentials:
# measured, a fourth of the time.
_LANES = 8


def stratified(problem: Problem, most: int = 2) -> Problem:
    """Cut the bags of a problem into groups of similar width, with little padding.

    A sum over bags is added up over groups; nothing else changes.

    Example:
        >>> x = jnp.arange(48.0).reshape(3, 16, 1)
        >>> mask = jnp.arange(16)[None] < jnp.array([[13], [1], [2]])
        >>> few = stratified(cross_attention(x, x[..., 0], jnp.ones(3), mask=mask))
        >>> few.widths, [bags.tolist() for bags in few.groups]
        ((16, 8), [[0], [1, 2]])
    """
    there = np.asarray(problem.corpus.filled)
    bags, slots = len(there), np.arange(1, there.shape[1] + 1)
    widths = np.max(np.where(there, slots, 1), axis=1)
    widths = -(-widths // _LANES) * _LANES
    order = np.argsort(-widths, kind="stable")
    falling, cuts = widths[order], [0, bags]
    while len(cuts) <= most:
        sizes = np.diff(cuts)
        first, last = (np.repeat(ends, sizes) for ends in (cuts[:-1], cuts[1:]))
        saved = (last - np.arange(bags)) * (falling[first] - falling)
        if saved.max() < _SAVES * there.size:
            break
        cuts = sorted([*cuts, int(saved.argmax())])
    groups = [np.sort(some) for some in np.split(order, cuts[1:-1])]
    return dataclasses.replace(
        problem,
        groups=tuple(jnp.asarray(some, jnp.int32) for some in groups),
        widths=tuple(int(width) for width in falling[cuts[:-1]]),
    )


def attention(parameters: Parameters, corpus: Corpus) -> Problem:
    """Make the problem of the paper's model: rows E, values E v, θ = p.

    Source: mathematics, sections 1 and 4b.

    Args:
        parameters: (E, p_0, v).
        corpus: n labelled sequences.

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
    problem = _attention(parameters, corpus)
    if corpus.classes is not None and not is_traced(problem):
        check_outputs(corpus.loss, problem.values, corpus.labels, problem.present)
    return problem


@compiled_alone
@full_precision
def _attention(parameters: Parameters, corpus: Corpus) -> Problem:
    inside = frame(parameters)
    values = corpus.gather(inside[0].embeddings @ inside[0].head)
    return _in_frame(inside, values, corpus, importance=True, ids=corpus.tokens)


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

    The features may come from image patches or from another encoder. Of positions of a
    sequence with equal features, which keep their odds, the first stands for all: it
    has their mean value, it is the one that is selected, and it has their weight.

    Source: Tarzanagh et al., Max-Margin Token Selection in Attention Mechanism, 2023.

    Args:
        features: x_{it}, of shape (sequences, width, dim).
        values: b_{it}, for example x_{it}·v; a third axis for K classes.
        labels: ±1, or a class 0 … K − 1 for values of K classes.
        start: p_0, of shape (dim,); zero by default.
        mask: False at positions that a sequence does not have.
        weights: of the sequences, relative to each other; equal if not given.
        loss: ℓ, a `Loss` such as `LOGISTIC`, or an `output_loss` of K outputs.

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
    x = reals("features", features, "sequences, width, dim")
    values, counts = _entries(x, values, mask)
    corpus = _own_tokens(counts, values, labels, weights, loss)
    rows, shape = x.reshape(-1, x.shape[2]), x.shape[2:]
    return _problem(rows, _start(start, shape, x), values, corpus, "features")


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
    coordinates than positions, and one for the start. Equal features are merged as in
    `cross_attention`.

    Source: Tarzanagh et al., Transformers as Support Vector Machines, 2023.

    Args:
        features: x_{it}, of shape (sequences, width, dim).
        queries: z_i, of shape (sequences, other), for example of the last token.
        values: b_{it}, for example x_{it}·v; a third axis for K classes.
        labels: ±1, or a class 0 … K − 1 for values of K classes.
        start: W_0, of shape (dim, other); zero by default.
        mask: False at positions that a sequence does not have.
        weights: of the sequences, relative to each other; equal if not given.
        loss: ℓ, a `Loss` such as `LOGISTIC`, or an `output_loss` of K outputs.

    Returns:
        The problem.

    Raises:
        BadInput: as `cross_attention`, queries that do not fit the features, or arrays
            too large for this machine.

    Example:
        >>> x = jnp.array([[[2.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 2.0]]])
        >>> problem = key_query(x, x[:, 1], x[..., 0], jnp.array([1, 1]))
        >>> problem.lift(problem.rows)[0].tolist()  # x zᵀ
        [[0.0, 2.0], [0.0, 0.0]]
    """
    x = reals("features", features, "sequences, width, dim")
    z = reals("queries", queries, "sequences, dim", beside=x)
    if len(z) != len(x):
        raise BadInput(f"{len(z)} queries for {len(x)} sequences: wanted one for each")
    values, counts = _entries(x, values, mask, z)
    corpus = _own_tokens(counts, values, labels, weights, loss)
    keys, bags = x.reshape(-1, x.shape[2]), np.repeat(np.arange(len(x)), x.shape[1])
    every = np.arange(len(keys))
    return _of_matrix((keys, every), (z, bags), start, values, corpus, "features")


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
        >>> problem.values.tolist()
        [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    table = reals("embeddings", embeddings, "vocabulary, dim")
    vocabulary = len(table)
    follows = array("targets", targets, kinds="iu", wanted="token ids, integers")
    bags = sequences_of("contexts", contexts)
    if follows.shape != (len(bags),):
        raise BadInput(
            f"targets of shape {follows.shape} for {len(bags)} contexts: wanted one "
            "token id for each"
        )
    words = from_sequences(bags, np.ones(len(bags)), vocabulary=vocabulary)
    # Shapes that depend on those of the arguments alone share their programs.
    width = max(map(len, bags))
    ids, counts = (
        np.pad(each, ((0, 0), (0, width - each.shape[1])))
        for each in (np.asarray(words.tokens), np.asarray(words.counts))
    )
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
    size = min(ids.size, vocabulary**2)
    pairs = np.pad(pairs, (0, size - len(pairs)), mode="edge")
    values, counts = jnp.asarray(found, table.dtype), np.asarray(counts, float)
    if not is_traced(table):
        alike = _alike(table)[ids]
        asks = np.abs(np.asarray(table)).max(axis=1)[last] > 0
        values, counts = _merged(np.where(asks[:, None], alike, 0), counts, values)
    corpus = from_bags(
        tokens,
        counts,
        np.ones(len(ids)),
        vocabulary=len(pairs),
        weights=weights,
        loss=NEXT_TOKEN,
    )
    keys, queries = (table, pairs // vocabulary), (table, pairs % vocabulary)
    problem = _of_matrix(keys, queries, start, values, corpus, "embeddings")
    return dataclasses.replace(problem, ids=jnp.asarray(ids, words.tokens.dtype))


def _entries(
    x: Array, values: Any, mask: Any, queries: Array | None = None
) -> tuple[Array, Any]:
    """Check values and mask; let one of equal rows stand for all, unless traced."""
    bags = x.shape[:2]
    axes = "sequences, width", "sequences, width, classes"
    b = reals("values", values, *axes, beside=x)
    if b.shape[:2] != bags or b.shape[2:] == (1,):
        raise BadInput(
            f"values of shape {b.shape}: wanted {bags}, and an axis of two classes or "
            "more"
        )
    there: Any = np.ones(bags)
    if isinstance(mask, jax.core.Tracer):
        # What is neither 0 nor 1 is a number out of range, and so nothing is certified.
        there = jnp.where((mask == 0) | (mask == 1), mask, jnp.nan).astype(x.dtype)
    elif mask is not None:
        there = array("mask", mask, kinds="iufb", wanted="booleans").astype(float)
        if there.shape == bags and not np.isin(there, (0, 1)).all():
            raise BadInput("mask with other numbers than 0 and 1: wanted booleans")
    if there.shape != bags:
        raise BadInput(f"mask of shape {there.shape}: wanted {bags}")
    if is_traced((x, b, there)):
        return b, there
    if not there.any(axis=1).all():
        row = np.argmin(there.any(axis=1))
        raise BadInput(f"mask leaves sequence {row} empty: every one needs a position")
    alike = _alike(x.reshape(-1, x.shape[2])).reshape(bags)
    if queries is not None:
        asks = np.abs(np.asarray(queries)).max(axis=1) > 0
        alike = np.where(asks[:, None], alike, 0)
    return _merged(alike, there, b)


def _alike(rows: Array) -> np.ndarray:
    """Number rows such that equal ones have the same number."""
    ids: dict[bytes, int] = {}
    # Of two zeros one is negative.
    every = np.asarray(rows) + 0.0
    return np.array([ids.setdefault(row.tobytes(), len(ids)) for row in every])


def _merged(
    alike: np.ndarray, counts: np.ndarray, values: Array
) -> tuple[Array, np.ndarray]:
    """Let the first entry of a bag stand for those alike: C = Σ C_e, b = Σ C_e b_e/C.

    Source: mathematics, section 8.
    """
    place, number = np.flatnonzero(counts > 0), counts[counts > 0]
    bag = place // counts.shape[1]
    both = bag * (alike.max() + 1) + alike[counts > 0]
    _, first, group = np.unique(both, return_index=True, return_inverse=True)
    if len(first) == len(place):
        return values, counts
    total, where = np.bincount(group, number), place[first]
    given = np.asarray(values).reshape(counts.size, -1)
    # Differences of equal values are zero, and their mean is exact.
    off = number[:, None] * (given[place] - given[where[group]])
    mean, merged = given.copy(), np.zeros(counts.size)
    np.add.at(mean, where[group], off / total[group, None])
    merged[where] = total
    return jnp.asarray(mean.reshape(values.shape)), merged.reshape(counts.shape)


def _own_tokens(
    counts: Any, values: Array, labels: Any, weights: Any, loss: Loss
) -> Corpus:
    """Make bags in which every position is a token of its own."""
    of_kind("loss", loss, Loss, ", such as LOGISTIC")
    classes = values.shape[2] if values.ndim == 3 else None
    y = labels_of(labels, len(counts))
    labels_among(y, (-1, 1) if classes is None else tuple(range(classes)))
    tokens = np.arange(counts.size).reshape(counts.shape)
    if not isinstance(counts, jax.core.Tracer):
        tokens = np.where(counts > 0, tokens, 0)
    corpus = Corpus(
        tokens=jnp.asarray(tokens, jnp.int32),
        counts=jnp.asarray(counts, float),
        labels=jnp.asarray(y, jnp.int32),
        vocabulary=counts.size,
        weights=weights_of(weights, len(counts)),
        loss=loss,
        classes=classes,
    )
    if classes is not None and not is_traced((values, corpus)):
        check_outputs(loss, values, y, corpus.present)
    return corpus


def _start(given: Any, shape: tuple[int, ...], beside: Array) -> Array:
    """θ_0, zero if it is not given."""
    if given is None:
        return jnp.zeros(shape, beside.dtype)
    axes = "dim" if len(shape) == 1 else "dim, other"
    found = reals("start", given, axes, beside=beside)
    if found.shape != shape:
        raise BadInput(f"start of shape {found.shape}: wanted {shape}")
    return found


def _of_matrix(
    keys: tuple[Array, np.ndarray],
    queries: tuple[Array, np.ndarray],
    start: Any,
    values: Array,
    corpus: Corpus,
    source: str,
) -> Problem:
    """Make the problem with rows x zᵀ, of keys x and queries z by their numbers.

    They are first rotated into coordinates of their spans, where these are smaller:
    d d′ numbers for each position need not be there at any time.
    """
    (x, own), (z, other) = keys, queries
    shape, products = (x.shape[1], z.shape[1]), None
    begin = None if start is None else _start(start, shape, x)
    smaller = len(x) < shape[0] or len(z) < shape[1]
    if smaller and not is_traced((x, z, begin)):
        left, right = (jnp.linalg.qr(each.T)[0] for each in (x, z))
        off = None
        if begin is not None:
            off = begin - left @ (left.T @ begin @ right) @ right.T
            off = off / jnp.maximum(jnp.linalg.norm(off), jnp.finfo(off.dtype).tiny)
        x, z, products = x @ left, z @ right, Products(left, right, off)
    in_memory(f"{source}: rows x zᵀ", len(own), x.shape[1], z.shape[1], copies=COPIES)
    rows = (x[own][:, :, None] * z[other][:, None, :]).reshape(len(own), -1)
    begin = jnp.zeros(rows.shape[1], x.dtype) if begin is None else begin.ravel()
    if products is not None and start is not None:
        rows, begin = jnp.pad(rows, ((0, 0), (0, 1))), products.coordinates(begin)
    return _problem(rows, begin, values, corpus, source, shape=shape, products=products)


def _problem(
    rows: Float[Array, "vocabulary dim"],
    start: Array,
    values: Array,
    corpus: Corpus,
    source: str,
    **about: Any,
) -> Problem:
    """Make a problem in few coordinates of the space of θ."""
    inside = frame(Parameters(rows, start, jnp.zeros_like(start)))
    problem = _in_frame(inside, values, corpus, **about)
    check(problem, source)
    return problem


def _in_frame(
    inside: tuple[Any, ...], values: Array, corpus: Corpus, **about: Any
) -> Problem:
    """Make the problem of the rows and the start in a `frame`, and of counts."""
    parameters, axes, residual = inside
    rows, start = parameters.embeddings, parameters.query
    return Problem(
        rows=rows,
        start=start,
        offsets=corpus.logits(jnp.zeros(len(rows), start.dtype)),
        values=values,
        corpus=corpus,
        offset_errors=jnp.zeros(corpus.tokens.shape, start.dtype),
        value_errors=jnp.zeros(len(corpus.tokens), start.dtype),
        axes=axes,
        residual=residual,
        **about,
    )


def check(problem: Any, source: str = "problem") -> None:
    """Refuse anything but a problem whose arrays go together.

    Entry points call it before anything is traced. `source` names the argument that a
    problem comes from.

    Raises:
        BadInput: another kind of argument, shapes that do not fit, or numbers that
            cannot be computed with.

    Example:
        >>> check(jnp.zeros(3))
        Traceback (most recent call last):
        jaxselect.checks.BadInput: problem of type ArrayImpl: wanted Problem, such ...
    """
    of_kind("problem", problem, Problem, ", such as attention(parameters, corpus)")
    corpus, bags = problem.corpus, jnp.shape(problem.corpus.tokens)
    check_corpus(corpus)
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
    if corpus.classes is None and corpus.loss.outputs is not None:
        raise BadInput(
            f"loss {corpus.loss.name} of several outputs: wanted values with an axis "
            "of classes"
        )
    heads = () if corpus.classes is None else (corpus.classes,)
    for name, given, wanted in (
        ("offsets", problem.offsets, bags),
        ("values", problem.values, bags + heads),
        ("offset_errors", problem.offset_errors, bags),
        ("value_errors", problem.value_errors, bags[:1]),
    ):
        if jnp.shape(given) != wanted:
            raise BadInput(f"{name} {shown(given)}: wanted the shape {wanted}")
    if not is_traced(problem):
        for fault, right in usable(problem).items():
            if not right:
                raise BadInput(f"{source}: {fault}")
    _suits_loss(problem)


def usable(problem: Problem) -> dict[str, Any]:
    """Whether the numbers of a problem can be computed with, by the fault if not."""
    traced, corpus, classes = is_traced(problem), problem.corpus, problem.corpus.classes
    m = jnp if traced else np
    rows, values, start = map(m.asarray, (problem.rows, problem.values, problem.start))
    counts, y = m.asarray(corpus.counts), m.asarray(corpus.labels)
    offsets, errors = m.asarray(problem.offsets), m.asarray(problem.offset_errors)
    w = m.ones(1) if corpus.weights is None else m.asarray(corpus.weights)
    tiny = jnp.finfo(rows.dtype).tiny
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        lengths, sizes = m.sum(rows**2), m.sum(values**2)
    empty = ~(rows != 0).any()
    known = y**2 == 1 if classes is None else (y >= 0) & (y < classes)
    return {
        "squares of features or embeddings overflow or vanish: scale them": (
            m.isfinite(lengths) & (empty | (lengths >= tiny))
        ),
        "squares of values overflow: scale them": m.isfinite(sizes),
        "a start that is not finite": m.isfinite(start).all(),
        "weights that are negative or not finite": _not_negative(w),
        "counts that are negative or not finite": _not_negative(counts),
        "labels of no class": known.all(),
        "offsets that are not finite where there is an entry, or are elsewhere": (
            m.where(counts > 0, m.isfinite(offsets), offsets == -m.inf).all()
        ),
        "offset_errors that are negative or not finite": _not_negative(errors),
        "value_errors that are negative or not finite": _not_negative(
            m.asarray(problem.value_errors)
        ),
    }


def _not_negative(numbers: Any) -> Any:
    """Whether all are finite and not negative."""
    return ((numbers >= 0) & (numbers < np.inf)).all()


def nothing_to_select(problem: Problem) -> Bool[Array, ""]:
    """Whether θ has no force anywhere: in no bag do entries differ in value."""
    values, there = problem.values, problem.present
    there = there.reshape(*there.shape, *[1] * (values.ndim - 2))
    highest = jnp.where(there, values, -jnp.inf).max(axis=1)
    return (highest <= jnp.where(there, values, jnp.inf).min(axis=1)).all()


def _suits_loss(problem: Problem) -> None:
    """Refuse values whose margins are outside the loss's domain, and a wrong loss."""
    corpus, loss = problem.corpus, problem.corpus.loss
    leaves = problem.values, problem.offsets, corpus.labels
    # Those of the library are compared by its tests.
    known = loss in LOSSES and not np.isfinite(loss.domain)
    if known or any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
        return
    values, there = np.asarray(problem.values), np.asarray(problem.offsets) > -np.inf
    if corpus.classes is not None:
        # f_y − log Σ_{k≠y} e^{f_k}
        most, others = 2 * np.abs(values).max(), np.log(corpus.classes - 1)
        check_margins(loss, -most - others, most - others)
        return
    margins = np.asarray(corpus.labels)[:, None] * values
    lowest = np.where(there, margins, np.inf).min(axis=1)
    highest = np.where(there, margins, -np.inf).max(axis=1)
    wrong = (lowest < loss.domain) | (highest <= loss.domain)
    if wrong.any():
        raise BadInput(
            f"margins {lowest[wrong][0]:g} to {highest[wrong][0]:g} in "
            f"sequence {wrong.argmax()}: {loss.name} loss wants them above "
            f"{loss.domain:g}"
        )
    check_margins(loss, lowest.min(), highest.max())
