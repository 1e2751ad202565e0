"""A problem, and drawing the numbers that it is made of."""

from dataclasses import dataclass

import numpy as np

# Every problem fits in arrays of one shape, so that one program serves all.
TOKENS, DIM, BAGS, WIDTH = 6, 6, 12, 6


@dataclass(frozen=True)
class Problem:
    """A flow to integrate and to certify.

    Attributes:
        kind: what was made difficult.
        seed: what it was drawn with.
        embeddings, query, head: E, p_0 and v; ‖v‖ is not one everywhere.
        bags: (token, count) pairs.
        labels: ±1.
        until_log_time, until_norm: where the flow is to end.
    """

    kind: str
    seed: int
    embeddings: np.ndarray
    query: np.ndarray
    head: np.ndarray
    bags: tuple[tuple[tuple[int, int], ...], ...]
    labels: tuple[int, ...]
    until_log_time: float
    until_norm: float = np.inf

    @property
    def name(self):
        return f"{self.kind}:{self.seed}"


def problem(embeddings, query, head, bags, labels, until, until_norm=np.inf):
    """A `Problem` of lists; a bag is a list of tokens or of (token, count) pairs."""
    pairs = tuple(
        tuple((int(x), 1) if np.ndim(x) == 0 else (int(x[0]), int(x[1])) for x in bag)
        for bag in bags
    )
    arrays = (np.asarray(array, float) for array in (embeddings, query, head))
    labels = tuple(int(y) for y in labels)
    return Problem("", 0, *arrays, pairs, labels, float(until), float(until_norm))


def an_end(random):
    """A log-time to end at, mostly late."""
    return random.choice([8.0, 12.0, 20.0, 30.0, 50.0, 100.0, 1e3, 1e4])


def log_uniform(random, low, high):
    """A number whose decimal logarithm is uniform."""
    return 10.0 ** random.uniform(low, high)


def rotation(random, dim):
    return np.linalg.qr(random.normal(size=(dim, dim)))[0]


def counted(random, tokens, most=1):
    counts = random.choice([1, 1, 1, 10, 400][: 3 if most == 1 else 5], len(tokens))
    return [(token, count) for token, count in zip(tokens, counts, strict=True)]
