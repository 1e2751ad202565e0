"""How right the derivatives of the rates are: a table by rate and argument.

It holds the largest relative difference between automatic and central finite
differences over random problems, and between forward and reverse mode. Problems with a
kink in between are left out and counted.
"""

import dataclasses
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any, Literal

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import gammainc, gammaincc, gammainccinv, gammaincinv

from experiments.benchmarks._case import Case, draw
from experiments.common.console import command, quickened, say
from experiments.common.devices import configure
from experiments.common.results import write
from experiments.theory.problem import Problem
from jaxselect.flow.cls_flow import FlowSettings
from jaxselect.margin.limit import LimitStatus
from jaxselect.model.corpus import Corpus
from jaxselect.model.parameters import Parameters
from jaxselect.outcome.rates import REAL_RATES, rates
from jaxselect.outcome.settle import RateSettings


@dataclasses.dataclass(frozen=True)
class Settings:
    """What to compare.

    Attributes:
        preset: full, or quick: fewer and smaller problems, under two minutes.
        quick: the same as `--preset quick`.
        problem: the corpora.
        problems: number of random problems.
        seed: of the first.
        out: folder for the results.
        json: print the results as one JSON object on standard output.
    """

    preset: Literal["full", "quick"] = "full"
    quick: bool = False
    problem: Problem = dataclasses.field(default_factory=Problem)
    problems: int = 50
    seed: int = 0
    out: Path = Path("results") / "benchmarks" / "derivatives"
    json: bool = False


PRESETS = {
    "full": Settings(),
    "quick": Settings(problem=Problem(12, 4, 2, 5), problems=3),
}
ARGUMENTS = ("log η₀", "log d", "E", "p_0", "counts")
STEP = 1e-4
FORWARD = FlowSettings(1e-11, 1e-11, adjoint=diffrax.ForwardMode())
REVERSE = FlowSettings(1e-11, 1e-11)


def main(settings: Settings) -> dict:
    """Fill the table.

    Args:
        settings: of the command line.

    Returns:
        What `--json` prints.
    """
    settings = quickened(settings, PRESETS["quick"], "seed")
    configure("float64")
    results = table(settings)
    for name, entry in results.items():
        say(
            f"{name:28} largest {entry['largest_error']:.1e}   "
            f"median {entry['median_error']:.1e}   "
            f"forward − reverse {entry['forward_against_reverse']:.1e}   "
            f"kinks {entry['excluded_share']:.0%}   "
            f"infinite {entry['infinite_share']:.0%}"
        )
    write(settings.out, settings=settings, results=results)
    return results


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


def numbers(
    start: Parameters, move: jax.Array, case: Case, flow: FlowSettings
) -> tuple:
    """The real rates of a moved case; whether they are smooth; what that hangs on."""
    case = case._replace(start=start)
    found = rates(*moved(case, move), settings=RateSettings(flow))
    real = jnp.stack([getattr(found, name) for name in REAL_RATES])
    smooth = ~found.kink & (found.history_dim == 0)
    smooth &= found.status == LimitStatus.PREDICTED
    return real, (smooth, found.selected, found.active)


@jax.jit
def forward(case: Case, move: jax.Array, turn: Parameters, towards: jax.Array) -> tuple:
    """Rates, their derivatives along a change of the start and the move, the rest."""
    run = partial(numbers, case=case, flow=FORWARD)
    return jax.jvp(run, (case.start, move), (turn, towards), has_aux=True)


@jax.jit
def reverse(case: Case, turn: Parameters) -> jax.Array:
    """Gradients of all rates, one row each; in log d they are taken along `turn`."""
    run = partial(numbers, case=case, flow=REVERSE)
    _, pull, _ = jax.vjp(run, case.start, jnp.zeros(len(ARGUMENTS)), has_aux=True)

    def row(rate: jax.Array) -> jax.Array:
        start, move = pull(rate)
        products = jax.tree.map(jnp.vdot, start, turn)
        return move.at[ARGUMENTS.index("log d")].set(jax.tree.reduce(jnp.add, products))

    return jax.lax.map(row, jnp.eye(len(REAL_RATES)))


def table(settings: Settings) -> dict:
    """Automatic against finite differences, and forward against reverse.

    Args:
        settings: of the benchmark.

    Returns:
        An entry per rate and argument.
    """

    @jax.jit
    def drawn(seed: jax.Array) -> tuple[Case, Parameters]:
        case = draw(settings.problem, seed)
        start = lambda log_dim: draw(settings.problem, seed, log_dim).start  # noqa: E731
        return case, jax.jvp(start, (0.0,), (1.0,))[1]

    still = jnp.zeros(len(ARGUMENTS))
    found = []
    for seed in range(settings.seed, settings.seed + settings.problems):
        case, turn = drawn(jnp.array(seed))
        none = jax.tree.map(jnp.zeros_like, turn)
        columns = []
        for number, argument in enumerate(ARGUMENTS):
            towards = still.at[number].set(1.0)
            if argument == "log d":
                there = [transported(case, x) for x in (STEP, -STEP)]
                slope = forward(case, still, turn, still)
                sides = [forward(side, still, none, still) for side in there]
            else:
                slope = forward(case, still, none, towards)
                sides = [
                    forward(case, x * towards, none, towards) for x in (STEP, -STEP)
                ]
            columns.append((slope, *sides))
        found.append((columns, reverse(case, turn)))
    return entries(*_stacked(found))


def entries(columns: list[tuple], back: np.ndarray) -> dict:
    """The table from derivatives and values on either side.

    Args:
        columns: per argument what `forward` found at rest, ahead and behind, all with
            one row per problem.
        back: of `reverse`, likewise.

    Returns:
        An entry per rate and argument.
    """
    entries = {}
    for number, (argument, column) in enumerate(zip(ARGUMENTS, columns, strict=True)):
        (middle, slope, rest), *sides = column
        (up, _, _), (down, _, _) = sides
        kept = rest[0]
        for _, _, (smooth, *structure) in sides:
            kept = kept & smooth
            for one, two in zip(rest[1:], structure, strict=True):
                kept &= np.all(one == two, axis=(1, 2))
        difference = (up - down) / (2 * STEP)
        # A derivative that is nothing beside the value is held against the value.
        scale = np.maximum(np.abs(difference), 1e-3 * np.abs(middle))
        scale = np.maximum(scale, np.finfo(scale.dtype).tiny)
        off = np.abs(slope - difference) / scale
        apart = np.abs(slope - back[:, :, number]) / scale
        finite = np.isfinite(middle)
        for place, name in enumerate(REAL_RATES):
            chosen = kept & finite[:, place]
            errors, gaps = off[chosen, place], apart[chosen, place]
            entries[f"{name} / {argument}"] = {
                "problems": int(chosen.sum()),
                "largest_error": float(errors.max(initial=0.0)),
                "median_error": float(np.median(errors)) if errors.size else 0.0,
                "above_1e-5": int((errors > 1e-5).sum()),
                "forward_against_reverse": float(gaps.max(initial=0.0)),
                "excluded_share": float(1 - kept.mean()),
                "infinite_share": float(1 - finite[:, place].mean()),
            }
    return entries


def _stacked(results: Iterable[Any]) -> Any:
    """NumPy arrays with one row per result."""
    return jax.tree.map(lambda *leaves: np.stack(leaves), *results)


if __name__ == "__main__":
    command(main, PRESETS)
