"""Derivatives of the end of a flow, against differences of ends.

Source: mathematics, section 3f.
"""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxselect import BadInput, Corpus, FlowSettings, Parameters, attention, solve
from jaxselect.margin.derivatives import differentiable
from jaxselect.stages import _differentiable

TOKENS, BAGS, WIDTH, DIM = 5, 4, 3, 3
# The first has ties, the second is not certified, and the path decides a part of ρ in
# all others but one.
SEEDS = np.array([1, 3, 5, 6, 7, 12, 27])
TIED, OPEN, REST = 0, 1, slice(2, None)
STEP = 1e-3
# As close as the differences need it.
CLOSE = FlowSettings(atol=1e-8)


def drawn(move, seed):
    """The problem of a seed, moved in E, p_0, v and its counts, and a norm."""
    keys = jax.random.split(jax.random.key(seed), 9)
    draw = jax.vmap(lambda key: jax.random.permutation(key, TOKENS)[:WIDTH])
    tokens = draw(jax.random.split(keys[0], BAGS)).astype(jnp.int32)
    labels = jnp.where(jnp.arange(BAGS) % 2 == 0, 1, -1).astype(jnp.int32)
    counts, change = jax.random.uniform(keys[1], (2, BAGS, WIDTH), minval=1, maxval=3)
    counts += 0.1 * move * change
    sizes = (TOKENS, DIM), (DIM,), (DIM,)
    start, push = (
        [jax.random.normal(key, size) for key, size in zip(some, sizes, strict=True)]
        for some in (keys[2:5], keys[5:8])
    )
    there = Parameters(*(x + 0.1 * move * y for x, y in zip(start, push, strict=True)))
    problem = attention(there, Corpus(tokens, counts, labels, TOKENS))
    return problem, 1e3 * (1 + 0.1 * move)


def end(move, seed):
    """p, margin and error constant of an end, and what it is."""
    problem, norm = drawn(move, seed)
    found = solve(problem, until_norm=norm, settings=CLOSE)
    numbers = found.margin.norm, found.limit.error_constant
    return jnp.append(found.trained, jnp.stack(numbers)), found


@jax.jit
@jax.vmap
def ends(move, seed):
    """The numbers of an end; both derivatives; what it is."""
    real = partial(end, seed=seed)
    numbers, push, found = jax.linearize(real, move, has_aux=True)
    pull = jax.linear_transpose(push, move)
    rows = jax.vmap(lambda weight: pull(weight)[0])(jnp.eye(len(numbers)))
    return numbers, push(jnp.ones_like(move)), rows, found


@pytest.fixture(scope="module")
def moved():
    """Ends at the moves 0, ±h and ±2 h."""
    moves, seeds = np.meshgrid(STEP * np.arange(-2, 3), SEEDS, indexing="ij")
    found = ends(moves.ravel(), seeds.ravel())
    apart = lambda leaf: np.asarray(leaf).reshape(5, len(SEEDS), *leaf.shape[1:])  # noqa: E731
    return jax.tree.map(apart, found)


def test_derivatives_are_those_of_differences_in_both_modes(moved):
    numbers, forward, reverse, found = moved
    near, far = ((numbers[2 + k] - numbers[2 - k]) / (2 * k * STEP) for k in (1, 2))
    wanted = (4 * near - far) / 3
    off = np.maximum(np.abs(wanted), 1e-3 * np.abs(numbers[2]))
    off = np.abs(np.stack([forward[2], reverse[2]]) - wanted) / off
    assert (found.limit.history_dim[2, REST] > 0).sum() == 4
    np.testing.assert_array_less(off[:, REST], 1e-5)
    # Where the direction alone is certified, the error constant is open.
    np.testing.assert_array_less(off[:, OPEN, :-1], 1e-5)
    assert np.isnan(off[:, OPEN, -1]).all()


def test_a_derivative_is_one_by_any_name(moved):
    """`jacfwd` of one problem, and `vmap(grad)` of several."""
    number = lambda move, seed, which: end(move, seed)[0][which]  # noqa: E731
    jacobian = jax.jit(jax.jacfwd(lambda move, seed: end(move, seed)[0]))
    gradients = jax.jit(jax.vmap(jax.grad(number), (None, 0, 0)))
    here, seeds = jnp.array(0.0), SEEDS[REST]
    wanted, size = (numbers[2, REST] for numbers in (moved[1], moved[0]))
    entries = np.arange(wanted.shape[1])
    lanes = np.repeat(seeds, len(entries)), np.tile(entries, len(seeds))
    found = gradients(here, *lanes).reshape(wanted.shape)
    off = np.maximum(np.abs(wanted), 1e-3 * np.abs(size))
    each = np.stack([jacobian(here, seed) for seed in seeds])
    np.testing.assert_array_less(np.abs(each - wanted) / off, 1e-5)
    np.testing.assert_array_less(np.abs(found - wanted) / off, 1e-5)


def test_a_start_that_a_program_rounds_otherwise_is_the_same(moved):
    """Else p would have no derivative, as after a stage that began elsewhere."""
    one = jax.tree.map(lambda leaf: jnp.asarray(leaf[2, 2]), moved[-1])

    def slope(factor):
        start = factor * one.stage.problem.start
        found = eqx.tree_at(lambda found: found.stage.problem.start, one, start)
        whole = lambda norm: _differentiable(one.problem, norm, found, CLOSE)  # noqa: E731
        return jax.grad(lambda norm: whole(norm).trained[0])(jnp.array(1e3))

    assert jnp.isfinite(slope(1 + 1e-15)) and jnp.isnan(slope(1 + 1e-3))


def test_with_ties_no_derivative_is_known(moved):
    _, forward, reverse, found = moved
    assert found.stage.ties.selected[2, TIED].sum(axis=1).max() > 1
    assert np.isnan(forward[2, TIED]).all() and np.isnan(reverse[2, TIED]).all()


def test_outside_of_a_program_it_says_so(moved):
    one = jax.tree.map(lambda leaf: jnp.asarray(leaf[2, TIED]), moved[-1])
    nothing = jnp.array(False)

    def norm_at(norm):
        found = one.flow, one.certificate.ending
        given = one.problem, norm
        known = {"whole": nothing, "final": nothing, "settings": CLOSE}
        return differentiable(given, found, **known)[1].margin.norm

    with pytest.raises(BadInput, match="derivative of an end without a certificate"):
        jax.grad(norm_at)(1e3)
