"""Problems in R^d with d far event |S|: what is told in R^d, and how it moves."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.theory.problem import Problem
from jaxselect.flow.cls_flow import FlowSettings
from jaxselect.model.embedding_step import embedding_step
from jaxselect.model.parameters import Parameters, reduce
from jaxselect.outcome.rates import direction_event
from jaxselect.outcome.resolved_limit import RateSettings, resolve_limit
from tests.outcome.derivatives import draw_wide

SETTINGS = RateSettings(flow=FlowSettings(1e-9, 1e-9), points=128)
PROBLEM = Problem(sequences=12, length=4, relevant=2, irrelevant=5)


@cache
def drawn():
    """Once, and only where these tests run."""
    return jax.jit(partial(draw_wide, PROBLEM, 40))(0)


def told_of(before: Parameters) -> dict[str, jax.Array]:
    """Late and early numbers, with vectors of R^d as they are."""
    seen = jnp.linspace(-1.0, 1.0, len(before.cls))
    case = drawn()
    after = embedding_step(before, case.corpus, case.step_size)

    def events(_, selected, margin):
        # The early error of `rates`.
        return [direction_event(margin.direction, 0.1)]

    resolved = resolve_limit(after, case.corpus, events=events, settings=SETTINGS)
    late, direction = resolved.late, resolved.margin.direction
    (passage,) = resolved.crossings
    return {
        "error_constant": late.error_constant,
        "early_log_time": passage.log_time,
        "offset": seen @ late.offset,
        "growth": seen @ direction,
        "history": seen @ late.history,
        "place": seen @ passage.cls,
    }


@jax.jit
def told(before: Parameters) -> tuple[dict, dict]:
    """The numbers, and how they move."""
    return jax.jvp(told_of, (before,), (change(),))


def change():
    """Of E, p_0 and v, out of the span of E."""
    of_tokens, of_start, _ = drawn().noise
    return Parameters(of_tokens, of_start, of_start[::-1])


@pytest.fixture(scope="module")
def here():
    return told(drawn().start)


def test_it_moves_as_differences_say(here):
    """Of fourth order: at steps short enough for the second the flows' errors show."""
    step = 1.5e-4

    def at(h):
        return told(jax.tree.map(lambda x, dx: x + h * dx, drawn().start, change()))[0]

    ends = {times: at(times * step) for times in (-2, -1, 1, 2)}
    assert abs(here[0]["history"]) > 1e-3
    for name, slope in here[1].items():
        near, far = (
            (ends[times][name] - ends[-times][name]) / (2 * times * step)
            for times in (1, 2)
        )
        difference = (4 * near - far) / 3
        np.testing.assert_allclose(slope, difference, rtol=1e-5, err_msg=name)


def test_numbers_are_those_of_reduced_coordinates(here):
    few = jax.jit(told_of)(reduce(drawn().start))
    for name in ("error_constant", "early_log_time"):
        # To the tolerance of the flows: their steps differ.
        np.testing.assert_allclose(here[0][name], few[name], rtol=1e-7)
