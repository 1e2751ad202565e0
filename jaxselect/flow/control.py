"""Step size control of a flow: tolerances, and step sizes that anticipate a change.

Errors are measured in scores. A step is refused if a force may rise and fall within it
between the evaluated stages (mathematics, section 3a).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import diffrax as dfx
import jax
import jax.numpy as jnp
import optimistix as optx
from jaxtyping import Array, Bool, Float, PyTree, Scalar

from ..checks import BadInput, between, whole
from ..data.corpus import Corpus
from ..model.attention import attend_bags, log_residual

# Length given to an empty step, as 1/PARTS of the spacing of floats at t: small enough
# for most returns, large enough for the next step to be none.
PARTS = 8
# Log of the ratio between a bound on a force within a step and the force at its ends,
# from which the step counts as blind to it. Tuned on tokens a thousand times as long as
# others.
_UNSEEN = 1.5
# Error, in tolerances, that is given to such a step.
_SKIPPED = 1e3


def step_length(t0: PyTree, t1: PyTree) -> PyTree:
    """Length t1 − t0 of a step; if it rounds to zero, a fraction of the rounding of t.

    After a long step the solution may be off by the tolerance, and a stiff field then
    corrects it in less time than the spacing of floats at t. Then t stays the same.
    """
    least = jnp.finfo(jnp.result_type(t0)).eps / PARTS * jnp.maximum(jnp.abs(t0), 1.0)
    return jnp.where(t1 > t0, t1 - t0, least)


class PredictiveController(dfx.PIDController):
    """Diffrax's controller with a bound on the next step from the trend of the errors.

    After an accepted step h_n the next is at most h_n · (h_n / h_{n−1}) · (ε_{n−1} /
    ε_n²)^{1/k}, with ε the scaled errors. While one token overtakes another the steps
    must shrink repeatedly, and a controller that uses only the last error tries each
    step twice.

    Source: K. Gustafsson, ACM Transactions on Mathematical Software 20 (1994); E.
    Hairer and G. Wanner, Solving Ordinary Differential Equations II, section IV.8.

    Example:
        >>> import diffrax, jax.numpy as jnp
        >>> blow_up = diffrax.ODETerm(lambda t, y, args: y**2)
        >>> def rejected(controller):
        ...     return diffrax.diffeqsolve(
        ...         blow_up, diffrax.Tsit5(), 0.0, 0.9999, 0.01, jnp.ones(1),
        ...         stepsize_controller=controller(rtol=1e-8, atol=1e-8),
        ...     ).stats["num_rejected_steps"].item()
        >>> rejected(PredictiveController) < rejected(diffrax.PIDController) / 4
        True
    """

    def init(self, *arguments: Any, **named: Any) -> tuple[PyTree, PyTree]:
        """Start with Diffrax's first step and no earlier step."""
        end, state = super().init(*arguments, **named)
        return end, (*state, jnp.zeros_like(state[0]))

    def adapt_step_size(
        self,
        t0: PyTree,
        t1: PyTree,
        y0: PyTree,
        y1_candidate: PyTree,
        args: PyTree,
        y_error: PyTree,
        error_order: PyTree,
        controller_state: PyTree,
    ) -> tuple[PyTree, ...]:
        """Take Diffrax's decision and bound its next step."""
        *state, before = controller_state
        step, still = jax.lax.stop_gradient(step_length(t0, t1)), t1 <= t0
        # Where t + step rounds to t, the length is computed from a start at 0.
        begin, reached = jnp.where(still, 0.0, t0), jnp.where(still, step, t1)
        kept, start, end, jump, state, result = super().adapt_step_size(
            begin, reached, y0, y1_candidate, args, y_error, error_order, tuple(state)
        )
        end = jnp.where(still, t0 + (end - start), end)
        start = jnp.where(still, t0, start)
        spent = still & ~kept
        result = dfx.RESULTS.where(spent, dfx.RESULTS.dt_min_reached, result)
        trend = jnp.where(before > 0, step / jnp.where(before > 0, before, 1.0), 1.0)
        now, last = state[0], state[1]
        bound = step * trend * self.safety * (now**2 / last) ** (1 / error_order)
        # Diffrax notes an error of zero as one, which an accepted step never has.
        bound = jnp.where(now > 1, jnp.maximum(bound, self.factormin * step), jnp.inf)
        # A refused step is not tried again: a shorter one may round to it.
        shorter = jnp.where(end < t1, end, t0)
        end = jnp.where(kept, jnp.minimum(end, start + bound), shorter)
        return kept, start, end, jump, (*state, jnp.where(kept, step, before)), result


class LogForces(NamedTuple):
    """Logarithms of the factors of a bound q (1 − q) w_X (−ℓ′) on the forces.

    Attributes:
        weight: of q, for every entry.
        rest: of 1 − q where q is the largest weight of a sequence; elsewhere 1 − q is
            one half at least, and counts as one.
        residual: of w_X (−ℓ′), for every sequence.
    """

    weight: Float[Array, "sequences width"]
    rest: Float[Array, "sequences width"]
    residual: Float[Array, "sequences 1"]


@partial(jax.jit, inline=True)
def skips_a_force(
    before: Sequence[LogForces], after: Sequence[LogForces]
) -> Bool[Scalar, ""]:
    """Whether a force may act within a step without being seen by any stage.

    The force on a token is at most q (1 − q) (−ℓ′) times a constant. Each factor is
    nearly monotone along a step, so it is at most the larger of its two end values, and
    the product is at most the product of these. If one factor grows from zero while
    another vanishes, that bound is far above the product at either end: the force rises
    and falls within the step, and the error estimate may miss it. A step is refused if
    the bound exceeds e^{_UNSEEN} times the product at its ends.

    Example:
        >>> from jaxselect.data.corpus import from_sequences
        >>> bags = from_sequences([[0, 1]], [1], vocabulary=2)
        >>> at = lambda *logits: seen_at(
        ...     [(jnp.array([logits]), jnp.array([[1.0, 0.0]]), bags)]
        ... )
        >>> skips_a_force(at(50.0, 0.0), at(0.0, 50.0)).item()
        True
        >>> skips_a_force(at(50.0, 0.0), at(0.0, 1.0)).item()
        False
    """

    def skipped(before: LogForces, after: LogForces) -> Bool[Scalar, ""]:
        bound = sum(jnp.maximum(*factor) for factor in zip(before, after, strict=True))
        return jnp.any(bound > jnp.maximum(sum(before), sum(after)) + _UNSEEN)

    return jnp.stack([*map(skipped, before, after)]).any()


@partial(jax.jit, inline=True)
def seen_at(parts: Sequence[tuple[Array, Array, Corpus]]) -> list[LogForces]:
    """Compute the factors of the bound at one point of a flow, part by part."""
    return [_log_forces(*part) for part in parts]


def _log_forces(
    logits: Float[Array, "sequences width"],
    values: Float[Array, " sequences width *classes"],
    corpus: Corpus,
) -> LogForces:
    attention = attend_bags(logits, values, corpus)
    top = corpus.marks(attention.top)
    others = jnp.where(top, -jnp.inf, attention.log_weights)
    rest = jnp.log(jnp.sum(jnp.exp(others), axis=1, keepdims=True))
    residual = log_residual(attention, corpus)[:, None]
    return LogForces(attention.log_weights, jnp.where(top, rest, 0.0), residual)


class Checkpoints(NamedTuple):
    """Some accepted steps, whose times at least double from one to the next.

    Attributes:
        times: three increasing times.
        states: the solution there.
    """

    times: Float[Array, " 3"]
    states: Float[Array, "3 dim"]

    def after(
        self,
        kept: Bool[Scalar, ""],
        time: Float[Scalar, ""],
        state: Float[Array, " dim"],
    ) -> "Checkpoints":
        """Add the end of a step to the checkpoints if the time has doubled."""
        times = jnp.append(self.times[1:], time)
        states = jnp.append(self.states[1:], state[None], axis=0)
        doubled = kept & (time >= 2 * self.times[-1])
        return Checkpoints(
            jnp.where(doubled, times, self.times),
            jnp.where(doubled, states, self.states),
        )


class ScoreControl(NamedTuple):
    """The state of the control of a flow of p.

    Attributes:
        errors: that of the predictive controller.
        checkpoints: some earlier points.
        forces: where the next step begins.
    """

    errors: PyTree
    checkpoints: Checkpoints
    forces: list[LogForces]


class _ScoreController(PredictiveController):
    """The predictive controller with errors measured in scores, not in coordinates.

    A step is accepted if the error of every score E_s x is at most the absolute
    tolerance plus the rounding of the largest score. A tolerance relative to ‖p‖ would
    let errors grow with log t in directions where no gradient corrects them.
    """

    def init(
        self,
        terms: PyTree,
        t0: PyTree,
        t1: PyTree,
        y0: PyTree,
        dt0: PyTree,
        args: PyTree,
        *rest: Any,
        **named: Any,
    ) -> tuple[PyTree, PyTree]:
        """Start with the parent's first step and the start as all checkpoints."""
        end, errors = super().init(terms, t0, t1, y0, dt0, args, *rest, **named)
        times = jnp.full(3, t0, jnp.result_type(t0))
        checkpoints = Checkpoints(times, jnp.stack([y0, y0, y0]))
        forces = seen_at(args.bags_of(args.rows @ y0))
        return end, ScoreControl(errors, checkpoints, jax.lax.stop_gradient(forces))

    def adapt_step_size(
        self,
        t0: PyTree,
        t1: PyTree,
        y0: PyTree,
        y1_candidate: PyTree,
        args: PyTree,
        y_error: PyTree,
        error_order: PyTree,
        controller_state: PyTree,
    ) -> tuple[PyTree, ...]:
        """Take the parent's decision on the scores of the step."""
        errors, checkpoints, forces = controller_state
        # Steps are chosen, not differentiated.
        fixed = jax.lax.stop_gradient((y0, y1_candidate, args, y_error))
        y0, y1_candidate, args, y_error = fixed
        rows = args.rows
        # Infinite errors of refused steps stay infinite, not 0 · ∞.
        sound = jnp.isfinite(y_error).all()
        error = jnp.where(sound, rows @ jnp.where(sound, y_error, 0.0), jnp.inf)
        moved = [rows @ y for y in (y0, jnp.where(sound, y1_candidate, y0))]
        reached = seen_at(args.bags_of(moved[1]))
        unseen = skips_a_force(forces, reached)
        error = jnp.where(unseen, jnp.maximum(error, _SKIPPED * self.atol), error)
        before, after = (
            jnp.broadcast_to(jnp.max(jnp.abs(a)), error.shape) for a in moved
        )
        kept, *next_step, errors, result = super().adapt_step_size(
            t0, t1, before, after, args, error, error_order, errors
        )
        there = jax.lax.stop_gradient(t1), y1_candidate
        forces = jax.tree.map(partial(jnp.where, kept), reached, forces)
        state = ScoreControl(errors, checkpoints.after(kept, *there), forces)
        return kept, *next_step, state, result


# Rounding of the largest score that a step may add to its error, in rounding units.
ROUNDINGS = 64
# Step of log(1+t) below which the integration stops as unresolved.
SHORTEST_STEP = 1e-14


# Methods that take the steps of a flow of p.
STEPPERS = ("rodas", "bdf")


@dataclass(frozen=True)
class FlowSettings:
    """Static settings of the integration.

    Attributes:
        rtol: relative tolerance of a step of the joint flow; the flow of p does not use
            it.
        atol: absolute tolerance of a step, in attention scores; traced where one
            program integrates at two.
        max_steps: bound on the steps of a stage, rejected ones included.
        stepper: `rodas` computes a Hessian for each step; `bdf` keeps one for many
            steps, which is faster for long or many bags; None leaves the choice to
            `solve`, and is `rodas` elsewhere.
    """

    rtol: float = 1e-6
    atol: float | Float[Scalar, ""] = 3e-5
    max_steps: int = 8192
    stepper: str | None = None

    def __post_init__(self) -> None:
        """Refuse tolerances below what rounding allows."""
        between("rtol", self.rtol, 0.0, jnp.inf)
        between("atol", self.atol, 0.0, jnp.inf)
        whole("max_steps", self.max_steps)
        if self.stepper is not None and self.stepper not in STEPPERS:
            raise BadInput(f"stepper {self.stepper!r}: wanted one of {STEPPERS}")

    def score_control(self, dtype: Any) -> _ScoreController:
        """The step size controller of the flow of p."""
        # Fail, do not loop.
        return _ScoreController(
            ROUNDINGS * float(jnp.finfo(dtype).eps),
            self.atol,
            norm=optx.max_norm,
            dtmin=SHORTEST_STEP,
            force_dtmin=False,
        )
