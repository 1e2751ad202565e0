"""The flow of p by one program for all bounds, and for all problems of a shape."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from jaxselect.flow.cls import FlowSettings, cls_flow
from jaxselect.model.attention import empirical_risk
from jaxselect.model.parameters import Parameters
from jaxselect.problem import attention

TIGHT = FlowSettings(rtol=1e-9, atol=1e-9)


PATH = np.geomspace(0.1, 200.0, 15)


def run(start, corpus, *, until_norm=np.inf, until_log_time=1e15, path=PATH, **others):
    """`cls_flow` in R^d, by one program for all bounds and problems of a shape."""
    bounds = jnp.asarray(until_norm, float), jnp.asarray(until_log_time, float)
    return _run(start, corpus, bounds, jnp.asarray(path), **others)


@partial(jax.jit, static_argnames="settings")
def _run(start, corpus, bounds, path, settings=FlowSettings()):
    until = {"until_norm": bounds[0], "until_log_time": bounds[1]}
    problem = attention(start, corpus)
    flow = cls_flow(problem, **until, path_log_times=path, settings=settings)
    names = ("query", "path_query", "earlier_query")
    return replace(flow, **{name: problem.lift(getattr(flow, name)) for name in names})


def risk_of_query(parameters, corpus):
    def risk(query):
        model = Parameters(parameters.embeddings, query, parameters.head)
        return empirical_risk(model, corpus)

    return risk
