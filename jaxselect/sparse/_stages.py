"""Stages of a trajectory: the full field, and pairs alone."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..corpora.sparse import SparseCorpus
from ..flow.result import Flow
from ..model.parameters import Parameters
from .bdf import BdfSettings
from .flow_end import FlowEnd, flow_end
from .reduced_flow import reduced_flow
from .sparse_flow import sparse_flow

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
        new = zip(asked[kept], np.asarray(flow.path_cls)[kept], strict=True)
        return Reached(
            Parameters(self.parameters.embeddings, flow.cls, self.parameters.head),
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
