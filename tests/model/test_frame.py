"""A frame keeps inner products and their derivatives, or says that it cannot.

Source: mathematics, section 4b.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxselect import attention, from_sequences
from jaxselect.model.parameters import Parameters, frame
from tests.tolerances import assert_close


def drawn(seed, dim=40):
    rng, head = np.random.default_rng(seed), np.eye(dim)[0]
    parts = rng.normal(size=(5, dim)), rng.normal(size=dim), head * dim**0.5
    return Parameters(*(jnp.asarray(part / dim**0.5, float) for part in parts))


WIDE = drawn(0)
ROWS, CLS = np.asarray(WIDE.embeddings), np.asarray(WIDE.query)
# Off the span, zero, and in the span.
STARTS = np.stack([CLS, 0 * CLS, ROWS[1] - ROWS[3]])
# A change of E, p_0 and v that leaves the span of E.
CHANGE = drawn(1)


def moved(parameters: Parameters) -> jax.Array:
    """A step of p in the span of E by what inner products say, and its length."""
    rows, query, head = parameters.embeddings, parameters.query, parameters.head
    scores, values = rows @ query, rows @ head
    return query + (jnp.tanh(rows @ rows.T) @ jnp.sin(scores) + values**2) @ rows


def in_space(parameters: Parameters) -> tuple[jax.Array, jax.Array]:
    there = moved(parameters)
    return there, there @ there


def in_frame(parameters: Parameters) -> tuple[jax.Array, jax.Array]:
    few, axes, residual = frame(parameters)
    there = moved(few)
    return axes @ there + residual, there @ there


def from_start(function, query):
    """All that a function and its derivatives say, from one p_0."""
    start = Parameters(WIDE.embeddings, query, WIDE.head)
    found, back = jax.vjp(function, start)
    weights = jnp.linspace(-1, 1, len(query)), jnp.ones(())
    return found, jax.jvp(function, (start,), (CHANGE,))[1], back(weights)


def test_what_a_frame_says_is_what_space_says_in_both_modes():
    few, *_ = frame(WIDE)
    assert few.embeddings.shape == (5, 6)
    exact, framed = (
        jax.jit(jax.vmap(partial(from_start, function)))(STARTS)
        for function in (in_space, in_frame)
    )
    # Inverting the rows costs their condition, some tens.
    jax.tree.map(partial(assert_close, worse=10), framed, exact)


def test_coordinates_go_there_and_back():
    few = attention(WIDE, from_sequences([range(5)], [1], vocabulary=5))
    assert_close(few.axes.T @ few.axes, np.eye(6))
    away = jnp.asarray(np.linspace(-1, 1, 40), float)
    assert_close(WIDE.embeddings @ away, few.rows @ few.coordinates(away))
    assert_close(few.lift(few.start), WIDE.query)
    path = jnp.stack([WIDE.query, jnp.full(40, jnp.inf), jnp.nan * WIDE.query])
    back = few.lift(few.coordinates(path))
    assert_close(back[0], WIDE.query)
    assert jnp.isinf(back[1]).all() and jnp.isnan(back[2]).all()


def test_the_axis_beside_the_span_is_orthogonal_to_it_or_zero():
    """Also for a p_0 that is in the span but for a billionth."""
    starts = np.stack([*STARTS, STARTS[2] + 1e-9 * CLS])

    @jax.jit
    @jax.vmap
    def products(query):
        _, axes, _ = frame(Parameters(WIDE.embeddings, query, WIDE.head))
        return axes.T @ axes

    beside = [1.0, 0.0, 0.0, 1.0]
    assert_close(products(starts), [np.diag([1.0] * 5 + [last]) for last in beside])


def test_few_dimensions_are_left_alone():
    for dim, same in ((7, True), (8, False)):
        narrow = drawn(0, dim)
        assert (frame(narrow)[0] is narrow) == same


def changed(row):
    return np.where(np.arange(5)[:, None] == 3, row, ROWS)


# A token twice, one between others, none, and all of them centred.
DEPENDENT = np.stack(
    [
        changed(ROWS[0]),
        changed(ROWS[:3].mean(axis=0)),
        changed(np.zeros(40)),
        ROWS - ROWS.mean(axis=0),
    ]
)


def jacobians(function):
    """The vector after a step and its Jacobians in E, p_0 and v, in both modes."""

    def after(*start):
        return function(Parameters(*start))[0]

    def each(*start):
        # One argument at a time: others are constants, as in a user's derivative.
        by_modes = (
            [mode(after, argument)(*start) for argument in range(3)]
            for mode in (jax.jacfwd, jax.jacrev)
        )
        return after(*start), [*by_modes]

    batch = jax.jit(jax.vmap(each, (0, None, None)))
    return batch(DEPENDENT, WIDE.query, WIDE.head)


def test_where_rows_depend_on_each_other_derivatives_in_them_are_none():
    (exact, wanted), (framed, found) = map(jacobians, (in_space, in_frame))
    assert_close(framed, exact)
    for (in_rows, *others), (_, *by_autodiff) in zip(found, wanted, strict=True):
        assert jnp.isnan(in_rows).all()
        jax.tree.map(assert_close, others, by_autodiff)


@pytest.mark.parametrize("argument", [0, 1])
def test_a_second_derivative_is_refused(argument):
    def length(*start):
        return in_frame(Parameters(*start))[1]

    start = (WIDE.embeddings, WIDE.query, WIDE.head)
    with pytest.raises(RuntimeError, match="differentiated twice"):
        jax.eval_shape(jax.hessian(length, argument), *start)
