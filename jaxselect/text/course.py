"""A flow on real text followed to an end that can be proved, over losers' returns.

A selection that looks final may not be: where the bags of a pair together pull towards
the word that lost, that word falls behind for a long time, and then comes back
(mathematics, section 7d).
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..model.parameters import Parameters
from . import late
from .ending import TextEnding, TextEndStatus, text_ending
from .flow import LATEST, TextFlow, TextFlowSettings, TextFlowStatus, text_flow
from .margin import TextMarginStatus
from .sparse import SparseCorpus

# Log-time between two looks at the end.
STRIDE = 60.0
# After a return, log-time of its own after which the words may be told apart again.
SETTLED = 24.0
# Of log-times: words that follow another one back within it return with it.
MOMENT = 1e-3
# More are a circle.
STAGES = 300
# In scores: what is farther behind may be left to the pairs, tied or not.
NEGLIGIBLE = -float(np.log(late.RETURNED))
NOT_CERTIFIED = TextEndStatus.NOT_CERTIFIED


class Course(NamedTuple):
    """A flow from its start to its end.

    Attributes:
        cls: p at the end.
        log_time: log(1+t) at the end.
        ending: what is known of it.
        returns: log-times at which words that had lost came back.
        stages: the flows it is made of; those in plain time have a time of their own.
        path_log_times: the log-times asked for that it came to.
        path_cls: p at these times.
    """

    cls: Float[np.ndarray, " dim"]
    log_time: float
    ending: TextEnding
    returns: tuple[float, ...]
    stages: tuple[TextFlow, ...]
    path_log_times: Float[np.ndarray, " times"]
    path_cls: Float[np.ndarray, "times dim"]


def text_course(
    parameters: Parameters,
    corpus: SparseCorpus,
    *,
    until_log_time: float = late.LATEST,
    path_log_times: Float[np.ndarray, " times"] | None = None,
    settings: TextFlowSettings = TextFlowSettings(),
    watch: Callable[[float], object] = lambda log_time: None,
) -> Course:
    """The flow of `text_flow`, and of `late_flow` behind it, until an end is proved.

    Source: mathematics, section 7d.

    Args:
        parameters: (E, p_0, v) in double precision.
        corpus: n bags with labels ±1.
        until_log_time: log(1+t) at which to stop without a proof, at most 600.
        path_log_times: increasing values of log(1+t) to save p at; none by default.
        settings: of the stages in plain time.
        watch: called with log(1+t) after every step.

    Returns:
        The end, its certificate and the path to it.

    Example:
        >>> from jaxselect.model.corpus import from_sequences
        >>> from jaxselect.text.sparse import from_corpus
        >>> bags = from_corpus(from_sequences([[0, 2], [1, 2]], [1, -1], vocabulary=3))
        >>> head = jnp.array([1.0, -1.0, 0.0])
        >>> course = text_course(Parameters(jnp.eye(3), jnp.zeros(3), head), bags)
        >>> course.ending.status.name, round(course.log_time), course.returns
        ('SELECTED', 34, ())
    """
    times = np.zeros(0) if path_log_times is None else np.asarray(path_log_times)
    begun, here = 0.0, parameters
    stages: list[TextFlow] = []
    path: list[tuple[float, np.ndarray]] = []
    returns: list[float] = []

    def add(flow: TextFlow, asked: np.ndarray, log_time: float) -> TextFlow:
        """One more stage."""
        nonlocal begun, here
        stages.append(flow)
        kept = np.isfinite(flow.path_log_times)
        path.extend(zip(asked[kept], np.asarray(flow.path_cls)[kept], strict=True))
        begun = log_time
        here = Parameters(parameters.embeddings, flow.cls, parameters.head)
        return flow

    def plainly(until: float) -> TextFlow:
        """In plain time from here, begun again from zero."""
        ahead = times[(times > begun) | (begun == 0)]
        own = _since(begun, ahead)
        flow = text_flow(
            here,
            corpus,
            until_log_time=until,
            path_log_times=jnp.asarray(own[own <= until]),
            settings=settings,
            watch=lambda local: watch(_total(begun, local)),
        )
        return add(flow, ahead[own <= until], _total(begun, float(flow.log_time)))

    def behind(until: float) -> TextFlow:
        """In log-time, what has lost left to the pairs."""
        asked = times[(times > begun) & (times <= until)]
        flow = late.late_flow(
            here,
            corpus,
            ending,
            from_log_time=begun,
            until_log_time=until,
            path_log_times=jnp.asarray(asked),
            watch=watch,
        )
        return add(flow, asked, float(flow.log_time))

    def look(flow: TextFlow, width: float = np.inf) -> TextEnding:
        return text_ending(here, corpus, flow, anew=len(stages) > 1, width=width)

    flow = plainly(min(LATEST, until_log_time))
    ending = look(flow)
    while begun < until_log_time and _may_go_on(ending, flow) and len(stages) < STAGES:
        flow = behind(min(begun + STRIDE, until_log_time))
        returned = flow.status == TextFlowStatus.SELECTION_CHANGED
        if returned:
            # Who is back in the first step had not gone.
            soon = flow.num_steps > 1
            if soon and (not returns or begun > returns[-1] + MOMENT):
                returns.append(begun)
            flow = plainly(SETTLED if soon else LATEST)
            if soon and not _may_go_on(look(flow), flow):
                flow = plainly(LATEST)
        ending = look(flow)
        if returned and ending.status == NOT_CERTIFIED and not _may_go_on(ending, flow):
            ending = look(flow, NEGLIGIBLE)
    return Course(
        np.asarray(here.cls),
        begun,
        ending,
        tuple(returns),
        tuple(stages),
        np.array([time for time, _ in path]),
        np.array([cls for _, cls in path]).reshape(-1, len(here.cls)),
    )


def _may_go_on(ending: TextEnding, flow: TextFlow) -> bool:
    """Whether what the late flow takes for granted is proved, and the end is not."""
    return (
        ending.status == NOT_CERTIFIED
        and int(flow.status) == TextFlowStatus.REACHED
        and ending.margin.status == TextMarginStatus.SOLVED
        and late.comes_to_rest(ending, np.asarray(flow.cls))
    )


def _total(begun: float, local: float) -> float:
    """log(1 + t) of the whole, from that of a stage."""
    return float(begun + np.log1p(np.expm1(local) * np.exp(-begun)))


def _since(begun: float, log_times: np.ndarray) -> np.ndarray:
    """log(1 + t) of a stage, from those of the whole."""
    return np.log1p(np.exp(log_times) * -np.expm1(begun - log_times))
