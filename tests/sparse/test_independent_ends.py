"""Three ends of each kind, again by independent solvers.

The rest by minimising the literal risk, p_mm by an active-set method, the late
flow by SciPy's Radau to log t = 10⁴ (`truth`).

Source: mathematics, section 7c.
"""

import functools

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.optimize import minimize

from jaxselect.sparse.end import End
from jaxselect.sparse.flow import trajectory
from tests.problem.independent import shortest
from tests.sparse.problems import AT_REST, SELECTED, TIED, problem
from tests.sparse.truth import Attack, refuted

# Seed and dimension of every run.
ENDS = {
    End.SELECTED: [(seed, 6) for seed in SELECTED],
    End.TIED: [(seed, 6) for seed in TIED[:3]],
    End.AT_REST: [(seed, 2) for seed in AT_REST],
}
RUNS = [(kind, *run) for kind, runs in ENDS.items() for run in runs]
NAMES = [f"{kind.name}-{seed}" for kind, seed, _ in RUNS]


@functools.cache
def ended(seed, dim):
    """The literal numbers of a problem, and the library's end of its flow."""
    model, _, corpus = problem(seed, dim)
    counts = corpus.by_sequence.to_csr().toarray()
    arrays = model.embeddings, model.head, model.query, counts, corpus.labels
    return Attack("drawn", *map(np.asarray, arrays)), trajectory(model, corpus)


def literal(given):
    """L and −∂L/∂p by the definition, over the table of counts."""
    values = given.embeddings @ given.head

    def shares(p):
        scores = np.where(given.counts > 0, given.embeddings @ p, -np.inf)
        weight = given.counts * np.exp(scores - scores.max(axis=1, keepdims=True))
        return weight / weight.sum(axis=1, keepdims=True)

    def risk(p):
        return np.logaddexp(0, -given.labels * (shares(p) @ values)).mean()

    def pull(p):
        share = shares(p)
        output = share @ values
        wrong = given.labels / (1 + np.exp(given.labels * output))
        each = wrong[:, None] * share * (values - output[:, None])
        return each.sum(axis=0) @ given.embeddings / len(output)

    return risk, pull


def rows_of(given, ending):
    """Differences of the first selected and the losing tokens, across the ties."""
    free = given.embeddings - given.embeddings @ ending.axes @ ending.axes.T
    rows, tokens = np.nonzero(given.counts)
    return np.array(
        [
            free[tokens[(rows == row) & ending.selected][0]] - free[token]
            for row, token, kept in zip(rows, tokens, ending.selected, strict=True)
            if not kept
        ]
    )


@pytest.mark.parametrize(("kind", "seed", "dim"), RUNS, ids=NAMES)
def test_an_end_is_that_of_independent_solvers(kind, seed, dim):
    given, end = ended(seed, dim)
    assert end.ending.status is kind
    if kind is not End.AT_REST:
        growth = end.ending.margin.direction
        wanted = shortest(rows_of(given, end.ending))
        assert np.linalg.norm(growth - wanted) < 1e-9 * np.linalg.norm(wanted)
        assert not refuted(given, end)
    if kind is End.SELECTED:
        return
    # Late the risk across the ties is that of the tied bags: p itself is at rest there.
    risk, pull = literal(given)
    axes = end.ending.axes
    base = end.query - axes @ (axes.T @ end.query)
    found = minimize(
        lambda u: risk(base + axes @ u),
        axes.T @ end.query + 0.1,
        jac=lambda u: -axes.T @ pull(base + axes @ u),
        method="BFGS",
        options={"gtol": 1e-12},
    )
    np.testing.assert_allclose(found.x, axes.T @ end.query, atol=1e-5)
    np.testing.assert_allclose(end.ending.rest.point, found.x, atol=1e-5)


@pytest.mark.parametrize(("kind", "seed", "dim"), RUNS, ids=NAMES)
def test_the_literal_flow_goes_there(kind, seed, dim):
    """By Radau from p_0 to log t = 20: to rest, or to finite odds of ties alone."""
    given, end = ended(seed, dim)
    _, pull = literal(given)
    late = 20.0
    flow = solve_ivp(
        lambda s, p: np.exp(s) * pull(p),
        (0.0, late),
        given.start,
        method="Radau",
        rtol=1e-8,
        atol=1e-8,
    )
    if kind is End.AT_REST:
        np.testing.assert_allclose(flow.y[:, -1], end.query, atol=1e-3)
        return
    scores = given.embeddings @ flow.y[:, -1]
    rows, tokens = np.nonzero(given.counts)
    best = np.where(given.counts > 0, scores, -np.inf).max(axis=1)
    behind = best[rows] - scores[tokens]
    assert behind[end.ending.selected].max() < late / 2
    assert (behind[~end.ending.selected] > late / 2).all()
