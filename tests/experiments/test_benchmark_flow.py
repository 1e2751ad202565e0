"""The benchmark of flows times the flow, to the norm that it prints."""

import jax
import numpy as np
import pytest

import jaxselect
from experiments.benchmarks.flow import error, scipy_implicit, timed, to_norm
from jaxselect.flow.cls import velocity
from jaxselect.problem import attention

BAGS = jaxselect.from_sequences([[0, 2], [1, 2]], [1, -1], vocabulary=3)
START = jaxselect.Parameters(
    jax.numpy.eye(3), jax.numpy.zeros(3), jax.numpy.array([1.0, -1.0, 0.0])
)


def test_what_is_timed_goes_to_the_norm_asked_for():
    def flow(problem, until_norm):
        return problem, jax.numpy.asarray(until_norm)

    for norm in (1e3, 1e6):
        (problem, end), seconds = timed(to_norm(flow, 1), norm, 3)
        assert (problem, end.item()) == (1, norm) and seconds > 0


def test_the_path_of_a_rival_is_a_path_of_the_flow():
    """Its slope is the field, at the log-times asked for."""
    width = 1e-3
    log_times = np.array([1.0, 10.0, 1e3])
    around = (log_times[:, None] + width * np.array([-1, 0, 1])).ravel()
    outcome = scipy_implicit(START, BAGS, tolerance=1e-9, log_times=[*around, 1e9])
    *path, beyond = outcome["path_query"]
    assert np.isinf(beyond).all()
    assert np.linalg.norm(outcome["query"]) >= 1e6
    for time, (before, here, after) in zip(
        log_times, np.reshape(path, (-1, 3, 3)), strict=True
    ):
        field = velocity(attention(START, BAGS), time, jax.numpy.asarray(here))
        np.testing.assert_allclose((after - before) / (2 * width), field, atol=1e-4)


def test_an_error_is_the_largest_along_a_path():
    exact = np.array([[0.0, 0.0], [3.0, 4.0], [30.0, 40.0], [np.inf, np.inf]])
    path = exact + np.array([[0.1, 0.0], [0.0, 0.3], [0.0, 5.1], [0.0, 0.0]])
    assert error(path, exact) == pytest.approx(0.1)
    path[1, 1] += 0.9
    assert error(path, exact) == pytest.approx(0.2)
