"""The nearest point of a hull of many differences, from the few that matter.

It lies in the hull of about as many differences as there are axes. A working set of
pairs is solved; those that its solution does not keep apart join it in the place of
those that do not matter, until there are none (mathematics, section 3c). No set is
trusted: the answer is measured on all pairs.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Scalar

from .pairs import PairList
from .qp import Axes, HullPoint, misses, nearest_point, polish

# Places of a working set, for each axis and at least: several times what is active.
# Chosen.
PER_AXIS, LEAST = 4, 512
# How many times longer a list is that is not solved at once. Chosen.
_LONG = 4
# Share of the largest dual from which a pair stays in the set. Chosen: duals that the
# equations do not set to zero are far above.
_MATTERS = 1e-9
# Bound on the number of sets; five to ten are usual.
_SETS = 100


class _Working(NamedTuple):
    """A working set that was solved, and the next one.

    Attributes:
        solved: edges of the set.
        found: the nearest point of their hull.
        following: edges of the next set.
        going: whether some pair is not kept apart.
        sets: number of sets.
        iterations: of the interior point, in all of them.
    """

    solved: Int[Array, " few"]
    found: HullPoint
    following: Int[Array, " few"]
    going: Bool[Scalar, ""]
    sets: Int[Scalar, ""]
    iterations: Int[Scalar, ""]


def is_long(axes: Axes, pairs: PairList) -> bool:
    """Whether a list of pairs is longer than what is worth solving at once."""
    return len(pairs.held) >= _LONG * _places(axes)


def _places(axes: Axes) -> int:
    return max(PER_AXIS * len(axes), LEAST)


def generated_point(
    axes: Axes, pairs: PairList
) -> tuple[HullPoint, Int[Scalar, ""], Int[Array, " few"]]:
    """Find the point nearest to the origin in the hull of E_s − E_r, by few pairs.

    A point that vanishes in the hull of few vanishes in that of all. The last result
    are the edges that may have a dual.

    Source: mathematics, section 3c.
    """
    places = _places(axes)

    def smallest(leads: Float[Array, " edges"]) -> Int[Array, " few"]:
        return lax.top_k(-jnp.where(pairs.held, leads, jnp.inf), places)[1]

    def solve(state: _Working) -> _Working:
        few, ends = _apart(pairs.among(state.following))
        there = axes[:, ends]
        found, iterations = nearest_point(there, few)
        found = polish(there, few, found)
        tiny = jnp.finfo(axes.dtype).tiny
        point = found.nearest / jnp.maximum(found.nearest @ found.nearest, tiny)
        missed = pairs.held & misses(axes, pairs, point)
        # What is in the set misses by rounding.
        missed = missed.at[state.following].set(False)
        matters = found.duals > _MATTERS * jnp.max(found.duals)
        leads = pairs.leads(found.nearest @ axes)
        kept = jnp.where(matters, -jnp.inf, leads[state.following])
        return _Working(
            solved=state.following,
            found=found,
            following=smallest(leads.at[state.following].set(kept)),
            going=missed.any() & ~found.vanishing,
            sets=state.sets + 1,
            iterations=state.iterations + iterations,
        )

    mean = axes @ pairs.divergence(pairs.held.astype(axes.dtype))
    first, none = smallest(pairs.leads(mean @ axes)), jnp.asarray(0, jnp.int32)
    number, no = jnp.zeros((), axes.dtype), jnp.asarray(False)
    duals = jnp.zeros(places, axes.dtype)
    nothing = HullPoint(jnp.zeros(len(axes), axes.dtype), duals, number, no, no)
    start = _Working(first, nothing, first, ~no, none, none)
    last = lax.while_loop(
        lambda state: state.going & (state.sets < _SETS), solve, start
    )
    everywhere = jnp.zeros(pairs.held.shape, axes.dtype)
    duals = everywhere.at[last.solved].set(last.found.duals)
    return last.found._replace(duals=duals), last.iterations, last.solved


def _apart(few: PairList) -> tuple[PairList, Int[Array, " ends"]]:
    """Give every edge two tokens of its own, and say which these are."""
    number = len(few.held)
    own = jnp.arange(number, dtype=few.winner.dtype)
    apart = PairList(few.held, own, own + number, few.edge, 2 * number)
    return apart, jnp.concatenate([few.winner, few.loser])
