"""SciPy's BDF at the tolerance at which its path is as accurate as ours.

A tolerance bounds the error of a step, and each method adds these up in its own way:
at equal tolerances two paths are not equally good.
"""

from typing import Any

import numpy as np

from experiments.benchmarks._flow_rivals import scipy_bdf

TOLERANCES = (1e-6, 3e-7, 1e-7, 3e-8, 1e-8, 3e-9)
REFERENCE = 1e-10
"""Tolerance of our own flow that errors are measured from."""


def as_accurate(start: Any, corpus: Any) -> dict:
    """SciPy's BDF at the first of `TOLERANCES` where its error is no more than ours.

    Returns:
        The result of `scipy_bdf`, and the tolerance, its error and ours; the last
        tolerance's, where none is small enough.
    """
    import jax

    from jaxselect.flow.cls import FlowSettings, cls_flow

    log_times = np.geomspace(0.1, 1e5, 64)
    follow = jax.jit(cls_flow, static_argnames="settings")

    def path(tolerance: float) -> np.ndarray:
        settings = FlowSettings(rtol=tolerance, atol=tolerance, max_steps=2**16)
        bounds = {"until_norm": 1e6, "path_log_times": jax.numpy.asarray(log_times)}
        return np.asarray(follow(start, corpus, **bounds, settings=settings).path_query)

    exact = path(REFERENCE)
    ours = error(path(FlowSettings().rtol), exact)
    for tolerance in TOLERANCES:
        outcome = scipy_bdf(start, corpus, tolerance=tolerance, log_times=log_times)
        theirs = error(outcome.pop("path_query"), exact)
        if theirs <= ours:
            break
    return outcome | {"tolerance": tolerance, "error": theirs, "our_error": ours}


def error(path: np.ndarray, exact: np.ndarray) -> float:
    """The largest ‖p − p*‖ / (1 + ‖p*‖) along two paths, where neither has ended."""
    both = np.isfinite(path).all(axis=1) & np.isfinite(exact).all(axis=1)
    apart = np.linalg.norm(path[both] - exact[both], axis=1)
    return float(np.max(apart / (1 + np.linalg.norm(exact[both], axis=1))))
