"""Ordered pairs of tokens, as the edges of a graph on the vocabulary.

With one row D_k = A_s − A_r per pair (s over r), weights on the pairs enter only
through DᵀWD = Aᵀ Lap(W) A, with the Laplacian of the graph, and duals only through
their divergence, Dᵀλ = AᵀΛ with Λ_s = Σ_r λ[s, r] − λ[r, s]. If several tokens of a
sequence stay selected, (s, r) and (s', r) are two edges into r.

Two layouts have the same methods: a mask of all pairs of a small vocabulary, and a list
for a large one, where the mask would not fit. A number for each pair is an array of the
shape of `held` in both.

`pair_strength` computes c_k, the coefficient of the force of a pair in the late flow.
"""

from abc import abstractmethod
from typing import Any, NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Scalar

from ..data.components import subtract_group_means
from ..data.corpus import BLOCK, Corpus, map_blocks, sum_blocks
from ..data.loss import Loss
from ..model.attention import FunctionalMargin, OutputMargin, functional_margin
from ..model.selection import competing_pairs
from ..problem import Problem

# Numbers and names by token, numbers by pair in either layout, rows by token.
ByToken: TypeAlias = Float[Array, " vocabulary"]
Names: TypeAlias = Int[Array, " vocabulary"]
Tokens: TypeAlias = Bool[Array, " vocabulary"]
ByPair: TypeAlias = Float[Array, "*pairs"]
SomePairs: TypeAlias = Bool[Array, "*pairs"]
ByMask: TypeAlias = Float[Array, "vocabulary vocabulary"]
ByEdge: TypeAlias = Float[Array, " edges"]
Rows: TypeAlias = Float[Array, "vocabulary dim"]
Gram: TypeAlias = Float[Array, "dim dim"]


class AbstractPairs(eqx.Module):
    """Pairs (s over r) of tokens.

    Attributes:
        held: whether a place of the layout holds a pair.
    """

    held: eqx.AbstractVar[SomePairs]

    @abstractmethod
    def leads(self, scores: ByToken) -> ByPair:
        """Compute the lead a_s − a_r of every pair."""

    @abstractmethod
    def divergence(self, duals: ByPair) -> ByToken:
        """Compute Λ_s = Σ_r λ[s, r] − λ[r, s], so that Dᵀλ = AᵀΛ."""

    @abstractmethod
    def gram(self, rows: Rows, weights: ByPair) -> Gram:
        """Compute Σ_k W_k D_k D_kᵀ."""

    @abstractmethod
    def lengths(self, rows: Rows) -> ByPair:
        """Bound the length ‖D_k‖ of every difference from above."""

    @abstractmethod
    def exact_lengths(self, rows: Rows) -> ByPair:
        """Compute ‖D_k‖ from the difference itself; zero where there is no pair."""

    @abstractmethod
    def terms(
        self, rows: Rows, duals: ByPair
    ) -> tuple[Float[Array, "dim terms"], Float[Array, "terms parts"]]:
        """Write Dᵀλ as a matrix times the sums of the rows of another."""

    @abstractmethod
    def any_by_token(self, some: SomePairs) -> tuple[Tokens, Tokens]:
        """Say which tokens win, and which lose, in some pairs."""

    @abstractmethod
    def joined(self, names: Names, some: SomePairs) -> Names:
        """Propagate the least label along the pairs once (connected components)."""

    @abstractmethod
    def places(self, corpus: Corpus, slots: Int[Array, " sequences"]) -> Any:
        """Index the pairs of the first selected entry of each bag over each entry."""

    def least(self, scores: ByToken) -> Float[Scalar, ""]:
        """Compute the smallest lead min a_s − a_r of a pair; zero without pairs."""
        ahead = jnp.where(self.held, self.leads(scores), jnp.inf)
        least = jnp.min(ahead, initial=jnp.inf)
        return jnp.where(self.held.any(), least, 0.0)

    def centred(self, rows: Rows, some: SomePairs) -> Rows:
        """Subtract from each token the mean of its component of the graph of pairs.

        These rows span the same space as the differences of the pairs, and have the
        same leads. There is one row per token, which is zero for a token in no pair.

        Source: mathematics, section 3b.
        """

        def spread(state: tuple[Array, Array]) -> tuple[Array, Array]:
            name, _ = state
            least = self.joined(name, some)
            return least, jnp.any(least != name)

        # The name of a component is its first token's; it wanders from pair to pair.
        start = jnp.arange(len(rows), dtype=jnp.int32), jnp.asarray(True)
        name, _ = lax.while_loop(lambda state: state[1], spread, start)
        return subtract_group_means(rows, name)


class PairMask(AbstractPairs):
    """All pairs of a small vocabulary.

    Attributes:
        held: True at [s, r] for a pair (s over r).
    """

    held: Bool[Array, "vocabulary vocabulary"]

    def leads(self, scores: ByToken) -> ByMask:
        """a_s − a_r at [s, r]."""
        return scores[:, None] - scores[None, :]

    def divergence(self, duals: ByMask) -> ByToken:
        """Sums over rows less sums over columns."""
        return duals.sum(axis=1) - duals.sum(axis=0)

    def gram(self, rows: Rows, weights: ByMask) -> Gram:
        """Aᵀ Lap(W) A."""
        return rows.T @ laplacian(weights) @ rows

    def lengths(self, rows: Rows) -> ByMask:
        """From the Gram matrix of the rows."""
        return difference_lengths(rows)

    def exact_lengths(self, rows: Rows) -> ByMask:
        """Differences of all rows."""
        from_all = lambda row: _lengths(row[None] - rows)  # noqa: E731
        apart = map_blocks(from_all, rows, numbers=rows.size)
        return jnp.where(self.held, apart, 0.0)

    def terms(
        self, rows: Rows, duals: ByMask
    ) -> tuple[Float[Array, "dim vocabulary"], Float[Array, "vocabulary parts"]]:
        """Aᵀ, and the terms of Λ."""
        return rows.T, jnp.concatenate([duals, -duals.T], axis=1)

    def any_by_token(
        self, some: Bool[Array, "vocabulary vocabulary"]
    ) -> tuple[Tokens, Tokens]:
        """By rows, and by columns."""
        return some.any(axis=1), some.any(axis=0)

    def joined(self, names: Names, some: Bool[Array, "vocabulary vocabulary"]) -> Names:
        """The least name in each row of a symmetric mask."""
        number = len(names)
        tied = some | some.T | jnp.eye(number, dtype=bool)
        return jnp.min(jnp.where(tied, names[None, :], number), axis=1)

    def places(
        self, corpus: Corpus, slots: Int[Array, " sequences"]
    ) -> tuple[Int[Array, "sequences one"], Int[Array, "sequences width"]]:
        """[winner, loser]."""
        return corpus.at(corpus.tokens, slots)[:, None], corpus.tokens


class PairList(AbstractPairs):
    """The different pairs that meet in some bag.

    Attributes:
        held: whether an edge is one; others fill the list up.
        winner: s of every edge.
        loser: r of every edge.
        edge: of the first selected entry of every bag over each entry, the edge of
            their tokens; beyond the list where they are no pair.
        vocabulary: number of tokens.
    """

    held: Bool[Array, " edges"]
    winner: Int[Array, " edges"]
    loser: Int[Array, " edges"]
    edge: Int[Array, "sequences width"]
    vocabulary: int = eqx.field(static=True)

    def leads(self, scores: ByToken) -> ByEdge:
        """By edge."""
        return scores[self.winner] - scores[self.loser]

    def divergence(self, duals: ByEdge) -> ByToken:
        """Sums over the edges of every token."""
        none = jnp.zeros(self.vocabulary, duals.dtype)
        return none.at[self.winner].add(duals).at[self.loser].add(-duals)

    def among(self, edges: Int[Array, " few"]) -> "PairList":
        """List some of the edges alone."""
        return PairList(
            held=self.held[edges],
            winner=self.winner[edges],
            loser=self.loser[edges],
            edge=self.edge[:0],
            vocabulary=self.vocabulary,
        )

    def gram(self, rows: Rows, weights: ByEdge) -> Gram:
        """A product of the differences."""

        def of_some(winner: Array, loser: Array, weights: Array) -> Array:
            apart = rows[winner] - rows[loser]
            return (apart.T * weights[None]) @ apart

        numbers = 2 * rows.shape[1]
        return sum_blocks(of_some, self.winner, self.loser, weights, numbers=numbers)

    def lengths(self, rows: Rows) -> ByEdge:
        """Lengths of differences, and their rounding."""
        eps = jnp.finfo(rows.dtype).eps
        return (1 + (8 + rows.shape[1]) * eps) * self.exact_lengths(rows)

    def exact_lengths(self, rows: Rows) -> ByEdge:
        """Lengths of differences."""
        of_edge = lambda s, r: _lengths(rows[s] - rows[r])  # noqa: E731
        numbers = 2 * rows.shape[1]
        apart = map_blocks(of_edge, self.winner, self.loser, numbers=numbers)
        return jnp.where(self.held, apart, 0.0)

    def terms(
        self, rows: Rows, duals: ByEdge
    ) -> tuple[Float[Array, "dim ends"], Float[Array, "ends one"]]:
        """A_s and A_r of every edge, and ±λ."""
        ends = jnp.concatenate([self.winner, self.loser])
        return rows[ends].T, jnp.concatenate([duals, -duals])[:, None]

    def any_by_token(self, some: Bool[Array, " edges"]) -> tuple[Tokens, Tokens]:
        """By the ends of the edges."""
        none = jnp.zeros(self.vocabulary, bool)
        return none.at[self.winner].max(some), none.at[self.loser].max(some)

    def joined(self, names: Names, some: Bool[Array, " edges"]) -> Names:
        """The least name along the edges."""
        least = jnp.minimum(names[self.winner], names[self.loser])
        least = jnp.where(some, least, len(names))
        return names.at[self.winner].min(least).at[self.loser].min(least)

    def places(
        self, corpus: Corpus, slots: Int[Array, " sequences"]
    ) -> Int[Array, "sequences width"]:
        """Edges, beyond the list also where they are of another entry."""
        winner = corpus.at(corpus.tokens, slots)[:, None]
        return jnp.where(self.winner[self.edge] == winner, self.edge, len(self.held))


def pairs_of(selected: Bool[Array, "sequences width"], corpus: Corpus) -> AbstractPairs:
    """Find the pairs (s, r) with s ∈ S_X and r ∈ X ∖ S_X, in the smaller layout.

    They are the constraints of the max-margin problem, each once.

    Source: mathematics, section 3.

    Args:
        selected: result of `selected_tokens`.
        corpus: n sequences.

    Example:
        >>> from jaxselect.data.corpus import from_sequences
        >>> bags = from_sequences([[0, 1], [1, 2]], [1, -1], vocabulary=3)
        >>> first = jnp.array([[True, False], [True, False]])
        >>> pairs_of(first, bags).held.sum().item()
        2
    """
    sequences, width = corpus.tokens.shape
    most = sequences * (width**2 // 4)
    if corpus.vocabulary**2 <= max(LARGER * most, SMALL):
        return PairMask(competing_pairs(selected, corpus))
    return _listed(selected, corpus, max(most, 1))


def concrete_pairs(
    selected: Bool[Array, "sequences width"], corpus: Corpus
) -> AbstractPairs:
    """Find the same pairs outside of `jit`, where their number is known.

    A list has as many places as the power of two that holds them.

    Example:
        >>> from jaxselect.data.corpus import from_sequences
        >>> bags = from_sequences([[0, 1, 99], [1, 2, 99]], [1, -1], vocabulary=100)
        >>> chosen = bags.tokens == 2
        >>> [find(chosen, bags).held.shape for find in (pairs_of, concrete_pairs)]
        [(4,), (2,)]
    """
    tokens, chosen, there = map(np.asarray, (corpus.tokens, selected, corpus.present))
    (sequences, width), vocabulary = tokens.shape, corpus.vocabulary
    rejected = there & ~chosen
    bag, slot = np.nonzero(chosen)
    number, losers = rejected.sum(axis=1), np.argwhere(rejected)
    # Beside each selected entry the rejected ones of its bag, which follow each other.
    meets, begin = number[bag], (np.cumsum(number) - number)[bag]
    own = np.arange(meets.sum()) - np.repeat(np.cumsum(meets) - meets - begin, meets)
    losing = tuple(losers[own].T)
    ends = np.repeat(tokens[bag, slot], meets), tokens[losing]
    most = sequences * (width**2 // 4 if chosen.sum(axis=1).max() > 1 else width - 1)
    if vocabulary**2 <= min(max(LARGER * most, SMALL), BLOCK):
        mask = np.zeros((vocabulary, vocabulary), bool)
        mask[ends] = True
        return PairMask(jnp.asarray(mask))
    names, edge = np.unique(
        ends[0].astype(np.int64) * vocabulary + ends[1], return_inverse=True
    )
    size = 1 << max(len(names) - 1, 0).bit_length()
    first = np.repeat(slot == chosen.argmax(axis=1)[bag], meets)
    of_entry = np.full(tokens.shape, size)
    of_entry[tuple(each[first] for each in losing)] = edge[first]
    both = np.pad(np.divmod(names, vocabulary), ((0, 0), (0, size - len(names))))
    winner, loser, edges = (jnp.asarray(each, jnp.int32) for each in (*both, of_entry))
    return PairList(jnp.arange(size) < len(names), winner, loser, edges, vocabulary)


# A mask is preferred up to this many places for one of a list, which is slower by about
# as much on CPU.
LARGER = 4
# Places of a mask that is preferred to any list.
SMALL = 2**12


def _listed(
    selected: Bool[Array, "sequences width"], corpus: Corpus, most: int
) -> PairList:
    """List each pair once, in an order of its own."""
    tokens, rejected = corpus.tokens.astype(jnp.int32), corpus.present & ~selected
    meets = selected[:, :, None] & rejected[:, None, :]
    # Pairs that are none come last.
    ends = tokens[:, :, None], tokens[:, None, :]
    winner, loser = (jnp.where(meets, end, corpus.vocabulary).ravel() for end in ends)
    order = jnp.lexsort((loser, winner))
    ordered = winner[order], loser[order]
    new = jnp.stack([end[1:] != end[:-1] for end in ordered]).any(axis=0)
    number = jnp.concatenate(
        [jnp.zeros(1, jnp.int32), jnp.cumsum(new, dtype=jnp.int32)]
    )
    edge = jnp.zeros_like(number).at[order].set(number).reshape(meets.shape)
    edge = jnp.where(meets, edge, most)
    winner, loser = (
        jnp.zeros(most, jnp.int32).at[edge].set(end, mode="drop")
        for end in (jnp.broadcast_to(end, meets.shape) for end in ends)
    )
    held = jnp.zeros(most, bool).at[edge].set(True, mode="drop")
    edge = corpus.at(edge, jnp.argmax(selected, axis=1))
    return PairList(held, winner, loser, edge, corpus.vocabulary)


def _lengths(apart: Float[Array, "*pairs dim"]) -> ByPair:
    """Compute lengths of vectors, without overflow of their squares."""
    apart = jnp.abs(apart)
    largest = jnp.max(apart, axis=-1, initial=0.0)
    unit = jnp.where(largest > 0, largest, 1.0)
    return largest * jnp.sqrt(jnp.sum((apart / unit[..., None]) ** 2, axis=-1))


def laplacian(
    weights: Float[Array, "vocabulary vocabulary"],
) -> Float[Array, "vocabulary vocabulary"]:
    """Laplacian of a weighted graph of pairs: aᵀ Lap(W) a = Σ W[s, r] (a_s − a_r)².

    Source: mathematics, section 3c.
    """
    degree = weights.sum(axis=0) + weights.sum(axis=1)
    return jnp.diag(degree) - weights - weights.T


def difference_lengths(
    embeddings: Float[Array, "vocabulary dim"],
) -> Float[Array, "vocabulary vocabulary"]:
    """Bound the length ‖E_s − E_r‖ of every difference from above."""
    rows = embeddings - embeddings.mean(axis=0, keepdims=True)
    square = jnp.sum(rows**2, axis=1)
    both = square[:, None] + square[None, :]
    # The products of two rows cancel to this many roundings of their lengths.
    rounding = 8 * jnp.finfo(rows.dtype).eps * both
    return jnp.sqrt(jnp.maximum(both - 2 * (rows @ rows.T), 0.0) + rounding)


# Rounding of λ_k, of D_kᵀp_mm and of a sum over pairs, in rounding units. Derived: each
# is a handful of operations and an exponential; measured below 4 on the default sweep.
ROUNDINGS = 16


class PairStrength(NamedTuple):
    """Strengths c = factor · e^{log_scale} of all pairs.

    After a large step on E, −ℓ′(y b) may be e^{−γ}, which underflows; its logarithm
    does not.

    Attributes:
        factor: zero for pairs that never meet, and where the bags of a pair cancel to
            rounding; positive where the winner deserves to win.
        log_scale: a natural logarithm, constant in derivatives.
        magnitude: sum of the terms of `factor` with |b_s| + |b_r| in the place of
            y (b_s − b_r); c has a rounding of it.
        error: bound on the change of `factor` by errors of offsets and values.
    """

    factor: ByPair
    log_scale: ByPair
    magnitude: ByPair
    error: ByPair

    def times_exp(self, exponent: Float[Array, "..."]) -> ByPair:
        """Compute c e^{exponent} with a single rounding."""
        meets = self.factor != 0
        return self.factor * jnp.exp(
            jnp.where(meets, self.log_scale + exponent, -jnp.inf)
        )


def pair_strength(
    problem: Problem, selected: Bool[Array, "sequences width"], pairs: AbstractPairs
) -> PairStrength:
    """Compute the strength c_{s*r} of each pair, for one selected token per sequence.

    c_{s*r} = Σ_{X∋s*,r} w_X (−ℓ′(y b_{s*})) e^{α_r − α_{s*}} y (b_{s*} − b_r), where
    e^α is C_X[s] for tokens that are counted. With K heads y (b_{s*} − b_r) is the
    margin's derivative along that difference. The scale of a pair is its largest
    −ℓ′(y b_{s*}) e^{α_r − α_{s*}}.

    Source: mathematics, sections 1b, 1c and 3b.
    """
    corpus, entries, logits = problem.corpus, problem.values, problem.offsets
    slots = jnp.argmax(selected, axis=1)
    slot = slots[:, None]
    loses = ~selected & corpus.present
    of_winner = jax.vmap(lambda bag, one: bag[one])
    best = of_winner(entries, slot)
    log_ratio = jnp.where(loses, logits - of_winner(logits, slot), 0.0)
    margin = functional_margin(corpus.labels, best[:, 0], corpus.loss)
    ahead = margin.along(best - entries)
    exponent = corpus.loss.log_slope(margin.value)[:, None] + log_ratio
    pair, shape = pairs.places(corpus, slots), pairs.held.shape
    largest = jnp.where(loses, jax.lax.stop_gradient(exponent), -jnp.inf)
    log_scale = jnp.full(shape, -jnp.inf, logits.dtype).at[pair].max(largest)
    log_scale = jnp.where(jnp.isfinite(log_scale), log_scale, 0.0)
    pull = jnp.exp(jnp.where(loses, exponent - log_scale[pair], -jnp.inf))
    strength = corpus.weighted(pull * ahead)
    zero = jnp.zeros_like(log_scale)
    factor = zero.at[pair].add(strength)
    # Rounding of a difference of values is that of the values.
    size = jnp.abs(best) + jnp.abs(entries)
    if entries.ndim > 2:
        size = 2 * size.max(axis=-1)
    size = margin.steepness[:, None] * size
    gross = jax.lax.stop_gradient(corpus.weighted(pull * size))
    magnitude = zero.at[pair].add(gross)
    # A sum that cancels to rounding has no sign, whatever the processor makes of it.
    eps = jnp.finfo(factor.dtype).eps
    factor = jnp.where(jnp.abs(factor) > ROUNDINGS * eps * magnitude, factor, 0.0)
    spread = lead_range(margin, entries, corpus.present)
    response = response_to_weights(spread, corpus.loss, margin)
    error = spread[:, None] * problem.offset_errors + problem.value_errors[:, None]
    size = (margin.steepness * response)[:, None] * error
    changed = zero.at[pair].add(corpus.weighted(pull * size))
    return PairStrength(
        factor=factor,
        log_scale=log_scale,
        magnitude=magnitude,
        error=jax.lax.stop_gradient(changed),
    )


def response_to_weights(
    spread: Any, loss: Loss, margin: FunctionalMargin | OutputMargin
) -> Any:
    """Bound the relative change of a force, 4 + 1.3 κ̄ w, by that of the weights.

    The force is in units of w_X (−ℓ′) q w, with w the range of b in the bag; of a loss
    of outputs σ takes the place of −ℓ′.

    Source: mathematics, lemma 3g.5.
    """
    ratio = margin.largest_ratio(loss)
    return 4 + 1.3 * jnp.maximum(ratio, 1.0) * spread


def lead_range(
    margin: FunctionalMargin | OutputMargin,
    entries: Float[Array, "sequences width *classes"],
    present: Bool[Array, "sequences width"],
) -> Float[Array, " sequences"]:
    """Compute w = max b − min b over the tokens of every bag; of the widest lead."""
    if entries.ndim > 2:
        entries = margin.leads(entries)
    here = present.reshape(*present.shape, *[1] * (entries.ndim - 2))
    highest = jnp.max(jnp.where(here, entries, -jnp.inf), axis=1)
    lowest = jnp.min(jnp.where(here, entries, jnp.inf), axis=1)
    spread = (highest - lowest).reshape(len(present), -1).max(axis=1)
    # A sequence of weight zero has nothing present.
    return jnp.where(present.any(axis=1), spread, 0.0)
