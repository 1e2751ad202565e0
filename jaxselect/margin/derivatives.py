"""The end of a flow as a differentiable function of its problem.

What was found is not searched for again: p_mm and ρ have the derivatives of the
equations that they solve, p has that of the flow to its known end (mathematics, section
3f).
"""

from functools import partial
from typing import Any, NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree, Scalar

from ..checks import BadInput
from ..compilation import compiled_alone, full_precision, is_traced
from ..flow.adjoint import nan_where
from ..flow.cls import Flow, flow_up_to
from ..flow.control import FlowSettings
from ..flow.crossing import slope_settings
from ..problem import Problem
from ..status import Reason
from .certificate import PredictedEnd
from .limit import limit, spans_of
from .max_margin import with_derivatives

_Given: TypeAlias = tuple[Problem, Float[Scalar, ""]]


class _Found(NamedTuple):
    """What was found without derivatives: a flow, what follows, and what is known."""

    flow: Flow
    end: PredictedEnd
    whole: Bool[Scalar, ""]
    final: Bool[Scalar, ""]


def differentiable(
    given: tuple[Problem, Float[Scalar, ""]],
    found: tuple[Flow, PredictedEnd],
    *,
    whole: Bool[Scalar, ""],
    final: Bool[Scalar, ""],
    settings: FlowSettings,
) -> tuple[Flow, PredictedEnd]:
    """Attach derivatives, in both modes, to the end of a flow that was found.

    What is given are the problem with its start, and ‖p‖ to stop at; what was found,
    the flow, and what is predicted at its end. It is the `whole` flow of this problem,
    in one stage, or not, and its selection is `final` or not. Derivatives are NaN of p
    where the flow is not `whole` or broke off, of p_mm and ρ where the selection is not
    `final`, and of ρ where it takes a part from such a flow. Without derivatives it
    costs nothing.

    Raises:
        BadInput: outside of `jit`, if all of these are NaN.
    """
    record = _Found(*found, whole, final)
    return eqx.tree_at(_numbers, found, _attached(given, record, settings))


def _numbers(found: tuple[Flow, PredictedEnd]) -> tuple[Any, ...]:
    """All that has a derivative."""
    flow, end = found
    late = end.late
    of_flow = flow.query, flow.log_time
    of_limit = late.growth, late.offset, late.error_constant, late.history
    return *of_flow, end.margin.direction, end.margin.norm, *of_limit


@eqx.filter_custom_jvp
def _attached(
    given: _Given, found: _Found, settings: FlowSettings
) -> tuple[Array, ...]:
    return _numbers(found[:2])


@_attached.def_jvp
def _attached_jvp(
    primals: tuple, tangents: tuple
) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    (given, found, settings), (changes, *_) = primals, tangents
    if not is_traced(found) and not bool(found.whole | found.final):
        raise BadInput(
            "the derivative of an end without a certificate, of a flow in several "
            "stages or with ties: wanted a certified end without ties, or one stage"
        )
    changing = jax.tree.map(
        lambda change: change is not None, changes, is_leaf=lambda leaf: leaf is None
    )
    moved, still = eqx.partition(given, changing)

    def real(moved: PyTree) -> tuple[Array, ...]:
        return _moved(eqx.combine(moved, still), found, settings=settings)

    return _numbers(found[:2]), jax.jvp(real, (moved,), (changes,))[1]


@partial(compiled_alone, static=("settings",))
@full_precision
def _moved(
    given: _Given, found: _Found, *, settings: FlowSettings
) -> tuple[Array, ...]:
    """Compute the numbers again as functions of what is given."""
    (problem, until_norm), (flow, end, whole, final) = given, found
    settled = (Reason.NONE, Reason.NORM_NOT_REACHED)
    whole &= jnp.isin(flow.status, jnp.array(settled, flow.status.dtype))
    margin = with_derivatives(problem.rows, end.margin)
    spans = spans_of(problem.rows, margin)
    moved = flow_up_to(
        problem,
        jnp.where(whole, flow.log_time, 0.0),
        until_norm=until_norm,
        known=flow,
        doubt=spans.doubt,
        settings=slope_settings(settings),
    )
    late = limit(problem, end.selected, margin, late_query=moved.query, spans=spans)
    unknown = ~final | (~whole & (late.history_dim > 0))
    voids = ~whole, ~whole, ~final, ~final, ~final, unknown, unknown, unknown
    ending = PredictedEnd(end.selected, margin, late)
    return tuple(map(nan_where, voids, _numbers((moved, ending))))
