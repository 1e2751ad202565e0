"""Are all important tokens selected at infinite d, whatever the step size?

Where all important tokens are equally frequent they are, and otherwise from a step size
on that the data decide. Between these a class may stay captured (mathematics,
section 6b). Corpora of Assumption 1 with random frequencies and weights are followed
from the Gaussian start, which is p = 0 at d = ∞, and from others, at all step sizes.
"""

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from experiments.beyond.problem import Problem
from experiments.common.claims import Claim, Measured, Shown, of_cases
from experiments.common.console import command, say
from experiments.common.numbers import num
from experiments.common.palette import SERIES
from experiments.common.progress import progress_bar
from experiments.common.results import Finished
from experiments.common.study import (
    Count,
    Experiment,
    Positive,
    Several,
    Study,
    in_order,
    presets,
)
from experiments.common.style import subplots
from jaxselect.compilation import fast_compile_options
from jaxselect.data.corpus import Corpus
from jaxselect.data.synthetic import independent_tokens
from jaxselect.margin.certificate import CERTIFIED, certify
from jaxselect.model.attention import attend_corpus
from jaxselect.model.parameters import Parameters
from jaxselect.model.selection import important_tokens
from jaxselect.model.step import predicted_alignment
from jaxselect.problem import attention
from jaxselect.stages import flow_to_end

PEAK = 1.2784645427610738
"""The z at which z σ(−z) is largest."""
FADED = -30.0
"""Log of the force of a missed token, in log-time, that moves no score any more."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Study):
    """Settings of the study.

    Attributes:
        problem: sizes of the corpora.
        uneven: standard deviation of log w_X.
        starts: standard deviations of the coordinates of p_0.
        smallest: smallest η₀.
        largest: largest η₀.
        points: step sizes between the two.
        until_norm: the flow of p stops where ‖p‖ is this.
        seeds: number of corpora.
    """

    problem: Problem = Problem(24, 8, 3, 8)
    uneven: float = 1.0
    starts: tuple[float, ...] = (0.0, 1.0)
    smallest: Positive = 10.0
    largest: Positive = 1e5
    points: Several = 17
    until_norm: Positive = 1e4
    seeds: Count = 120
    out: Path = Path("results/selection")

    def check(self) -> None:
        """Refuse step sizes that are not in order."""
        in_order(self, "smallest", "largest")


PRESETS = presets(full=Settings(), smoke=Settings(points=5, seeds=3))


def drawn(settings: Settings, key: jax.Array) -> Corpus:
    """A corpus of Assumption 1 whose important tokens have random frequencies."""
    sizes, keys = dataclasses.asdict(settings.problem), jax.random.split(key)
    most = 1 - 1 / (2 * settings.problem.relevant + settings.problem.irrelevant)
    corpus = independent_tokens(keys[0], **sizes, irrelevant_share=most)
    # Two sequences that share their irrelevant tokens have one weight: α_r = 0.
    pairs = settings.problem.sequences // 2
    weights = jax.nn.softmax(settings.uneven * jax.random.normal(keys[1], (pairs,)))
    return dataclasses.replace(corpus, weights=jnp.tile(weights / 2, 2))


def one(
    settings: Settings, seed: jax.Array, step_size: jax.Array, spread: jax.Array
) -> dict[str, jax.Array]:
    """A run at d = ∞, where E_s is e_s + b_s v, beside what theorem 6b.2 says of it.

    Sequences that miss their token exert no force: the certificate is that of the
    others, if along their p_mm the missed token falls behind faster than log t.

    Returns:
        By name: `selected`, whether all important tokens are; `captured`,
        whether some are missed; `excluded`, whether one is then missed that is
        as rare as a token of the other class; `sure`, whether part 3 excludes it.
    """
    keys = jax.random.split(jax.random.key(seed))
    corpus = drawn(settings, keys[0])
    important = important_tokens(corpus)
    values = jnp.where(important, predicted_alignment(corpus, step_size), 0.0)
    rows = jnp.column_stack([jnp.eye(len(values)), values])
    query = spread * jax.random.normal(keys[1], rows.shape[1:])
    start = Parameters(rows, query, jnp.zeros_like(query).at[-1].set(1.0))
    flow = flow_to_end(attention(start, corpus), until_norm=settings.until_norm).flow
    decides = important[corpus.tokens] & corpus.present

    def log_weight(query: jax.Array) -> jax.Array:
        weights = attend_corpus(rows @ query, values, corpus).log_weights
        return jnp.where(decides, weights, -jnp.inf).max(axis=1)

    late = log_weight(flow.query)
    missed = late < jnp.log(0.5)
    weights = jnp.where(missed, 0.0, corpus.weighted(jnp.ones_like(late)))
    left = dataclasses.replace(corpus, weights=weights)
    found = certify(attention(start, left), flow)
    slope = (rows @ found.ending.late.growth)[corpus.tokens]
    other = jnp.where(corpus.present & ~decides, slope, -jnp.inf).max(axis=1)
    behind = other - jnp.where(decides, slope, -jnp.inf).max(axis=1)
    pull = flow.log_time + late - jnp.log(jnp.maximum(behind - 1, 0.0))
    final = jnp.isin(found.status, jnp.array(CERTIFIED))
    final &= jnp.where(missed, pull < FADED, True).all()
    # By sequence: γ, and the least of the other class.
    gamma = jnp.abs(jnp.where(decides, values[corpus.tokens], 0.0)).max(axis=1)
    rivals = corpus.labels[:, None] != corpus.labels
    rarest = jnp.where(rivals, gamma, jnp.inf).min(axis=1)
    least = (gamma * jnp.exp(log_weight(query))).min()
    pulls = rivals @ corpus.weighted(gamma) * least * jax.nn.sigmoid(-least)
    barrier = corpus.weighted(gamma - PEAK) * PEAK * jax.nn.sigmoid(-PEAK)
    return {
        "selected": final & ~missed.any(),
        "captured": final & missed.any(),
        "excluded": final & (missed & (gamma <= rarest)).any(),
        "sure": (least > PEAK) & (pulls < barrier).all(),
    }


def run(settings: Settings, results: dict) -> dict[str, np.ndarray]:
    """Every start, step size and corpus."""
    sizes = np.geomspace(settings.smallest, settings.largest, settings.points)
    seeds = settings.seed + jnp.arange(settings.seeds)
    shape = (len(settings.starts), settings.points, settings.seeds)
    arrays: dict[str, np.ndarray] = {}
    lanes = jax.vmap(lambda *case: one(settings, *case), (0, None, None))
    program = jax.jit(lanes, compiler_options=fast_compile_options())
    with progress_bar("step sizes", int(np.prod(shape[:2]))) as advance:
        for row, column in np.ndindex(*shape[:2]):
            case = sizes[column], settings.starts[row]
            for name, value in jax.device_get(program(seeds, *case)).items():
                arrays.setdefault(name, np.zeros(shape, bool))[row, column] = value
            advance(1)
    arrays["captured_sure"] = arrays["captured"] & arrays["sure"]
    results["rows"] = [
        {"start": start, "runs": shape[1] * shape[2]}
        | {name: int(array[row].sum()) for name, array in arrays.items()}
        for row, start in enumerate(settings.starts)
    ]
    for line in results["rows"]:
        say(str(line))
    return arrays | {"sizes": sizes}


def draw(finished: Finished) -> Figure:
    """Share of captured runs, and of those in which theory excludes it."""
    figure, axis = subplots(figsize=(6, 3.6))
    found = finished.arrays
    for row, start in enumerate(finished.settings["starts"]):
        captured, sure = (
            found[name][row].mean(axis=1) for name in ("captured", "sure")
        )
        colour, label = SERIES[row % len(SERIES)], f"p₀ of size {start:g}"
        axis.semilogx(found["sizes"], captured, "o-", color=colour, label=label)
        axis.semilogx(found["sizes"], sure, ":", color=colour)
    axis.set(xlabel="η₀", ylabel="captured\n(dotted: excluded by theorem)")
    axis.legend()
    return figure


def never(found: Finished, wrong: str, asked: str) -> Measured:
    """Of the runs that were asked about none is captured against the theorem."""
    rows = found.results["rows"]
    total, fails = (sum(row[name] for row in rows) for name in (asked, wrong))
    return Measured(
        of_cases(total - fails, total),
        f"{fails} runs against it",
        f"{total} runs",
        num(fails / max(total, 1)),
        "theorem 3e.4, and the forces of missed tokens",
    )


def decided(found: Finished) -> Measured:
    """Every run ends certified."""
    rows = found.results["rows"]
    names = "selected", "captured", "runs"
    selected, captured, total = (sum(row[name] for row in rows) for name in names)
    return Measured(
        of_cases(selected + captured, total),
        f"{selected} select all, {captured} miss a token",
        f"{total} runs",
        num(1 - (selected + captured) / total),
        "theorem 3e.4, and the forces of missed tokens",
    )


CLAIMS = (
    Claim(
        "At infinite d no important token is missed that is as rare as one of the "
        "other class.",
        lambda found: never(found, "excluded", "captured"),
    ),
    Claim(
        "At infinite d all important tokens are selected from a step size on.",
        lambda found: never(found, "captured_sure", "sure"),
        "Theorem 4.3",
    ),
    Claim("Every run at infinite d ends certified.", decided),
)


def show(found: Finished) -> Shown:
    """A row per start."""
    names = list(found.results["rows"][0])
    table = [[name.replace("_", ", ") for name in names]]
    table += [[num(row[name]) for name in names] for row in found.results["rows"]]
    return Shown(
        [
            "Frequent tokens of one class may never be selected at infinite d: from a "
            "random start at large step sizes, from the Gaussian one between small "
            "ones and those from which theorem 6b.2 (3) excludes it."
        ],
        table,
    )


main = Experiment(
    run, draw=draw, claims=CLAIMS, show=show, title="Selection at infinite d"
)


if __name__ == "__main__":
    command(main, PRESETS)
