"""The flow of p by one program for all bounds, and for all problems of a shape."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.common.model import empirical_risk
from jaxselect import FlowSettings, Parameters, attention, cls_flow
from jaxselect.flow.control import STEPPERS

TIGHT = FlowSettings(rtol=1e-9, atol=1e-9)
PATH = np.geomspace(0.1, 200.0, 15)
BOUNDS = {"until_norm": np.inf, "until_log_time": 1e15, "from_log_time": 0.0}
# What every stepper obeys.
by_every_stepper = pytest.mark.parametrize("stepper", STEPPERS)


def run(
    start, corpus, *, path=PATH, settings=FlowSettings(), stepper="rodas", **bounds
):
    """`cls_flow` in R^d, by one program for all bounds and problems of a shape."""
    settings = replace(settings, stepper=stepper)
    bounds = jax.tree.map(partial(jnp.asarray, dtype=float), BOUNDS | bounds)
    return _run(start, corpus, bounds, jnp.asarray(path), settings=settings)


@partial(jax.jit, static_argnames="settings")
def _run(start, corpus, bounds, path, settings):
    problem = attention(start, corpus)
    flow = cls_flow(problem, **bounds, path_log_times=path, settings=settings)
    names = ("query", "path_query", "earlier_query")
    return replace(flow, **{name: problem.lift(getattr(flow, name)) for name in names})


def risk_of_query(parameters, corpus):
    def risk(query):
        model = Parameters(parameters.embeddings, query, parameters.head)
        return empirical_risk(model, corpus)

    return risk
