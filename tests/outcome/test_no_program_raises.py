"""What fails inside a compiled program is a status: no program can raise.

A check inside a program calls back to Python. Neither the programs of a flow and of
rates nor those of their derivatives hold a call.
"""

import jax
import jax.numpy as jnp
import pytest

from jaxselect.flow.cls_flow import cls_flow
from jaxselect.margin.limit import LimitStatus
from jaxselect.model.corpus import from_sequences
from jaxselect.model.embedding_step import embedding_step
from jaxselect.model.parameters import gaussian_reduced
from jaxselect.outcome.rates import rates

BAGS = from_sequences(
    [[0, 1, 2, 3], [0, 4, 2, 3], [1, 4, 2, 3], [1, 0, 2, 4]],
    [1, 1, -1, -1],
    vocabulary=5,
)
START = gaussian_reduced(jax.random.key(0), vocabulary=5, dim=1e4)


def constant(step_size):
    found = rates(START, BAGS, step_size)
    return found.error_constant, found.status


def on_the_way(step_size):
    """An end that is an event, and a path of which two times are off the flow."""
    after = embedding_step(START, BAGS, step_size)
    times = jnp.asarray([1.0, 0.5, 2.0, 1e9])
    flow = cls_flow(after, BAGS, until_norm=step_size, path_log_times=times)
    known = jnp.isfinite(flow.path_cls)
    return flow.log_time + jnp.sum(jnp.where(known, flow.path_cls, 0.0)), flow.status


def test_a_flow_that_breaks_off_has_no_rate_and_raises_nothing():
    """Opposing gradients cancel: NaN instead of a solver's run-time error."""
    program = jax.jit(jax.grad(constant, has_aux=True)).lower(100.0)
    assert "callback" not in program.as_text()
    slope, status = program.compile()(100.0)
    assert jnp.isnan(slope) and status == LimitStatus.NOT_SETTLED


@pytest.mark.parametrize("mode", [lambda function, **_: function, jax.grad, jax.jacfwd])
def test_no_program_of_a_flow_calls_back(mode):
    text = jax.jit(mode(on_the_way, has_aux=True)).lower(100.0).as_text()
    assert "callback" not in text
