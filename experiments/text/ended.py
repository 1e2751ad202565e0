"""The reviews that a flow is followed on, and how it ended there, in numbers."""

import numpy as np

from jaxselect.text.ending import TextEnding, TextEndStatus
from jaxselect.text.flow import TextFlow, TextFlowStatus
from jaxselect.text.sparse import SparseCorpus, from_csr


def some(corpus: SparseCorpus, reviews: int, seed: int) -> SparseCorpus:
    """As many of the reviews as asked for, by lot.

    Args:
        corpus: all of them.
        reviews: how many; 0 for all.
        seed: of the lot.

    Returns:
        The same words, fewer reviews.
    """
    number = len(corpus.labels)
    if not 0 < reviews < number:
        return corpus
    rows = np.sort(np.random.default_rng(seed).permutation(number)[:reviews])
    labels = np.asarray(corpus.labels)[rows]
    return from_csr(corpus.by_sequence.to_csr()[rows], labels)


def described(flow: TextFlow, end: TextEnding) -> dict:
    """A flow and its ending in numbers.

    Args:
        flow: of p.
        end: of that flow.

    Returns:
        Status, sizes and certificates.
    """
    numbers = {
        "flow_status": TextFlowStatus(int(flow.status)).name,
        "norm": float(np.linalg.norm(flow.cls)),
        "status": end.status.name,
        "sentence": end.status.sentence,
        "certified": end.status != TextEndStatus.NOT_YET,
        "tied_words": len(end.tied),
        "tied_dimensions": end.axes.shape[1],
        "distance_from_rest": end.distance,
        "margin_status": end.margin.status.name,
        "pairs": end.margin.pairs,
        "active_pairs": len(end.margin.duals),
        "gap": end.margin.gap,
        "infeasibility": end.margin.infeasibility,
        "growth": float(np.linalg.norm(end.margin.direction)),
        "pace_error": end.pace,
        "opposed": end.opposed,
    }
    if end.rest is not None:
        found = end.rest._asdict()
        numbers |= {f"rest_{name}": found[name] for name in found if name != "cls"}
    return numbers
