"""Contraction of ties: tokens at finite odds are replaced by one token per class.

If sequences of both classes share tokens, the odds of these tokens may stay finite,
because forces of order one cancel. Once the tied tokens rest, the rest of the flow is
one of the same kind in fewer dimensions, with the same certificate (mathematics,
section 3g).
"""

import dataclasses
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_factor, cho_solve
from jaxtyping import Array, Bool, Float, Int, Scalar

from .data.components import centred_in_components, components
from .data.corpus import BLOCK, Corpus, row_sums
from .flow.cls import TieBounds, output_forces
from .margin.certificate import FORCES_HOLD, TOLERANCE, selection
from .margin.minimum import (
    Minimum,
    change_of_curvature,
    inverse_root,
    newton_decrement,
    rest_at,
)
from .margin.pairs import ROUNDINGS, difference_lengths, lead_range, response_to_weights
from .margin.perturbation import RestingTies
from .margin.span import RANK, span
from .model.attention import Attention, attend_bags, functional_margin
from .model.curvature import query_curvature
from .model.selection import WIDTH
from .problem import Problem

# Bound on the iterations of Newton's method, from where the flow has nearly come to
# rest.
ITERATIONS = 30


class Ties(eqx.Module):
    """The ties at a given p, and the point where they rest.

    Attributes:
        selected: S_X, the selected tokens of every sequence, in bag layout, and those
            whose difference from these lies in U: at rest their odds are constant.
        slot: for every sequence, the entry that represents its selected tokens.
        classes: for every token, the first token of its class; tokens that a tied
            sequence selects together form a class.
        axes: orthonormal axes of U, the span of the differences within classes; zero
            rows beyond its dimension.
        rest: z* in these axes, and the numbers that prove a minimum there.
        root: H^{−½} there, in these axes.
        moved: ‖Π p − z*‖.
        widths: Λ_X = max ‖Π(E_s − E_r)‖ over the tokens of every sequence, selected or
            not: what a move along the ties does to the scores of that sequence.
        ranges: w, the range of b over the same tokens.
    """

    selected: Bool[Array, "sequences width"]
    slot: Int[Array, " sequences"]
    classes: Int[Array, " vocabulary"]
    axes: Float[Array, "axes dim"]
    rest: Minimum
    root: Float[Array, "axes axes"]
    moved: Float[Scalar, ""]
    widths: Float[Array, " sequences"]
    ranges: Float[Array, " sequences"]

    @property
    def point(self) -> Float[Any, " dim"]:
        """z*, in R^d."""
        return self.rest.point @ self.axes

    @property
    def tied(self) -> Bool[Array, " sequences"]:
        """Sequences that select several tokens."""
        return self.selected.sum(axis=1) > 1

    @property
    def resting(self) -> RestingTies:
        """What a certificate needs to know of them."""
        tied = self.tied.any()
        return RestingTies(tied, self.rest, self.moved, self.widths, self.ranges)

    @property
    def minimal(self) -> Bool[Scalar, ""]:
        """Whether there are ties, and a rest is proved."""
        return self.tied.any() & self.rest.proved

    @property
    def proved(self) -> Bool[Scalar, ""]:
        """Whether p, too, is proved to come to rest there."""
        return self.minimal & (self.moved <= self.rest.basin)


def find_ties(problem: Problem, log_time: Float[Scalar, ""] | float) -> Ties:
    """Find the tokens that are tied at p, where the problem starts, and their rest.

    Tokens of a bag are tied if their scores are within half of log t of the best and do
    not fall behind it at a speed of a half or more in log t. The ties are at rest at p,
    and `log_time` is log(1+t) of the flow that led to p.

    Source: mathematics, section 3g.
    """
    near = selection(problem, problem.start, log_time)
    pace = problem.corpus.gather(problem.scores(_velocity(problem, log_time)))
    lead = jnp.max(jnp.where(near, pace, -jnp.inf), axis=1, keepdims=True)
    # What was decided late is near still, but parts at a speed of one or more.
    return ties_of(problem, near & ~(pace < lead - WIDTH))


def _velocity(
    problem: Problem, log_time: Float[Scalar, ""] | float
) -> Float[Array, " dim"]:
    """Compute dp/dτ, where opposing forces cancel, by a linearly implicit step.

    v = 2 (I + H)⁻¹ e^τ (−∇L) with H = e^τ ∇²L is exact where v is constant, and loses
    no digit to forces that hold each other. Along eigenvectors of H with an eigenvalue
    below one nothing holds p: v is the field.
    """
    parts = problem.parts(problem.scores(problem.start))
    force, jacobian = query_curvature(problem.rows, parts, log_time)
    stiffness, axes = jnp.linalg.eigh(-jacobian)
    return axes @ ((force @ axes) * (2 / (1 + jnp.maximum(stiffness, 1.0))))


def ties_of(problem: Problem, selected: Bool[Array, "sequences width"]) -> Ties:
    """Compute the ties of a selection S_X and the minimum of the risk where they rest.

    Tokens whose difference from the selected ones lies in U join them.
    z* = argmin Σ_{X tied} w_X ℓ(y f_X(z)) over z ∈ U, with softmax over S_X alone, by
    Newton's method from Π p. A strict minimum near it is proved by Newton–Kantorovich.

    Source: mathematics, sections 3g and 7b.

    Example:
        >>> from jaxselect import Parameters, attention, from_sequences
        >>> bags = from_sequences([[0, 1], [0, 1], [0, 1]], [1, -1, 1], vocabulary=2)
        >>> start = Parameters(jnp.eye(2), jnp.zeros(2), jnp.array([1.0, -1.0]))
        >>> ties = jax.jit(ties_of)(attention(start, bags), bags.present)
        >>> at_rest = jnp.tanh(ties.point[0])         # f = tanh z, and e^f = 2
        >>> round(at_rest.item(), 6), bool(ties.rest.proved)
        (0.693147, True)
    """
    slot = jnp.argmax(selected, axis=1)
    rows, _ = _in_classes(problem, selected)
    axes = span(rows).axes
    selected |= _at_constant_odds(problem, slot, axes)
    rows, classes = _in_classes(problem, selected)
    # A sequence of weight zero selects nothing, and keeps what it has.
    alone = _alone(problem, selected)
    inside = dataclasses.replace(
        alone,
        rows=rows @ axes.T,
        start=axes @ problem.start,
        axes=None,
        residual=None,
        shape=None,
    )
    place, hessian = _newton(inside)
    rest, root = _rest(inside.starting_at(place), hessian)
    logits, corpus = inside.logits(inside.scores(place)), problem.corpus
    output = attend_bags(logits, problem.values, inside.corpus).output
    margin = functional_margin(corpus.labels, output, corpus.loss)
    return Ties(
        selected=selected,
        slot=slot,
        classes=classes,
        axes=axes,
        rest=rest,
        root=root,
        moved=jnp.linalg.norm(inside.start - place),
        widths=_diameters(problem, problem.rows @ axes.T),
        ranges=lead_range(margin, problem.values, problem.present),
    )


def _in_classes(
    problem: Problem, selected: Bool[Array, "sequences width"]
) -> tuple[Float[Array, "vocabulary dim"], Int[Array, " vocabulary"]]:
    """Measure rows from the mean of their class, and find the classes."""
    tied = selected.sum(axis=1, keepdims=True) > 1
    linked = _only(problem.corpus, selected & tied)
    return centred_in_components(problem.rows, linked), components(linked)


def _at_constant_odds(
    problem: Problem, slot: Int[Array, " sequences"], axes: Float[Array, "axes dim"]
) -> Bool[Array, "sequences width"]:
    """Find entries whose rows differ from that of a slot by vectors of U alone.

    Contracted, such a difference is made of roundings, which no flow may follow.
    """
    rows = problem.rows
    eps = jnp.finfo(rows.dtype).eps
    off = _from_slots(problem, _orthogonal(axes)(rows), slot)
    empty = RANK * max(rows.shape) * eps * jnp.linalg.norm(rows)
    return problem.present & (off <= empty)


def _from_slots(
    problem: Problem,
    rows: Float[Array, "vocabulary axes"],
    slots: Int[Array, " sequences"],
) -> Float[Array, "sequences width"]:
    """Compute ‖E_s − E_r‖ of every entry from that in a slot of its bag."""

    def from_slot(tokens: Array, slot: Array) -> Float[Array, " width"]:
        return jnp.linalg.norm(rows[tokens] - rows[tokens[slot]][None], axis=1)

    return problem.map_sequences(
        from_slot,
        problem.corpus.tokens,
        slots,
        numbers=lambda width: width * rows.shape[1],
    )


def _alone(problem: Problem, selected: Bool[Array, "sequences width"]) -> Problem:
    """Keep the selected entries of bags of positive weight, and drop the others."""
    kept = selected | ~problem.present.any(axis=1, keepdims=True)
    return dataclasses.replace(
        problem,
        offsets=jnp.where(kept, problem.offsets, -jnp.inf),
        corpus=_only(problem.corpus, kept),
    )


def _newton(
    problem: Problem,
) -> tuple[Float[Array, " axes"], Float[Array, "axes axes"]]:
    """Run Newton's method while the gradient decreases; return the point and its H."""

    def step(state: tuple) -> tuple:
        there, *before, iteration, _ = state
        pull, hessian = _descent(problem, there)
        size = jnp.linalg.norm(pull)
        # A Hessian that is not positive makes NaN, which is not smaller.
        better = size < before[2]
        found = jax.tree.map(partial(jnp.where, better), [there, hessian, size], before)
        there = there + cho_solve(cho_factor(hessian), pull)
        return there, *found, iteration + 1, better

    place = problem.start
    infinite = jnp.asarray(jnp.inf, place.dtype)
    none = place, jnp.eye(len(place), dtype=place.dtype), infinite
    state = (place, *none, jnp.asarray(0), jnp.asarray(True))
    found = jax.lax.while_loop(
        lambda state: state[5] & (state[4] < ITERATIONS), step, state
    )
    return found[1], found[2]


def _descent(
    problem: Problem, place: Float[Array, " axes"]
) -> tuple[Float[Array, " axes"], Float[Array, "axes axes"]]:
    """Compute −∇L and H = ∇²L at z; beyond the rank, H is filled to stay invertible."""
    rows = problem.rows
    pull, jacobian = query_curvature(rows, problem.parts(problem.scores(place)))
    empty = jnp.all(rows == 0, axis=0)
    size = jnp.max(jnp.abs(jnp.diagonal(jacobian)))
    return pull, jnp.diag(jnp.where(empty, size, 0.0)) - jacobian


def _rest(
    problem: Problem, hessian: Float[Array, "axes axes"]
) -> tuple[Minimum, Float[Array, "axes axes"]]:
    """Certify the start of a problem on two balls; keep the stronger certificate."""
    corpus, rows, place = problem.corpus, problem.rows, problem.start
    stiffness, root = inverse_root(hessian)
    here = rows, problem.logits(problem.scores(place)), problem.values, corpus
    size = newton_decrement(*here, place, root)
    diameters = _diameters(problem, rows)

    def on_ball(narrow: Bool[Scalar, ""]) -> Minimum:
        change = change_of_curvature(*here, diameters, narrow)
        return rest_at(place, (stiffness, root), size, change)

    balls = jax.lax.map(on_ball, jnp.array([False, True]))
    best = jnp.argmax(balls.basin)
    return jax.tree.map(lambda each: each[best], balls), root


def _diameters(
    problem: Problem, rows: Float[Array, "vocabulary axes"]
) -> Float[Array, " sequences"]:
    """Compute max ‖E_s − E_r‖ over the entries of every bag."""
    corpus, (vocabulary, axes) = problem.corpus, rows.shape
    (bags, width) = corpus.tokens.shape
    by_token = vocabulary**2 <= min(bags * width**2, BLOCK)
    of_tokens = difference_lengths(rows) if by_token else None

    def of_bag(tokens: Array, some: Array) -> Float[Scalar, ""]:
        if of_tokens is None:
            apart = difference_lengths(rows[tokens])
        else:
            apart = of_tokens[tokens[:, None], tokens[None]]
        return jnp.max(jnp.where(some[:, None] & some[None], apart, 0.0))

    return problem.map_sequences(
        of_bag,
        corpus.tokens,
        corpus.present,
        numbers=lambda width: width * (width + (0 if by_token else axes)),
    )


def no_ties(problem: Problem) -> Ties:
    """Return the record of a problem without ties."""
    corpus = problem.corpus
    vocabulary, dim = problem.rows.shape
    size = min(vocabulary, dim)
    zeros = partial(jnp.zeros, dtype=problem.start.dtype)
    number = zeros(())
    return Ties(
        selected=jnp.zeros(corpus.tokens.shape, bool),
        slot=jnp.zeros(len(corpus.tokens), int),
        classes=jnp.arange(vocabulary, dtype=corpus.tokens.dtype),
        axes=zeros((size, dim)),
        rest=Minimum(zeros(size), number, number, number, number, number),
        root=zeros((size, size)),
        moved=number,
        widths=zeros(len(corpus.tokens)),
        ranges=zeros(len(corpus.tokens)),
    )


def contract(problem: Problem, ties: Ties) -> tuple[Problem, TieBounds]:
    """Contract ties at rest: the problem of p′ = p − z*, in arrays of the same shapes.

    A′ = (1 − Π) A and p′ = (1 − Π) p, with the first token of a class in the place of
    all its tokens. An entry's offset is α + A_r·z*. In a tied sequence one entry stands
    for S_X: its offset is log Σ_{s∈S_X} e^{α + A_s·z*}, its value f_X(z*). The flow of
    p and that of the contracted problem differ by terms that vanish like e^{−τ}, until
    bounds on what it leaves out, the second result, are exceeded.

    Source: mathematics, section 3g.

    Example:
        >>> from jaxselect import Parameters, attention, from_sequences
        >>> bags = from_sequences([[0, 1, 2], [0, 1]], [1, -1], vocabulary=3)
        >>> start = Parameters(
        ...     jnp.eye(3), jnp.array([9.0, 9.0, 0.0]), jnp.array([1.0, -1.0, 0.0])
        ... )
        >>> problem = attention(start, bags)
        >>> chosen = selection(problem, start.query, 9.0)
        >>> left, _ = contract(problem, jax.jit(ties_of)(problem, chosen))
        >>> left.corpus.tokens.tolist(), left.corpus.counts.tolist()
        ([[0, 0, 2], [0, 0, 0]], [[1.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    """
    corpus, embeddings = problem.corpus, problem.rows
    across = _orthogonal(ties.axes)
    inside = embeddings @ ties.axes.T
    at_rest = inside @ ties.rest.point
    here = corpus.marks(ties.slot)

    kept = _alone(problem, ties.selected)
    logits = kept.logits(at_rest)
    together = jax.nn.logsumexp(logits, axis=1, keepdims=True)
    alone = attend_bags(logits, problem.values, kept.corpus)
    heads = [1] * (problem.values.ndim - 2)
    values = jnp.where(
        here.reshape(*here.shape, *heads), alone.output[:, None], problem.values
    )

    counts = jnp.where(ties.selected & ~here, 0.0, corpus.counts)
    offsets = jnp.where(here, together, problem.logits(at_rest))
    # z* is known to 2 ν in the norm of H.
    off = 2 * ties.rest.decrement
    far = off * _from_slots(problem, inside @ ties.root, ties.slot)
    widest = jnp.max(jnp.where(ties.selected, far, 0.0), axis=1)
    rounding = ROUNDINGS * jnp.finfo(at_rest.dtype).eps
    offset_error = far + widest[:, None] + rounding * jnp.max(jnp.abs(at_rest))
    sizes = jnp.abs(problem.values).reshape(len(far), -1).max(axis=1)
    # By lemma 3g.5 a quarter of the range times that of the changes of scores.
    value_error = ties.ranges * (widest / 2 + rounding * jnp.max(jnp.abs(at_rest)))
    value_error = jnp.where(ties.tied, value_error + rounding * sizes, 0.0)
    reduced = dataclasses.replace(
        problem,
        rows=across(embeddings),
        start=across(problem.start),
        offsets=jnp.where(counts > 0, offsets, -jnp.inf),
        values=values,
        offset_errors=problem.offset_errors + offset_error,
        value_errors=problem.value_errors + value_error,
        corpus=dataclasses.replace(
            corpus, tokens=ties.classes[corpus.tokens], counts=counts
        ),
    )
    return reduced, _bounds_of(ties, problem, inside, alone)


def _bounds_of(
    ties: Ties,
    before: Problem,
    inside: Float[Array, "vocabulary axes"],
    alone: Attention,
) -> TieBounds:
    """Bound the force of losing tokens beyond which ties are released.

    A force x keeps p off z* by ‖H^{−½}x‖/((½ − c)√μ) at most. This and the initial
    distance ‖Π p − z*‖ must stay in the basin, move no score by more than the
    tolerance, and change no force by more than a half. Losing tokens, of weight Q,
    change the curvature by c H at most, c = Σ w_X (−ℓ′) Q w (4 + 1.3 κ̄ w) Λ² with Λ
    the width of the sequence in units of H^{−½}.

    Source: mathematics, proposition 3g.6.
    """
    corpus = before.corpus
    margin = functional_margin(corpus.labels, alone.output, corpus.loss)
    response = response_to_weights(ties.ranges, corpus.loss, margin)
    least = jnp.maximum(
        ties.widths / TOLERANCE, ties.widths * response / FORCES_HOLD
    ).max()
    most = jnp.minimum(ties.rest.basin, 1 / least)
    share = jnp.where(ties.selected & ties.tied[:, None], jnp.exp(alone.log_weights), 0)
    heads = [1] * (before.values.ndim - 2)
    weighted = share.reshape(*share.shape, *heads) * alone.advantage

    rows = inside @ ties.root
    wide, gross = _diameters(before, rows), (ties.ranges * response)[:, None]
    apart = _orthogonal(ties.axes)(before.rows - before.rows.mean(axis=0)[None])
    longest = jnp.linalg.norm(apart, axis=1).max()
    sums = partial(row_sums, rows, corpus.tokens)
    soft = jnp.sqrt(jnp.maximum(ties.rest.stiffness, 0.0))
    return TieBounds(
        tied=ties.tied,
        tokens=corpus.tokens,
        rows=rows,
        means=sums(share),
        bends=sums(weighted),
        slopes=output_forces(margin, corpus.loss),
        reach=jnp.stack([wide**2, wide * (2 * longest) ** 2], axis=1) * gross,
        allowed=jnp.maximum(soft * (most - ties.moved) / 2, 0.0),
    )


def _orthogonal(axes: Float[Array, "axes dim"]) -> partial:
    """X ↦ (1 − Π) x, row by row."""

    def across(rows: Array, axes: Array) -> Array:
        # Twice: once leaves roundings of the rows in U.
        for _ in range(2):
            rows = rows - (rows @ axes.T) @ axes
        return rows

    return partial(across, axes=axes)


def _only(corpus: Corpus, kept: Bool[Array, "sequences width"]) -> Corpus:
    """Keep some entries of a corpus and drop the others."""
    return dataclasses.replace(corpus, counts=jnp.where(kept, corpus.counts, 0.0))
