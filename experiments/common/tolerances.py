"""One flow at two tolerances: whether its end depends on the integration.

Certificates assume that it is accurate up to where they begin; if the ends differ, that
is refuted.
"""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Scalar

from jaxselect.compilation import full_precision
from jaxselect.flow.cls import Flow, cls_flow
from jaxselect.flow.control import FlowSettings
from jaxselect.margin.certificate import certify
from jaxselect.problem import Problem

# Ratio of the closer tolerance to the given one; a method of order five takes 2.5 times
# the steps for it.
REFINEMENT = 1e-2


class ToleranceCheck(eqx.Module):
    """Ends of one flow at two tolerances, compared.

    Attributes:
        same_selection: every sequence selects the same tokens at both.
        status: the `TrialStatus` at the given tolerance.
        closer_status: that at the closer one.
        norm_change: relative change of ‖p_mm‖ from the closer one; NaN where either is.
        constant_change: likewise of the error constant.
        history_dim: dimension of the part of p that only the path decides, at the
            closer tolerance: where it is zero, one selection has one constant.
    """

    same_selection: Bool[Scalar, ""]
    status: Int[Scalar, ""]
    closer_status: Int[Scalar, ""]
    norm_change: Float[Scalar, ""]
    constant_change: Float[Scalar, ""]
    history_dim: Int[Scalar, ""]

    @property
    def same(self) -> Bool[Array, "*lanes"]:
        """Whether neither the selection nor the status depends on the tolerance."""
        return self.same_selection & (self.status == self.closer_status)


@full_precision
def tolerance_check(
    problem: Problem,
    flow: Flow,
    *,
    until_norm: Float[Scalar, ""] | float = jnp.inf,
    until_log_time: Float[Scalar, ""] | float = 1e15,
    settings: FlowSettings = FlowSettings(),
) -> ToleranceCheck:
    """Integrate a flow again at a hundredth of its tolerance, and compare both ends.

    In single precision the rounding of scores is as large as the closer tolerance.

    Source: mathematics, section 3e.

    Args:
        problem: which the flow started from.
        flow: flow of p from log(1+t) = 0.
        until_norm: ‖p‖ that the flow was to stop at.
        until_log_time: log(1+t) that it was to stop at.
        settings: that it was integrated with.

    Returns:
        The comparison.

    Raises:
        BadInput: as `cls_flow`.
    """
    closer = cls_flow(
        problem,
        until_norm=until_norm,
        until_log_time=until_log_time,
        settings=replace(settings, atol=REFINEMENT * settings.atol),
    )

    def end(one: Flow) -> tuple[Array, ...]:
        found = certify(problem, one)
        late = found.ending.late
        return (
            found.ending.selected,
            found.status,
            found.ending.margin.norm,
            late.error_constant,
            late.history_dim,
        )

    # In a loop the certificate, which compiles for long, is compiled once.
    both = jax.tree.map(lambda *ends: jnp.stack(ends), _bare(flow), _bare(closer))
    selected, status, norm, constant, history_dim = jax.lax.map(end, both)
    return ToleranceCheck(
        same_selection=jnp.all(selected[0] == selected[1]),
        status=status[0],
        closer_status=status[1],
        norm_change=_relative_change(norm),
        constant_change=_relative_change(constant),
        history_dim=history_dim[1],
    )


def _bare(flow: Flow) -> Flow:
    """The flow without the points that were saved on the way."""
    times, queries = flow.path_log_times[:0], flow.path_query[:0]
    return replace(flow, path_log_times=times, path_query=queries)


def _relative_change(values: Float[Array, " 2"]) -> Float[Scalar, ""]:
    """|x/y − 1|, and zero where both are zero."""
    change = jnp.abs(values[0] - values[1])
    return jnp.where(change == 0, 0.0, change / jnp.abs(values[1]))
