"""A method that answers wrongly is not believed, nor are duals that refute nothing."""

import importlib
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxselect.margin.max_margin import max_margin
from jaxselect.margin.qp import (
    normalise,
    relative_gap,
)
from jaxselect.status import Reason
from tests.margin.exact import assert_true, lane
from tests.margin.pair_problems import contradiction, small_problem, solve_each

# The name of the module leads to it even where its function has the same name.
max_margin_module = importlib.import_module("jaxselect.margin.max_margin")


def rough(axes, pairs, found, size=1e-6):
    """A point off by a millionth, with the gap that it has."""
    nearest = found.nearest * (1 + size * jnp.cos(jnp.arange(len(axes))))
    point = axes @ pairs.divergence(found.duals)
    gap = relative_gap(axes, pairs, nearest, point)
    return found._replace(nearest=nearest, gap=gap)


def tilted(axes, pairs, found):
    """Duals off by a thousandth, with the gap that they leave."""
    tilt = 1 + 1e-3 * jnp.cos(jnp.arange(pairs.held.size).reshape(pairs.held.shape))
    duals = found.duals * tilt / jnp.sum(found.duals * tilt)
    gap = relative_gap(axes, pairs, found.nearest, axes @ pairs.divergence(duals))
    return found._replace(duals=duals, gap=gap)


METHODS = {
    "off": rough,
    # Just too far; where tokens lie far from the origin rounding may hide it.
    "off by a little": partial(rough, size=5e-13),
    "with other duals": tilted,
    "for which all vanishes": lambda axes, pairs, found: found._replace(
        vanishing=jnp.asarray(True)
    ),
    "with no duals": lambda axes, pairs, found: found._replace(
        duals=jnp.zeros_like(found.duals), vanishing=jnp.asarray(True)
    ),
    "for which nothing vanishes": lambda axes, pairs, found: found._replace(
        vanishing=jnp.asarray(False), certain=jnp.asarray(True)
    ),
    "with duals of another sum": lambda axes, pairs, found: found._replace(
        duals=2 * found.duals, vanishing=jnp.asarray(True)
    ),
    "with a negative dual": lambda axes, pairs, found: found._replace(
        duals=jnp.where(pairs.held, found.duals - 0.01, 0.0),
        vanishing=jnp.asarray(True),
    ),
    "that found no number": lambda axes, pairs, found: found._replace(
        nearest=found.nearest * jnp.nan
    ),
}


def other_tokens(tokens, pairs):
    """Each coordinate off by a millionth: the method solves another problem."""
    off = 1 + 1e-6 * jnp.cos(jnp.arange(tokens.size).reshape(tokens.shape))
    return normalise(tokens * off, pairs)


def turned(tokens, pairs):
    """p turned by a ten-millionth: as long as before, and no longer feasible."""
    axes, basis, scale = normalise(tokens, pairs)
    turn = 1e-7 * jnp.triu(jnp.ones((len(basis), len(basis))), 1)
    return axes, basis + (turn - turn.T) @ basis, scale


PROBLEMS = {"other tokens": other_tokens, "p turned": turned}


@jax.jit
def answered_by(number, embeddings, pairs):
    """`max_margin` of each problem with one of the faults above in place."""

    def polished(*arguments):
        methods = [*METHODS.values(), lambda axes, pairs, found: found]
        return jax.lax.switch(jnp.minimum(number, len(METHODS)), methods, *arguments)

    def normalised(*arguments):
        problems = [normalise, *PROBLEMS.values()]
        return jax.lax.switch(
            jnp.maximum(number - len(METHODS) + 1, 0), problems, *arguments
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(max_margin_module, "polish", polished)
        patch.setattr(max_margin_module, "normalise", normalised)
        return jax.lax.map(lambda problem: max_margin(*problem), (embeddings, pairs))


@pytest.mark.parametrize("name", [*METHODS, *PROBLEMS])
def test_a_method_is_not_believed(name):
    """Its result is measured, and refused where it is wrong."""
    problems = [small_problem(seed, planted=seed < 8)[1:] for seed in range(14)]
    # No difference at all: nothing reaches a margin over it.
    names = ("the same embedding twice", "a token over itself")
    problems += [contradiction(name) for name in names]
    for seed in range(64):
        rng, embeddings, pairs = small_problem(seed)
        problems.append((embeddings + 5e3 * rng.normal(size=6), pairs))
    embeddings, pairs = map(np.stack, zip(*problems, strict=True))
    number = jnp.asarray([*METHODS, *PROBLEMS].index(name))
    truth, found = solve_each(embeddings, pairs), answered_by(number, embeddings, pairs)
    known = found.status != Reason.NOT_CONVERGED
    np.testing.assert_array_equal(found.status[known], truth.status[known])
    for number, problem in enumerate(problems):
        assert_true(*problem, lane(found, number))
