"""The limit that a path settles on: its kinks, and what breaks off."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxselect.convergence import _nan_where, log_time_to_error, resolve_limit
from jaxselect.data.corpus import from_bags, from_sequences
from jaxselect.flow.cls import FlowStatus
from jaxselect.margin.limit import LimitStatus
from jaxselect.model.parameters import Parameters
from tests.trial.rate_program import (
    DIM,
    VOCABULARY,
    resolve_tightly,
)


def three_tokens(sideways, start):
    """Tokens 1 and 2 lose to 0; at sideways = 0 the second has no say, but just so."""
    # Twelve times one bag, in the shapes of the problems above.
    along, across = np.eye(DIM)[:2]
    embeddings = np.zeros((VOCABULARY, DIM))
    embeddings[[0, 2]] = along, sideways * along - across
    bag = np.tile([[0, 1, 2, 2]], (12, 1)), np.tile([[1, 1, 1, 0]], (12, 1))
    corpus = from_bags(*bag, np.ones(12), vocabulary=VOCABULARY)
    after = Parameters(*map(jnp.asarray, (embeddings, start * along, along)))
    return resolve_tightly(after, corpus)


@pytest.mark.parametrize(
    ("sideways", "kink"), [(0.0, True), (-1e-8, True), (-1e-3, False), (-0.1, False)]
)
def test_a_kink_is_flagged(sideways, kink):
    assert three_tokens(sideways, 0.0).kink == kink


def test_a_flow_that_breaks_off_settles_on_nothing():
    """From p_0 far on the wrong side the change of places is too sudden to follow."""
    end, far = three_tokens(-0.1, 0.0), three_tokens(-0.1, -1e3)
    assert end.path.status == FlowStatus.REACHED
    assert end.late.status == LimitStatus.PREDICTED
    assert far.path.status == FlowStatus.TIME_UNRESOLVED
    assert far.late.status == LimitStatus.NOT_SETTLED
    assert jnp.isnan(far.late.growth).all() and jnp.isnan(far.margin.norm)


def test_a_flow_that_will_leave_its_line_is_not_predicted():
    """Φ has a minimum, and a force of weight e^−110 grows until log t = 12,249.

    Token 3, of margin 1.0001, pulls towards itself while p drifts along the second
    axis: only the certificate of the end of the path, at log t = 10⁴, sees it.
    """
    rows = np.array([[0.0, 0.0], [-1.0, 0.0], [-1.0, -1.0], [-1.0001, 10.0]])
    bags = from_sequences([[0, 1], [0, 2], [0, 3]], [1, 1, 1], vocabulary=4)
    weights = np.exp([0.0, 0.0, -110.0])
    corpus = replace(bags, weights=jnp.asarray(weights / weights.sum()))

    @jax.jit
    def resolve(across):
        embeddings = jnp.asarray(rows).at[1, 1].set(across)
        after = Parameters(embeddings, jnp.array([1.0, 0.0]), jnp.array([1.0, 0.5]))
        found = resolve_limit(after, corpus)
        numbers = log_time_to_error(found.late, 1e-6), found.late.error_constant
        return jnp.stack(numbers), (found.late.status, found.path.status)

    drifts, stays = (
        jax.jvp(resolve, (across,), (1.0,), has_aux=True) for across in (1e-7, 0.5)
    )
    assert drifts[2] == (LimitStatus.NOT_SETTLED, FlowStatus.REACHED)
    assert np.isnan(drifts[:2]).all()
    # Without the drift token 3 does no harm.
    assert stays[2] == (LimitStatus.PREDICTED, FlowStatus.REACHED)
    assert np.isfinite(stays[:2]).all()


def test_a_void_number_voids_no_gradient_but_its_own():
    def both(x):
        return _nan_where(x < 0, x**2), x**3

    no, one = jnp.zeros(()), jnp.ones(())
    for x, own in ((-2 * one, jnp.nan), (3 * one, 6.0)):
        values, slopes = jax.jvp(both, (x,), (one,))
        assert jnp.isnan(values[0]) == (x < 0) and values[1] == x**3
        back = jax.vjp(both, x)[1]
        for side in (slopes[1], back((no, one))[0]):
            np.testing.assert_allclose(side, 3 * x**2)
        for side in (slopes[0], back((one, no))[0]):
            np.testing.assert_allclose(side, own)
    batch = jax.vmap(jax.grad(lambda x: both(x)[1]))(jnp.array([-2.0, 3.0]))
    np.testing.assert_allclose(batch, [12.0, 27.0])
