"""Bags in which one token stands for all that are tied: their weight, their value."""

import numpy as np
from jaxtyping import Float
from scipy.sparse import csr_array

from ..model.ragged_bags import RaggedBags


def merge_ties(
    bags: RaggedBags, classes: csr_array, scores: Float[np.ndarray, " vocabulary"]
) -> RaggedBags:
    """The bags with one token for all tied ones of a bag.

    As long as the odds among tied tokens stay what they are, a bag has the output and
    the gradient in other directions of one with a single token in their place, of
    count Σ C_s e^{a_s − a_1} and of value Σ q_s b_s / Σ q_s over them, 1 the first one.

    Source: mathematics, section 7d.

    Args:
        bags: the corpus and the tokens' embeddings.
        classes: its counts with ties contracted.
        scores: of tokens, of which only differences among tied ones matter.

    Returns:
        The bags, with one more column for each merged token, of the embedding of the
        first that it stands for.

    Example:
        >>> counts = csr_array([[1.0, 1.0, 1.0]])
        >>> values = np.array([2.0, 4.0, 5.0])
        >>> bag = RaggedBags(counts, np.ones(1), np.eye(3), values, 1)
        >>> classes = csr_array(([1.0, 1.0, 1.0], [0, 0, 2], [0, 3]), shape=(1, 3))
        >>> one = merge_ties(bag, classes, np.zeros(3))
        >>> one.counts.data.tolist(), one.gather(one.values).tolist()
        ([1.0, 2.0], [5.0, 3.0])
    """
    words = classes.shape[1]
    place = bags.row.astype(np.int64) * words + classes.indices
    _, first, token_of, number = np.unique(
        place, return_index=True, return_inverse=True, return_counts=True
    )
    score, token = bags.gather(scores), bags.token[first]
    weight = bags.counts.data * np.exp(score - score[first][token_of])
    total = np.bincount(token_of, weight)
    value = np.bincount(token_of, weight * bags.gather(bags.values)) / total
    several = number > 1
    column = np.where(several, words + np.cumsum(several) - 1, token)
    values = np.append(bags.values, value[several])
    counts = csr_array(
        (total, (bags.row[first], column)), shape=(len(bags.labels), len(values))
    )
    embeddings = np.concatenate([bags.embeddings, bags.embeddings[token[several]]])
    return RaggedBags(
        counts, bags.labels, embeddings, values, bags.num_total, bags.loss
    )
