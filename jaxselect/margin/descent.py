"""A flow that was followed elsewhere, by its end alone."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Scalar

from ..flow.cls import Flow, FlowStatus


def arrived(query: Float[Array, " dim"], log_time: Float[Scalar, ""]) -> Flow:
    """Describe a flow that was followed elsewhere by its end."""
    return Flow(
        query=query,
        log_time=log_time,
        status=jnp.asarray(FlowStatus.REACHED, jnp.int32),
        num_steps=jnp.asarray(0, jnp.int32),
        num_rejected=None,
        path_log_times=jnp.zeros((0,), query.dtype),
        path_query=jnp.zeros((0, len(query)), query.dtype),
        earlier_log_time=log_time,
        earlier_query=query,
    )
