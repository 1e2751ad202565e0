"""The gradient flow of p on thousands of long bags, until its end is certified.

`trajectory` alternates between two integrations.

1. The whole field dp/dt = −∇_p L, on sparse counts, to log t = 34: later the forces of
   tied tokens on each other cancel to below rounding. SciPy's BDF is used because it
   keeps a Hessian for many steps, and a Hessian costs as much as a hundred evaluations
   of the field (mathematics, section 7a).
2. The pairs alone, dp/dτ = Σ_k c_k e^{τ − D_kᵀp} D_k with τ = log(1+t), orthogonal to
   the ties at rest, where a pair is a selected token and one that lost. Exponents are
   exact at any time. The integration variable is the arc length of (p, τ): between
   returns p is linear in τ, and a return changes p along a line at nearly constant τ,
   so both take few long steps (mathematics, section 7d).

After a losing token has returned, the whole field is integrated again from there.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.integrate import BDF
from scipy.linalg import LinAlgWarning
from scipy.optimize import brentq

from ..checks import BadInput, increasing
from ..data.sparse import SparseCorpus
from ..flow.cls import Flow
from ..flow.integration import FlowStatus
from ..margin.certificate import TOLERANCE
from ..margin.max_margin import MaxMarginStatus
from ..model.parameters import Parameters
from ..model.sparse_objective import risk_and_score_descent
from .bags import LEFT_OUT, RaggedBags, check_sparse_problem, curvature, descent
from .end import End, FlowEnd, contract_ties, flow_end, pair_forces

# Latest log(1+t) of the whole field: −log of a rounding is 36, and later opposing
# gradients cancel to below rounding.
WHOLE_FIELD_UNTIL = 34.0
# Latest log(1+t) of all: margins of one are known to 1e-13, times this in scores.
REDUCED_FLOW_UNTIL = 1e5
# Log-time between the end of a flow and the earlier p that its velocity is read from.
LOOK_BACK = 2.0
# Times that BDF may begin again from zero; each gives a change of selection another 34
# log-times. Where rounding holds a flow up no number would do.
RESTARTS = 20
# A correction of Newton's method by less than this part of the tolerance is none. Near
# rest all of them are rounding, and SciPy, which takes a second one as large as the
# first for divergence, would shorten the step.
NEGLIGIBLE = 1e-6


@dataclass(frozen=True)
class BdfSettings:
    """Settings of an integration by BDF.

    Attributes:
        tolerance: of a step, relative and absolute, per coordinate of p − p_0.
        max_steps: bound on the number of steps.
    """

    tolerance: float = 1e-3
    max_steps: int = 20_000


def integrate(
    field: Callable[[np.ndarray], np.ndarray],
    jacobian: Callable[[float, np.ndarray], np.ndarray],
    start: Float[np.ndarray, " dim"],
    *,
    until_log_time: float,
    path_log_times: Float[np.ndarray, " times"],
    settings: BdfSettings,
    callback: Callable[[float], object],
) -> Flow:
    """Integrate dp/dt = F(p) by SciPy's BDF to a given log(1+t).

    If a step is below the rounding of t, as when the selected word changes late, the
    integrator's clock is reset to zero.

    Source: mathematics, section 7a.

    Args:
        field: p → F.
        jacobian: (t, p) → ∂F/∂p, accurate enough for steps of about t; t is the time
            since the integrator's clock was last reset.
        start: p_0.
        until_log_time: log(1+t) to stop at.
        path_log_times: increasing values of log(1+t) to save p at.
        settings: tolerance and bound.
        callback: called with log(1+t) after every step.

    Returns:
        The flow's end, its status and the path.

    Example:
        >>> still = np.array([[-1.0]])
        >>> relax = lambda p: -p, lambda t, p: still, np.ones(1)
        >>> quiet = {"settings": BdfSettings(), "callback": lambda log_time: None}
        >>> times = {"until_log_time": 3.0, "path_log_times": np.zeros(0)}
        >>> bool(abs(integrate(*relax, **times, **quiet).query[0]) < 1e-3)
        True
    """
    bounds = {"rtol": settings.tolerance, "atol": settings.tolerance}
    with np.errstate(over="ignore"):
        # Beyond log t = 709 the end is ∞, and the number of steps ends the flow.
        until, passed = np.expm1(until_log_time), 0.0

    def begin(query: np.ndarray) -> BDF:
        bdf = BDF(
            lambda _, p: field(p), 0.0, query, until - passed, jac=jacobian, **bounds
        )
        solve = bdf.solve_lu

        def correction(factors: Any, residual: np.ndarray) -> np.ndarray:
            change = solve(factors, residual)
            return np.where(np.abs(change) < NEGLIGIBLE * bdf.atol, 0.0, change)

        bdf.solve_lu = correction
        return bdf

    bdf = begin(start)
    wanted = np.append(path_log_times, max(until_log_time - LOOK_BACK, 0.0))
    saved = np.where(wanted[:, None] <= 0.0, start, np.inf)
    steps, fields, curvatures, begun, query, now = 0, 0, 0, 0, start, 0.0
    status = FlowStatus.OUT_OF_STEPS
    while steps < settings.max_steps and status == FlowStatus.OUT_OF_STEPS:
        # Scores move by E (p − p_0), however long p_0 is. SciPy's tolerance is of p;
        # with p − p_0 as its unknown it would follow less than a rounding of p.
        bdf.rtol, bdf.atol = 0.0, settings.tolerance * (1.0 + np.abs(query - start))
        if not _step(bdf):
            begun += 1
            if bdf.t == 0 or begun > RESTARTS or not np.isfinite(bdf.y).all():
                status = FlowStatus.FAILED
                break
            passed += bdf.t
            fields, curvatures = fields + bdf.nfev, curvatures + bdf.njev
            bdf = begin(query)
            continue
        if bdf.status == "finished":
            status = FlowStatus.REACHED
        before, query = now, bdf.y
        now = float(np.log1p(passed + bdf.t))
        steps += 1
        reached = (wanted > before) & (wanted <= now)
        if reached.any():
            local = np.clip(np.expm1(wanted[reached]) - passed, bdf.t_old, bdf.t)
            saved[reached] = bdf.dense_output()(local).T
        callback(now)
    counts = fields + bdf.nfev, curvatures + bdf.njev
    return _host_flow(query, now, status, steps, wanted, saved, counts)


def _host_flow(
    query: Float[np.ndarray, " dim"],
    log_time: float,
    status: FlowStatus,
    steps: int,
    log_times: Float[np.ndarray, " times"],
    saved: Float[np.ndarray, "times dim"],
    counts: tuple[int, int],
) -> Flow:
    """Make a `Flow` of an integration on the host.

    The last of `log_times` is that of `earlier_query`; `saved` is ∞ after the end;
    `counts` are evaluations of −∇L and of ∂²L/∂p².
    """
    times = np.where(np.isfinite(saved[:-1, 0]), log_times[:-1], np.inf)
    return Flow(
        query=jnp.asarray(query),
        log_time=jnp.asarray(log_time),
        status=jnp.asarray(status, jnp.int32),
        num_steps=jnp.asarray(steps),
        num_rejected=None,
        path_log_times=jnp.asarray(times),
        path_query=jnp.asarray(saved[:-1]),
        earlier_log_time=jnp.asarray(log_times[-1]),
        earlier_query=jnp.asarray(saved[-1]),
        num_fields=counts[0],
        num_curvatures=counts[1],
    )


def _step(bdf: BDF) -> bool:
    """Take a step, and return whether it succeeded with finite numbers.

    SciPy accepts a step whose error is NaN.
    """
    # A trial step may overflow: it is not taken.
    with np.errstate(over="ignore", invalid="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", LinAlgWarning)
        bdf.step()
    return bdf.status != "failed" and bool(np.isfinite(bdf.y).all())


def sparse_flow(
    parameters: Parameters,
    corpus: SparseCorpus,
    *,
    until_log_time: float = WHOLE_FIELD_UNTIL,
    path_log_times: Float[Array, " times"] | None = None,
    settings: BdfSettings = BdfSettings(),
    callback: Callable[[float], object] = lambda log_time: None,
) -> Flow:
    """Integrate the whole field dp/dt = −∇_p L from p_0, E and v fixed.

    Arguments as for `trajectory`; `until_log_time` is at most `WHOLE_FIELD_UNTIL`,
    where rounding still leaves a digit.

    Source: mathematics, section 7a.

    Example:
        >>> from jaxselect.model import step as embedding_step, parameters
        >>> from jaxselect.data.corpus import from_sequences
        >>> from jaxselect.data.sparse import from_corpus
        >>> bags = from_sequences([[0, 2], [1, 2]], [1, -1], vocabulary=3)
        >>> start = parameters.gaussian(jax.random.key(0), vocabulary=3, dim=100)
        >>> after = embedding_step.embedding_step(start, bags, 10.0)
        >>> flow = sparse_flow(after, from_corpus(bags), until_log_time=20.0)
        >>> flow.status.item(), round(flow.log_time.item(), 6)
        (0, 20.0)
    """
    bags = RaggedBags.of_corpus(parameters, corpus)
    values = parameters.embeddings @ parameters.head

    def field(query: np.ndarray) -> np.ndarray:
        found = np.asarray(_pull(parameters.embeddings, values, corpus, query))
        # Scores too far apart for one shift of the exponent have one for each bag.
        return found if np.isfinite(found).all() else descent(bags, query)[0]

    return integrate(
        field,
        lambda time, query: -curvature(bags, query, time),
        np.asarray(parameters.query),
        until_log_time=until_log_time,
        path_log_times=np.zeros(0)
        if path_log_times is None
        else np.asarray(path_log_times),
        settings=settings,
        callback=callback,
    )


@jax.jit
def _pull(
    embeddings: Float[Array, "vocabulary dim"],
    values: Float[Array, " vocabulary"],
    corpus: SparseCorpus,
    query: Float[Array, " dim"],
) -> Float[Array, " dim"]:
    """−∇_p L."""
    _, force = risk_and_score_descent(embeddings @ query, values, corpus)
    return force.scores @ embeddings


# Share of a bag's weight at which a token that lost has returned: with less it changes
# the forces of others by less than a step may err.
RETURNED = 1e-3
# Least tolerance of a step, in roundings of p: Newton's method asks for 3e-4 of it.
ROUNDINGS = 1e4 * float(np.finfo(float).eps)
# Share of the speed from which the error of a step sees a pair.
SEEN = 1e-3


class Pairs(NamedTuple):
    """K pairs of a selected word and one that lost, and their forces.

    Attributes:
        free: E orthogonal to the words that rest.
        winners: the word selected.
        losers: the word that lost.
        sign: 1 where the bags together pull towards the winner, else −1.
        log_pull: log |c_k e^{−D_kᵀp}| at the p that they were taken at.
        log_share: log of the largest share of weight that the loser has in a bag there.
    """

    free: Float[np.ndarray, "vocabulary dim"]
    winners: Int[np.ndarray, " pairs"]
    losers: Int[np.ndarray, " pairs"]
    sign: Float[np.ndarray, " pairs"]
    log_pull: Float[np.ndarray, " pairs"]
    log_share: Float[np.ndarray, " pairs"]

    @property
    def longest(self) -> float:
        """A bound on ‖D_k‖."""
        return float(2 * np.sqrt(np.max(np.sum(self.free**2, axis=1))))

    def ahead(self, moved: Float[np.ndarray, " dim"]) -> Float[np.ndarray, " pairs"]:
        """D_kᵀ of a move of p."""
        scores = self.free @ moved
        return scores[self.winners] - scores[self.losers]

    def combined(self, weights: Float[np.ndarray, " pairs"]) -> np.ndarray:
        """Σ_k w_k D_k."""
        words = len(self.free)
        scores = np.bincount(self.winners, weights, words)
        return (scores - np.bincount(self.losers, weights, words)) @ self.free

    def apart(self, some: Int[np.ndarray, " some"]) -> Float[np.ndarray, "some dim"]:
        """D_k of some pairs."""
        return self.free[self.winners[some]] - self.free[self.losers[some]]


class _ArclengthField(NamedTuple):
    """Velocity along the curve (p, τ), per unit of its length ℓ.

    With Q = ‖dp/dτ‖: dp/dℓ = w g, w = Q/√(1+Q²), dτ/dℓ = 1/√(1+Q²).

    Attributes:
        force: force of every pair, the factor of D_k in dp/dℓ.
        towards: g, of length one.
        speed: w.
        rate: dτ/dℓ.
    """

    force: Float[np.ndarray, " pairs"]
    towards: Float[np.ndarray, " dim"]
    speed: float
    rate: float


def arclength_field(pairs: Pairs, place: Float[np.ndarray, " axes"]) -> _ArclengthField:
    """Compute dp/dℓ and dτ/dℓ at `place`, the displacement of p and τ.

    Example:
        >>> words, one = np.array([[0.5], [-0.5]]), np.ones(1)
        >>> pair = Pairs(words, np.array([0]), np.array([1]), one, 0 * one, one)
        >>> found = arclength_field(pair, np.array([3.0, 3.0]))
        >>> round(found.speed / found.rate, 9), found.towards.tolist()
        (1.0, [1.0])
    """
    log_pull = pairs.log_pull - pairs.ahead(place[:-1])
    # All exponents are taken off the largest: no time is too late for a double.
    top = log_pull.max(initial=-np.inf)
    force = pairs.sign * np.exp(log_pull - top)
    total = pairs.combined(force)
    size = np.linalg.norm(total)
    if not size:
        # Without a pair p rests, and τ alone goes on.
        return _ArclengthField(0 * force, total, 0.0, 1.0)
    log_pace = place[-1] + top + np.log(size)
    speed = np.exp(-np.logaddexp(0.0, -2 * log_pace) / 2)
    rate = np.exp(-np.logaddexp(0.0, 2 * log_pace) / 2)
    return _ArclengthField(
        force * (speed / size), total / size, float(speed), float(rate)
    )


def arclength_jacobian(
    pairs: Pairs, place: Float[np.ndarray, " axes"], length: float
) -> Float[np.ndarray, "axes axes"]:
    """Compute ∂(dp/dℓ, dτ/dℓ)/∂(p, τ) without pairs that hardly change in a step.

    Example:
        >>> words, one = np.array([[0.5], [-0.5]]), np.ones(1)
        >>> pair = Pairs(words, np.array([0]), np.array([1]), one, 0 * one, one)
        >>> arclength_jacobian(pair, np.zeros(2), 1.0).round(4).tolist()
        [[-0.3536, 0.3536], [0.3536, -0.3536]]
    """
    force, towards, speed, rate = arclength_field(pairs, place)
    part = max(length, 1.0) * pairs.longest**2 * np.abs(force)
    order = np.argsort(part)
    kept = order[np.cumsum(part[order]) > LEFT_OUT]
    apart = pairs.apart(kept)
    within = -(apart.T * force[kept]) @ apart
    turned = towards @ within
    found = np.empty((len(towards) + 1, len(towards) + 1))
    found[:-1, :-1] = within - np.outer(speed**2 * towards, turned)
    found[:-1, -1] = speed * rate**2 * towards
    found[-1, :-1] = -rate * speed * turned
    found[-1, -1] = -rate * speed**2
    return found


def max_step(pairs: Pairs, place: Float[np.ndarray, " axes"]) -> float:
    """Bound the step so that a growing force towards a losing token is seen.

    An implicit step can skip an instability that grows within it. The bound is half of
    the length after which the force reaches a thousandth of the speed.

    Example:
        >>> words, one = np.array([[0.5], [-0.5]]), np.ones(1)
        >>> pair = Pairs(words, np.array([0]), np.array([1]), one, 0 * one, one)
        >>> max_step(pair, np.zeros(2))
        inf
    """
    motion = arclength_field(pairs, place)
    against = np.flatnonzero(pairs.sign < 0)
    grows = motion.rate - motion.speed * pairs.ahead(motion.towards)[against]
    size = np.abs(motion.force[against]) * pairs.longest
    hidden = (grows > 0) & (size > 0) & (size < motion.speed)
    to_go = np.log(SEEN * motion.speed) - np.log(size[hidden])
    grows = grows[hidden]
    return float(np.min(np.maximum(to_go / 2, 1.0) / grows, initial=np.inf))


def arclength_flow(
    pairs: Pairs,
    start: Float[np.ndarray, " dim"],
    growth: Float[np.ndarray, " dim"],
    *,
    from_log_time: float,
    log_times: Float[np.ndarray, " times"],
    settings: BdfSettings,
    callback: Callable[[float], object],
) -> Flow:
    """Integrate (z, τ) in its arc length by SciPy's BDF, z = p − p_start − g (τ − τ_0).

    Late z hardly moves, and errors of a step are relative to z and not to p.

    Source: mathematics, section 7d.

    Args:
        pairs: what drives p.
        start: p_start.
        growth: g, the velocity of p in τ; p_mm where it is known.
        from_log_time: τ_0 = log(1+t) there.
        log_times: values of τ to save p at; the last is where the flow stops, the one
            before it is that of `earlier_query`.
        settings: tolerance and bound.
        callback: called with log(1+t) after every step.

    Returns:
        The flow's end; TIES_DISTURBED where a token that had lost has a thousandth
        of some bag's weight again.

    Example:
        >>> tokens, one = np.array([[0.5], [-0.5]]), np.ones(1)
        >>> pair = Pairs(tokens, np.array([0]), np.array([1]), one, 0 * one, -one * 9)
        >>> until = dict(from_log_time=0.0, log_times=np.array([38.0, 40.0]))
        >>> quiet = dict(settings=BdfSettings(tolerance=1e-7), callback=lambda s: None)
        >>> round(arclength_flow(pair, 0 * one, one, **until, **quiet).query.item(), 4)
        40.0
    """
    curve = _Curve(pairs, start, growth, from_log_time)
    dim, until = len(start), float(log_times[-1])
    with np.errstate(divide="ignore"):
        bounds = {"rtol": settings.tolerance, "atol": settings.tolerance}
        first = np.append(np.zeros(dim), from_log_time)
        bdf = BDF(curve.field, 0.0, first, np.inf, jac=curve.jacobian, **bounds)
        saved = np.where((log_times <= from_log_time)[:, None], start, np.inf)
        steps, query, now = 0, start, from_log_time
        status = FlowStatus.OUT_OF_STEPS
        if until <= from_log_time:
            status = FlowStatus.REACHED
        while steps < settings.max_steps and status == FlowStatus.OUT_OF_STEPS:
            bdf.max_step = curve.max_step(bdf.y)
            bdf.atol = settings.tolerance + ROUNDINGS * np.linalg.norm(query)
            if not _step(bdf):
                status = FlowStatus.FAILED
                break
            steps += 1
            along, end = bdf.dense_output(), bdf.t
            if curve.nearest(bdf.y) > 0:
                status = FlowStatus.TIES_DISTURBED
                end = _crossing(curve.nearest, along, bdf.t_old, end)
            if along(end)[-1] >= until:
                status = FlowStatus.REACHED
                end = _crossing(_beyond(until), along, bdf.t_old, end)
            query, now = curve.query(along(end)), float(along(end)[-1])
            if status == FlowStatus.REACHED:
                now = until
            for new in np.flatnonzero(~np.isfinite(saved[:, 0]) & (log_times <= now)):
                at = _crossing(_beyond(log_times[new]), along, bdf.t_old, end)
                saved[new] = curve.query(along(at))
            callback(now)
    counts = bdf.nfev, bdf.njev
    return _host_flow(query, now, status, steps, log_times[:-1], saved[:-1], counts)


class _Curve(NamedTuple):
    """The curve (z, τ) with z = p − p_start − g (τ − τ_0)."""

    pairs: Pairs
    start: Float[np.ndarray, " dim"]
    growth: Float[np.ndarray, " dim"]
    begun: float

    def query(self, point: Float[np.ndarray, " axes"]) -> Float[np.ndarray, " dim"]:
        """The query p at this point."""
        return self.start + self.place(point)[:-1]

    def place(self, point: Float[np.ndarray, " axes"]) -> Float[np.ndarray, " axes"]:
        """How far p has moved, and τ."""
        moved = point[:-1] + self.growth * (point[-1] - self.begun)
        return np.append(moved, point[-1])

    def field(self, _: float, point: np.ndarray) -> np.ndarray:
        """d(z, τ)/dℓ."""
        found = arclength_field(self.pairs, self.place(point))
        moved = found.speed * found.towards - found.rate * self.growth
        return np.append(moved, found.rate)

    def jacobian(self, length: float, point: np.ndarray) -> np.ndarray:
        """Derivative of the field with respect to (z, τ)."""
        found = arclength_jacobian(self.pairs, self.place(point), length)
        found[:-1] -= np.outer(self.growth, found[-1])
        found[:, -1] += found[:, :-1] @ self.growth
        return found

    def max_step(self, point: Float[np.ndarray, " axes"]) -> float:
        """Bound the step so that a return is seen."""
        longest = max_step(self.pairs, self.place(point))
        return max(longest, np.finfo(float).tiny)

    def nearest(self, point: Float[np.ndarray, " axes"]) -> float:
        """Largest log-share of a losing token, relative to that of a return."""
        log_share = self.pairs.log_share - self.pairs.ahead(self.place(point)[:-1])
        return float(log_share.max(initial=-np.inf) - np.log(RETURNED))


def _beyond(log_time: float) -> Callable[[np.ndarray], float]:
    """Compute τ of a point on the curve minus a given τ."""
    return lambda point: point[-1] - log_time


def _crossing(
    value: Callable[[np.ndarray], float],
    along: Callable[[float], np.ndarray],
    first: float,
    last: float,
) -> float:
    """Find the length at which a value becomes positive, or the nearer end."""
    if value(along(first)) >= 0:
        return first
    if value(along(last)) <= 0:
        return last
    return brentq(lambda length: value(along(length)), first, last)


# Of p − p_mm τ; errors made here are amplified later, hence tighter than the field's.
LATE = BdfSettings(tolerance=1e-7)


def reduced_flow(
    parameters: Parameters,
    corpus: SparseCorpus,
    ending: FlowEnd,
    *,
    from_log_time: float,
    until_log_time: float,
    path_log_times: Float[Array, " times"] | None = None,
    settings: BdfSettings = LATE,
    callback: Callable[[float], object] = lambda log_time: None,
) -> Flow:
    """Integrate dp/dt = Σ_k c_k e^{−D_kᵀp} D_k, orthogonal to ties at rest.

    Source: mathematics, section 7d.

    Args:
        parameters: (E, p, v), p where `ending` was found.
        corpus: n bags with labels ±1.
        ending: what is selected there, and where tied tokens rest.
        from_log_time: log(1+t) there.
        until_log_time: log(1+t) to stop at, at most `REDUCED_FLOW_UNTIL`.
        path_log_times: increasing values of log(1+t) to save p at; none by default.
        settings: tolerance and bound.
        callback: called with log(1+t) after every step.

    Returns:
        The flow's end; TIES_DISTURBED where a token that had lost has a thousandth
        of some bag's weight again.
    """
    pairs, start = _pairs(parameters, corpus, ending)
    times = np.zeros(0) if path_log_times is None else np.asarray(path_log_times)
    earlier = max(until_log_time - LOOK_BACK, from_log_time)
    return arclength_flow(
        pairs,
        start,
        ending.margin.direction,
        from_log_time=from_log_time,
        log_times=np.append(times, [earlier, until_log_time]),
        settings=settings,
        callback=callback,
    )


def _pairs(
    parameters: Parameters, corpus: SparseCorpus, ending: FlowEnd
) -> tuple[Pairs, Float[np.ndarray, " dim"]]:
    """Return the pairs of an ending, and p with its ties at rest."""
    bags = RaggedBags.of_corpus(parameters, corpus)
    axes, query = ending.axes, np.asarray(parameters.query)
    held = axes.T @ query if ending.rest is None else ending.rest.point
    start = query - axes @ (axes.T @ query) + axes @ held
    free = bags.embeddings - (bags.embeddings @ axes) @ axes.T
    counts, selected = contract_ties(bags.counts, ending.selected)
    found = pair_forces(bags, counts, selected, start)
    moving = found.sign != 0
    pairs = Pairs(
        free,
        found.winners[moving],
        found.losers[moving],
        found.sign[moving],
        found.log_force[moving],
        found.log_share[moving],
    )
    return pairs, start


def ties_rest(parameters: Parameters, ending: FlowEnd) -> bool:
    """Whether p is where its ties rest, but for the tolerance in scores of all words.

    It is true if no tokens are tied, and false if no strict minimum is certified.

    Source: mathematics, section 7d.

    Args:
        parameters: (E, p, v), p where `ending` was found.
        ending: the ties, and where they rest.
    """
    if ending.rest is None:
        return True
    scores = np.asarray(parameters.embeddings) @ ending.axes
    off = scores @ (ending.axes.T @ np.asarray(parameters.query) - ending.rest.point)
    near = ending.distance <= ending.rest.basin and np.ptp(off) <= TOLERANCE
    return bool(ending.rest.proved and near)


# Log-time between two certificates; late, as a part of the log-time itself.
INTERVAL, LATE_INTERVAL = 60.0, 0.25
# Log-time that the whole field is given after a return, to tell ties from tokens that
# lose.
AFTER_RETURN = 24.0
# Log-time within which tokens that return have returned together.
TOGETHER = 1e-3
# Largest number of stages.
STAGES = 300
# In scores: what is farther below the best may be left to the pairs, tied or not.
RETURN_LEVEL = -float(np.log(RETURNED))
# Steps that the whole field may take from the end of another flow; most take 50.
ARRIVED = 300


class Trajectory(NamedTuple):
    """A flow from its start to its end.

    Attributes:
        query: p at the end.
        log_time: log(1+t) at the end.
        ending: what p selects there, and what is certified of it.
        returns: log-times at which tokens that had lost returned.
        stages: the flows it is made of; those of the whole field begin at time zero.
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


def trajectory(
    parameters: Parameters,
    corpus: SparseCorpus,
    *,
    until_log_time: float = 600.0,
    path_log_times: Float[np.ndarray, " times"] | None = None,
    settings: BdfSettings = BdfSettings(),
    callback: Callable[[float], object] = lambda log_time: None,
) -> Trajectory:
    """Follow the flow of p, stage by stage, until its end is certified.

    dp/dt = −∇_p L from p_0, with E and v fixed. It runs on the host and calls compiled
    functions, so it can be neither differentiated nor compiled.

    Source: mathematics, section 7d.

    Args:
        parameters: (E, p_0, v) in double precision.
        corpus: n bags with labels ±1.
        until_log_time: log(1+t) at which to stop without a certificate, at most 10⁵.
        path_log_times: increasing values of log(1+t) to save p at; none by default.
        settings: settings of the stages of the whole field.
        callback: called with log(1+t) after every step.

    Returns:
        The end, its certificate and the path to it.

    Raises:
        BadInput: another vocabulary, labels other than ±1, single precision, numbers
            that are not finite, log-times out of range or order.

    Example:
        >>> from jaxselect.data.corpus import from_sequences
        >>> from jaxselect.data.sparse import from_corpus
        >>> bags = from_corpus(from_sequences([[0, 2], [1, 2]], [1, -1], vocabulary=3))
        >>> head = jnp.array([1.0, -1.0, 0.0])
        >>> found = trajectory(Parameters(jnp.eye(3), jnp.zeros(3), head), bags)
        >>> found.ending.status.name, round(found.log_time), found.returns
        ('SELECTED', 34, ())
    """
    times = np.zeros(0) if path_log_times is None else np.asarray(path_log_times)
    _check_door(parameters, corpus, until_log_time, times)
    course = _Course(parameters, corpus, times, settings, callback)
    at = course.integrate_first(min(WHOLE_FIELD_UNTIL, until_log_time))
    ending = course.certify(at)
    returns: list[float] = []
    settled = False
    while at.log_time < until_log_time and len(at.stages) < STAGES:
        if ending.status != End.UNPROVED or at.flow.status != FlowStatus.REACHED:
            break
        if not at.may_go_on(ending):
            if settled:
                break
            # The end may have cut through an overtaking. Where p rests already,
            # Newton's method would follow rounding, in any number of steps.
            settled = True
            at = course.integrate_full(at, AFTER_RETURN, max_steps=ARRIVED)
            ending = course.certify_restart(at)
            continue
        ahead = at.log_time + max(INTERVAL, LATE_INTERVAL * at.log_time)
        at = course.integrate_reduced(at, ending, min(ahead, until_log_time))
        if at.flow.status != FlowStatus.TIES_DISTURBED:
            ending = course.certify(at)
            continue
        # A token above the threshold at the first step had not lost.
        lost = bool(at.flow.num_steps > 1)
        if lost and (not returns or at.log_time > returns[-1] + TOGETHER):
            returns.append(at.log_time)
        at = course.integrate_full(at, AFTER_RETURN if lost else WHOLE_FIELD_UNTIL)
        if lost and not at.may_go_on(course.certify(at)):
            at = course.integrate_full(at, WHOLE_FIELD_UNTIL)
        ending = course.certify_restart(at)
    return Trajectory(
        np.asarray(at.parameters.query),
        at.log_time,
        ending,
        tuple(returns),
        at.stages,
        np.array([time for time, _ in at.path]),
        np.array([query for _, query in at.path]).reshape(-1, len(at.parameters.query)),
    )


def _check_door(
    parameters: Parameters,
    corpus: SparseCorpus,
    until_log_time: float,
    path_log_times: Float[np.ndarray, " times"],
) -> None:
    """Refuse arguments with which no flow can begin."""
    check_sparse_problem(parameters, corpus)
    if parameters.query.dtype != np.float64:
        raise BadInput(
            f"parameters in {parameters.query.dtype}: "
            "wanted float64; set jax_enable_x64"
        )
    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(parameters)):
        raise BadInput("E, p_0 or v is not finite: wanted numbers")
    if not 0 <= until_log_time <= REDUCED_FLOW_UNTIL:
        raise BadInput(
            f"until_log_time {until_log_time}: wanted a log-time within "
            f"0 … {REDUCED_FLOW_UNTIL:g}"
        )
    increasing("path_log_times", path_log_times)


class _Reached(NamedTuple):
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

    def may_go_on(self, ending: FlowEnd) -> bool:
        """Whether the reduced flow may continue, because no limit is certified yet."""
        return (
            ending.status == End.UNPROVED
            and int(self.flow.status) == FlowStatus.REACHED
            and ending.margin.status == MaxMarginStatus.SOLVED
            and ties_rest(self.parameters, ending)
        )

    def after(
        self, flow: Flow, asked: Float[np.ndarray, " times"], log_time: float
    ) -> "_Reached":
        """One more stage."""
        kept = np.isfinite(flow.path_log_times)
        new = zip(asked[kept], np.asarray(flow.path_query)[kept], strict=True)
        return _Reached(
            Parameters(self.parameters.embeddings, flow.query, self.parameters.head),
            log_time,
            (*self.stages, flow),
            (*self.path, *new),
        )


class _Course(NamedTuple):
    """The constant arguments of a trajectory, and its kinds of stages."""

    start: Parameters
    corpus: SparseCorpus
    times: Float[np.ndarray, " times"]
    settings: BdfSettings
    callback: Callable[[float], object]

    def integrate_first(self, until: float) -> _Reached:
        """Integrate the whole field from p_0."""
        asked = self.times[self.times <= until]
        flow = sparse_flow(
            self.start,
            self.corpus,
            until_log_time=until,
            path_log_times=jnp.asarray(asked),
            settings=self.settings,
            callback=self.callback,
        )
        return _Reached(self.start).after(flow, asked, float(flow.log_time))

    def integrate_full(
        self, at: _Reached, until: float, *, max_steps: int | None = None
    ) -> _Reached:
        """Integrate the whole field from a later p, on a clock that begins at zero."""
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

    def integrate_reduced(
        self, at: _Reached, ending: FlowEnd, until: float
    ) -> _Reached:
        """Integrate the pairs alone, ties at rest."""
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

    def certify(self, at: _Reached, selection_gap: float = np.inf) -> FlowEnd:
        """Certify the end of the last stage, whose clock may begin at zero."""
        return flow_end(
            at.parameters,
            self.corpus,
            at.flow,
            after_return=len(at.stages) > 1,
            selection_gap=selection_gap,
        )

    def certify_restart(self, at: _Reached) -> FlowEnd:
        """Certify; if that fails, find a start for the reduced flow."""
        ending = self.certify(at)
        if ending.status == End.UNPROVED and not at.may_go_on(ending):
            return self.certify(at, RETURN_LEVEL)
        return ending


def _total(begun: float, local: float) -> float:
    """Compute log(1+t) of the whole flow from that of a stage."""
    return float(begun + np.log1p(np.expm1(local) * np.exp(-begun)))


def _since(
    begun: float, log_times: Float[np.ndarray, " times"]
) -> Float[np.ndarray, " times"]:
    """Compute log(1+t) of a stage from that of the whole flow."""
    with np.errstate(divide="ignore"):
        later = np.log(-np.expm1(begun - log_times))
    return np.logaddexp(0.0, log_times + later)
