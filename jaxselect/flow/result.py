"""Where a flow of p ended, by any integrator."""

from collections.abc import Callable

import equinox as eqx
from jaxtyping import Array, Float, Int, Scalar

from ..status import Status


class FlowStatus(Status):
    """How a flow ended."""

    REACHED = 0, "At the norm or the time that was asked for."
    NORM_NOT_REACHED = 1, "At `until_log_time`, with ‖p‖ still below `until_norm`."
    TIES_UNPROVED = (
        2,
        "At opposing gradients of tied tokens whose sum is below rounding; the "
        "curvature along v is positive. The flow orthogonal to the ties is not "
        "integrated.",
    )
    OUT_OF_STEPS = 3, "After `max_steps` steps."
    FAILED = (
        4,
        "At a number that is not finite, or a step too short to take; p and log_time "
        "are the last good ones.",
    )
    TIME_UNRESOLVED = (
        5,
        "Where tokens change places, p returns to its course or passes the norm too "
        "suddenly for a log-time to tell when.",
    )
    SELECTION_CHANGED = 6, "Where a token that had lost is back at some weight."


class Flow(eqx.Module):
    """Where a flow ended, and what was saved on the way.

    Attributes:
        query: p at the end.
        log_time: log(1+t) at the end.
        status: a `FlowStatus`.
        num_steps: steps tried.
        num_rejected: of these, rejected; None where they are not counted.
        path_log_times: the log-times asked for; ∞ after the end of the flow.
        path_query: p at these times; ∞ after the end of the flow.
        earlier_log_time: log(1+t) of a step at an eighth to three quarters of the end;
            by BDF, two less than was asked for.
        earlier_query: p there; ∞ where the flow broke off before it.
        num_fields: evaluations of −∇L, where they are counted.
        num_curvatures: evaluations of ∂²L/∂p², likewise.
    """

    query: Float[Array, " dim"]
    log_time: Float[Scalar, ""]
    status: Int[Scalar, ""]
    num_steps: Int[Scalar, ""]
    num_rejected: Int[Scalar, ""] | None
    path_log_times: Float[Array, " times"]
    path_query: Float[Array, "times dim"]
    earlier_log_time: Float[Scalar, ""]
    earlier_query: Float[Array, " dim"]
    num_fields: int | None = None
    num_curvatures: int | None = None

    def turned(self, turn: Callable[[Array], Array]) -> "Flow":
        """The same flow in other coordinates of p, as by `Frame.lift_points`."""
        saved = lambda flow: (flow.query, flow.path_query, flow.earlier_query)  # noqa: E731
        return eqx.tree_at(saved, self, replace_fn=turn)
