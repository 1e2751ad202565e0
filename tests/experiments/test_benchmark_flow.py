"""What the benchmark of flows times is the flow, to the norm that it says."""

import jax
import numpy as np

import jaxselect
from experiments.benchmarks.flow import timed, to_norm


def test_a_timed_flow_ends_at_the_norm_asked_for():
    bags = jaxselect.from_sequences([[0, 2], [1, 2]], [1, -1], vocabulary=3)
    start = jaxselect.Parameters(
        jax.numpy.eye(3), jax.numpy.zeros(3), jax.numpy.array([1.0, -1.0, 0.0])
    )
    run = jax.jit(jaxselect.cls_flow).lower(start, bags, until_norm=1e6).compile()
    for norm in (1e3, 1e6):
        flow, seconds = timed(to_norm(run, start, bags), norm, 1)
        np.testing.assert_allclose(np.linalg.norm(flow.cls), norm, rtol=1e-6)
        assert seconds > 0
