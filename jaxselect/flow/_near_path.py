"""A flow of p near points of it that are known: between two, and shortly after one."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Scalar

from ..corpora.corpus import Corpus
from ..model.parameters import Parameters
from .cls_flow import velocity

# Parts of a way, each a thousandth of the time in which tokens change places.
PARTS = 32
# The classical Runge-Kutta method: node and weight of each stage.
STAGES = ((0.0, 1 / 6), (0.5, 1 / 3), (0.5, 1 / 3), (1.0, 1 / 6))
# Halvings that leave of a bracket less than the rounding of its ends.
HALVINGS = 50


def carried(
    pace: Callable[[Array, Array], Array],
    time: Float[Scalar, ""],
    way: Float[Scalar, ""],
    query: Float[Array, " dim"],
) -> Float[Array, " dim"]:
    """P a short log-time later, by the classical Runge-Kutta method."""
    part = way / PARTS

    def onward(number: Array, query: Array) -> Array:
        begun = time + number * part

        def stage(state: tuple, at: Array) -> tuple[tuple, None]:
            (moved, slope), (reach, weight) = state, at
            slope = pace(begun + reach * part, query + reach * part * slope)
            return (moved + weight * part * slope, slope), None

        stages = jnp.asarray(STAGES, query.dtype)
        (query, _), _ = jax.lax.scan(stage, (query, jnp.zeros_like(query)), stages)
        return query

    return jax.lax.fori_loop(0, PARTS, onward, query)


def crossing_between(
    parameters: Parameters,
    corpus: Corpus,
    event: Callable[[Array], Array],
    times: Float[Array, " points"],
    path: Float[Array, "points dim"],
    left: Int[Scalar, ""],
) -> Float[Scalar, ""]:
    """Root of h between two points of a path, on its cubic Hermite interpolant."""
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
        after = jax.lax.stop_gradient(event(at(middle))) > 0
        return jnp.where(after, low, middle), jnp.where(after, middle, high)

    bracket = (jnp.zeros_like(width), jnp.ones_like(width))
    _, high = jax.lax.fori_loop(0, HALVINGS, halve, bracket)
    return jax.lax.stop_gradient(start + high * width)
