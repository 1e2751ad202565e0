"""A solver for large flows, which are not stiff until weights differ much.

Where nothing decays within a step, an explicit method needs seven fields for it, an
implicit one a Jacobian, which in a large problem costs ten to thirty more (mathematics,
section 3a).
"""

from typing import Any, ClassVar

import diffrax as dfx
import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PyTree, Scalar

from ._rosenbrock import DenseOutput, Rodas5P

# Dormand and Prince's steps are stable up to 3.3 times the decay of what moves fastest.
LONGEST = 2.5


class _DominantMode(eqx.Module):
    """The fastest decaying direction and its rate, ∞ where it is not known."""

    rate: Float[Scalar, ""]
    direction: Float[Array, " dim"]


class Switching(dfx.AbstractAdaptiveSolver):
    """Dormand and Prince's explicit steps where they are stable, else implicit ones.

    The spectral radius of the Jacobian comes for nothing: an explicit step evaluates
    the field twice at its end, and the difference is the Jacobian's product with that
    of the two points; an implicit one goes on with the power method, one product a
    step. Both methods have order 5, an interpolant of order 4 and an error estimate: a
    radius that is too small costs a refused step, not a digit.

    Attributes:
        implicit: the other solver.

    Source: E. Hairer and G. Wanner, Solving Ordinary Differential Equations II, section
    IV.2 (the radius); J. R. Dormand and P. J. Prince, Journal of Computational and
    Applied Mathematics 6 (1980).

    Example:
        >>> from jaxselect.flow._rosenbrock import from_autodiff
        >>> Switching(Rodas5P(from_autodiff(lambda t, y, args: -t * y))).order(None)
        5
    """

    implicit: Rodas5P
    # Diffrax chooses the loop by itself only for a solver that it knows.
    explicit: dfx.Dopri5 = dfx.Dopri5(scan_kind="bounded")
    term_structure: ClassVar = dfx.ODETerm
    interpolation_cls: ClassVar = DenseOutput

    def order(self, terms: PyTree) -> int:
        """Order of both."""
        return 5

    def init(
        self, terms: PyTree, t0: PyTree, t1: PyTree, y0: PyTree, args: PyTree
    ) -> tuple[_DominantMode, Any]:
        """Nothing is known of the field: the first step is implicit."""
        unknown = _DominantMode(jnp.asarray(jnp.inf, y0.dtype), jnp.ones_like(y0))
        return unknown, self.explicit.init(terms, t0, t1, y0, args)

    def func(self, terms: PyTree, t0: PyTree, y0: PyTree, args: PyTree) -> PyTree:
        """The field at a point."""
        return terms.vf(t0, y0, args)

    def step(
        self,
        terms: PyTree,
        t0: PyTree,
        t1: PyTree,
        y0: PyTree,
        args: PyTree,
        solver_state: tuple[_DominantMode, Any],
        made_jump: PyTree,
    ) -> tuple[PyTree, PyTree, dict[str, PyTree], tuple[_DominantMode, Any], PyTree]:
        """One step from t0 to t1."""
        fastest, last = solver_state
        # An empty step, in which time stands still, belongs to the implicit method.
        mild = (t1 > t0) & ((t1 - t0) * fastest.rate < LONGEST)

        def explicit() -> tuple[PyTree, ...]:
            y1, error, dense, after, _ = self.explicit.step(
                terms, t0, t1, y0, args, last, made_jump
            )
            error = jnp.where(jnp.isfinite(y1 + error).all(), error, jnp.inf)
            quartic = self.explicit.interpolation_cls(t0=t0, t1=t1, **dense).coeffs
            bend = -jnp.cumsum(quartic[:3], axis=0)[::-1]
            seen = self._seen(lax.stop_gradient(dense["k"]), t1 - t0)
            return y1, error, {"y0": y0, "y1": y1, "bend": bend}, (seen, after)

        def implicit() -> tuple[PyTree, ...]:
            y1, error, dense, jacobian = self.implicit.step_and_jacobian(
                terms, t0, t1, y0, args
            )
            along = lax.stop_gradient(jacobian) @ fastest.direction
            unknown = self.explicit.init(terms, t0, t1, y0, args)
            return y1, error, dense, (_fastest(along, fastest.direction), unknown)

        return *lax.cond(mild, explicit, implicit), dfx.RESULTS.successful

    def _seen(
        self, products: Float[Array, "stages dim"], length: Float[Scalar, ""]
    ) -> _DominantMode:
        """The fastest rate, from the last two stages of an explicit step."""
        before, end = (
            jnp.asarray([*row, *[0.0] * (len(products) - len(row))], products.dtype)
            for row in self.explicit.tableau.a_lower[-2:]
        )
        along = (products[-1] - products[-2]) / length
        return _fastest(along, (end - before) @ products)


def _fastest(along: Float[Array, " dim"], apart: Float[Array, " dim"]) -> _DominantMode:
    """As seen in a Jacobian whose product with `apart` is `along`."""
    length, image = jnp.linalg.norm(apart), jnp.linalg.norm(along)
    rate = image / jnp.where(length > 0, length, 1.0)
    return _DominantMode(rate, along / jnp.where(image > 0, image, 1.0))
