"""A solver that records its solution at given times.

`diffrax.SaveAt(ts=...)` checks its times inside the compiled program. Such a check
raises where a status is wanted, and a program that can raise is not kept by JAX's
compilation cache. Times that are not in order, or off the flow, have no solution here.
"""

from typing import ClassVar

import diffrax as dfx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree, Scalar

from ._rosenbrock import DenseOutput


class Recorder(dfx.AbstractAdaptiveSolver):
    """The steps of another solver, and the solution at given times.

    The solution is part of the solver's state, which is that of the other solver, the
    record and the slope of the interpolant at the end of the last step: integrate with
    `SaveAt(solver_state=True)`, then read it with `record`.

    Attributes:
        solver: takes the steps; its interpolant is a `DenseOutput`.
        times: at which to record.

    Example:
        >>> from jaxselect.flow._rosenbrock import Rodas5P, from_autodiff
        >>> implicit = Rodas5P(from_autodiff(lambda t, y, args: -y))
        >>> solver = Recorder(implicit, jnp.array([0.5, 1.0, 3.0]))
        >>> solver.order(None) == implicit.order(None)
        True
    """

    solver: dfx.AbstractAdaptiveSolver
    times: Float[Array, " times"]
    term_structure: ClassVar = dfx.ODETerm
    interpolation_cls: ClassVar = DenseOutput

    def order(self, terms: PyTree) -> int | None:
        """That of the solver."""
        return self.solver.order(terms)

    def init(
        self, terms: PyTree, t0: PyTree, t1: PyTree, y0: PyTree, args: PyTree
    ) -> tuple[PyTree, Float[Array, "times dim"], Float[Array, " dim"]]:
        """Until a time is passed its record is the start."""
        path = jnp.broadcast_to(y0, (len(self.times), len(y0)))
        return self.solver.init(terms, t0, t1, y0, args), path, jnp.zeros_like(y0)

    def func(self, terms: PyTree, t0: PyTree, y0: PyTree, args: PyTree) -> PyTree:
        """The field at a point."""
        return self.solver.func(terms, t0, y0, args)

    def step(
        self,
        terms: PyTree,
        t0: PyTree,
        t1: PyTree,
        y0: PyTree,
        args: PyTree,
        solver_state: tuple[PyTree, Float[Array, "times dim"], Float[Array, " dim"]],
        made_jump: PyTree,
    ) -> tuple[PyTree, PyTree, dict[str, PyTree], PyTree, PyTree]:
        """One step from t0 to t1, and the times on its way."""
        state, path, _ = solver_state
        y1, error, dense, state, result = self.solver.step(
            terms, t0, t1, y0, args, state, made_jump
        )
        here = (self.times > t0) & (self.times <= t1)
        # Elsewhere the interpolant would overflow, and its derivative be no number.
        times = jnp.where(here, self.times, t0)
        passed = jax.vmap(DenseOutput(t0=t0, t1=t1, **dense).evaluate)(times)
        path = jnp.where(here[:, None], passed, path)
        slope = (dense["y1"] - dense["y0"] - dense["bend"].sum(axis=0)) / (
            jnp.where(t1 > t0, t1 - t0, 1.0)
        )
        return y1, error, dense, (state, path, slope), result


def record(
    solver_state: tuple[PyTree, Float[Array, "times dim"], Float[Array, " dim"]],
    times: Float[Array, " times"],
    begin: Float[Scalar, ""] | float,
    end: Float[Scalar, ""],
) -> tuple[Float[Array, " times"], Float[Array, "times dim"]]:
    """Times and solution of a `Recorder`; ∞ off the flow and where times go back."""
    known = on_flow(times, begin, end)
    path = jnp.where(known[:, None], solver_state[1], jnp.inf)
    return jnp.where(known, times, jnp.inf), path


def on_flow(
    times: Float[Array, " times"],
    begin: Float[Scalar, ""] | float,
    end: Float[Scalar, ""],
) -> Bool[Array, " times"]:
    """Times within the flow, each no earlier than those before."""
    latest = jax.lax.cummax(times)
    return (begin <= times) & (times <= end) & (times == latest)
