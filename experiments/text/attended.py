"""What a trained model attends to in a corpus of reviews."""

import jax.numpy as jnp
import numpy as np

from jaxselect.text.objective import attention_weights
from jaxselect.text.sparse import SparseCorpus


def attend(scores: np.ndarray, corpus: SparseCorpus) -> dict[str, np.ndarray]:
    """Attention weight of every word in every review.

    Args:
        scores: a = E p.
        corpus: the reviews.

    Returns:
        `review`, `word`, `weight` (adding up to one in a review) and `count`, one
        entry per distinct word of a review, review by review.
    """
    counts = corpus.by_sequence.to_csr()
    review = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
    real = corpus.by_sequence.counts.dtype
    weight = attention_weights(jnp.asarray(scores, real), corpus).data
    return {
        "review": review,
        "word": counts.indices,
        "count": counts.data.astype(float),
        "weight": weight.astype(float),
    }


def describe(
    attention: dict, words: tuple[str, ...], alpha: np.ndarray, shown: int
) -> dict:
    """How concentrated attention is, and on which words.

    Args:
        attention: of `attend`, on the test reviews.
        words: the vocabulary.
        alpha: importance of every word.
        shown: how many words to list.

    Returns:
        `positions`: mean of e^entropy over the positions of a review; `top`: the mean
        weight of a review's first word; `words`: those with most weight in all, each
        with that share and with α.
    """
    weight, review = attention["weight"], attention["review"]
    entropy = np.bincount(review, -weight * np.log(weight / attention["count"]))
    first = np.maximum.reduceat(weight, np.flatnonzero(np.diff(review, prepend=-1)))
    share = np.bincount(attention["word"], weight, len(alpha)) / len(first)
    most = np.argsort(-share)[:shown]
    return {
        "positions": float(np.exp(entropy).mean()),
        "top": float(first.mean()),
        "words": [
            [words[place], float(share[place]), float(alpha[place])] for place in most
        ],
    }


def agreement(one: dict, other: dict) -> dict[str, float]:
    """Whether two models select the same words of a review.

    Args:
        one: of `attend`.
        other: likewise, on the same reviews.

    Returns:
        `top`: share of reviews with the same first word; `overlap`: mean of the weight
        both give to the same words, Σ min(q, q').
    """
    shared = np.minimum(one["weight"], other["weight"]).sum() / one["weight"].sum()
    tops = []
    for attention in (one, other):
        order = np.lexsort((attention["weight"], attention["review"]))
        last = np.diff(attention["review"][order], append=-1) != 0
        tops.append(attention["word"][order][last])
    return {"top": float(np.mean(tops[0] == tops[1])), "overlap": float(shared)}
