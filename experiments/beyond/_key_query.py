"""A key-query matrix W before a fixed p, compared with a flow of W itself."""

from typing import Any

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np

from experiments.common.statistics import largest
from jaxselect.data.corpus import Corpus
from jaxselect.flow.cls import FlowSettings, FlowStatus, cls_flow, direction_error
from jaxselect.flow.joint import key_query_of
from jaxselect.margin.certificate import ending
from jaxselect.margin.limit import LimitStatus
from jaxselect.model.attention import empirical_risk
from jaxselect.model.parameters import Parameters
from jaxselect.problem import attention

TIGHT = FlowSettings(rtol=1e-9, atol=1e-9)


def compare_flows(
    after: Parameters, corpus: Corpus, start: jax.Array, marks: jax.Array
) -> dict[str, jax.Array]:
    """W by the flow of W p and by its own, against its limit direction.

    Args:
        after: (E¹, p, v), all fixed; p ≠ 0.
        corpus: n bags with labels ±1.
        start: W_0.
        marks: log(1+‖p‖²t) to look at: at the first W itself is integrated to, too, and
            the last one ends the flow of W p.

    Returns:
        Arrays by name: `identity`, ‖W − direct W‖/‖W − W_0‖ at the first mark; along
        the marks the direction errors of W p and of W, against p_mm and p_mm pᵀ of the
        selection.
    """
    begun = Parameters(after.embeddings, start @ after.query, after.head)
    problem = attention(begun, corpus)
    flow = cls_flow(
        problem,
        until_log_time=marks[-1],
        path_log_times=marks,
        settings=TIGHT,
    )
    derived = key_query_of(start, after.query, flow.path_query[0])
    straight = direct(after, corpus, start, marks[0])
    end = ending(problem, flow.query, flow.log_time)
    rank_one = jnp.outer(end.margin.direction, after.query).ravel()

    def look(query: jax.Array) -> tuple[jax.Array, ...]:
        matrix = key_query_of(start, after.query, query)
        return (
            jnp.linalg.norm(query),
            direction_error(query, end.margin.direction),
            direction_error(matrix.ravel(), rank_one),
        )

    norms, errors, of_matrix = jax.vmap(look)(flow.path_query)
    return {
        "reached": flow.status == FlowStatus.REACHED,
        "predicted": end.late.status == LimitStatus.PREDICTED,
        "identity": jnp.linalg.norm(derived - straight)
        / jnp.linalg.norm(derived - start),
        "norms": norms,
        "errors": errors,
        "of_matrix": of_matrix,
        "constant": end.late.error_constant,
    }


def direct(
    after: Parameters, corpus: Corpus, start: jax.Array, until_log_time: jax.Array
) -> jax.Array:
    """W by an explicit method on the gradient of the risk in W."""
    square = after.query @ after.query

    def risk(matrix: jax.Array) -> jax.Array:
        query = matrix @ after.query
        return empirical_risk(Parameters(after.embeddings, query, after.head), corpus)

    def field(log_time: Any, matrix: jax.Array, _: None) -> jax.Array:
        return -jnp.exp(log_time) / square * jax.grad(risk)(matrix)

    solution = dfx.diffeqsolve(
        dfx.ODETerm(field),
        dfx.Dopri8(),
        0.0,
        until_log_time,
        0.01,
        start,
        stepsize_controller=dfx.PIDController(1e-10, 1e-10),
        max_steps=100_000,
        throw=False,
    )
    return solution.ys[0]


def summary(found: dict[str, np.ndarray], tolerance: float) -> dict:
    """Summary over all draws.

    Args:
        found: of `compare_flows`, with a leading axis of draws.
        tolerance: of the identity.

    Returns:
        Plain numbers; those about limits are over predicted draws alone.
    """
    counts = found["reached"] & found["predicted"]
    constants = found["constant"][counts]
    measured = (found["errors"] * found["norms"])[counts, -1]
    return {
        "draws": len(counts),
        "reached": int(found["reached"].sum()),
        "predicted": int(counts.sum()),
        "identity_holds": int((found["identity"] <= tolerance).sum()),
        "identity_largest": float(found["identity"].max()),
        "constant_largest_deviation": largest(np.abs(measured / constants - 1)),
        "error_last": largest(found["errors"][counts, -1]),
        "error_of_matrix_last": largest(found["of_matrix"][counts, -1]),
    }
