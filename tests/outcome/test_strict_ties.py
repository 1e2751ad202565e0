"""Ties with a strict minimum beside twins on a manifold: closed forms, and refusals."""

import functools

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.optimize import minimize, minimize_scalar

from jaxselect.flow.bdf import BdfSettings
from jaxselect.flow.manifold_flow import on_manifold
from jaxselect.flow.sparse_flow import sparse_flow
from jaxselect.margin import manifold_certificate as certificate
from jaxselect.margin import manifold_equilibrium as balance
from jaxselect.model.ragged_bags import RaggedBags
from jaxselect.outcome.manifold_end import _strict_ties
from jaxselect.outcome.trajectory import trajectory
from jaxselect.outcome.trial_status import End
from jaxselect.pairs.tie_contents import tie_contents

from .manifold_problems import (
    CLOSED,
    SETTLED,
    drawn,
    late_flow,
    moved,
    parts,
    potential,
)

# Words 4 and 5 share two bags of unlike counts; one of these beats word 3, too.
BESIDE = ([*CLOSED[0], [3, 4, 5], [4, 5, 5]], [*CLOSED[1], 1, -1])
HEAD = np.array([1.0, -1.0, 0.0, -1.0, 1.0, -1.0])
SEEDS = (16, 21)
ON_HOST = BdfSettings(max_steps=1000, compiled=False)


def beside(seed):
    """Twins of words 0 to 3 among random bags, and strict ties that share a word."""
    sequences, labels, *_ = drawn(seed)
    rng = np.random.default_rng(seed)
    word = int(rng.integers(4))
    sequences = [*sequences, [word, 7], [word, 7, 7], [7, 8], [7, 8, 8, 5]]
    embeddings, head = rng.normal(size=(9, 11)) / 3, rng.normal(size=11) * 1.5
    return sequences, [*labels, 1, -1, -1, 1], embeddings, head, rng.normal(size=11)


@functools.cache
def ended(seed):
    """A problem, its trajectory, and the late flow and its balance at the end."""
    problem = beside(seed)
    found = trajectory(*parts(*problem), until_log_time=SETTLED, settings=ON_HOST)
    assert found.ending.on_manifold
    ties, response = late_flow(problem, found.cls, found.ending)
    rest = balance.stationary(ties, found.cls, found.log_time)
    return problem, found, ties, rest, response


def contents(problem, found):
    """Tied words of every bag with their counts, what it lost, and its label."""
    sequences, labels, *_ = problem
    selected = iter(found.ending.selected)
    for bag, label in zip(sequences, labels, strict=True):
        words, counts = np.unique(bag, return_counts=True)
        kept = np.array([next(selected) for _ in words])
        yield words[kept], counts[kept], words[~kept], counts[~kept], label


def attended(scores, values, counts):
    weight = counts * np.exp(scores - scores.max())
    share = weight / weight.sum()
    return share, share @ values


def test_an_end_in_closed_form():
    """a₄ − a₅ rests where the two bags' own risk is least, the twins where they did."""
    problem = (*BESIDE, np.eye(6), HEAD, np.array([0.3, 0.0, -0.4, 0.0, 0.2, -0.1]))
    found = trajectory(*parts(*problem))
    assert found.ending.status == End.TIED and found.ending.on_manifold
    assert found.ending.tied.tolist() == [0, 1, 2, 4, 5]
    a = found.cls

    def output(gap, counts):
        return attended(np.array([gap, 0.0]), HEAD[4:], np.array(counts))[1]

    def risk(gap):
        even, odd = output(gap, [1, 1]), output(gap, [1, 2])
        return np.logaddexp(0, -even) + np.logaddexp(0, odd)

    gap = minimize_scalar(risk, bracket=(-1, 1), tol=1e-12).x
    assert abs(a[4] - a[5] - gap) < 1e-6  # of the scalar search
    assert abs(a[0] - a[1]) < 1e-9
    late = np.exp(-0.2 * found.log_time)
    first, second = 2 / (1 + np.e), 1 / 2
    assert abs(a[0] - a[2] - np.log(first / (2 * second))) < late + 1e-6
    f = output(gap, [1, 1])
    third = (f + 1) / (1 + np.exp(f)) / (np.exp(a[4]) + np.exp(a[5]))
    forces = first * np.exp(-a[0]), second * np.exp(-a[2]), third
    forces = np.array(forces) * np.exp(found.log_time + a[3]) / 6
    np.testing.assert_allclose(forces, [1 / 3, 1 / 6, 1 / 3], rtol=late + 1e-5)


@pytest.mark.parametrize("seed", SEEDS)
def test_independent_solvers_find_the_same_end(seed):
    """The strict minimum by BFGS; Φ where it and f = target hold by SLSQP."""
    problem, found, ties, rest, _ = ended(seed)
    _, _, embeddings, head, _ = problem
    values = embeddings @ head
    axes = ties.strict.axes
    held = [
        (words, counts, label)
        for words, counts, _, _, label in contents(problem, found)
        if len(words) > 1
        and _within(embeddings[words[1:]] - embeddings[words[0]], axes)
    ]
    assert {label for *_, label in held} == {1, -1}

    def risk(x):
        score = embeddings @ (axes @ x)
        return sum(
            np.logaddexp(0, -y * attended(score[w], values[w], c)[1])
            for w, c, y in held
        )

    strict = minimize(risk, ties.strict.cls + 0.1, method="BFGS", tol=1e-9).x
    np.testing.assert_allclose(strict, ties.strict.cls, atol=1e-5)
    np.testing.assert_allclose(axes.T @ found.cls, strict, atol=1e-5)

    def phi(x):
        return potential(ties, rest, found.log_time, found.cls + ties.axes @ x)[0]

    def equations(x):
        return potential(ties, rest, found.log_time, found.cls + ties.axes @ x)[1]

    solved = minimize(
        phi,
        0.01 * np.random.default_rng(seed).normal(size=ties.axes.shape[1]),
        method="SLSQP",
        constraints={"type": "eq", "fun": equations},
        options={"ftol": 1e-14, "maxiter": 500},
    )
    gap = embeddings @ (found.cls + ties.axes @ solved.x - rest.cls)
    assert np.abs(equations(solved.x)).max() < 1e-7 and np.ptp(gap) < 1e-3  # of SLSQP


def _within(rows, axes):
    return np.linalg.norm(rows - (rows @ axes) @ axes.T) < 1e-9


@pytest.mark.parametrize("seed", SEEDS)
def test_the_flow_of_all_bags_moves_as_the_pairs_do(seed):
    """From log t = 20 to 26, where plain time still has the digits for it."""
    problem, _, ties, *_ = ended(seed)
    model, corpus = parts(*problem)
    exact = sparse_flow(
        model,
        corpus,
        until_log_time=26.0,
        path_log_times=jnp.array([20.0]),
        settings=BdfSettings(tolerance=1e-7),
    )
    begin = on_manifold(ties, np.asarray(exact.path_cls[0]))
    reached = moved(ties, begin, 20.0, 26.0)
    wanted = np.asarray(exact.cls)
    assert np.ptp(problem[2] @ (wanted - np.asarray(exact.path_cls[0]))) > 1
    assert np.ptp(problem[2] @ (reached - wanted)) < 1e-4  # of both integrators


@pytest.mark.parametrize("seed", SEEDS)
def test_an_exact_field_never_leaves_a_proved_end(seed):
    """SciPy's Radau bag by bag to log t = 2,000, the ties held by their gradients."""
    problem, found, *_ = ended(seed)
    _, _, embeddings, head, _ = problem
    values, growth = embeddings @ head, found.ending.margin.direction
    bags = list(contents(problem, found))
    labels_of = {}
    for words, counts, _, _, label in bags:
        key = *words, *(counts / counts.sum())
        labels_of.setdefault(key, []).append(label)

    def free(words, counts):
        """Whether twins hold the content: both labels, and f where their loss rests."""
        labels = np.array(labels_of[(*words, *(counts / counts.sum()))])
        ahead, behind = (labels > 0).sum(), (labels < 0).sum()
        score = (embeddings @ found.cls)[words]
        f = attended(score, values[words], counts)[1]
        return ahead and behind and abs(f - np.log(ahead / behind)) < 1e-6

    held = [(w, c) for w, c, *_ in bags if len(w) > 1]
    rigid = [embeddings[w[1:]] - embeddings[w[0]] for w, c in held if not free(w, c)]
    twins = [(w, c) for w, c in held if free(w, c)]
    assert rigid and twins

    def field(s, z):
        score = embeddings @ (z + growth * s)
        total = -growth
        for words, counts, lost, number, label in bags:
            share, f = attended(score[words], values[words], counts)
            mean = share @ embeddings[words]
            top = score[words].max()
            size = np.log(counts @ np.exp(score[words] - top)) + top
            for r, many in zip(lost, number, strict=True):
                force = many * np.exp(s + score[r] - size) * label * (f - values[r])
                force /= (1 + np.exp(label * f)) * len(bags)
                total = total + force * (mean - embeddings[r])
        rows = list(rigid)
        for words, counts in twins:
            share, f = attended(score[words], values[words], counts)
            rows.append([(share * (values[words] - f)) @ embeddings[words]])
        normal = np.linalg.svd(np.vstack(rows).T, full_matrices=False)
        normal = normal[0][:, normal[1] > 1e-9 * normal[1].max()]
        return total - normal @ (normal.T @ (total + growth))

    s = found.log_time
    begin = found.cls - growth * s
    done = solve_ivp(field, (s, SETTLED), begin, "Radau", rtol=1e-8, atol=1e-8)
    score = embeddings @ (done.y + growth[:, None] * done.t)
    shares = [
        np.exp(score[lost] - score[words].max(axis=0)).max(initial=0.0)
        for words, _, lost, *_ in bags
    ]
    assert done.success and max(shares) < 1e-3
    assert np.ptp(embeddings @ (done.y[:, -1] - begin)) < 0.1  # within the wall


@pytest.mark.parametrize("seed", SEEDS)
def test_the_wall_is_higher_than_all_within(seed):
    """The Lagrangian against its bound, at points drawn on the wall."""
    _, found, ties, rest, response = ended(seed)
    bounds = certificate.bounds(ties, rest, found.cls, found.log_time)
    radius = next(
        r
        for r in certificate.RADII
        if bounds.holds(r, found.log_time, response=response)
    )
    rng = np.random.default_rng(seed)
    middle, _ = potential(ties, rest, found.log_time, rest.cls)
    frame = ties.axes @ bounds.root
    apart, lead, _ = bounds.ranges(radius)
    for _ in range(50):
        z = rng.normal(size=frame.shape[1])
        there = rest.cls + frame @ (z * radius / np.linalg.norm(z))
        phi, off = potential(ties, rest, found.log_time, there)
        lagrangian = phi + rest.multiplier / rest.scale @ off
        third = bounds.third(apart, lead)
        assert abs(lagrangian - middle - radius**2 / 2) <= third + 1e-9
        assert np.abs(off[len(ties.twins) :]).max() < 1e-9


def test_no_wall_without_the_minimum_of_strict_ties():
    """Farther from it, softer, less exact, with a small basin, or none."""
    _, found, ties, rest, response = ended(SEEDS[0])
    s = found.log_time

    def trapped(strict, curvature=ties.curvature):
        there = ties._replace(strict=strict, curvature=curvature)
        return certificate.is_trapped(there, rest, found.cls, s, response=response)

    strict = ties.strict
    assert trapped(strict)
    assert not trapped(strict._replace(radius=1.0))
    assert not trapped(strict._replace(basin=1e-12))
    soft = ties.curvature.copy()
    soft[len(ties.twins) :] = np.exp(-s)
    assert not trapped(strict, soft)
    # p, in their axes, off the minimum by more than the wall is wide.
    aside = found.cls + strict.axes[:, 0]
    assert not certificate.is_trapped(ties, rest, aside, s, response=response)
    elsewhere = ties._replace(strict=strict._replace(cls=strict.cls + 1.0))
    seen = balance.second_order(elsewhere, rest.cls, s)
    assert not certificate.is_trapped(elsewhere, seen, found.cls, s, response=response)


def test_ties_without_a_minimum_or_far_from_it_are_refused():
    problem, found, *_ = ended(SEEDS[0])
    sequences, labels, *numbers = problem
    model, corpus = parts(*problem)
    bags = RaggedBags.of_corpus(model, corpus)
    ties = tie_contents(bags, found.ending.selected, found.cls)
    assert _strict_ties(bags, ties, found.cls) is not None
    far = found.cls + 5 * _strict_ties(bags, ties, found.cls).axes[:, 0]
    assert _strict_ties(bags, ties, far) is None
    # All bags of one label: their ties have no minimum.
    one = labels[:-4] + [1] * 4
    model, corpus = parts(sequences, one, *numbers)
    bags = RaggedBags.of_corpus(model, corpus)
    ties = tie_contents(bags, found.ending.selected, found.cls)
    assert ties is None or _strict_ties(bags, ties, found.cls) is None
