"""Gradient flow of p on real text: thousands of long bags, thousands of words.

No padding, no matrix of sequences times words, and a Jacobian that is kept while it
serves: it costs what a hundred fields do, and a method with many stages would want a
new one in each step. SciPy's BDF in plain time t asks for one in five steps; its steps
grow with t (mathematics, section 7a).
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Scalar
from scipy.integrate import BDF
from scipy.linalg import LinAlgWarning

from ..arguments import as_annotated
from ..errors import BadInput
from ..model.checks import at_least, for_corpus, increasing
from ..model.parameters import Parameters
from ..status import Status
from .curvature import Bags, curvature, descent
from .objective import risk_and_score_descent
from .sparse import SparseCorpus

# −log of a rounding is 36: behind it, pulls that hold each other leave no digit of
# their sum.
LATEST = 34.0
LOOK_BACK = 2.0
# Each takes a change of places 34 log-times on; where rounding holds a flow up it is
# too few.
RESTARTS = 20


class TextFlowStatus(Status):
    """How a flow on real text ended."""

    REACHED = 0, "At the log-time that was asked for."
    OUT_OF_STEPS = 1, "After `max_steps` steps."
    FAILED = 2, "At a step too short to take; p and log_time are the last good ones."
    SELECTION_CHANGED = 3, "Where a word that had lost is back at some weight."


@dataclass(frozen=True)
class TextFlowSettings:
    """Static settings of the integration.

    Attributes:
        tolerance: of a step, relative and absolute, per coordinate of p.
        max_steps: bound on the number of steps.
    """

    tolerance: float = 1e-3
    max_steps: int = 20_000


class TextFlow(eqx.Module):
    """Where a flow ended, what was saved on the way, and what it took.

    Attributes:
        cls: p at the end.
        log_time: log(1+t) at the end.
        status: a `TextFlowStatus`.
        num_steps: steps taken.
        num_fields: evaluations of −∇L.
        num_curvatures: evaluations of ∂²L/∂p².
        path_log_times: the log-times asked for; ∞ behind the end of the flow.
        path_cls: p at these times; ∞ behind the end of the flow.
        earlier: p at two log-times less, or p_0; ∞ where the flow broke off.
    """

    cls: Float[Array, " dim"]
    log_time: Float[Scalar, ""]
    status: Int[Scalar, ""]
    num_steps: int
    num_fields: int
    num_curvatures: int
    path_log_times: Float[Array, " times"]
    path_cls: Float[Array, "times dim"]
    earlier: Float[Array, " dim"]


@for_corpus(-1, 1)
@as_annotated
def text_flow(
    parameters: Parameters,
    corpus: SparseCorpus,
    *,
    until_log_time: float = LATEST,
    path_log_times: Float[Array, " times"] | None = None,
    settings: TextFlowSettings = TextFlowSettings(),
    watch: Callable[[float], object] = lambda log_time: None,
) -> TextFlow:
    """Gradient flow dp/dt = −∇_p L from p_0 with E and v fixed, on a sparse corpus.

    Source: mathematics, section 7a.

    Args:
        parameters: (E, p_0, v) in double precision.
        corpus: n bags with labels ±1.
        until_log_time: log(1+t) to stop at, at most 34.
        path_log_times: increasing values of log(1+t) to save p at; none by default.
        settings: tolerance and bound.
        watch: called with log(1+t) after every step.

    Returns:
        The flow's end, its status and the path. Not differentiable, not to be compiled:
        it runs on the host and calls compiled functions.

    Raises:
        BadInput: another vocabulary, single precision, a log-time out of range, a p_0
            whose scores spread too far for `objective.read`.

    Example:
        >>> from jaxselect.model import embedding_step, parameters
        >>> from jaxselect.model.corpus import from_sequences
        >>> from jaxselect.text.sparse import from_corpus
        >>> bags = from_sequences([[0, 2], [1, 2]], [1, -1], vocabulary=3)
        >>> start = parameters.gaussian(jax.random.key(0), vocabulary=3, dim=100)
        >>> after = embedding_step.embedding_step(start, bags, 10.0)
        >>> flow = text_flow(after, from_corpus(bags), until_log_time=20.0)
        >>> TextFlowStatus(flow.status.item()).name, round(flow.log_time.item(), 6)
        ('REACHED', 20.0)
    """
    if parameters.cls.dtype != np.float64:
        raise BadInput(
            f"parameters in {parameters.cls.dtype}: wanted float64; set jax_enable_x64"
        )
    times = np.zeros(0) if path_log_times is None else np.asarray(path_log_times)
    at_least("until_log_time", until_log_time, 0.0)
    increasing("path_log_times", times)
    if not until_log_time <= LATEST:
        raise BadInput(
            f"until_log_time {until_log_time}: wanted at most {LATEST}, where rounding "
            "still leaves a digit"
        )
    values = parameters.embeddings @ parameters.head
    bags = Bags.of_corpus(parameters, corpus)

    def field(_: float, cls: np.ndarray) -> np.ndarray:
        pull = np.asarray(_pull(parameters.embeddings, values, corpus, cls))
        # Scores too far apart for one shift of the exponent have one for each bag.
        return pull if np.isfinite(pull).all() else descent(bags, cls)[0]

    if not np.isfinite(field(0.0, np.asarray(parameters.cls))).all():
        raise BadInput("E, p_0 or v is not finite: wanted numbers")
    return follow(
        field,
        lambda time, cls: -curvature(bags, cls, time),
        np.asarray(parameters.cls),
        until_log_time=until_log_time,
        path_log_times=times,
        settings=settings,
        watch=watch,
    )


def follow(
    field: Callable[[float, np.ndarray], np.ndarray],
    jacobian: Callable[[float, np.ndarray], np.ndarray],
    start: Float[np.ndarray, " dim"],
    *,
    until_log_time: float,
    path_log_times: Float[np.ndarray, " times"],
    settings: TextFlowSettings,
    watch: Callable[[float], object],
) -> TextFlow:
    """SciPy's BDF along a flow dp/dt = F(t, p), to an exponential time.

    Where a step is too short for its time, as where words change places late, the
    integrator's time begins again from zero.

    Source: mathematics, section 7a.

    Args:
        field: (t, p) → F.
        jacobian: (t, p) → ∂F/∂p, as exact as steps of about t need it, t since it last
            began.
        start: p_0.
        until_log_time: log(1+t) to stop at.
        path_log_times: increasing values of log(1+t) to save p at.
        settings: tolerance and bound.
        watch: called with log(1+t) after every step.

    Returns:
        The flow's end, its status and the path.

    Example:
        >>> still = np.array([[-1.0]])
        >>> relax = lambda t, p: -p, lambda t, p: still, np.ones(1)
        >>> quiet = {"settings": TextFlowSettings(), "watch": lambda log_time: None}
        >>> times = {"until_log_time": 3.0, "path_log_times": np.zeros(0)}
        >>> bool(abs(follow(*relax, **times, **quiet).cls[0]) < 1e-3)
        True
    """
    bounds = {"rtol": settings.tolerance, "atol": settings.tolerance}
    until, passed = np.expm1(until_log_time), 0.0

    def begin(cls: np.ndarray) -> BDF:
        moved = lambda time, cls: field(passed + time, cls)  # noqa: E731
        return BDF(moved, 0.0, cls, until - passed, jac=jacobian, **bounds)

    bdf = begin(start)
    earlier = max(until_log_time - LOOK_BACK, 0.0)
    wanted = np.append(path_log_times, earlier)
    saved = np.where(wanted[:, None] == 0, start, np.inf)
    steps, fields, curvatures, begun, cls, now = 0, 0, 0, 0, start, 0.0
    status = TextFlowStatus.OUT_OF_STEPS
    while steps < settings.max_steps and status == TextFlowStatus.OUT_OF_STEPS:
        if not step(bdf):
            begun += 1
            if bdf.t == 0 or begun > RESTARTS or not np.isfinite(bdf.y).all():
                status = TextFlowStatus.FAILED
                break
            passed += bdf.t
            fields, curvatures = fields + bdf.nfev, curvatures + bdf.njev
            bdf = begin(cls)
            continue
        if bdf.status == "finished":
            status = TextFlowStatus.REACHED
        before, cls = now, bdf.y
        now = float(np.log1p(passed + bdf.t))
        steps += 1
        reached = (wanted > before) & (wanted <= now)
        if reached.any():
            local = np.clip(np.expm1(wanted[reached]) - passed, bdf.t_old, bdf.t)
            saved[reached] = bdf.dense_output()(local).T
        watch(now)
    times = np.where(np.isfinite(saved[:-1, 0]), path_log_times, np.inf)
    return TextFlow(
        # Equinox has a `cls` of its own: no keyword.
        jnp.asarray(cls),
        log_time=jnp.asarray(now),
        status=jnp.asarray(status, jnp.int32),
        num_steps=steps,
        num_fields=fields + bdf.nfev,
        num_curvatures=curvatures + bdf.njev,
        path_log_times=jnp.asarray(times),
        path_cls=jnp.asarray(saved[:-1]),
        earlier=jnp.asarray(saved[-1]),
    )


def step(bdf: BDF) -> bool:
    """One step, and whether it was taken and ended at numbers.

    Args:
        bdf: SciPy's integrator, moved on.

    Returns:
        Whether it may go on; SciPy takes an error that is no number for a small one.

    Example:
        >>> bdf = BDF(lambda t, y: -y, 0.0, np.ones(1), 1.0)
        >>> step(bdf), bool(bdf.t > 0)
        (True, True)
    """
    # What a trial step leaps to may be beyond all numbers: it is not taken.
    with np.errstate(over="ignore", invalid="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", LinAlgWarning)
        bdf.step()
    return bdf.status != "failed" and bool(np.isfinite(bdf.y).all())


@jax.jit
def _pull(
    embeddings: Float[Array, "vocabulary dim"],
    values: Float[Array, " vocabulary"],
    corpus: SparseCorpus,
    cls: Float[Array, " dim"],
) -> Float[Array, " dim"]:
    """−∇_p L."""
    _, descent = risk_and_score_descent(embeddings @ cls, values, corpus)
    return descent.scores @ embeddings
