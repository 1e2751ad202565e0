"""What numbers at one point prove of a strict minimum near it.

Source: mathematics, sections 3e and 7b.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.common.model import empirical_risk
from jaxselect import Parameters, from_bags
from jaxselect.data.loss import EXPONENTIAL, LOGISTIC, POLYNOMIAL, Bounds, Loss
from jaxselect.margin.minimum import change_of_curvature, inverse_root, rest_at


@pytest.mark.parametrize("stiffness", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("number", [1e-9, 0.1, 0.124, 0.126, 0.499])
def test_the_theorem_is_sharp(number, stiffness):
    """L′ = ½ B x² − μ x + ν √μ vanishes at μ (1 − √(1 − 2h))/B, if h < ½ at all; an
    eighth is asked for."""
    change = 3.0
    decrement = number * stiffness**1.5 / change
    root = inverse_root(np.array([[stiffness]]))
    form = np.array([[change]]), 1e9
    found = rest_at(np.zeros(1), root, decrement, form)
    assert found.kantorovich == pytest.approx(number)
    assert found.proved == (number < 0.125)
    minimum = stiffness * (1 - np.sqrt(1 - 2 * number)) / change
    assert minimum <= found.radius <= 2 * minimum


@pytest.mark.parametrize(("stiffness", "ball"), [(1.0, 0.2), (100.0, 0.02)])
def test_a_proof_does_not_leave_the_ball_that_its_bound_holds_for(stiffness, ball):
    """2ν/√μ = ball."""
    root, change = inverse_root(np.array([[stiffness]])), np.array([[1e-3]])
    for part, proved in ((0.99, True), (1.01, False)):
        decrement = part * ball * np.sqrt(stiffness) / 2
        found = rest_at(np.zeros(1), root, decrement, (change, ball))
        assert found.kantorovich < 1e-3 and found.proved == proved


def test_eigenvalues_are_as_small_as_rounding_allows():
    """16 roundings of the largest one for each axis, in μ and in H^{−½}."""
    least, root = inverse_root(np.diag([1.0, 1e-12]))
    blur = 32 * np.finfo(float).eps
    assert least == 1e-12 - blur
    np.testing.assert_allclose(root.max(axis=0) ** -2, [least, 1 - blur], rtol=1e-15)


@pytest.mark.parametrize("least", [0.0, -1.0])
def test_a_point_that_is_no_minimum_has_no_basin(least):
    change = np.eye(2), 1.0
    found = rest_at(np.zeros(2), inverse_root(np.diag([1.0, least])), 1e-9, change)
    assert not found.proved and found.basin == 0


# The exponential loss has bounds on the narrow ball alone.
BALLS = {
    f"{loss.name}, {name}": (loss, name == "narrow")
    for name, losses in (
        ("wide", (LOGISTIC, POLYNOMIAL)),
        ("narrow", (LOGISTIC, POLYNOMIAL, EXPONENTIAL)),
    )
    for loss in losses
}


@pytest.mark.parametrize(("loss", "narrow"), BALLS.values(), ids=BALLS)
@pytest.mark.parametrize("labels", [[1, -1, -1, 1], [0, 1, 2, 1]], ids=["two", "three"])
def test_no_third_derivative_exceeds_its_bound(labels, loss, narrow):
    """|D³L[u, u, δ]| ≤ ‖δ‖ uᵀBu within the ball, of two classes and of three."""
    tokens, classes = [[0, 1, 2], [1, 2, 3], [0, 3, 4], [2, 4, 1]], len(set(labels))
    bags = from_bags(tokens, np.ones((4, 3)), labels, vocabulary=5, classes=classes)
    bags = dataclasses.replace(bags, loss=loss)
    # Of two classes there is one head.
    heads = 0 if classes == 2 else slice(None)

    def quotient(key):
        """The largest derivative over its bound, for one draw of rows and values."""
        draw = iter(jax.random.split(key, 6))
        rows, head = (jax.random.normal(next(draw), (5, size)) for size in (4, 3))
        head = 3.0 * head
        point = jax.random.normal(next(draw), (4,))
        values = head[bags.tokens][..., heads]
        logits = bags.logits(rows @ point)
        apart = rows[bags.tokens][:, :, None] - rows[bags.tokens][:, None]
        diameters = jnp.linalg.norm(apart, axis=-1).max(axis=(1, 2))
        form, ball = change_of_curvature(rows, logits, values, bags, diameters, narrow)
        away, line, move = (jax.random.normal(next(draw), (40, 4)) for _ in range(3))
        away = ball * away / jnp.linalg.norm(away, axis=1, keepdims=True)
        line = line.at[:20].set(move[:20])
        line = line.at[20:24].set(jnp.linalg.eigh(form)[1].T)

        def third(away, line, move):
            # The heads are axes of their own: values do not move with the query.
            def risk(shift, along):
                there = (
                    jnp.zeros(7).at[:4].set(point + away + shift * line + along * move)
                )
                both = jnp.hstack([rows, head])
                lift = jnp.zeros((7, 3)).at[4:].set(jnp.eye(3))[:, heads]
                return empirical_risk(Parameters(both, there, lift), bags)

            found = jax.grad(jax.grad(jax.grad(risk)), argnums=1)(0.0, 0.0)
            return jnp.abs(found) / (jnp.linalg.norm(move) * (line @ form @ line))

        return jax.vmap(third)(away, line, move).max()

    keys = jax.random.split(jax.random.key(0), 50)
    assert 0.02 < jax.jit(jax.vmap(quotient))(keys).max() <= 1


LINEAR = Loss(
    "linear",
    value=lambda m: -m,
    slope=jnp.ones_like,
    log_slope=jnp.zeros_like,
    ratio=jnp.zeros_like,
    excess=lambda m, step: step,
    largest_ratio=0.0,
    bounds=Bounds(1.0, 0.0, 0.0),
    largest_third=0.0,
)


@pytest.mark.parametrize("size", [3.0, 30.0])
def test_shares_of_classes_bend_a_loss_that_is_straight(size):
    """L = log 2 cosh(A tanh p) but for a constant, of two tokens and three classes."""
    bags = from_bags([[0, 1]], [[1, 1]], [0], vocabulary=2, classes=3)
    bags = dataclasses.replace(bags, loss=LINEAR)
    rows = jnp.array([[1.0], [-1.0]])
    values = size * jnp.array([[[0.0, 1.0, -1.0], [0.0, -1.0, 1.0]]])
    here = rows, jnp.zeros((1, 2)), values, bags, jnp.array([2.0])
    form, ball = change_of_curvature(*here)

    def risk(p):
        return jnp.log(jnp.cosh(size * jnp.tanh(p)))

    there = ball * jnp.linspace(-1.0, 1.0, 201)
    third = jnp.abs(jax.vmap(jax.grad(jax.grad(jax.grad(risk))))(there)).max()
    assert 0.01 * form[0, 0] < third <= form[0, 0]
