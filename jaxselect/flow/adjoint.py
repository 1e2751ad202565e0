"""Derivatives of an integration in both modes of automatic differentiation.

Diffrax needs to know the mode beforehand: one of its loops supports forward mode,
another reverse mode. Both represent the same linear map J of a change of the inputs, so
one computes J and the other Jᵀ.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ..compilation import full_precision

_TWICE = "A flow can be differentiated once, and here it is differentiated twice."


def in_both_modes(
    integrate: Callable[[PyTree, Any, dfx.AbstractAdjoint], PyTree],
) -> Callable[..., PyTree]:
    """Make an integration differentiable once, in either mode and under `vmap`.

    Args:
        integrate: (inputs, settings, adjoint) → results of `diffrax.diffeqsolve` with
            that adjoint; settings are static.

    Returns:
        (inputs, settings, known=None) → the same results, or those known already.
        Without derivatives it costs what it did, or nothing; a derivative costs one
        more integration, which carries it.

    Example:
        >>> def fall(rate, settings, adjoint):
        ...     return dfx.diffeqsolve(
        ...         dfx.ODETerm(lambda t, y, rate: -rate * y), dfx.Tsit5(), 0.0, 1.0,
        ...         0.1, jnp.array(1.0), args=rate, adjoint=adjoint,
        ...     ).ys[0]
        >>> round(jax.jit(jax.jacfwd(in_both_modes(fall)))(1.0, None).item(), 4)
        -0.3679
    """

    @eqx.filter_custom_jvp
    def run(inputs: PyTree, settings: Any, known: PyTree = None) -> PyTree:
        if known is not None:
            return known
        return integrate(inputs, settings, dfx.RecursiveCheckpointAdjoint())

    @run.def_jvp
    @full_precision
    def pushed(
        primals: tuple, tangents: tuple, known: PyTree = None
    ) -> tuple[PyTree, PyTree]:
        (inputs, settings), (changes, _) = primals, tangents
        results = run(inputs, settings, known=known)
        changing = jax.tree.map(lambda x: x is not None, changes, is_leaf=_is_none)
        # Second derivatives would need those of the two loops: refused, not left out.
        once = eqx.internal.nondifferentiable(inputs, msg=_TWICE)
        moved, still = eqx.partition(once, changing)

        def real(adjoint: dfx.AbstractAdjoint, moved: PyTree) -> PyTree:
            found = integrate(eqx.combine(moved, still), settings, adjoint)
            return eqx.filter(found, eqx.is_inexact_array)

        return results, _slope(real, moved, changes, results)

    return run


def _slope(
    real: Callable[[dfx.AbstractAdjoint, PyTree], PyTree],
    moved: PyTree,
    changes: PyTree,
    results: PyTree,
) -> PyTree:
    """Compute the change J δ of the results, written as a linear solve.

    (δ, J δ) solves the system [[1, 0], [−J, 1]] with right side (δ, 0). A linear solve
    is the only operation of JAX whose transpose may be supplied. JAX multiplies by the
    matrix only if it depends on differentiated inputs; it does not, so the identity is
    passed.
    """

    def push(_: Callable, right: tuple[PyTree, PyTree]) -> tuple[PyTree, PyTree]:
        change, rest = right
        through = partial(real, dfx.ForwardMode())
        slope = jax.jvp(through, (moved,), (change,))[1]
        return change, jax.tree.map(jnp.add, slope, rest)

    def pull(_: Callable, right: tuple[PyTree, PyTree]) -> tuple[PyTree, PyTree]:
        rest, weight = right
        through = partial(real, dfx.RecursiveCheckpointAdjoint())
        back = jax.vjp(through, moved)[1]
        return jax.tree.map(jnp.add, rest, back(weight)[0]), weight

    nothing = _zeros(eqx.filter(results, eqx.is_inexact_array), changes)
    system = changes, nothing
    return jax.lax.custom_linear_solve(lambda right: right, system, push, pull)[1]


def _zeros(like: PyTree, changes: PyTree) -> PyTree:
    """Return zeros that JAX treats as linear in the given changes."""
    anything = sum(jnp.sum(change) for change in jax.tree.leaves(changes))
    nothing = jnp.where(jnp.array(False), anything, 0.0)
    return jax.tree.map(
        lambda leaf: jnp.broadcast_to(nothing.astype(leaf.dtype), leaf.shape), like
    )


def _is_none(leaf: Any) -> bool:
    return leaf is None
