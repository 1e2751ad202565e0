"""Max-margin problems for the tests: tokens, and which must beat which."""

import functools

import hypothesis.strategies as st
import jax
import numpy as np
from scipy.optimize import linprog

from jaxselect.margin.max_margin import max_margin

_solve = jax.jit(max_margin)
_solve_together = jax.jit(jax.vmap(max_margin))


def solve(embeddings, pairs):
    """One program for all problems of a shape, however many they are."""
    return jax.tree.map(np.asarray, _solve(embeddings, pairs))


def solve_each(embeddings, pairs):
    """One problem after the other."""
    found = map(solve, np.asarray(embeddings), np.asarray(pairs))
    return jax.tree.map(lambda *leaves: np.stack(leaves), *found)


def solve_together(embeddings, pairs):
    """In one batch."""
    return jax.tree.map(np.asarray, _solve_together(embeddings, pairs))


def split(rng, vocabulary, dim):
    """Every relevant token meets half of the irrelevant ones and beats them."""
    embeddings = rng.normal(size=(vocabulary, dim)) / dim**0.5
    relevant, irrelevant = np.split(rng.permutation(vocabulary), [vocabulary // 4])
    pairs = np.zeros((vocabulary, vocabulary), bool)
    for winner in relevant:
        pairs[winner, rng.choice(irrelevant, len(irrelevant) // 2, replace=False)] = 1
    return embeddings, pairs


def bags(rng, vocabulary, dim):
    """In each of many bags the token on top under a planted p beats the others."""
    embeddings = rng.normal(size=(vocabulary, dim)) / dim**0.5
    scores = embeddings @ rng.normal(size=dim)
    pairs = np.zeros((vocabulary, vocabulary), bool)
    for _ in range(2 * vocabulary):
        bag = rng.choice(vocabulary, 8, replace=False)
        pairs[bag[np.argmax(scores[bag])], bag] = True
    np.fill_diagonal(pairs, False)
    return embeddings, pairs


def long_axis(rng, vocabulary, dim):
    """As after a large step on E: relevant tokens lie 250 times farther out along v."""
    embeddings, pairs = split(rng, vocabulary, dim)
    outer = 250 * rng.uniform(0.5, 1.5, vocabulary) * rng.choice([-1, 1], vocabulary)
    embeddings[:, 0] += np.where(pairs.any(axis=1), outer, 0.0)
    return embeddings, pairs


# With more dimensions than tokens, about as many, and fewer.
FAMILIES = {
    "split": (split, 64, 66),
    "bags": (bags, 64, 66),
    "bags in few dimensions": (bags, 64, 16),
    "bags in many dimensions": (bags, 16, 66),
    "one long axis": (long_axis, 64, 66),
}


@functools.cache
def family(name, number=20):
    """Problems of one shape: further tokens are in no pair, further axes hold zeros."""
    maker, vocabulary, dim = FAMILIES[name]
    rng = np.random.default_rng(sorted(FAMILIES).index(name))
    embeddings = np.zeros((number, 64, 66))
    pairs = np.zeros((number, 64, 64), bool)
    for tokens, over in zip(embeddings, pairs, strict=True):
        made = maker(rng, vocabulary, dim)
        tokens[:vocabulary, :dim], over[:vocabulary, :vocabulary] = made
    return embeddings, pairs, solve_each(embeddings, pairs)


def differences(embeddings, pairs):
    winner, loser = np.nonzero(pairs)
    return np.asarray(embeddings)[winner] - np.asarray(embeddings)[loser]


def separable(rows):
    """Whether a linear program finds p with D p ≥ 1."""
    found = linprog(
        np.zeros(rows.shape[1]),
        A_ub=-rows,
        b_ub=-np.ones(len(rows)),
        bounds=(None, None),
    )
    assert found.status in (0, 2)
    return found.status == 0


small = st.integers(0, 2**32 - 1)


def small_problem(seed, planted=True):
    """Eight tokens in six dimensions, some twenty pairs."""
    rng = np.random.default_rng(seed)
    embeddings = rng.normal(size=(8, 6))
    scores = embeddings @ rng.normal(size=6)
    pairs = rng.random((8, 8)) < 0.4
    np.fill_diagonal(pairs, False)
    if planted:
        pairs &= scores[:, None] > scores[None, :] + 0.3
    pairs[np.argmax(scores), np.argmin(scores)] = True
    return rng, embeddings, pairs


CONTRADICTIONS = (
    "both ways",
    "a cycle among many pairs",
    "the same embedding twice",
    "a token over itself",
    "all embeddings equal",
    "a token between two",
)


def contradiction(name):
    _, embeddings, pairs = small_problem(1)
    if name == "both ways":
        pairs |= pairs.T
    if name == "a cycle among many pairs":
        pairs[[0, 1, 2], [1, 2, 0]] = True
    if name == "the same embedding twice":
        embeddings[3] = embeddings[4]
        pairs[3, 4] = True
    if name == "a token over itself":
        pairs[5, 5] = True
    if name == "all embeddings equal":
        embeddings[:] = embeddings[0]
    if name == "a token between two":
        embeddings[0] = 0.25 * embeddings[1] + 0.75 * embeddings[2]
        pairs[:] = False
        pairs[0, [1, 2]] = True
    return embeddings, pairs


def mixed_problem(family, seed, decades=8.0):
    """Eight tokens in six dimensions that stretch over some decades.

    Most of the problems are drawn with a p that keeps the pairs apart at an angle; a
    quarter, and all those of the families named for it, contradict themselves.
    """
    rng = np.random.default_rng(seed)
    half = decades / 2
    embeddings = rng.normal(size=(8, 6))
    direction = rng.normal(size=6)
    if family == "long and short tokens":
        embeddings *= 10 ** rng.uniform(-half, half, (8, 1))
    if family == "long and short axes":
        scale = 10 ** rng.uniform(-half, half, (1, 6))
        embeddings, direction = embeddings * scale, direction / scale[0]
    if family == "long and short entries":
        embeddings *= 10 ** rng.uniform(-half, half, (8, 6))
    if family == "clusters":
        apart = embeddings[4:] * 10 ** rng.uniform(-decades, 0, (4, 1))
        embeddings[4:] = embeddings[:4] + apart
    if family == "nearly parallel":
        size = 10 ** rng.uniform(-half / 2, half / 2, (8, 1))
        tilt = 10 ** -rng.uniform(half, 1.5 * decades) * rng.normal(size=(8, 6))
        embeddings = size * embeddings[:1] * (1 + tilt)
    if family == "far from the origin":
        embeddings += 10 ** rng.uniform(0, decades) * rng.normal(size=6)
    if family == "a token twice":
        embeddings[3] = embeddings[4]
    pairs = rng.random((8, 8)) < 0.4
    if family == "one pair":
        pairs[:] = False
    np.fill_diagonal(pairs, False)
    if rng.random() < 0.75:
        rows = embeddings[:, None] - embeddings[None]
        size = np.linalg.norm(rows, axis=2) * np.linalg.norm(direction)
        pairs &= rows @ direction > 0.1 * size
    if family == "a cycle":
        pairs[[0, 1, 2], [1, 2, 0]] = True
    if family == "both ways":
        pairs[[0, 1], [1, 0]] = True
    if family == "no difference":
        embeddings[3] = embeddings[4]
        pairs[3, 4] = True
    if not pairs.any():
        pairs[0, 1] = True
    return embeddings, pairs


NO_SOLUTION = ("a cycle", "both ways", "no difference")
MIXED = (
    "long and short tokens",
    "long and short axes",
    "long and short entries",
    "clusters",
    "nearly parallel",
    "far from the origin",
    "a token twice",
    "one pair",
    *NO_SOLUTION,
)
