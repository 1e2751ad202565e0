"""The benchmark of flows times the flow, to the norm that it prints."""

import jax

from experiments.benchmarks.flow import timed, to_norm


def test_what_is_timed_goes_to_the_norm_asked_for():
    def flow(problem, until_norm):
        return problem, jax.numpy.asarray(until_norm)

    for norm in (1e3, 1e6):
        (problem, end), seconds = timed(to_norm(flow, 1), norm, 3)
        assert (problem, end.item()) == (1, norm) and seconds > 0
