"""The numbers beside a status, taken again in exact arithmetic."""

from fractions import Fraction

import jax
import numpy as np

from jaxselect.status import Reason

# The promises of a status, in roundings: to move one is to change the promise.
SOLVED, ALLOWED, LARGEST_GAP, REFUTED = 4096, 12, 0.6, 64


def dot(one, other):
    return sum(a * b for a, b in zip(one, other, strict=True))


def fractions(embeddings, pairs, solution):
    """Differences D of the pairs, their λ, p and Σ λ D, as they are stored."""
    winner, loser = np.nonzero(pairs)
    tokens = [[Fraction(float(x)) for x in row] for row in embeddings]
    rows = [
        [a - b for a, b in zip(tokens[s], tokens[r], strict=True)]
        for s, r in zip(winner, loser, strict=True)
    ]
    duals = [Fraction(float(x)) for x in np.asarray(solution.duals)[winner, loser]]
    point = [Fraction(float(x)) for x in np.asarray(solution.direction)]
    return rows, duals, point, [dot(duals, axis) for axis in zip(*rows, strict=True)]


def exact(embeddings, pairs, solution):
    """Gap and infeasibility."""
    rows, duals, point, hull = fractions(embeddings, pairs, solution)
    gap = abs(1 - (2 * sum(duals) - dot(hull, hull)) / dot(point, point))
    return gap, max(1 - min(dot(row, point) for row in rows), Fraction(0))


def exact_balance(embeddings, pairs, solution):
    """‖Σ λ D‖ / Σ λ ‖D‖."""
    rows, duals, _, hull = fractions(embeddings, pairs, solution)
    size = max(max(map(abs, row)) for row in rows) or Fraction(1)
    lengths = [float(dot(row, row) / size**2) ** 0.5 for row in rows]
    carried = dot(map(float, duals), lengths)
    return float(dot(hull, hull) / size**2) ** 0.5 / carried if carried else 0.0


def assert_true(embeddings, pairs, solution):
    """Nothing is claimed that exact arithmetic does not confirm."""
    eps = float(np.finfo(embeddings.dtype).eps)
    duals = np.asarray(solution.duals)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(solution))
    assert (duals >= 0).all() and (duals[~pairs] == 0).all()
    if solution.status == Reason.NONE and pairs.any():
        gap, infeasibility = map(float, exact(embeddings, pairs, solution))
        # The numbers that are compared are themselves rounded, some ten times.
        allowed = eps * max(SOLVED, ALLOWED * cancellation(embeddings, solution))
        allowed = min(allowed, max(SOLVED * eps, eps**LARGEST_GAP))
        assert gap <= allowed + 16 * eps and infeasibility <= (SOLVED + 16) * eps
        assert abs(solution.gap - gap) <= SOLVED * eps
        assert abs(solution.infeasibility - infeasibility) <= SOLVED * eps
        norm = np.sqrt(np.sum(np.square(np.longdouble(solution.direction))))
        assert abs(solution.norm / norm - 1) <= 16 * eps
    if solution.status == Reason.INFEASIBLE:
        assert abs(np.sum(duals, dtype=np.longdouble) - 1) <= 16 * eps
        assert exact_balance(embeddings, pairs, solution) <= (REFUTED + 1) * eps
    if solution.status == Reason.INFEASIBLE or not pairs.any():
        assert (solution.direction == 0).all() and solution.norm == 0
        assert not solution.active.any()
        # Without pairs no margin is missing.
        assert solution.gap == solution.infeasibility == pairs.any()


def cancellation(embeddings, solution):
    """Σ λ ‖D‖ / ‖p‖, to some digits."""
    rows = np.longdouble(embeddings)[:, None] - np.longdouble(embeddings)[None]
    carried = np.sum(solution.duals * np.sqrt(np.sum(rows**2, axis=2)))
    return float(
        carried / np.sqrt(np.sum(np.square(np.longdouble(solution.direction))))
    )


def lane(batch, number):
    return jax.tree.map(lambda leaf: np.asarray(leaf)[number], batch)
