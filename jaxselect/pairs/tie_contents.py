"""Contents of bags: their tied tokens, held by twins or by a strict minimum.

Twins are bags of both labels with the same tied tokens: their loss fixes f alone. All
other ties must have a strict minimum beside them (mathematics, section 7e).
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse import csr_array

from ..corpora.loss import LOGISTIC
from ..model.frame import span_axes
from ..model.ragged_bags import RaggedBags, row_of_entry
from .ragged_pairs import contract_ties, first_selected

# Distances from f = log(n₊/n₋) that the bounds of the loss's curvature are for.
NARROW = 0.1
# y f from which a content of one label is driven by its own loss, e^(−y f), and is held
# by nothing.
RISEN = 20.0
# Part of a length, relative, below which a direction lies in a span.
WITHIN = 1e-9
# Parts of a sum over bags, relative, below which it counts as zero.
CANCELLED = 1e-12


class Contents(NamedTuple):
    """The contents of bags: tied tokens, with their odds' counts.

    Attributes:
        contracted: the count matrix, with ties contracted.
        selected: of every entry.
        carried: of every entry, whether all bags of a twin content hold the token at
            the same ratio, and it has lost: twins together have no force on it.
        ratio: of every entry, its count over those that its bag selects.
        words: the selected tokens.
        counts: of every content over `words`, adding up to one.
        of_bag: content of every bag.
        twins: contents of more than one token that twins hold at f = log(n₊/n₋).
        strict: the other contents of more than one token, but for those that rise.
        rising: of more than one token and one label, y f still growing like log t.
        number: bags of every content, of labels +1 and −1.
        axes: orthonormal, of the span of tied differences.
    """

    contracted: csr_array
    selected: Bool[np.ndarray, " entries"]
    carried: Bool[np.ndarray, " entries"]
    ratio: Float[np.ndarray, " entries"]
    words: Int[np.ndarray, " words"]
    counts: Float[np.ndarray, "contents words"]
    of_bag: Int[np.ndarray, " bags"]
    twins: Int[np.ndarray, " twins"]
    strict: Int[np.ndarray, " strict"]
    rising: Int[np.ndarray, " rising"]
    number: Int[np.ndarray, "2 contents"]
    axes: Float[np.ndarray, "dim axes"]

    def free(
        self, embeddings: Float[np.ndarray, "vocabulary dim"]
    ) -> Float[np.ndarray, "vocabulary dim"]:
        """E orthogonal to the ties."""
        return embeddings - (embeddings @ self.axes) @ self.axes.T

    def competing(self) -> tuple[csr_array, Bool[np.ndarray, " entries"]]:
        """Contracted bags without carried tokens, and their selection."""
        keep = ~self.carried
        length = np.bincount(
            row_of_entry(self.contracted)[keep], minlength=len(self.of_bag)
        )
        begin = np.concatenate([[0], np.cumsum(length)])
        entries = self.contracted.data[keep], self.contracted.indices[keep], begin
        return csr_array(entries, shape=self.contracted.shape), self.selected[keep]


def tie_contents(
    bags: RaggedBags,
    selected: Bool[np.ndarray, " entries"],
    cls: Float[np.ndarray, " dim"],
) -> Contents | None:
    """Contents of bags, their ties held by twins or by a strict minimum.

    Twins hold a content whose f is near log(n₊/n₋) at p, if ∂f/∂p is no combination of
    those of others and not all of its differences lie in the span of strict ones.

    Source: mathematics, section 7e.

    Args:
        bags: the corpus and the tokens' embeddings.
        selected: of every entry.
        cls: p, its ties at rest.

    Returns:
        None where no content is held by twins alone or rises, and where the loss is not
        the logistic one.
    """
    if bags.loss != LOGISTIC:
        return None
    contracted, selected = contract_ties(bags.counts, selected)
    entry, row = bags.counts.indices, bags.row
    total = np.bincount(row[selected], bags.counts.data[selected])
    ratio = bags.counts.data / total[row]
    words, place = np.unique(entry[selected], return_inverse=True)
    kept = np.zeros((len(bags.labels), len(words)))
    kept[row[selected], place] = ratio[selected]
    counts, content = np.unique(kept.round(12), axis=0, return_inverse=True)
    content = content.ravel()
    number = np.stack(
        [np.bincount(content[bags.labels == y], minlength=len(counts)) for y in (1, -1)]
    )
    tied = (counts > 0).sum(axis=1) > 1
    rises = tied & _rises(bags, words, counts, number, cls)
    tied = np.flatnonzero(tied & ~rises)
    first = first_selected(bags.counts, selected)[row]
    apart = bags.embeddings[first] - bags.embeddings[entry]
    strict = np.zeros(len(counts), bool)
    strict[tied] = _overdetermined(bags, words, counts[tied], number[:, tied], cls)
    axes = span_axes(apart[selected & strict[content][row]])
    outside = np.linalg.norm(apart - (apart @ axes) @ axes.T, axis=1)
    outside = selected & (outside > WITHIN * np.linalg.norm(apart, axis=1))
    strict[tied] |= np.bincount(content[row][outside], minlength=len(counts))[tied] == 0
    twins = np.setdiff1d(tied, np.flatnonzero(strict))
    if not len(twins) and not rises.any():
        return None
    held = selected & ~rises[content][row]
    return Contents(
        contracted,
        selected,
        ~selected & _common(bags.counts, ratio, content, twins),
        ratio,
        words,
        counts,
        content,
        twins,
        np.flatnonzero(strict),
        np.flatnonzero(rises),
        number,
        span_axes(apart[held]),
    )


def shares(
    counts: Float[np.ndarray, "contents words"], scores: Float[np.ndarray, " words"]
) -> tuple[Float[np.ndarray, "contents words"], Float[np.ndarray, " contents"]]:
    """Weights of the tokens of every content, and log Z.

    Args:
        counts: of every content.
        scores: of the tokens.

    Returns:
        Rows that add up to one, and a logarithm each.

    Example:
        >>> share, log_size = shares(np.array([[1.0, 3.0, 0.0]]), np.zeros(3))
        >>> share.tolist(), round(log_size.item(), 6)
        ([[0.25, 0.75, 0.0]], 1.386294)
    """
    with np.errstate(divide="ignore"):
        logit = np.log(counts) + scores
    top = logit.max(axis=1, keepdims=True)
    share = np.exp(logit - top)
    size = share.sum(axis=1, keepdims=True)
    return share / size, (top + np.log(size)).ravel()


def _rises(
    bags: RaggedBags,
    words: Int[np.ndarray, " words"],
    counts: Float[np.ndarray, "contents words"],
    number: Int[np.ndarray, "2 contents"],
    cls: Float[np.ndarray, " dim"],
) -> Bool[np.ndarray, " contents"]:
    """Whether a content has one label, and y f beyond `RISEN`."""
    output = shares(counts, (bags.embeddings @ cls)[words])[0] @ bags.values[words]
    sign = np.sign(number[0] - number[1])
    return (number.min(axis=0) == 0) & (sign * output > RISEN)


def _overdetermined(
    bags: RaggedBags,
    words: Int[np.ndarray, " words"],
    counts: Float[np.ndarray, "tied words"],
    number: Int[np.ndarray, "2 tied"],
    cls: Float[np.ndarray, " dim"],
) -> Bool[np.ndarray, " tied"]:
    """Whether f is off log(n₊/n₋), or ∂f/∂p a combination of those of others."""
    embeddings, values = bags.embeddings[words], bags.values[words]
    share, _ = shares(counts, embeddings @ cls)
    output = share @ values
    slopes = (share * (values - output[:, None])) @ embeddings
    with np.errstate(divide="ignore", invalid="ignore"):
        off = np.abs(output - np.log(number[0] / number[1]))
        slopes /= np.linalg.norm(slopes, axis=1, keepdims=True)
    found = ~(off <= NARROW)
    if not np.isfinite(slopes).all():
        return found
    left, size, _ = np.linalg.svd(slopes)
    null = left[:, np.sum(size > WITHIN) :]
    return found | (np.abs(null) > np.sqrt(WITHIN)).any(axis=1)


def _common(
    counts: csr_array,
    ratio: Float[np.ndarray, " entries"],
    content: Int[np.ndarray, " bags"],
    twins: Int[np.ndarray, " twins"],
) -> Bool[np.ndarray, " entries"]:
    """Tokens that all bags of a twin content hold at one ratio."""
    row = row_of_entry(counts)
    key = content[row] * counts.shape[1] + counts.indices
    found, at, number = np.unique(key, return_inverse=True, return_counts=True)
    low, high = np.full(len(found), np.inf), np.zeros(len(found))
    np.minimum.at(low, at, ratio)
    np.maximum.at(high, at, ratio)
    of = found // counts.shape[1]
    in_all = np.isin(of, twins) & (number == np.bincount(content)[of])
    return (in_all & (high - low <= CANCELLED * high))[at]
