"""Derivatives of an integration in both modes of automatic differentiation.

Diffrax needs to know the mode beforehand: one of its loops supports forward mode,
another reverse mode. Both represent the same linear map J of a change of the inputs, so
one computes J and the other Jᵀ.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import optimistix as optx
from jaxtyping import Array, Bool, Float, PyTree, Scalar

from ..compilation import full_precision

_TWICE = "A flow can be differentiated once, and here it is differentiated twice."

# Ratio of the tolerances of two derivatives that are compared: the closer one has some
# thirtieth of the error of the other, and takes twice the steps.
_COARSER = 32
# Largest difference of the two, relative to the derivative, for which the closer one is
# known to 1e-3; and relative to what is differentiated, where a derivative is nothing.
_APART, _NOTHING = 1e-2, 1e-6


class Doubt(NamedTuple):
    """How a derivative is judged by another one, at a coarser tolerance.

    Attributes:
        needed: whether it is; else the other one costs nothing.
        part: results → the part of them that has to be known.
    """

    needed: Bool[Scalar, ""]
    part: Callable[[PyTree], Float[Array, "..."]]


def in_both_modes(
    integrate: Callable[[PyTree, Any, dfx.AbstractAdjoint], PyTree],
) -> Callable[..., PyTree]:
    """Make an integration differentiable once, in either mode and under `vmap`.

    The integration maps (inputs, settings, adjoint) to results of `diffrax.diffeqsolve`
    with that adjoint; settings are static. The new function maps (inputs, settings,
    known=None, doubt=None) to the same results, or to those known already. Without
    derivatives it costs what it did, or nothing; a derivative costs one more
    integration, which carries it, and with a `Doubt` another one of half the steps.
    Where the two differ, it is NaN.

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
    def run(
        inputs: PyTree, settings: Any, known: PyTree = None, doubt: Doubt | None = None
    ) -> PyTree:
        if known is not None:
            return known
        return integrate(inputs, settings, dfx.RecursiveCheckpointAdjoint())

    @run.def_jvp
    @full_precision
    def pushed(
        primals: tuple,
        tangents: tuple,
        known: PyTree = None,
        doubt: Doubt | None = None,
    ) -> tuple[PyTree, PyTree]:
        (inputs, settings), (changes, _) = primals, tangents
        results = run(inputs, settings, known=known)
        changing = jax.tree.map(lambda x: x is not None, changes, is_leaf=_is_none)
        # Second derivatives would need those of the two loops: refused, not left out.
        once = eqx.internal.nondifferentiable(inputs, msg=_TWICE)
        moved, still = eqx.partition(once, changing)

        def real(adjoint: dfx.AbstractAdjoint, settings: Any, moved: PyTree) -> PyTree:
            found = integrate(eqx.combine(moved, still), settings, adjoint)
            return eqx.filter(found, eqx.is_inexact_array)

        twice = partial(_twice, settings=settings, doubt=doubt)
        return results, _slope(real, twice, moved, changes, results)

    return run


@jax.custom_jvp
def nan_where(
    void: Bool[Scalar, ""], value: Float[Array, "*shape"]
) -> Float[Array, "*shape"]:
    """Replace a number by NaN, with NaN derivatives of this number alone.

    Multiplying by NaN would suffice in forward mode. In reverse mode it would make the
    gradients of other outputs NaN, since 0 · NaN is NaN.

        >>> both = lambda x: jnp.stack([nan_where(x < 0, x**2), x**3])
        >>> jax.jacrev(both)(-2.0).tolist(), jax.jacrev(both)(1.0).tolist()
        ([nan, 12.0], [2.0, 3.0])
    """
    return jnp.where(void, jnp.nan, value)


@nan_where.defjvp
def _nan_where_jvp(
    primals: tuple[Array, Array], tangents: tuple[Any, Array]
) -> tuple[Array, Array]:
    (void, value), (_, change) = primals, tangents
    factor = jnp.where(void, jnp.nan, jnp.ones_like(value))

    def push(_: Callable, right: Array) -> Array:
        return factor * right

    def pull(_: Callable, weight: Array) -> Array:
        return jnp.where(weight == 0, 0.0, factor * weight)

    # JAX asks for a linear map and its transpose: here they differ at zero.
    slope = jax.lax.custom_linear_solve(lambda x: x, change, push, pull)
    return nan_where(void, value), slope


def _slope(
    real: Callable[[dfx.AbstractAdjoint, Any, PyTree], PyTree],
    twice: Callable[..., PyTree],
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

        def at(settings: Any) -> PyTree:
            through = partial(real, dfx.ForwardMode(), settings)
            return jax.jvp(through, (moved,), (change,))[1]

        slope = twice(at, rest, change, forward=True)
        return change, jax.tree.map(jnp.add, slope, rest)

    def pull(_: Callable, right: tuple[PyTree, PyTree]) -> tuple[PyTree, PyTree]:
        rest, weight = right

        def at(settings: Any) -> PyTree:
            through = partial(real, dfx.RecursiveCheckpointAdjoint(), settings)
            return jax.vjp(through, moved)[1](weight)[0]

        slope = twice(at, rest, weight, forward=False)
        return jax.tree.map(jnp.add, rest, slope), weight

    nothing = _zeros(eqx.filter(results, eqx.is_inexact_array), changes)
    system = changes, nothing
    return jax.lax.custom_linear_solve(lambda right: right, system, push, pull)[1]


def _twice(
    at: Callable[[Any], PyTree],
    like: PyTree,
    given: PyTree,
    *,
    settings: Any,
    doubt: Doubt | None,
    forward: bool,
) -> PyTree:
    """Compute a derivative `at` settings; NaN where one at coarser ones differs.

    The change of results is known or not by the part of them that has to be known;
    that of every input by itself.
    """
    if doubt is None:
        return at(settings)

    def again(number: Array, found: tuple[PyTree, PyTree]) -> tuple[PyTree, PyTree]:
        first = number == 0
        atol = jnp.where(first, settings.atol, _COARSER * settings.atol)
        other = at(replace(settings, atol=atol))
        return jax.tree.map(partial(jnp.where, first), other, found[0]), other

    # In a loop both are computed by one program.
    nothing = jax.tree.map(jnp.zeros_like, (like, like))
    times = jnp.where(doubt.needed, 2, 1)
    fine, coarse = jax.lax.fori_loop(0, times, again, nothing)
    least = _NOTHING * optx.two_norm(given)

    def known(fine: PyTree, coarse: PyTree) -> Bool[Scalar, ""]:
        off = jnp.linalg.norm(jnp.ravel(fine - coarse))
        return off <= _APART * jnp.linalg.norm(jnp.ravel(fine)) + least

    if forward:
        whole = known(doubt.part(fine), doubt.part(coarse))
        return jax.tree.map(lambda leaf: jnp.where(whole, leaf, jnp.nan), fine)
    return jax.tree.map(
        lambda leaf, other: jnp.where(known(leaf, other), leaf, jnp.nan), fine, coarse
    )


def _zeros(like: PyTree, changes: PyTree) -> PyTree:
    """Return zeros that JAX treats as linear in the given changes."""
    anything = sum(jnp.sum(change) for change in jax.tree.leaves(changes))
    nothing = jnp.where(jnp.array(False), anything, 0.0)
    return jax.tree.map(
        lambda leaf: jnp.broadcast_to(nothing.astype(leaf.dtype), leaf.shape), like
    )


def _is_none(leaf: Any) -> bool:
    return leaf is None
