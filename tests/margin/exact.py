"""The numbers beside a status, taken again in exact arithmetic."""

from fractions import Fraction

import jax
import numpy as np

from jaxselect.margin.max_margin import MaxMarginStatus
from jaxselect.margin.qp import ALLOWED, LARGEST_GAP, REFUTED, SOLVED


def exact(embeddings, pairs, solution):
    """Gap, infeasibility and ‖Σ λ D‖ / Σ λ ‖D‖ of the numbers as they are stored."""
    winner, loser = np.nonzero(pairs)
    duals = [Fraction(float(x)) for x in np.asarray(solution.duals)[winner, loser]]
    point = [Fraction(float(x)) for x in np.asarray(solution.direction)]
    rows = [
        [
            Fraction(float(a)) - Fraction(float(b))
            for a, b in zip(embeddings[s], embeddings[r], strict=True)
        ]
        for s, r in zip(winner, loser, strict=True)
    ]
    least = min(sum(a * b for a, b in zip(row, point, strict=True)) for row in rows)
    hull = [
        sum(weight * row[axis] for weight, row in zip(duals, rows, strict=True))
        for axis in range(len(point))
    ]
    length = sum(x * x for x in hull)
    square = sum(x * x for x in point)
    least = max(1 - least, Fraction(0))
    if square:
        gap = abs(1 - (2 * sum(duals) - length) / square)
        return float(gap), float(least), np.inf
    size = max(max(map(abs, row)) for row in rows) or Fraction(1)
    carried = sum(
        float(weight) * float(sum((x / size) ** 2 for x in row)) ** 0.5
        for weight, row in zip(duals, rows, strict=True)
    )
    balance = float(length / size**2) ** 0.5 / carried if carried else 0.0
    return 1.0, float(least), balance


def assert_true(embeddings, pairs, solution):
    """Nothing is claimed that exact arithmetic does not confirm."""
    eps = float(np.finfo(embeddings.dtype).eps)
    duals = np.asarray(solution.duals)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(solution))
    assert (duals >= 0).all() and (duals[~pairs] == 0).all()
    gap, infeasibility, balance = exact(embeddings, pairs, solution)
    if solution.status == MaxMarginStatus.SOLVED:
        # The numbers that are compared are themselves rounded, some ten times.
        allowed = eps * max(SOLVED, ALLOWED * cancellation(embeddings, solution))
        allowed = min(allowed, max(SOLVED * eps, eps**LARGEST_GAP))
        assert gap <= allowed + 16 * eps and infeasibility <= (SOLVED + 16) * eps
        assert abs(solution.gap - gap) <= SOLVED * eps
        assert abs(solution.infeasibility - infeasibility) <= SOLVED * eps
        norm = np.sqrt(np.sum(np.square(np.longdouble(solution.direction))))
        assert abs(solution.norm / norm - 1) <= 16 * eps
    if solution.status == MaxMarginStatus.INFEASIBLE:
        assert abs(np.sum(duals, dtype=np.longdouble) - 1) <= 16 * eps
        assert balance <= (REFUTED + 1) * eps
        assert (solution.direction == 0).all() and not solution.active.any()


def cancellation(embeddings, solution):
    """Σ λ ‖D‖ / ‖p‖, to some digits."""
    rows = np.longdouble(embeddings)[:, None] - np.longdouble(embeddings)[None]
    carried = np.sum(solution.duals * np.sqrt(np.sum(rows**2, axis=2)))
    return float(
        carried / np.sqrt(np.sum(np.square(np.longdouble(solution.direction))))
    )


def lane(batch, number):
    return jax.tree.map(lambda leaf: np.asarray(leaf)[number], batch)
