"""Attention weights of a trained model on a corpus of reviews."""

import numpy as np
from scipy.special import xlogy

from jaxselect.data.sparse import SparseCorpus
from jaxselect.sparse.bags import attention


def attend(scores: np.ndarray, corpus: SparseCorpus) -> dict[str, np.ndarray]:
    """Attention weight of every word in every review.

    Returns:
        `review`, `word`, `weight` (adding up to one in a review) and `count`, one
        entry per distinct word of a review, review by review.
    """
    counts = corpus.by_sequence.to_csr().astype(float)
    weight, review = attention(counts, np.asarray(scores, float))
    return {
        "review": review,
        "word": counts.indices,
        "count": counts.data,
        "weight": weight,
    }


def describe(
    attended: dict, words: tuple[str, ...], alpha: np.ndarray, shown: int
) -> dict:
    """Concentration of attention, and the words with most of it.

    Returns:
        `positions`: mean of e^entropy over the positions of a review; `top`: the mean
        weight of a review's first word; `words`: those with most weight in all, each
        with that share and with α.
    """
    weight, review = attended["weight"], attended["review"]
    entropy = np.bincount(review, -xlogy(weight, weight / attended["count"]))
    first = np.maximum.reduceat(weight, np.flatnonzero(np.diff(review, prepend=-1)))
    share = np.bincount(attended["word"], weight, len(alpha)) / len(first)
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

    Returns:
        `top`: share of reviews with the same first word; `overlap`: mean of the weight
        both give to the same words, Σ min(q, q').
    """
    shared = np.minimum(one["weight"], other["weight"]).sum() / one["weight"].sum()
    tops = []
    for model in (one, other):
        order = np.lexsort((model["weight"], model["review"]))
        last = np.diff(model["review"][order], append=-1) != 0
        tops.append(model["word"][order][last])
    return {"top": float(np.mean(tops[0] == tops[1])), "overlap": float(shared)}
