"""The limit of a flow of p: its selection, and the late flow that follows from it.

The selection is piecewise constant in every argument. Where it, or the set of active
pairs, changes there is a kink: a derivative there is that of one side, and is flagged.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Scalar

from ..checks import between, whole
from ..corpora.checks import for_corpus
from ..corpora.corpus import Corpus
from ..flow.crossing import (
    Crossing,
    EventFunction,
    crossings_and_end,
    end_of_path,
    search_path,
)
from ..flow.result import Flow, FlowStatus
from ..flow.settings import FlowSettings
from ..margin.limit import Limit, LimitStatus, limit
from ..margin.max_margin import MaxMargin, max_margin, with_derivatives
from ..model.frame import Frame, frame
from ..model.parameters import Parameters
from ..model.selection import competing_pairs, selected_tokens
from ..precision import full_precision

# (parameters, final selection, its max-margin solution) → events to search for.
Events = Callable[
    [Parameters, Bool[Array, "sequences width"], MaxMargin], Sequence[EventFunction]
]


@dataclass(frozen=True)
class RateSettings:
    """Static settings of the rates.

    Attributes:
        flow: tolerances of the integrations.
        until_log_time: log(1+t) at which the selection is read and the search for early
            rates ends.
        points: of the path that is searched.
        move: relative size of the move of E that detects a kink: a thousand times the
            tolerance of active pairs, a thousandth of the moves in studies.
    """

    flow: FlowSettings = field(default_factory=FlowSettings)
    until_log_time: float = 1e4
    points: int = 1024
    move: float = 1e-6

    def __post_init__(self) -> None:
        """Refuse a search that could find nothing."""
        between("until_log_time", self.until_log_time, 0.0, jnp.inf)
        whole("points", self.points, least=2)
        between("move", self.move, 0.0, 1.0)


class ResolvedLimit(eqx.Module):
    """The limit of a flow.

    Attributes:
        path: the flow, without derivatives.
        selected: the final selection, in bag layout.
        margin: its max-margin solution; NaN where the path broke off.
        late: the late flow p_mm log t + ρ; NOT_SETTLED and NaN where it did.
        kink: a small move of E changes the active pairs.
        crossings: the last ones of the events that were asked for.
    """

    path: Flow
    selected: Bool[Array, "sequences width"]
    margin: MaxMargin
    late: Limit
    kink: Bool[Scalar, ""]
    crossings: tuple[Crossing, ...] = ()

    def placed(self, inside: Frame) -> "ResolvedLimit":
        """The limit of a flow in R^d, of that in its frame."""
        direction = inside.lift_vectors(self.margin.direction)
        return replace(
            self,
            path=jax.lax.stop_gradient(self.path.turned(inside.lift_points)),
            margin=eqx.tree_at(lambda margin: margin.direction, self.margin, direction),
            late=self.late.placed(inside),
            crossings=tuple(crossing.placed(inside) for crossing in self.crossings),
        )


@for_corpus(by_head=True)
@full_precision
def resolve_limit(
    after: Parameters,
    corpus: Corpus,
    *,
    events: Events | None = None,
    settings: RateSettings = RateSettings(),
) -> ResolvedLimit:
    """Follow the flow until its selection is final, then predict the rest.

    The selection is piecewise constant. The part of ρ that only the path decides
    (`Limit.history_dim`) moves with every argument, so the late flow is differentiated
    through the whole path: a derivative of it costs another flow, its value none.

    Source: mathematics, sections 3f and 4b.

    Args:
        after: (E¹, p_0, v).
        corpus: n labelled bags.
        events: from (E¹, p_0, v) in their frame, the selection and its
            max-margin solution to events; their last crossings share the flow that
            carries derivatives.
        settings: static.

    Returns:
        Selection, max-margin solution and late flow, differentiable in both modes.

    Example:
        See `rates`.
    """
    inside = frame(after)
    after = inside.parameters
    path = search_path(
        after,
        corpus,
        until_log_time=settings.until_log_time,
        points=settings.points,
        settings=settings.flow,
    )
    fixed = jax.lax.stop_gradient(after.embeddings)
    selected = selected_tokens(fixed @ path.query, corpus, path.log_time)
    pairs = competing_pairs(selected, corpus)

    # Beside the problem itself two neighbours, which share its active pairs or show
    # a kink.
    size = settings.move * jnp.linalg.norm(fixed) / jnp.sqrt(fixed.size)
    towards = size * jax.random.normal(jax.random.key(0), fixed.shape, fixed.dtype)
    around = jnp.stack([fixed, fixed - towards, fixed + towards])
    solutions = jax.vmap(max_margin, (0, None))(around, pairs)
    kink = jnp.any(solutions.active[1:] != solutions.active[:1])
    margin = jax.tree.map(lambda leaf: leaf[0], solutions)
    margin = with_derivatives(after.embeddings, margin)
    margin = eqx.tree_at(
        lambda margin: (margin.direction, margin.norm),
        margin,
        replace_fn=lambda known: known * one_or_nan(path),
    )
    crossings: tuple[Crossing, ...] = ()
    if events is None:
        end = end_of_path(after, corpus, path, settings=settings.flow)
    else:
        found = events(after, selected, margin)
        crossings, end = crossings_and_end(
            after, corpus, path, found, settings=settings.flow
        )
    late = limit(after, corpus, selected, pairs, margin, late_query=end)
    whole = path.status == FlowStatus.REACHED
    status = jnp.where(whole, late.status, LimitStatus.NOT_SETTLED)
    late = eqx.tree_at(lambda late: late.status, late, status)
    return ResolvedLimit(
        path=path,
        selected=selected,
        margin=margin,
        late=late,
        kink=kink,
        crossings=crossings,
    ).placed(inside)


def one_or_nan(path: Flow) -> Float[Scalar, ""]:
    """One, or NaN, which voids derivatives, for a path that broke off.

    Args:
        path: of `search_path`.

    Returns:
        A factor for numbers that hold only where the path has an end: one or NaN.
    """
    return jnp.where(path.status == FlowStatus.REACHED, 1.0, jnp.nan)


@jax.custom_jvp
def nan_where(void: Bool[Scalar, ""], value: Float[Scalar, ""]) -> Float[Scalar, ""]:
    """A number, or NaN: then its derivatives are NaN, and no others.

    A factor NaN would do so in forward mode. In reverse mode it would void the gradient
    of all that is computed beside it, since 0 · NaN is NaN.

    Args:
        void: whether it is NaN.
        value: the number.

    Returns:
        The number or NaN, differentiable once, in both modes.

    Example:
        >>> both = lambda x: jnp.stack([nan_where(x < 0, x**2), x**3])
        >>> jax.jacrev(both)(-2.0).tolist(), jax.jacrev(both)(1.0).tolist()
        ([nan, 12.0], [2.0, 3.0])
    """
    return jnp.where(void, jnp.nan, value)


@nan_where.defjvp
def _nan_where_jvp(
    primals: tuple[Array, Array], tangents: tuple[Any, Array]
) -> tuple[Array, Array]:
    (void, value), (_, change) = primals, tangents
    factor = jnp.where(void, jnp.nan, jnp.ones_like(value))

    def push(_: Callable, right: Array) -> Array:
        return factor * right

    def pull(_: Callable, weight: Array) -> Array:
        return jnp.where(weight == 0, 0.0, factor * weight)

    # JAX asks for a linear map and its transpose: here they differ at zero.
    slope = jax.lax.custom_linear_solve(lambda x: x, change, push, pull, symmetric=True)
    return nan_where(void, value), slope
