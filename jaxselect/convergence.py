"""Convergence rates of the flow of p, differentiable in η₀, d, E, p_0 and the counts.

Late in the flow p = p_mm τ + ρ with τ = log t, so every late rate is a closed form in
(p_mm, ρ), whose derivatives are implicit. Early rates are times at which the flow
passes an event (`crossing.crossings_and_query`). The selection is piecewise constant in
every argument: where it, or the set of active pairs, changes, a rate has a kink. Its
derivative there is that of one side, and a flag says so. Derivatives in d are those of
`parameters.gaussian_reduced`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Scalar

from .checks import at_least, between, of_kind, whole
from .compilation import compiled_alone, full_precision
from .data.corpus import Corpus
from .flow.adjoint import nan_where
from .flow.cls import Flow, direction_error, flow_up_to
from .flow.control import FlowSettings
from .flow.crossing import (
    Crossing,
    EventFunction,
    crossings_and_query,
    search_path,
    slope_settings,
)
from .margin.certificate import (
    PredictedEnd,
    certificate_of,
    selection,
)
from .margin.limit import (
    Limit,
    limit,
    log_time_to_error,
    norm_to_error,
    spans_of,
)
from .margin.max_margin import MaxMargin, max_margin, with_derivatives
from .margin.pairs import pairs_of
from .model.attention import functional_margin
from .model.parameters import Parameters, check_problem
from .model.selection import selected_output
from .model.step import Embed, alignment_error, embedding_step
from .problem import Problem, attention, check
from .status import Reason

# Force of a pair, in units of its c_k, below which it moves nothing any more.
_FADED = 1e-13
# Direction error that the early rate is for.
EARLY_ERROR = 0.1
# Relative change of E by which a kink is detected: a thousand times the tolerance for
# active pairs.
_MOVE = 1e-6


@dataclass(frozen=True)
class RateSettings:
    """Static settings of the rates.

    Attributes:
        flow: tolerances of the integrations; what carries derivatives is integrated at
            5e-7 or less.
        until_log_time: log(1+t) at which the selection is read and the search for early
            rates ends. Of draws of six sequences 1 % are not settled at the default,
            19 % at 10⁴; a step takes p further the later it is, so 10⁶ costs a third
            more steps.
        points: number of points of the path in which events are searched.
    """

    flow: FlowSettings = field(default_factory=FlowSettings)
    until_log_time: float = 1e6
    points: int = 1024

    def __post_init__(self) -> None:
        """Refuse settings with which a search finds no crossing."""
        of_kind("flow", self.flow, FlowSettings)
        between("until_log_time", self.until_log_time, 0.0, jnp.inf)
        whole("points", self.points, least=2)


class ResolvedLimit(eqx.Module):
    """The limit of a flow of p: its selection, and the late flow that follows from it.

    Attributes:
        path: the flow, without derivatives.
        selected: the final selection, (n, w).
        margin: its max-margin solution.
        late: the late flow p_mm log t + ρ, with the `Reason` why the end of the path is
            not certified. Numbers of both are NaN where the path broke off, or where a
            late flow is predicted and not certified.
        kink: whether a small move of E changes the active pairs.
        crossings: the last crossing of every event that was asked for.
    """

    path: Flow
    selected: Bool[Array, "sequences width"]
    margin: MaxMargin
    late: Limit
    kink: Bool[Scalar, ""]
    crossings: tuple[Crossing, ...] = ()


@full_precision
def resolve_limit(
    problem: Problem,
    *,
    events: Callable[..., Sequence[EventFunction]] | None = None,
    settings: RateSettings = RateSettings(),
) -> ResolvedLimit:
    """Follow the flow until its selection is final, then predict the rest.

    The selection is final if the end of the path is certified (`certify`). If it is
    not, a token may still return, and all numbers and derivatives are NaN.

    The selection is piecewise constant. The part of ρ that only the path decides
    (`Limit.history_dim`) moves with every argument, so its derivative is taken through
    the whole path, at the cost of a second integration.

    Source: mathematics, sections 3e, 3f and 4b.

    Args:
        problem: with its start.
        events: function of the problem, the selection and its max-margin solution that
            returns functions of p; the last time at which each of these is zero is
            found with the flow that carries derivatives.
        settings: static settings.

    Returns:
        Selection, max-margin solution and late flow, differentiable in both modes.

    Raises:
        BadInput: not a problem.
    """
    check(problem)
    of_kind("settings", settings, RateSettings)
    corpus = problem.corpus
    path = search_path(
        problem,
        until_log_time=settings.until_log_time,
        points=settings.points,
        settings=settings.flow,
    )
    fixed = jax.lax.stop_gradient(problem.rows)
    selected = selection(jax.lax.stop_gradient(problem), path.query, path.log_time)
    pairs = pairs_of(selected, corpus)

    # Beside the problem itself two neighbours, which share its active pairs or show
    # a kink.
    size = _MOVE * jnp.linalg.norm(fixed) / jnp.sqrt(fixed.size)
    towards = size * jax.random.normal(jax.random.key(0), fixed.shape, fixed.dtype)
    around = jnp.stack([fixed, fixed - towards, fixed + towards])
    solutions = jax.lax.map(lambda rows: max_margin(rows, pairs), around)
    kink = jnp.any(solutions.active[1:] != solutions.active[:1])
    margin = jax.tree.map(lambda leaf: leaf[0], solutions)
    margin = with_derivatives(problem.rows, margin)
    crossings: tuple[Crossing, ...] = ()
    point, spans = _faded(fixed, path, margin), spans_of(problem.rows, margin)
    if events is None:
        until = path.path_log_times[point]
        slopes = slope_settings(settings.flow)
        query = flow_up_to(problem, until, doubt=spans.doubt, settings=slopes).query
    else:
        found = events(problem, selected, margin)
        crossings, query = crossings_and_query(
            problem, path, found, point=point, doubt=spans.doubt, settings=settings.flow
        )
    late = limit(
        problem,
        selected,
        margin,
        late_query=query,
        earlier_query=path.query,
        spans=spans,
    )
    fixed_end = jax.lax.stop_gradient((problem, path, margin, late))
    status = _reason_against(*fixed_end, selected)
    known = _one_or_nan(status)

    def numbers(one: Any, *names: str) -> Any:
        return replace(one, **{name: getattr(one, name) * known for name in names})

    late = numbers(late, "growth", "offset", "error_constant", "history")
    return ResolvedLimit(
        path=jax.lax.stop_gradient(path),
        selected=selected,
        margin=numbers(margin, "direction", "norm"),
        late=replace(late, status=status),
        kink=kink,
        crossings=tuple(numbers(each, "query", "log_time") for each in crossings),
    )


def _faded(
    embeddings: Float[Array, "vocabulary dim"], path: Flow, margin: MaxMargin
) -> Int[Scalar, ""]:
    """Find the point of a path from which no inactive pair acts any more.

    What only the path decides of ρ stays the same from there on. Late in the flow its
    derivative would be a difference of numbers of the size of log t.
    """
    inactive = margin.pairs.held & ~margin.active

    def acts(log_time: Array, query: Array) -> Array:
        leads = margin.pairs.leads(embeddings @ query)
        least = jnp.min(jnp.where(inactive, leads, jnp.inf))
        return ~(log_time - least <= jnp.log(_FADED))

    acting = jax.vmap(acts)(path.path_log_times, path.path_query)
    later = jnp.cumsum(acting[::-1])[::-1] > 0
    return jnp.minimum(jnp.sum(later), len(acting) - 1)


def _reason_against(
    problem: Problem,
    path: Flow,
    margin: MaxMargin,
    late: Limit,
    selected: Bool[Array, "sequences width"],
) -> Int[Scalar, ""]:
    """Return the `Reason` why the end of a path is not certified."""
    end = PredictedEnd(selected=selected, margin=margin, late=late)
    return certificate_of(problem, path, end).reason


def _one_or_nan(status: Int[Scalar, ""]) -> Float[Scalar, ""]:
    """Return 1 for a settled flow, else NaN, which makes derivatives NaN, too."""
    of_selection = (status >= Reason.INFEASIBLE) & (status < Reason.LINE)
    return jnp.where((status == Reason.NONE) | of_selection, 1.0, jnp.nan)


class Rates(eqx.Module):
    """How fast one problem converges.

    Derivatives that go through the path are those of times of events and, where
    `history_dim` is positive, of late rates. Measured, they are accurate to 1e-3. In
    the second case they are computed at two tolerances, and NaN where that leaves more
    than 1e-3 unknown.

    Source: mathematics, section 3f.

    Attributes:
        lemma_error: relative error of Lemma 4.1 for the step on E; NaN, with its
            derivatives, if E was not made by `embedding_step`.
        margin: 1/‖p_mm‖ = lim log t / ‖p‖.
        error_constant: lim ‖p‖ · direction error.
        norm_to_error: ‖p‖ at which the late flow has the direction error asked for.
        log_time_to_error: log t at which it has this error.
        early_log_time: log(1+t) from which the direction error stays below 0.1.
        selection_log_time: log(1+t) from which the final selection leads in every
            sequence.
        final_loss: L at infinite time.
        loss_constant: lim t (L(t) − final_loss) = ‖p_mm‖².
        kink: whether the active pairs, or the pair that is decided last, change under a
            small move of E. Derivatives are then one-sided.
        history_dim: dimension of the part of ρ that only the path decides; derivatives
            go through the path for it.
        status: a `Reason`; the late rates hold if it is NONE. If the path broke off, or
            if its selection has a late flow, but no certificate, all rates but
            `lemma_error` are NaN with their derivatives; in reverse mode the
            derivatives of `lemma_error` are NaN, too. A larger
            `RateSettings.until_log_time` may settle it.
        selected: the final selection, (n, w).
        active: its active pairs. If `selected` or `active` differ between two problems,
            a kink or a jump lies between them.
    """

    lemma_error: Float[Scalar, ""]
    margin: Float[Scalar, ""]
    error_constant: Float[Scalar, ""]
    norm_to_error: Float[Scalar, ""]
    log_time_to_error: Float[Scalar, ""]
    early_log_time: Float[Scalar, ""]
    selection_log_time: Float[Scalar, ""]
    final_loss: Float[Scalar, ""]
    loss_constant: Float[Scalar, ""]
    kink: Bool[Scalar, ""]
    history_dim: Int[Scalar, ""]
    status: Int[Scalar, ""]
    selected: Bool[Array, "sequences width"]
    active: Bool[Array, "*pairs"]


def rates(
    before: Parameters,
    corpus: Corpus,
    step_size: Float[Scalar, ""] | float,
    *,
    error: Float[Scalar, ""] | float = 1e-4,
    embed: Embed = embedding_step,
    settings: RateSettings = RateSettings(),
) -> Rates:
    """Compute all rates of one problem: a step on E, then the flow of p.

    All but `lemma_error` are NaN unless the end of the path is certified (`certify`).
    Alone it compiles itself, as `solve` does; so do its derivatives, outside of `jit`.

    Source: mathematics, sections 3e, 3f and 4b.

    Args:
        before: (E⁰, p_0, v); of `gaussian_reduced` for derivatives in d.
        corpus: n labelled sequences.
        step_size: η₀.
        error: direction error that `norm_to_error` and `log_time_to_error` are for, in
            (0, √2).
        embed: function (E⁰, p_0, v), corpus, η₀ → (E¹, p_0, v), differentiated through.
        settings: static settings.

    Returns:
        The rates, differentiable once in every argument but the settings, in both
        modes.

    Raises:
        BadInput: a step size that is NaN, an error outside (0, √2), or parameters and a
            corpus that do not go together.

    Example:
        >>> from jaxselect.model.parameters import gaussian_reduced
        >>> from jaxselect.data.synthetic import assumption_one
        >>> sizes = dict(sequences=6, length=3, relevant=2, irrelevant=4)
        >>> bags = assumption_one(jax.random.key(0), **sizes)
        >>> start = gaussian_reduced(jax.random.key(1), vocabulary=8, dim=1e6)
        >>> found = rates(start, bags, 50.0)
        >>> bool(found.status == Reason.NONE)
        True
        >>> bool(found.log_time_to_error > found.selection_log_time)
        True
    """
    check_problem(before, corpus)
    of_kind("embed", embed, Callable)
    of_kind("settings", settings, RateSettings)
    between("step_size", step_size, -jnp.inf, jnp.inf)
    at_least("step_size", step_size, 0.0)
    between("error", error, 0.0, 2**0.5)
    errors = error, EARLY_ERROR
    return _rates(before, corpus, step_size, errors, embed=embed, settings=settings)


@partial(compiled_alone, static=("embed", "settings"))
@full_precision
def _rates(
    before: Parameters,
    corpus: Corpus,
    step_size: Float[Scalar, ""] | float,
    errors: tuple[Float[Scalar, ""] | float, Float[Scalar, ""] | float],
    *,
    embed: Embed,
    settings: RateSettings,
) -> Rates:
    error, early_error = errors
    stepped = embed(before, corpus, step_size)
    problem = attention(stepped, corpus)

    def events(
        problem: Problem, selected: Bool[Array, "sequences width"], margin: MaxMargin
    ) -> tuple[EventFunction, EventFunction]:
        return (
            lambda query: early_error - direction_error(query, margin.direction),
            selection_event(problem, selected),
        )

    resolved = resolve_limit(problem, events=events, settings=settings)
    late, margin, kink = resolved.late, resolved.margin, resolved.kink
    early_log_time, selection_log_time = (
        nan_where(each.sudden, each.log_time) for each in resolved.crossings
    )
    kink |= _selection_has_kink(problem, resolved, resolved.crossings[1])
    known = _one_or_nan(late.status)
    lemma_error = alignment_error(before, stepped, corpus, step_size)
    if embed is not embedding_step:
        lemma_error = nan_where(jnp.array(True), lemma_error)
    return Rates(
        lemma_error=lemma_error,
        margin=1 / margin.norm,
        error_constant=late.error_constant,
        norm_to_error=norm_to_error(late, error),
        log_time_to_error=log_time_to_error(late, error),
        early_log_time=early_log_time,
        selection_log_time=selection_log_time,
        final_loss=final_loss(problem, resolved.selected) * known,
        loss_constant=margin.norm**2,
        kink=kink,
        history_dim=late.history_dim,
        status=late.status,
        selected=resolved.selected,
        active=margin.active,
    )


def selection_event(
    problem: Problem, selected: Bool[Array, "sequences width"]
) -> EventFunction:
    """Event that every finally selected token leads in its sequence."""
    pairs = pairs_of(selected, problem.corpus)
    return lambda query: pairs.least(problem.scores(query))


def _selection_has_kink(
    problem: Problem, resolved: ResolvedLimit, crossing: Crossing
) -> Bool[Scalar, ""]:
    """Whether two pairs are decided last at the same time, which is a kink.

    A lead counts as none below 1e-6 of the scores passed before.
    """
    pairs = resolved.margin.pairs
    scores, start = (
        jax.lax.stop_gradient(problem.scores(query))
        for query in (crossing.query, problem.start)
    )
    leads = jnp.where(pairs.held, pairs.leads(scores), jnp.inf).ravel()
    # The smallest lead is zero here; a second one must not be.
    least = -jax.lax.top_k(-leads, 2)[0]
    size = jnp.maximum(jnp.max(jnp.abs(scores)), jnp.max(jnp.abs(start)))
    close = least[1] - least[0] <= _MOVE * size
    return crossing.resolved & close


def final_loss(
    problem: Problem, selected: Bool[Array, "sequences width"]
) -> Float[Scalar, ""]:
    """Compute the risk at infinite time, when only selected tokens have weight.

    The output of a sequence is then the mean value of its selected tokens, weighted by
    their counts.

    Source: mathematics, section 3f.
    """
    corpus = problem.corpus
    output = selected_output(problem.values, problem.offsets, selected)
    margin = functional_margin(corpus.labels, output, corpus.loss).value
    return corpus.mean(corpus.loss.value(margin))
