"""Gradient flow of p on thousands of long bags, thousands of tokens.

No padding, no matrix of sequences times tokens (mathematics, section 7a).
"""

from collections.abc import Callable

import jax
import numpy as np
from jaxtyping import Array, Float

from ..checks import at_least, increasing
from ..corpora.checks import for_corpus
from ..corpora.sparse import SparseCorpus
from ..errors import BadInput
from ..model.parameters import Parameters
from ..model.sparse_objective import risk_and_score_descent
from .bdf import LATEST, LOOK_BACK, REPRESENTABLE, BdfSettings, Flow, integrate
from .ragged_bags import RaggedBags
from .ragged_objective import curvature, dense_curvature, pull

# Sequences times tokens of a corpus that dense arrays on the host are fastest for.
DENSE = 10**5


@for_corpus(-1, 1)
def sparse_flow(
    parameters: Parameters,
    corpus: SparseCorpus,
    *,
    from_log_time: float = 0.0,
    until_log_time: float = LATEST,
    path_log_times: Float[Array, " times"] | None = None,
    settings: BdfSettings = BdfSettings(),
    callback: Callable[[float], object] = lambda log_time: None,
) -> Flow:
    """Gradient flow dp/dt = −∇_p L from p_0 with E and v fixed, on a sparse corpus.

    Source: mathematics, section 7a.

    Args:
        parameters: (E, p_0, v) in double precision.
        corpus: n bags with labels ±1.
        from_log_time: log(1+t) at which p is p_0, to go on from another flow.
        until_log_time: log(1+t) to stop at, at most 34 or two log-times further on.
        path_log_times: increasing values of log(1+t) to save p at; none by default.
        settings: tolerance and bound.
        callback: called with log(1+t) after every step.

    Returns:
        The flow's end, its status and the path. Not differentiable, not to be compiled:
        it runs on the host and calls compiled functions.

    Raises:
        BadInput: another vocabulary, single precision, a log-time out of range, a p_0
            whose scores spread too far for `objective.read`.

    Example:
        >>> from jaxselect.model import embedding_step, parameters
        >>> from jaxselect.corpora.corpus import from_sequences
        >>> from jaxselect.corpora.sparse import from_corpus
        >>> bags = from_sequences([[0, 2], [1, 2]], [1, -1], vocabulary=3)
        >>> start = parameters.gaussian(jax.random.key(0), vocabulary=3, dim=100)
        >>> after = embedding_step.embedding_step(start, bags, 10.0)
        >>> flow = sparse_flow(after, from_corpus(bags), until_log_time=20.0)
        >>> flow.status.item(), round(flow.log_time.item(), 6)
        (0, 20.0)
    """
    if parameters.query.dtype != np.float64:
        raise BadInput(
            f"parameters in {parameters.query.dtype}: "
            "wanted float64; set jax_enable_x64"
        )
    times = np.zeros(0) if path_log_times is None else np.asarray(path_log_times)
    _within_range(from_log_time, until_log_time)
    increasing("path_log_times", times)
    values = parameters.embeddings @ parameters.head
    bags = RaggedBags.of_corpus(parameters, corpus)
    compiled = settings.compiled
    if compiled is None:
        compiled = bool(np.prod(bags.counts.shape) > DENSE)

    def field(_: float, query: np.ndarray) -> np.ndarray:
        if not compiled:
            return pull(bags, query)
        found = np.asarray(_pull(parameters.embeddings, values, corpus, query))
        # Scores too far apart for one shift of the exponent have one for each bag.
        return found if np.isfinite(found).all() else pull(bags, query)

    with np.errstate(invalid="ignore"):
        begins = np.isfinite(field(0.0, np.asarray(parameters.query))).all()
    if not begins:
        raise BadInput("E, p_0 or v is not finite: wanted numbers")

    def jacobian(time: float, query: np.ndarray) -> np.ndarray:
        if not compiled:
            return -dense_curvature(bags, query)
        return -curvature(bags, query, time)

    return integrate(
        field,
        jacobian,
        np.asarray(parameters.query),
        from_log_time=from_log_time,
        until_log_time=until_log_time,
        path_log_times=times,
        settings=settings,
        callback=callback,
    )


def _within_range(from_log_time: float, until_log_time: float) -> None:
    """Refuse log-times at which rounding leaves no digit."""
    at_least("from_log_time", from_log_time, 0.0)
    at_least("until_log_time", until_log_time, from_log_time, "from_log_time")
    latest = min(max(LATEST, from_log_time + LOOK_BACK), REPRESENTABLE)
    if not until_log_time <= latest:
        raise BadInput(
            f"until_log_time {until_log_time}: wanted at most {latest}, where rounding "
            "still leaves a digit and t is a number"
        )


@jax.jit
def _pull(
    embeddings: Float[Array, "vocabulary dim"],
    values: Float[Array, " vocabulary"],
    corpus: SparseCorpus,
    query: Float[Array, " dim"],
) -> Float[Array, " dim"]:
    """−∇_p L."""
    _, descent = risk_and_score_descent(embeddings @ query, values, corpus)
    return descent.scores @ embeddings
