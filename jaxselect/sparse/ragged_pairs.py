"""Competing pairs of ragged bags, and classes of tied tokens.

Bags are rows of a count matrix on the host; a token that lost is one entry of a row
(mathematics, section 7c).
"""

import numpy as np
from jaxtyping import Bool, Int
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from .ragged_bags import row_of_entry

# Margin above one, absolute. Up to the first a pair is active, which is as exact as
# p_mm is computed; beyond the second it is not; between the two nothing is claimed.
ACTIVE, INACTIVE = 1e-8, 1e-6


def competing_pairs(
    counts: csr_array, selected: Bool[np.ndarray, " entries"]
) -> tuple[Int[np.ndarray, " pairs"], Int[np.ndarray, " pairs"]]:
    """Distinct pairs (first selected word, losing word) of all bags.

    Args:
        counts: a row per bag.
        selected: of every entry.

    Returns:
        Winners and losers.

    Example:
        >>> bags = csr_array([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]])
        >>> chosen = np.array([True, False, True, False, False])
        >>> [part.tolist() for part in competing_pairs(bags, chosen)]
        [[0, 0], [1, 2]]
    """
    winners, losers, _ = competing_pairs_by_entry(counts, selected)
    return winners, losers


def competing_pairs_by_entry(
    counts: csr_array, selected: Bool[np.ndarray, " entries"]
) -> tuple[
    Int[np.ndarray, " pairs"], Int[np.ndarray, " pairs"], Int[np.ndarray, " lost"]
]:
    """`competing_pairs`, and the pair of every entry that is not selected.

    Args:
        counts: a row per bag.
        selected: of every entry.

    Returns:
        Winners, losers, and a pair for each entry that lost.

    Example:
        >>> bags = csr_array([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]])
        >>> chosen = np.array([True, False, True, False, False])
        >>> competing_pairs_by_entry(bags, chosen)[2].tolist()
        [0, 0, 1]
    """
    first = np.repeat(first_selected(counts, selected), np.diff(counts.indptr))[
        ~selected
    ]
    keys = first * counts.shape[1] + counts.indices[~selected]
    found, pair = np.unique(keys, return_inverse=True)
    winners, losers = np.divmod(found, counts.shape[1])
    return winners, losers, pair


def contract_ties(
    counts: csr_array, selected: Bool[np.ndarray, " entries"]
) -> tuple[csr_array, Bool[np.ndarray, " entries"]]:
    """Bags with one word per class of ties; the completed selection.

    Words tied in one bag are at finite odds wherever else they meet.

    Source: mathematics, section 7c.

    Args:
        counts: a row per bag, a column per word.
        selected: of every entry.

    Returns:
        The same entries under other columns, some of them twice; of every entry.

    Example:
        >>> bags = csr_array([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]])
        >>> tied = np.array([True, True, True, False, False])
        >>> one, whole = contract_ties(bags, tied)
        >>> one.indices.tolist(), whole.tolist()
        ([0, 0, 0, 0, 2], [True, True, True, True, False])
    """
    words = counts.shape[1]
    first = np.repeat(first_selected(counts, selected), np.diff(counts.indptr))
    edges = first[selected], counts.indices[selected]
    ties = csr_array((np.ones(selected.sum()), edges), shape=(words, words))
    _, label = connected_components(ties, directed=False)
    _, stands = np.unique(label, return_index=True)
    same = stands[label]
    whole = selected | (same[counts.indices] == same[first])
    entries = counts.data, same[counts.indices], counts.indptr
    return csr_array(entries, counts.shape), whole


def first_selected(
    counts: csr_array, selected: Bool[np.ndarray, " entries"]
) -> Int[np.ndarray, " bags"]:
    """The first selected word of every bag.

    Args:
        counts: a row per bag.
        selected: of every entry; one at least in each bag.

    Returns:
        A word each.

    Example:
        >>> bag = csr_array([[1.0, 1.0]])
        >>> first_selected(bag, np.array([False, True])).tolist()
        [1]
    """
    row = row_of_entry(counts)
    first = np.full(counts.shape[0], counts.shape[1], np.int64)
    np.minimum.at(first, row[selected], counts.indices[selected].astype(np.int64))
    return first
