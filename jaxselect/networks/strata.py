"""Bags of very different widths, for networks that look at pairs of tokens.

A bag of u distinct tokens costs u² there, and padding to the widest bag would cost
twenty times the work on reviews. Bags are sorted by width into strata, each as wide as
its own widest bag; a stratum is an ordinary padded `Corpus`. Where to cut is decided by
the sum of u² over padded bags: the few wide ones get their own stratum.
"""

import itertools

import jax
import numpy as np
from jaxtyping import Array, Float, Key
from numpy.typing import ArrayLike
from scipy.sparse import csr_array

from .. import checks
from ..checks import BadInput, as_annotated
from ..data.corpus import Corpus, from_counts, labels_among

Strata = tuple[Corpus, ...]

# Cuts between strata are placed at multiples of one part in this of the bags.
PARTS = 40
# Cost of the padding, relative to the least, at which fewer strata are preferred.
SLACK = 1.03


@as_annotated
def stratify(
    counts: csr_array, labels: ArrayLike, *, classes: int = 2, number: int = 8
) -> Strata:
    """A count matrix as strata of like widths.

    Args:
        counts: one row per sequence, one column per token, entries > 0.
        labels: ±1 per sequence; for `classes` > 2, a class 0 … classes − 1.
        classes: number of classes K.
        number: of strata at most; fewer if there are fewer sequences, or hardly any
            more is saved. More waste less, but each is one more shape to compile.

    Returns:
        Corpora in ascending order of width; together they hold every sequence once.

    Raises:
        BadInput: no sequence, an empty one, a label that is none of the `classes`, or
            no stratum.

    Example:
        >>> counts = csr_array([[2, 0, 1], [0, 1, 0], [1, 1, 1]])
        >>> [bags.tokens.shape for bags in stratify(counts, [1, -1, 1], number=2)]
        [(2, 2), (1, 3)]
    """
    checks.whole("number", number)
    y, width = np.asarray(labels), np.diff(counts.indptr)
    if len(width) == 0 or y.shape != width.shape or width.min() < 1:
        raise BadInput(
            f"counts {counts.shape}, labels {y.shape}: wanted a label for each "
            "sequence, and a token in each"
        )
    known = (-1, 1) if classes == 2 else tuple(range(classes))
    labels_among(y, known)
    order = np.argsort(width, kind="stable")
    parts = np.array_split(order, min(PARTS, len(order)))
    cuts = _cheapest_cuts(
        np.array([width[rows[-1]] for rows in parts], float),
        np.array([len(rows) for rows in parts], float),
        min(number, len(parts)),
    )
    groups = [np.concatenate(parts[a:b]) for a, b in itertools.pairwise(cuts)]
    return tuple(from_counts(counts[rows], y[rows], classes=classes) for rows in groups)


def _cheapest_cuts(
    width: Float[np.ndarray, " parts"], number: Float[np.ndarray, " parts"], groups: int
) -> list[int]:
    """Ends of the fewest groups whose Σ (bags) · (widest)² is near the least."""
    # Dynamic programming over the number of groups and where the last one ends.
    before = np.concatenate([[0], np.cumsum(number)])
    parts = len(width)
    cost = np.full((groups + 1, parts + 1), np.inf)
    cost[0, 0] = 0
    begins = np.zeros(cost.shape, int)
    for group in range(1, groups + 1):
        for end in range(1, parts + 1):
            added = (before[end] - before[:end]) * width[end - 1] ** 2
            choices = cost[group - 1, :end] + added
            begins[group, end] = choices.argmin()
            cost[group, end] = choices.min()
    # The least cost for any number of groups, from one on.
    whole = cost[1:, parts]
    cuts = [parts]
    for group in range(1 + int(np.argmax(whole <= SLACK * whole[-1])), 0, -1):
        cuts.insert(0, int(begins[group, cuts[0]]))
    return cuts


@as_annotated
def minibatch(key: Key[Array, ""], strata: Strata, *, batch: int) -> Strata:
    """The same share of the bags of each stratum, without replacement.

    Args:
        key: what is drawn.
        strata: of `stratify`.
        batch: bags in all; rounded in each stratum, where one at least is drawn.

    Returns:
        Smaller strata.

    Raises:
        BadInput: no stratum, or no bag.

    Example:
        >>> strata = stratify(csr_array(np.tri(8)), np.ones(8), number=2)
        >>> [len(bags.labels) for bags in minibatch(jax.random.key(0), strata, batch=4)]
        [2, 2]
    """
    checks.whole("batch", batch)
    if not strata:
        raise BadInput("no stratum: wanted those of `stratify`")
    share = batch / sum(len(bags.labels) for bags in strata)
    keys = jax.random.split(key, len(strata))
    return tuple(
        _draw(k, bags, max(1, round(share * len(bags.labels))))
        for k, bags in zip(keys, strata, strict=True)
    )


def _draw(key: Key[Array, ""], corpus: Corpus, number: int) -> Corpus:
    """Some bags of a corpus."""
    total = len(corpus.labels)
    rows = jax.random.choice(key, total, (min(number, total),), replace=False)
    return jax.tree.map(lambda leaf: leaf[rows], corpus)
