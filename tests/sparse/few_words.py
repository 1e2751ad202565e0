"""Bags of a few words, each number written out."""

import numpy as np
from scipy.sparse import csr_array

from jaxselect.margin.minimum import change_of_curvature
from jaxselect.sparse.bags import RaggedBags, entries_at


def bags(counts, labels, embeddings, values):
    """Bags of a few words, each number written out."""
    counts = np.asarray(counts, float)
    return RaggedBags(
        csr_array(counts),
        np.asarray(labels, float),
        np.asarray(embeddings, float),
        np.asarray(values, float),
        len(counts),
    )


def even(scale=1.0):
    """Two words that one bag of each class holds even: the minimum is p = 0."""
    return bags([[1, 1], [1, 1]], [1, -1], [[scale], [-scale]], [1.5, -1.5])


def change_at(given, query, *, narrow=False):
    """The bound on the change of curvature in a ball around p, and its radius."""
    problem = given.embeddings, *entries_at(given, query), given, query
    return change_of_curvature(*problem, given.diameters, narrow)
