"""Derivatives of rates: automatic against finite differences, on random problems.

Half of the problems are drawn in reduced coordinates, half in R^d; in half of each the
path decides a part of ρ, at least. Problems with a kink in between are left out.
"""

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import gammainc, gammaincc, gammainccinv, gammaincinv

from experiments.theory.problem import Problem
from jaxselect.flow.cls_flow import FlowSettings
from jaxselect.margin.limit import LimitStatus
from jaxselect.model.corpus import Corpus
from jaxselect.model.parameters import Parameters, gaussian, gaussian_reduced
from jaxselect.model.synthetic import assumption_one
from jaxselect.outcome.rates import REAL_RATES, rates
from jaxselect.outcome.resolved_limit import RateSettings


class Settings(NamedTuple):
    """The corpora, d of the problems drawn in R^d, and an even number of problems."""

    problem: Problem
    dim: int
    problems: int


ARGUMENTS = ("log η₀", "log d", "E", "p_0", "counts")
# What `derived` is asked for beside the rates: slopes are those of forward mode.
NOTHING, SLOPES, GRADIENTS = range(3)
STEP = 2e-4
# Five-point differences: where η₀ decides a history the third derivative is large.
SIDES = (STEP, -STEP, 2 * STEP, -2 * STEP)
# Batches of draws that are searched for problems with a history.
SEARCHED = 20
# Rounding in a late p, and in differences of it, grows with log t: at 10³ a score is
# known to 10⁻¹¹, and a tolerance below that resolves rounding alone.
TIGHT = RateSettings(FlowSettings(atol=1e-9), until_log_time=1e3)


class Case(NamedTuple):
    """A random problem, and random directions to move it in."""

    start: Parameters
    corpus: Corpus
    dim: jax.Array
    step_size: jax.Array
    noise: tuple[jax.Array, ...]


def draw(problem: Problem, seed: jax.Array, log_dim: jax.Array | float = 0.0) -> Case:
    """The case of a seed, its d multiplied by e^log_dim."""
    keys = jax.random.split(jax.random.key(seed), 7)
    vocabulary = 2 * problem.relevant + problem.irrelevant
    # Where d is not much larger than |S|, the path decides a part of ρ in many draws.
    least = jnp.log10(2.0 * vocabulary)
    dim = 10 ** jax.random.uniform(keys[1], minval=least, maxval=4.0)
    dim = dim * jnp.exp(log_dim)
    start = gaussian_reduced(keys[3], vocabulary=vocabulary, dim=dim)
    return _case(problem, keys, start, dim)


def draw_wide(problem: Problem, dim: int, seed: jax.Array) -> Case:
    """The case of a seed with E drawn in R^d as it stands."""
    keys = jax.random.split(jax.random.key(seed), 7)
    vocabulary = 2 * problem.relevant + problem.irrelevant
    start = gaussian(keys[3], vocabulary=vocabulary, dim=dim)
    # Of the dtype of a drawn d, or every program would be compiled for both.
    return _case(problem, keys, start, jnp.asarray(dim, start.cls.dtype))


def _case(problem: Problem, keys: jax.Array, start: Parameters, dim: jax.Array) -> Case:
    corpus = assumption_one(keys[0], **dataclasses.asdict(problem))
    # log₁₀ η₀ from 1 to 2.7, where most tokens are selected.
    step_size = 10 ** jax.random.uniform(keys[2], minval=1.0, maxval=2.7)
    like = (start.embeddings, start.cls, corpus.counts)
    noise = tuple(
        jax.random.normal(key, array.shape)
        for key, array in zip(keys[4:], like, strict=True)
    )
    return Case(start=start, corpus=corpus, dim=dim, step_size=step_size, noise=noise)


def moved(case: Case, move: jax.Array) -> tuple[Parameters, Corpus, jax.Array]:
    """A case moved along its directions: what `rates` takes; d is moved by `draw`."""
    start, corpus, _, step_size, noise = case
    start = Parameters(
        start.embeddings + 0.1 * move[2] * noise[0],
        start.cls + 0.1 * move[3] * noise[1],
        start.head,
    )
    counts = corpus.counts * (1 + 0.1 * move[4] * noise[2])
    bags = Corpus(corpus.tokens, counts, corpus.labels, corpus.vocabulary)
    return start, bags, step_size * jnp.exp(move[0])


def transported(case: Case, log_dim: float) -> Case:
    """A case at d e^log_dim, every random number kept at its quantile.

    Derivatives in d are along quantiles, and a sampler that rejects does not keep them:
    its numbers at two values of d are two draws.

    Args:
        case: at d; drawn from `gaussian_reduced` with d ≥ |S| + 2.
        log_dim: how far to move.

    Returns:
        The case there.
    """
    old, new = (np.asarray(case.dim) * np.exp(x) for x in (0.0, log_dim))
    rows = np.vstack([case.start.cls, case.start.embeddings]) * np.sqrt(old)
    place = np.arange(len(rows))
    gamma = rows[place, place + 1] ** 2 / 2
    shapes = [(dim - 1 - place) / 2 for dim in (old, new)]
    # The smaller tail is the one with digits.
    rows[place, place + 1] = np.sqrt(
        2
        * np.where(
            gammainc(shapes[0], gamma) < 0.5,
            gammaincinv(shapes[1], gammainc(shapes[0], gamma)),
            gammainccinv(shapes[1], gammaincc(shapes[0], gamma)),
        )
    )
    rows = jnp.asarray(rows / np.sqrt(new))
    start = Parameters(rows[1:], rows[0], case.start.head)
    return case._replace(start=start, dim=jnp.asarray(new))


def numbers(start: Parameters, move: jax.Array, case: Case) -> tuple:
    """The real rates of a moved case; whether they are smooth; what that hangs on."""
    found = rates(*moved(case._replace(start=start), move), settings=TIGHT)
    real = jnp.stack([getattr(found, name) for name in REAL_RATES])
    smooth = ~found.kink & (found.status == LimitStatus.PREDICTED)
    return real, (smooth, found.selected, found.active, found.history_dim)


@jax.jit
def derived(
    cases: Case,
    move: jax.Array,
    turns: Parameters,
    towards: jax.Array,
    asked: jax.Array | int,
) -> tuple:
    """Rates of moved cases, and what is asked for of their derivatives.

    Both modes share one program: compiling takes longer than running.

    Args:
        cases: stacked.
        move: along their directions.
        turns: per case, what its start changes by with log d.
        towards: how the move changes.
        asked: NOTHING, SLOPES or GRADIENTS.

    Returns:
        Rates; in forward mode their slopes along the change, the same in every column,
        or in reverse mode their gradients, one row each, or zeros; what `numbers` adds.
    """

    def lane(pair: tuple[Case, Parameters]) -> tuple:
        case, turn = pair
        run = partial(numbers, case=case)
        real, push, rest = jax.linearize(run, case.start, move, has_aux=True)
        pull = jax.linear_transpose(push, case.start, move)

        def row(rate: jax.Array) -> jax.Array:
            start, move = pull(rate)
            parts = jax.tree.map(jnp.vdot, start, turn)
            return move.at[place].set(jax.tree.reduce(jnp.add, parts))

        rows = jnp.eye(len(REAL_RATES))
        nothing = jnp.zeros((len(REAL_RATES), len(ARGUMENTS)))
        ways = (
            lambda: nothing,
            lambda: nothing + push(turn, towards)[:, None],
            lambda: jax.vmap(row)(rows),
        )
        return real, jax.lax.switch(asked, ways), rest

    place = ARGUMENTS.index("log d")
    # In step, every lane would wait for the slowest flow.
    return jax.lax.map(lane, (cases, turns))


def values(cases: Case, move: jax.Array, turns: Parameters) -> tuple:
    """Rates of moved cases, and what `numbers` adds."""
    real, _, rest = derived(cases, move, turns, jnp.zeros_like(move), NOTHING)
    return real, rest


def forward(
    cases: Case, move: jax.Array, turns: Parameters, towards: jax.Array
) -> tuple:
    """Rates, their derivatives along a change of the start and the move, the rest."""
    real, slopes, rest = derived(cases, move, turns, towards, SLOPES)
    return real, slopes[..., 0], rest


def reverse(cases: Case, turns: Parameters) -> jax.Array:
    """Gradients of all rates, one row each; in log d they are taken along `turns`."""
    still = jnp.zeros(len(ARGUMENTS))
    return derived(cases, still, turns, still, GRADIENTS)[1]


def table(settings: Settings) -> dict:
    """Automatic against finite differences, and forward against reverse.

    Args:
        settings: see `Settings`.

    Returns:
        An entry per rate and argument.
    """

    def reduced(seed: jax.Array) -> tuple[Case, Parameters]:
        case = draw(settings.problem, seed)
        start = lambda log_dim: draw(settings.problem, seed, log_dim).start  # noqa: E731
        return case, jax.jvp(start, (0.0,), (1.0,))[1]

    def wide(seed: jax.Array) -> tuple[Case, Parameters]:
        case = draw_wide(settings.problem, settings.dim, seed)
        # Here d is a shape: nothing moves with it.
        return case, jax.tree.map(jnp.zeros_like, case.start)

    columns: dict[str, list] = {argument: [] for argument in ARGUMENTS}
    for drawn in (reduced, wide):
        cases, turns = chosen(drawn, settings)
        back = reverse(cases, turns)
        for number, argument in enumerate(ARGUMENTS):
            if argument != "log d" or drawn is reduced:
                found = column(number, cases, turns)
                columns[argument].append((*found, back[:, :, number]))
    return entries(
        {
            argument: jax.tree.map(lambda *rows: np.concatenate(rows), *found)
            for argument, found in columns.items()
        }
    )


def chosen(drawn: Callable, settings: Settings) -> tuple[Case, Parameters]:
    """The first cases, by seed, at least half of which the path decides a part of.

    Args:
        drawn: seed → case, and what its start changes by with log d.
        settings: see `Settings`.

    Returns:
        Half of the problems, stacked.

    Raises:
        ValueError: hardly any draw has a history.
    """
    number = settings.problems // 2
    wanted, others = (number + 1) // 2, number // 2
    kept: list = []
    still = jnp.zeros(len(ARGUMENTS))
    draw_all = jax.jit(jax.vmap(drawn))
    for batch in range(SEARCHED):
        seeds = number * batch + jnp.arange(number)
        cases, turns = draw_all(seeds)
        _, (*_, history) = values(cases, still, turns)
        for lane in range(number):
            if history[lane] > 0 and wanted:
                wanted -= 1
            elif others:
                others -= 1
            else:
                continue
            kept.append(_lane((cases, turns), lane))
        if len(kept) == number:
            return jax.tree.map(lambda *leaves: jnp.stack(leaves), *kept)
    raise ValueError(f"{number * SEARCHED} draws lack {wanted} with history")


def column(number: int, cases: Case, turns: Parameters) -> tuple:
    """What `forward` finds in one argument: at rest with slopes, then on all sides."""
    still = jnp.zeros(len(ARGUMENTS))
    none = jax.tree.map(jnp.zeros_like, turns)
    if ARGUMENTS[number] == "log d":
        moved = [_transported(cases, x) for x in SIDES]
        sides = [values(there, still, turns) for there in moved]
        return forward(cases, still, turns, still), *sides
    towards = still.at[number].set(1.0)
    sides = [values(cases, x * towards, turns) for x in SIDES]
    return forward(cases, still, none, towards), *sides


def entries(columns: Mapping[str, tuple]) -> dict:
    """The table from derivatives and values on either side.

    Args:
        columns: per argument what `column` found at rest and on all sides, and what
            `reverse` did, all with one row per problem.

    Returns:
        An entry per rate and argument.
    """
    entries = {}
    for argument, (resting, *sides, back) in columns.items():
        middle, slope, (kept, *structure) = resting
        near, back_near, far, back_far = (there for there, _ in sides)
        for _, (smooth, *others) in sides:
            kept = kept & smooth
            for one, two in zip(structure, others, strict=True):
                kept &= np.all(one == two, axis=tuple(range(1, one.ndim)))
        history = structure[-1] > 0
        difference = 8 * (near - back_near) - (far - back_far)
        difference = difference / (12 * STEP)
        # A derivative that is nothing beside the value is held against the value.
        scale = np.maximum(np.abs(difference), 1e-3 * np.abs(middle))
        scale = np.maximum(scale, np.finfo(scale.dtype).tiny)
        off = np.abs(slope - difference) / scale
        apart = np.abs(slope - back) / scale
        finite = np.isfinite(middle)
        for place, name in enumerate(REAL_RATES):
            chosen = kept & finite[:, place]
            errors, gaps = off[chosen, place], apart[chosen, place]
            entries[f"{name} / {argument}"] = {
                "problems": int(chosen.sum()),
                "with_history": int((chosen & history).sum()),
                "largest_error": float(errors.max(initial=0.0)),
                "forward_against_reverse": float(gaps.max(initial=0.0)),
            }
    return entries


def _transported(cases: Case, log_dim: float) -> Case:
    lanes = range(len(cases.dim))
    moved = [transported(_lane(cases, lane), log_dim) for lane in lanes]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *moved)


def _lane(batch: Any, lane: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[lane], batch)
