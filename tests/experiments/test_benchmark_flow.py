"""The benchmark of flows compares solvers at equal error."""

import math

from experiments.benchmarks.flow import least_seconds


def point(solver, seconds, error):
    return {"solver": solver, "seconds": seconds, "error": error}


def test_a_solver_counts_in_its_fastest_form_that_keeps_within_the_error():
    points = [
        point("BDF", 0.5, math.nan),
        point("BDF", 1.0, 1e-3),
        point("BDF, absolute", 0.9, 1e-3),
        point("BDF, absolute", 2.0, 1e-6),
        point("Radau", 0.1, 1e-9),
    ]
    assert least_seconds(points, "BDF", 1e-2) == 0.9
    assert least_seconds(points, "BDF", 1e-4) == 2.0
    assert math.isnan(least_seconds(points, "BDF", 1e-8))
