"""A problem, and drawing the numbers that it is made of."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike

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
    def name(self) -> str:
        """Kind and seed."""
        return f"{self.kind}:{self.seed}"


def problem(
    embeddings: ArrayLike,
    query: ArrayLike,
    head: ArrayLike,
    bags: Sequence,
    labels: Iterable,
    until: float,
    until_norm: float = np.inf,
) -> Problem:
    """A `Problem` of lists; a bag is a list of tokens or of (token, count) pairs."""
    pairs = tuple(
        tuple((int(x), 1) if np.ndim(x) == 0 else (int(x[0]), int(x[1])) for x in bag)
        for bag in bags
    )
    rows, start, values = (np.asarray(x, float) for x in (embeddings, query, head))
    given = tuple(int(y) for y in labels)
    ends = float(until), float(until_norm)
    return Problem("", 0, rows, start, values, pairs, given, *ends)


def an_end(random: Generator) -> float:
    """A log-time to end at, mostly late."""
    return random.choice([8.0, 12.0, 20.0, 30.0, 50.0, 100.0, 1e3, 1e4])


def log_uniform(random: Generator, low: float, high: float) -> float:
    """A number whose decimal logarithm is uniform."""
    return 10.0 ** random.uniform(low, high)


def rotation(random: Generator, dim: int) -> np.ndarray:
    """An orthogonal matrix."""
    return np.linalg.qr(random.normal(size=(dim, dim)))[0]


def counted(
    random: Generator, tokens: Sequence | np.ndarray, most: int = 1
) -> list[tuple[int, int]]:
    """A bag of tokens with counts, some of them large where `most` is not one."""
    counts = random.choice([1, 1, 1, 10, 400][: 3 if most == 1 else 5], len(tokens))
    return [(token, count) for token, count in zip(tokens, counts, strict=True)]
