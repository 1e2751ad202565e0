"""SciPy's BDF to exponentially late times, for fields whose Jacobian costs much.

A Jacobian is kept while it serves: it costs what a hundred fields do, and a method with
many stages would want a new one in each step. BDF in plain time t asks for one in five
steps; its steps grow with t (mathematics, section 7a).
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy.integrate import BDF
from scipy.linalg import LinAlgWarning

from ..flow.result import Flow, FlowStatus

# Latest log(1+t): −log of a rounding is 36, and later opposing gradients cancel to
# below rounding.
LATEST = 34.0
LOOK_BACK = 2.0
# Largest log(1+t) whose t is a number.
REPRESENTABLE = 709.0
# Each takes a change of places 34 log-times on; where rounding holds a flow up it is
# too few.
RESTARTS = 20
# A correction of Newton's method by less than this part of the tolerance is none. Near
# rest all of them are rounding, and SciPy, which takes a second one as large as the
# first for divergence, would shorten the step.
NEGLIGIBLE = 1e-6


@dataclass(frozen=True)
class BdfSettings:
    """Static settings of the integration.

    Attributes:
        tolerance: of a step, relative and absolute, per coordinate of p − p_0.
        max_steps: bound on the number of steps.
        compiled: whether the field is a compiled program; else it and its derivative
            are those of dense arrays on the host, faster for small corpora, with a
            tenth of the rounding where no two bags are the same. By default it is for
            sequences times tokens beyond 10⁵.
    """

    tolerance: float = 1e-3
    max_steps: int = 20_000
    compiled: bool | None = None


def integrate(
    field: Callable[[float, np.ndarray], np.ndarray],
    jacobian: Callable[[float, np.ndarray], np.ndarray],
    start: Float[np.ndarray, " dim"],
    *,
    from_log_time: float = 0.0,
    until_log_time: float,
    path_log_times: Float[np.ndarray, " times"],
    settings: BdfSettings,
    callback: Callable[[float], object],
) -> Flow:
    """SciPy's BDF along a flow dp/dt = F(t, p), to an exponential time.

    Where a step is too short for its time, as where words change places late, the
    integrator's time begins again from zero.

    Source: mathematics, section 7a.

    Args:
        field: (t, p) → F.
        jacobian: (t, p) → ∂F/∂p, as exact as steps of about t need it, t since it last
            began.
        start: p_0.
        from_log_time: log(1+t) there.
        until_log_time: log(1+t) to stop at.
        path_log_times: increasing values of log(1+t) to save p at.
        settings: tolerance and bound.
        callback: called with log(1+t) after every step.

    Returns:
        The flow's end, its status and the path.

    Example:
        >>> still = np.array([[-1.0]])
        >>> relax = lambda t, p: -p, lambda t, p: still, np.ones(1)
        >>> quiet = {"settings": BdfSettings(), "callback": lambda log_time: None}
        >>> times = {"until_log_time": 3.0, "path_log_times": np.zeros(0)}
        >>> bool(abs(integrate(*relax, **times, **quiet).query[0]) < 1e-3)
        True
    """
    bounds = {"rtol": settings.tolerance, "atol": settings.tolerance}
    until, passed = np.expm1(until_log_time), np.expm1(from_log_time)

    def begin(query: np.ndarray) -> BDF:
        moved = lambda time, query: field(passed + time, query)  # noqa: E731
        bdf = BDF(moved, 0.0, query, until - passed, jac=jacobian, **bounds)
        solve = bdf.solve_lu

        def correction(factors: Any, residual: np.ndarray) -> np.ndarray:
            change = solve(factors, residual)
            return np.where(np.abs(change) < NEGLIGIBLE * bdf.atol, 0.0, change)

        bdf.solve_lu = correction
        return bdf

    bdf = begin(start)
    earlier = max(until_log_time - LOOK_BACK, from_log_time)
    wanted = np.append(path_log_times, earlier)
    saved = np.where(wanted[:, None] <= from_log_time, start, np.inf)
    steps, fields, curvatures, begun, query = 0, 0, 0, 0, start
    now = from_log_time
    status = FlowStatus.OUT_OF_STEPS
    while steps < settings.max_steps and status == FlowStatus.OUT_OF_STEPS:
        # Scores move by E (p − p_0), however long p_0 is. SciPy's tolerance is of p;
        # with p − p_0 as its unknown it would follow less than a rounding of p.
        bdf.rtol, bdf.atol = 0.0, settings.tolerance * (1.0 + np.abs(query - start))
        if not step(bdf):
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
    return host_flow(query, now, status, steps, wanted, saved, counts)


def host_flow(
    query: Float[np.ndarray, " dim"],
    log_time: float,
    status: FlowStatus,
    steps: int,
    log_times: Float[np.ndarray, " times"],
    saved: Float[np.ndarray, "times dim"],
    counts: tuple[int, int],
) -> Flow:
    """The record of a flow that was integrated on the host.

    Args:
        query: p at the end.
        log_time: log(1+t) at the end.
        status: how it ended.
        steps: taken.
        log_times: those of the path, then the earlier one.
        saved: p at these; ∞ after the end.
        counts: evaluations of −∇L and of ∂²L/∂p².

    Returns:
        The record.

    Example:
        See `integrate`.
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
    # A trial step may overflow: it is not taken.
    with np.errstate(over="ignore", invalid="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", LinAlgWarning)
        bdf.step()
    return bdf.status != "failed" and bool(np.isfinite(bdf.y).all())
