"""Ends of each kind, again by independent solvers.

The rest by minimising the literal risk, p_mm by an active-set method, the flow by
SciPy's Radau to log t = 20.

Source: mathematics, sections 3 and 3g.
"""

import functools

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.optimize import minimize

from jaxselect import TrialStatus, solve
from tests.margin.few_words import drawn
from tests.problem.independent import shortest

# Seeds by how the flow ends; in two dimensions there is no room to go on.
SELECTED, TIED, AT_REST = (3, 6, 7), (1, 2, 5), (0, 2, 6)
RUNS = [(seed, 6) for seed in SELECTED + TIED] + [(seed, 2) for seed in AT_REST]
LATE = 20.0


@functools.cache
def ended(seed, dim):
    """The end of a flow, the axes of its ties, and what their words are."""
    found = solve(drawn(seed, dim))
    axes = np.asarray(found.stage.ties.axes)
    return found, axes[np.any(axes, axis=1)].T


def literal(problem):
    """L and −∂L/∂p by the definition, bag by bag."""
    rows, corpus = np.asarray(problem.rows), problem.corpus
    tokens, counts, labels = (
        np.asarray(part) for part in (corpus.tokens, corpus.counts, corpus.labels)
    )
    values = np.asarray(problem.values)

    def shares(p):
        scores = np.where(counts > 0, rows[tokens] @ p, -np.inf)
        weight = counts * np.exp(scores - scores.max(axis=1, keepdims=True))
        return weight / weight.sum(axis=1, keepdims=True)

    def risk(p):
        return np.logaddexp(0, -labels * (shares(p) * values).sum(axis=1)).mean()

    def down(p):
        share = shares(p)
        output = (share * values).sum(axis=1)
        wrong = labels / (1 + np.exp(labels * output)) / len(labels)
        each = wrong[:, None] * share * (values - output[:, None])
        return np.einsum("ie,ied->d", each, rows[tokens])

    return risk, down


def differences(problem, selected, axes):
    """First selected less losing tokens, across the ties."""
    rows, corpus = np.asarray(problem.rows), problem.corpus
    free = rows - rows @ axes @ axes.T
    tokens, filled = np.asarray(corpus.tokens), np.asarray(corpus.filled)
    return np.array(
        [
            free[bag[kept][0]] - free[token]
            for bag, kept, here in zip(tokens, selected, filled, strict=True)
            for token in bag[here & ~kept]
        ]
    )


@pytest.mark.parametrize(("seed", "dim"), RUNS)
def test_an_end_is_that_of_independent_solvers(seed, dim):
    found, axes = ended(seed, dim)
    selected = np.asarray(found.selected_mask)
    if dim == 2:
        assert found.status is TrialStatus.AT_REST
    else:
        tied = (selected.sum(axis=1) > 1).any()
        assert tied == (seed in TIED) == (found.status is TrialStatus.TIED)
        assert found.status < TrialStatus.AT_REST
        wanted = shortest(differences(found.problem, selected, axes))
        off = np.linalg.norm(found.direction - wanted)
        assert off < 1e-9 * np.linalg.norm(wanted)
    if not axes.size:
        return
    # Late the risk across the ties is that of the tied bags: p itself is at rest there.
    risk, down = literal(found.problem)
    end = np.asarray(found.trained)
    base = end - axes @ (axes.T @ end)
    rest = minimize(
        lambda u: risk(base + axes @ u),
        axes.T @ end + 0.1,
        jac=lambda u: -axes.T @ down(base + axes @ u),
        method="BFGS",
        options={"gtol": 1e-12},
    )
    np.testing.assert_allclose(rest.x, axes.T @ end, atol=1e-5)
    np.testing.assert_allclose(
        axes.T @ np.asarray(found.stage.ties.point), rest.x, atol=1e-5
    )


@pytest.mark.parametrize(("seed", "dim"), RUNS)
def test_the_literal_flow_goes_there(seed, dim):
    """By Radau from p_0: to rest, or to finite odds of ties alone."""
    found, _ = ended(seed, dim)
    problem = found.problem
    _, down = literal(problem)
    flow = solve_ivp(
        lambda s, p: np.exp(s) * down(p),
        (0.0, LATE),
        np.asarray(problem.start),
        method="Radau",
        rtol=1e-8,
        atol=1e-8,
    )
    if found.status is TrialStatus.AT_REST:
        np.testing.assert_allclose(flow.y[:, -1], found.trained, atol=1e-3)
        return
    filled = np.asarray(problem.corpus.filled)
    scores = np.asarray(problem.rows @ flow.y[:, -1])[problem.corpus.tokens]
    best = np.where(filled, scores, -np.inf).max(axis=1, keepdims=True)
    selected = np.asarray(found.selected_mask)
    assert (best - scores)[selected].max() < LATE / 2
    assert ((best - scores)[filled & ~selected] > LATE / 2).all()
