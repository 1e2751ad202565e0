"""Integrate the flow on text until its limit is certified, through changed selections.

Stages of the full field and of pairs alone take turns. Where the forces of a pair add
up towards the token that lost, that token loses weight for a long time, and then
returns (mathematics, section 7d).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..corpora.checks import for_corpus
from ..corpora.sparse import SparseCorpus
from ..flow.result import Flow, FlowStatus
from ..margin.max_margin import MaxMarginStatus
from ..model.parameters import Parameters
from .arclength_flow import RETURNED
from .bdf import LATEST, LOOK_BACK, BdfSettings
from .end import End
from .flow_end import FlowEnd, flow_end
from .reduced_flow import in_basin_of_minimum, reduced_flow
from .sparse_flow import sparse_flow

# Log-time between two certificates; late, as a part of the log-time itself.
INTERVAL, LATE_INTERVAL = 60.0, 0.25
# After a restart, log-time needed before ties and losing tokens can be distinguished.
SETTLED = 24.0
# In log-time: tokens that return within it of each other return together.
MOMENT = 1e-3
# Maximum number of stages.
STAGES = 300
# In scores: what is farther below the best may be left to the pairs, tied or not.
NEGLIGIBLE = -float(np.log(RETURNED))
# Steps to go on from the end of another flow, in its own time, of which most take 50.
ARRIVED = 300


class Reached(NamedTuple):
    """How far a trajectory has come.

    Attributes:
        parameters: (E, p, v) there.
        log_time: log(1+t) there.
        stages: the flows so far.
        path: log-times asked for, and p at these.
    """

    parameters: Parameters
    log_time: float = 0.0
    stages: tuple[Flow, ...] = ()
    path: tuple[tuple[float, np.ndarray], ...] = ()

    @property
    def flow(self) -> Flow:
        """The last stage."""
        return self.stages[-1]

    def after(
        self, flow: Flow, asked: Float[np.ndarray, " times"], log_time: float
    ) -> "Reached":
        """One more stage."""
        kept = np.isfinite(flow.path_log_times)
        new = zip(asked[kept], np.asarray(flow.path_query)[kept], strict=True)
        return Reached(
            Parameters(self.parameters.embeddings, flow.query, self.parameters.head),
            log_time,
            (*self.stages, flow),
            (*self.path, *new),
        )


class Course(NamedTuple):
    """The arguments that do not change along a trajectory."""

    start: Parameters
    corpus: SparseCorpus
    times: Float[np.ndarray, " times"]
    settings: BdfSettings
    callback: Callable[[float], object]

    def integrate_first(self, at: Reached, until: float) -> Reached:
        """By the full field, from where another flow ended or from p_0."""
        asked = self.times[(self.times >= at.log_time) & (self.times <= until)]
        settings = self.settings
        if at.log_time > 0:
            settings = replace(settings, max_steps=min(settings.max_steps, ARRIVED))
        flow = sparse_flow(
            at.parameters,
            self.corpus,
            from_log_time=at.log_time,
            until_log_time=until,
            path_log_times=jnp.asarray(asked),
            settings=settings,
            callback=self.callback,
        )
        return at.after(flow, asked, float(flow.log_time))

    def integrate_full(
        self, at: Reached, until: float, *, max_steps: int | None = None
    ) -> Reached:
        """By the full field, its time begun at zero."""
        begun, settings = at.log_time, self.settings
        if max_steps is not None:
            settings = replace(settings, max_steps=min(settings.max_steps, max_steps))
        ahead = self.times[self.times > begun]
        own = _since(begun, ahead)
        flow = sparse_flow(
            at.parameters,
            self.corpus,
            until_log_time=until,
            path_log_times=jnp.asarray(own[own <= until]),
            settings=settings,
            callback=lambda local: self.callback(_total(begun, local)),
        )
        return at.after(flow, ahead[own <= until], _total(begun, float(flow.log_time)))

    def integrate_reduced(self, at: Reached, ending: FlowEnd, until: float) -> Reached:
        """By the pairs alone, ties at rest."""
        asked = self.times[(self.times > at.log_time) & (self.times <= until)]
        flow = reduced_flow(
            at.parameters,
            self.corpus,
            ending,
            from_log_time=at.log_time,
            until_log_time=until,
            path_log_times=jnp.asarray(asked),
            callback=self.callback,
        )
        return at.after(flow, asked, float(flow.log_time))

    def certify(self, at: Reached, selection_gap: float = np.inf) -> FlowEnd:
        """The certificate at the end of the last stage.

        The full field has a time that begins at zero; its p is that of the whole.
        """
        flow = at.flow
        return flow_end(
            at.parameters,
            self.corpus,
            flow,
            after_return=len(at.stages) > 1,
            selection_gap=selection_gap,
        )


def _total(begun: float, local: float) -> float:
    """log(1 + t) of the whole, from that of a stage."""
    return float(begun + np.log1p(np.expm1(local) * np.exp(-begun)))


def _since(
    begun: float, log_times: Float[np.ndarray, " times"]
) -> Float[np.ndarray, " times"]:
    """log(1 + t) of a stage, from those of the whole."""
    with np.errstate(divide="ignore"):
        later = np.log(-np.expm1(begun - log_times))
    return np.logaddexp(0.0, log_times + later)


class Trajectory(NamedTuple):
    """A flow from its start to its end.

    Attributes:
        query: p at the end.
        log_time: log(1+t) at the end.
        ending: what is known of it.
        returns: log-times at which tokens that had lost returned.
        stages: the flows it is made of; those of the full field begin at time zero.
        path_log_times: the log-times asked for that it came to.
        path_query: p at these times.
    """

    query: Float[np.ndarray, " dim"]
    log_time: float
    ending: FlowEnd
    returns: tuple[float, ...]
    stages: tuple[Flow, ...]
    path_log_times: Float[np.ndarray, " times"]
    path_query: Float[np.ndarray, "times dim"]


@for_corpus(-1, 1)
def trajectory(
    parameters: Parameters,
    corpus: SparseCorpus,
    *,
    from_log_time: float = 0.0,
    until_log_time: float = 600.0,
    path_log_times: Float[np.ndarray, " times"] | None = None,
    settings: BdfSettings = BdfSettings(),
    max_stages: int = STAGES,
    callback: Callable[[float], object] = lambda log_time: None,
) -> Trajectory:
    """The flow of p, stage by stage, until its end is certified.

    Source: mathematics, section 7d.

    Args:
        parameters: (E, p_0, v) in double precision.
        corpus: n bags with labels ±1.
        from_log_time: log(1+t) at which p is p_0, to go on from another flow.
        until_log_time: log(1+t) at which to stop without a certificate, at most 10⁵.
        path_log_times: increasing values of log(1+t) to save p at; none by default.
        settings: of the stages of the full field.
        max_stages: bound on their number, and on that of stages between certificates.
        callback: called with log(1+t) after every step.

    Returns:
        The end, its certificate and the path to it.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxselect.corpora.corpus import from_sequences
        >>> from jaxselect.corpora.sparse import from_corpus
        >>> bags = from_corpus(from_sequences([[0, 2], [1, 2]], [1, -1], vocabulary=3))
        >>> head = jnp.array([1.0, -1.0, 0.0])
        >>> found = trajectory(Parameters(jnp.eye(3), jnp.zeros(3), head), bags)
        >>> found.ending.status.name, round(found.log_time), found.returns
        ('SELECTED', 34, ())
    """
    times = np.zeros(0) if path_log_times is None else np.asarray(path_log_times)
    course = Course(parameters, corpus, times, settings, callback)
    begun = Reached(parameters, from_log_time)
    latest = max(LATEST, from_log_time + LOOK_BACK)
    at = course.integrate_first(begun, min(latest, until_log_time))
    restarted = from_log_time > 0 and int(at.flow.status) != FlowStatus.REACHED
    if restarted:
        # Late, an overtaking takes less than a rounding of the time.
        at = course.integrate_full(begun._replace(stages=at.stages), LATEST)
    ending = _certify(course, at, restarted)
    returns: list[float] = []
    settled = False
    while at.log_time < until_log_time and len(at.stages) < max_stages:
        if ending.status != End.UNPROVED or at.flow.status != FlowStatus.REACHED:
            break
        if not _may_go_on(ending, at.flow):
            if settled:
                break
            # The end may have cut through an overtaking. Where p rests already,
            # Newton's method would follow rounding, in any number of steps.
            settled = True
            at = course.integrate_full(at, SETTLED, max_steps=ARRIVED)
            ending = _certify(course, at, settled)
            continue
        ahead = at.log_time + max(INTERVAL, LATE_INTERVAL * at.log_time)
        at = course.integrate_reduced(at, ending, min(ahead, until_log_time))
        returned = bool(at.flow.status == FlowStatus.SELECTION_CHANGED)
        if returned:
            # A token above the threshold at the first step had not lost.
            lost = bool(at.flow.num_steps > 1)
            if lost and (not returns or at.log_time > returns[-1] + MOMENT):
                returns.append(at.log_time)
            at = course.integrate_full(at, SETTLED if lost else LATEST)
            if lost and not _may_go_on(course.certify(at), at.flow):
                at = course.integrate_full(at, LATEST)
        ending = _certify(course, at, returned)
    return Trajectory(
        np.asarray(at.parameters.query),
        at.log_time,
        ending,
        tuple(returns),
        at.stages,
        np.array([time for time, _ in at.path]),
        np.array([query for _, query in at.path]).reshape(-1, len(at.parameters.query)),
    )


def _may_go_on(ending: FlowEnd, flow: Flow) -> bool:
    """True if only the reduced flow's assumptions are certified, not the limit."""
    return (
        ending.status == End.UNPROVED
        and int(flow.status) == FlowStatus.REACHED
        and ending.margin.status == MaxMarginStatus.SOLVED
        and in_basin_of_minimum(ending, np.asarray(flow.query))
    )


def _certify(course: Course, at: Reached, restarted: bool) -> FlowEnd:
    """The certificate; after a restart, of what the reduced flow may start from."""
    ending = course.certify(at)
    unknown = ending.status == End.UNPROVED and not _may_go_on(ending, at.flow)
    return course.certify(at, NEGLIGIBLE) if restarted and unknown else ending
