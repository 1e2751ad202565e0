"""Curvature of the risk in p, from the words that still move.

A sequence contributes diag(h) − h xᵀ − x hᵀ in scores (`model.objective`). Late,
the weights of nearly all words are too small to matter within the time that has passed:
only the others, few of thousands, are kept (mathematics, section 7a).
"""

import os
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import csr_array

from .loss import LOGISTIC, Loss
from .parameters import Parameters
from .ragged_attention import attention
from .sparse import SparseCorpus

# Tolerance of the truncated Jacobian relative to the identity; Newton's rate degrades
# by as much.
LEFT_OUT = 0.01
# Words whose rows of the curvature in scores are made at a time.
BLOCK = 1024


class RaggedBags(NamedTuple):
    """Bags with labels and the words' embeddings, on the host.

    Attributes:
        counts: a row per sequence, a column per word.
        labels: ±1.
        embeddings: E.
        values: b = E v.
        num_total: number of sequences that L is the mean over, these being some of
            them.
        loss: ℓ as a function of the margin y f.
    """

    counts: csr_array
    labels: Float[np.ndarray, " sequences"]
    embeddings: Float[np.ndarray, "vocabulary dim"]
    values: Float[np.ndarray, " vocabulary"]
    num_total: int
    loss: Loss = LOGISTIC

    @property
    def of(self) -> int:
        """The former name of `num_total`."""
        warnings.warn(
            "RaggedBags.of is now RaggedBags.num_total",
            DeprecationWarning,
            stacklevel=2,
        )
        return self.num_total

    @classmethod
    def of_corpus(cls, parameters: Parameters, corpus: SparseCorpus) -> "RaggedBags":
        """The whole corpus, and the embeddings of all words.

        Args:
            parameters: (E, ·, v).
            corpus: n bags with labels ±1.

        Returns:
            The same on the host.
        """
        embeddings = np.asarray(parameters.embeddings)
        return cls(
            corpus.by_sequence.to_csr(),
            np.asarray(corpus.labels, float),
            embeddings,
            embeddings @ np.asarray(parameters.head),
            len(corpus.labels),
            corpus.loss,
        )


def risk(bags: RaggedBags, cls: Float[np.ndarray, " dim"]) -> float:
    """The part of these sequences in L(p) (mathematics, section 1).

    Args:
        bags: the corpus and the words' embeddings.
        cls: p.

    Returns:
        The sum of their losses over the number that L is the mean of.

    Example:
        >>> bag = csr_array([[1.0, 1.0]])
        >>> one = RaggedBags(bag, np.ones(1), np.eye(2), np.zeros(2), 1)
        >>> round(risk(one, np.zeros(2)), 4)
        0.6931
    """
    output = outputs(bags, attention(bags.counts, bags.embeddings @ cls)[0])
    return float(bags.loss.value(bags.labels * output).sum() / bags.num_total)


def descent(
    bags: RaggedBags, cls: Float[np.ndarray, " dim"]
) -> tuple[Float[np.ndarray, " dim"], float]:
    """−∂L/∂p, and a bound on its rounding.

    Source: mathematics, section 7a.

    Args:
        bags: the corpus and the words' embeddings.
        cls: p.

    Returns:
        −∂L/∂p, and 16 roundings of the sum of its terms.

    Example:
        >>> bag = csr_array([[1.0, 1.0]])
        >>> one = RaggedBags(bag, np.ones(1), np.eye(2), np.array([1.0, 0.0]), 1)
        >>> descent(one, np.zeros(2))[0].round(4).tolist()
        [0.0944, -0.0944]
    """
    pull, _ = pulls(bags, cls)
    word, words = bags.counts.indices, bags.counts.shape[1]
    length = np.sqrt(np.sum(bags.embeddings**2, axis=1))
    terms = np.abs(pull) @ length[word]
    in_scores = np.bincount(word, pull, words)
    return in_scores @ bags.embeddings, float(16 * np.finfo(float).eps * terms)


def curvature(
    bags: RaggedBags, cls: Float[np.ndarray, " dim"], time: float = 0.0
) -> Float[np.ndarray, "dim dim"]:
    """∂²L/∂p² without words whose part, times `time`, is below `LEFT_OUT`.

    Source: mathematics, sections 3a and 7a.

    Args:
        bags: the corpus and the words' embeddings.
        cls: p.
        time: t; zero leaves nothing out.

    Returns:
        The Hessian.

    Example:
        >>> bag = csr_array([[1.0, 1.0]])
        >>> one = RaggedBags(bag, np.ones(1), np.eye(2), np.array([1.0, 0.0]), 1)
        >>> curvature(one, np.zeros(2)).round(4).tolist()
        [[0.0147, -0.0147], [-0.0147, 0.0147]]
    """
    counts, word = bags.counts, bags.counts.indices
    pull, partner, row = _factors(bags, cls)
    pulled, partners = np.abs(pull), np.abs(partner)
    all_pulls, all_partners = (
        np.add.reduceat(size, counts.indptr[:-1])[row] for size in (pulled, partners)
    )
    # A word takes its row and its column along.
    part = pulled * (1 + 2 * all_partners) + 2 * partners * all_pulls
    part = np.bincount(word, part, counts.shape[1])
    part *= time * np.max(np.sum(bags.embeddings**2, axis=1))
    order = np.argsort(part)
    small = order[np.cumsum(part[order]) <= LEFT_OUT] if time else order[:0]
    kept = np.setdiff1d(order, small)
    position = np.full(counts.shape[1], -1)
    position[kept] = np.arange(len(kept))
    entry = position[word] >= 0
    where = row[entry], position[word[entry]]
    shape = counts.shape[0], len(kept)
    left, right = (
        csr_array((factor[entry], where), shape=shape) for factor in (pull, partner)
    )
    embeddings, turned = bags.embeddings[kept], left.T.tocsr()
    pulled = np.bincount(where[1], pull[entry], len(kept))

    def half(first: int) -> Float[np.ndarray, "dim dim"]:
        part = np.arange(first, min(first + BLOCK, len(kept)))
        in_scores = (turned[part] @ right).toarray()
        in_scores[np.arange(len(part)), part] -= pulled[part] / 2
        return embeddings[part].T @ (in_scores @ embeddings)

    nothing = np.zeros((len(cls), len(cls)))
    if len(kept) <= BLOCK:
        # Handing one block to a thread takes longer than a small block itself.
        found = half(0) if len(kept) else nothing
        return found + found.T
    # SciPy and NumPy both let other threads run meanwhile.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = sum(pool.map(half, range(0, len(kept), BLOCK)), nothing)
    return found + found.T


def dense_curvature(
    bags: RaggedBags, cls: Float[np.ndarray, " dim"]
) -> Float[np.ndarray, "dim dim"]:
    """∂²L/∂p² by dense factors, which for 10⁴ counts take less time than sparse ones.

    Source: mathematics, section 3a.

    Args:
        bags: the corpus and the tokens' embeddings.
        cls: p.

    Returns:
        The Hessian.

    Example:
        >>> bag = csr_array([[1.0, 1.0]])
        >>> one = RaggedBags(bag, np.ones(1), np.eye(2), np.array([1.0, 0.0]), 1)
        >>> dense_curvature(one, np.zeros(2)).round(4).tolist()
        [[0.0147, -0.0147], [-0.0147, 0.0147]]
    """
    pull, partner, row = _factors(bags, cls)
    left, right = np.zeros((2, *bags.counts.shape))
    left[row, bags.counts.indices] = pull
    right[row, bags.counts.indices] = partner
    in_scores = left.T @ right - np.diag(left.sum(axis=0) / 2)
    found = bags.embeddings.T @ in_scores @ bags.embeddings
    return found + found.T


def pull(bags: RaggedBags, cls: Float[np.ndarray, " dim"]) -> Float[np.ndarray, " dim"]:
    """−∂L/∂p alone.

    Source: mathematics, section 7a.

    Args:
        bags: the corpus and the words' embeddings.
        cls: p.

    Returns:
        The first part of `descent`.

    Example:
        >>> bag = csr_array([[1.0, 1.0]])
        >>> one = RaggedBags(bag, np.ones(1), np.eye(2), np.array([1.0, 0.0]), 1)
        >>> pull(one, np.zeros(2)).round(4).tolist()
        [0.0944, -0.0944]
    """
    entries, _ = pulls(bags, cls)
    word, words = bags.counts.indices, bags.counts.shape[1]
    return np.bincount(word, entries, words) @ bags.embeddings


def outputs(
    bags: RaggedBags, share: Float[np.ndarray, " entries"]
) -> Float[np.ndarray, " sequences"]:
    """Outputs f = Σ_s q_s b_s of every sequence.

    Source: mathematics, section 1.

    Args:
        bags: the corpus and the words' values.
        share: q, of `attention`.

    Returns:
        What the head makes of it.

    Example:
        >>> bag, axes = csr_array([[1.0, 1.0]]), np.eye(2)
        >>> one = RaggedBags(bag, np.ones(1), axes, axes[0], 1)
        >>> outputs(one, np.array([0.75, 0.25])).tolist()
        [0.75]
    """
    value = share * bags.values[bags.counts.indices]
    return np.add.reduceat(value, bags.counts.indptr[:-1])


def pulls(
    bags: RaggedBags, cls: Float[np.ndarray, " dim"]
) -> tuple[Float[np.ndarray, " entries"], Int[np.ndarray, " entries"]]:
    """Pull y (−ℓ′(y f)) q (b − f) / n of every entry, and the rows.

    Source: mathematics, section 1.

    Args:
        bags: the corpus and the words' embeddings.
        cls: p.

    Returns:
        Terms of −∂L/∂a, which add up to zero in each row.

    Example:
        >>> bag, axes = csr_array([[1.0, 1.0]]), np.eye(2)
        >>> one = RaggedBags(bag, np.ones(1), axes, axes[0], 1)
        >>> pulls(one, np.zeros(2))[0].round(4).tolist()
        [0.0944, -0.0944]
    """
    pull, _, row = _factors(bags, cls)
    return pull, row


def _factors(
    bags: RaggedBags, cls: Float[np.ndarray, " dim"]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pulls h and partners x of every entry, as in `score_curvature`; the rows."""
    share, row = attention(bags.counts, bags.embeddings @ cls)
    value, label = bags.values[bags.counts.indices], bags.labels
    output = outputs(bags, share)
    ahead = value - output[row]
    margin = label * output
    pull = (label * bags.loss.slope(margin) / bags.num_total)[row] * share * ahead
    tilt = 0.5 * bags.loss.ratio(margin) * label
    return pull, share * (1 + tilt[row] * ahead), row
