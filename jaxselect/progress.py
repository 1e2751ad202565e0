"""How far a flow of p has come: its errors, its pace, and when it passes a mark.

The time of a passage is found on flows without derivatives; one last step of Newton's
method, from a flow that ends there, carries the derivative by the implicit function
theorem: ds = −dh/h′ for a mark at h = 0.
"""

import enum
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Scalar

from .attention import attend_corpus
from .corpus import Corpus
from .gradient_flow import FlowSettings, FlowStatus, cls_flow
from .objective import negative_gradient
from .parameters import Parameters


class CrossingStatus(enum.IntEnum):
    """Whether a mark was passed."""

    CROSSED = 0
    """At the log-time given; from then on to the end of the search it stays behind."""
    FROM_THE_START = 1
    """It lies behind all along: the log-time is zero and no argument moves it."""
    NOT_CROSSED = 2
    """It still lies ahead at the end of the search: the log-time is infinite."""
    FAILED = 3
    """The flow did not get to the end of the search."""


class Crossing(eqx.Module):
    """Where a flow passes a mark for the last time.

    Attributes:
        log_time: s = log(1+t) of the passage.
        cls: p there.
        status: a `CrossingStatus`.
    """

    log_time: Float[Scalar, ""]
    cls: Float[Array, " dim"]
    status: Int[Scalar, ""]


def last_crossing(
    parameters: Parameters,
    corpus: Corpus,
    beyond: Callable[[Float[Array, " dim"]], Float[Scalar, ""]],
    until_log_time: Float[Scalar, ""] | float = 1e4,
    points: int = 1024,
    settings: FlowSettings = FlowSettings(),
) -> Crossing:
    """The last log-time at which a function of p turns positive along the flow.

    Brackets it on a path that is geometric in log(1+t), halves the bracket on the
    path's cubic interpolant, and corrects p and s by a flow that ends there. The root
    is right to the square of the interpolant's error, the derivative to that error, of
    order `points`⁻⁴. Two turns between neighbouring points of the path are missed.

    Args:
        parameters: (E, p_0, v).
        corpus: n bags with labels ±1.
        beyond: h(p), positive beyond the mark; piecewise smooth. It may depend on other
            traced values: their derivatives count.
        until_log_time: end of the search.
        points: of the path.
        settings: tolerances; `diffrax.ForwardMode()` as adjoint for forward mode.

    Returns:
        The crossing, with derivatives in E, p_0, v, the counts and what h depends on.

    Example:
        >>> from jaxselect.corpus import from_sequences
        >>> bags = from_sequences([[0, 1]], [1], vocabulary=2)
        >>> start = Parameters(jnp.eye(2), jnp.zeros(2), jnp.array([1.0, 0.0]))
        >>> crossing = last_crossing(start, bags, lambda p: p[0] - p[1] - 5.0)
        >>> CrossingStatus(crossing.status.item()).name
        'CROSSED'
        >>> round((crossing.cls[0] - crossing.cls[1]).item(), 6)
        5.0
    """
    fixed = jax.lax.stop_gradient((parameters, corpus))
    end = jax.lax.stop_gradient(jnp.asarray(until_log_time, parameters.cls.dtype))
    times = end * jnp.geomspace(1e-6, 1.0, points, dtype=end.dtype)
    path = cls_flow(*fixed, until_log_time=end, path_log_times=times, settings=settings)
    times = jnp.concatenate([jnp.zeros_like(times[:1]), times])
    path_cls = jnp.concatenate([fixed[0].cls[None], path.path_cls])
    behind = jax.vmap(lambda cls: jax.lax.stop_gradient(beyond(cls)))(path_cls) > 0
    place = points - jnp.argmax(~behind[::-1])
    crossed = (path.status == FlowStatus.REACHED) & behind[-1] & ~behind.all()
    # A lane without a crossing runs an empty flow.
    left = jnp.where(crossed, place, 0)
    guess = _between(*fixed, beyond, times, path_cls, left)
    guess = jnp.where(crossed, guess, 0.0)

    there = cls_flow(parameters, corpus, until_log_time=guess, settings=settings)
    slope = jax.lax.stop_gradient(velocity(parameters, corpus, guess, there.cls))
    value, rate = jax.jvp(beyond, (there.cls,), (slope,))
    rate = jax.lax.stop_gradient(jnp.where(crossed, rate, 1.0))
    step = jnp.where(crossed, -value / rate, 0.0)
    status = jnp.where(behind.all(), CrossingStatus.FROM_THE_START, 0)
    status = jnp.where(behind[-1], status, CrossingStatus.NOT_CROSSED)
    failed = path.status != FlowStatus.REACHED
    status = jnp.where(failed, CrossingStatus.FAILED, status)
    never = status >= CrossingStatus.NOT_CROSSED
    return Crossing(
        jnp.where(never, jnp.inf, guess + step),
        there.cls + step * slope,
        status.astype(jnp.int32),
    )


def velocity(
    parameters: Parameters,
    corpus: Corpus,
    log_time: Float[Scalar, ""] | float,
    cls: Float[Array, " dim"],
) -> Float[Array, " dim"]:
    """The field dp/ds = e^s Eᵀ(−∂L/∂a) of the flow in s = log(1+t).

    Args:
        parameters: (E, ·, v).
        corpus: n bags with labels ±1.
        log_time: s.
        cls: p.

    Returns:
        dp/ds; late it is p_mm.

    Example:
        >>> from jaxselect.corpus import from_sequences
        >>> bags = from_sequences([[0, 1]], [1], vocabulary=2)
        >>> start = Parameters(jnp.eye(2), jnp.zeros(2), jnp.array([1.0, 0.0]))
        >>> late = velocity(start, bags, 1000.0, jnp.array([500.0, -500.0]))
        >>> [round(x, 4) for x in late.tolist()]
        [0.2689, -0.2689]
    """
    values = parameters.embeddings @ parameters.head
    scores = parameters.embeddings @ cls
    pull = negative_gradient(scores, values, corpus, log_time).scores
    return pull @ parameters.embeddings


def direction_error(
    cls: Float[Array, " dim"], direction: Float[Array, " dim"]
) -> Float[Scalar, ""]:
    """‖p/‖p‖ − direction/‖direction‖‖.

    Args:
        cls: p ≠ 0.
        direction: not zero.

    Returns:
        A number in [0, 2].

    Example:
        >>> round(direction_error(jnp.array([2.0, 0]), jnp.array([0, 1.0])).item(), 4)
        1.4142
    """
    unit = cls / jnp.linalg.norm(cls)
    return jnp.linalg.norm(unit - direction / jnp.linalg.norm(direction))


def local_exponents(
    after: Parameters,
    corpus: Corpus,
    direction: Float[Array, " dim"],
    log_time: Float[Scalar, ""],
    cls: Float[Array, " dim"],
) -> tuple[Float[Scalar, ""], Float[Scalar, ""]]:
    """Exponents of the direction error at one point of a flow.

    Both are exact: the field gives dp/ds there.

    Args:
        after: (E¹, p_0, v).
        corpus: n bags with labels ±1.
        direction: of any length, such as p_mm.
        log_time: s = log(1+t) > 0.
        cls: p at that time.

    Returns:
        d log(error) / d log‖p‖ and d log(error) / d log s; late both tend to −1.

    Example:
        >>> from jaxselect.corpus import from_sequences
        >>> bags = from_sequences([[0, 1]], [1], vocabulary=2)
        >>> start = Parameters(jnp.eye(2), jnp.ones(2), jnp.array([1.0, 0.0]))
        >>> s = jnp.array(1e6)
        >>> late = s / 2 * jnp.array([1.0, -1.0]) + jnp.ones(2)
        >>> target = jnp.array([1.0, -1.0])
        >>> by_norm, _ = local_exponents(start, bags, target, s, late)
        >>> round(by_norm.item(), 4)
        -1.0
    """

    def logs(p: Float[Array, " dim"]) -> Float[Array, " 2"]:
        error = direction_error(p, direction)
        return jnp.log(jnp.stack([error, jnp.linalg.norm(p)]))

    slope = velocity(after, corpus, log_time, cls)
    _, (error, norm) = jax.jvp(logs, (cls,), (slope,))
    return error / norm, error * log_time


def excess_loss(
    after: Parameters,
    corpus: Corpus,
    selected: Bool[Array, "sequences width"],
    cls: Float[Array, " dim"],
) -> Float[Scalar, ""]:
    """L(p) − L_∞ without cancellation, for one selected token in a sequence.

    log(1 + e^{−yf}) − log(1 + e^{−yb}) = log(1 + σ(−yb) (e^{y(b−f)} − 1)), b = b_{s*}.

    Args:
        after: (E¹, ·, v).
        corpus: n bags with labels ±1.
        selected: the final selection.
        cls: p.

    Returns:
        The loss still to go, in nats; exact down to where it underflows.
    """
    values = after.embeddings @ after.head
    attention = attend_corpus(after.embeddings @ cls, values, corpus)
    slot = jnp.argmax(selected, axis=1)[:, None]
    ahead = jnp.take_along_axis(attention.advantage, slot, axis=1)[:, 0]
    winner = jnp.take_along_axis(corpus.tokens, slot, axis=1)[:, 0]
    label = corpus.labels.astype(values.dtype)
    share = jax.nn.sigmoid(-label * values[winner])
    return jnp.mean(jnp.log1p(share * jnp.expm1(label * ahead)))


def _between(
    parameters: Parameters,
    corpus: Corpus,
    beyond: Callable[[Float[Array, " dim"]], Float[Scalar, ""]],
    times: Float[Array, " points"],
    path: Float[Array, "points dim"],
    left: Int[Scalar, ""],
) -> Float[Scalar, ""]:
    """The root between two points of a path, on its cubic Hermite interpolant."""
    start, stop = times[left], times[left + 1]
    first, last = path[left], path[left + 1]
    width = stop - start
    leave, arrive = (
        width * velocity(parameters, corpus, *end)
        for end in ((start, first), (stop, last))
    )

    def at(x: Float[Scalar, ""]) -> Float[Array, " dim"]:
        chord = last - first
        bend = (1 - x) * (leave - chord) + x * (chord - arrive)
        return first + x * chord + x * (1 - x) * bend

    def halve(_: Int[Scalar, ""], bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bracket
        middle = (low + high) / 2
        behind = jax.lax.stop_gradient(beyond(at(middle))) > 0
        return jnp.where(behind, low, middle), jnp.where(behind, middle, high)

    bracket = (jnp.zeros_like(width), jnp.ones_like(width))
    _, high = jax.lax.fori_loop(0, 50, halve, bracket)
    return jax.lax.stop_gradient(start + high * width)
