"""E, p and v trained together on reviews: how slowly attention narrows, and E·v drifts.

Gradient descent and Adam from the same random start, far past the point at which
held-out reviews are best. The weight off the first word of a review is held against
the law of the flow, 1/(log(1/L) log log(1/L)) up to a constant, L the loss
(mathematics, section 3i), and the published tendency is followed: how well the
posterior difference of a word says its value E·v, over all words, over the first words
of the reviews, and over all others.

    python -m experiments.text.joint --train imdb_train.parquet --test ...
"""

import dataclasses
from pathlib import Path

import jax
import numpy as np
import optax
import scipy
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from experiments.common import memory
from experiments.common.claims import Shown
from experiments.common.console import command, say
from experiments.common.numbers import num
from experiments.common.progress import progress_bar
from experiments.common.results import Finished
from experiments.common.statistics import EDGES
from experiments.common.study import (
    Count,
    Experiment,
    Positive,
    Several,
    Study,
    presets,
)
from experiments.common.style import cloud, subplots
from experiments.text import training
from experiments.text.counts import (
    SparseCorpus,
    attention_weights,
    posterior_difference,
)
from experiments.text.data import load, subsample
from experiments.text.objective import evaluate
from experiments.text.source import Source
from jaxselect.model.attention import token_scores
from jaxselect.model.parameters import Parameters, gaussian


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Study):
    """The reviews and both optimisers.

    Attributes:
        source: the reviews and their vocabulary.
        reviews: how many to train on, at random; 0 for all.
        dim: d.
        descent_rate: step size of gradient descent.
        descent_steps: number of its steps.
        adam_rate: learning rate of Adam.
        adam_steps: number of its steps.
        points: looks at each run, geometric in steps.
        seed: random seed of the start and of the reviews.
        preset: full or smoke (synthetic reviews).
    """

    source: Source = Source(max_size=4000)
    reviews: int = 4000
    dim: Count = 256
    descent_rate: Positive = 2.0
    descent_steps: Count = 50_000
    adam_rate: Positive = 1e-3
    adam_steps: Count = 6000
    points: Several = 25
    out: Path = Path("results/text-joint")


PRESETS = presets(
    full=Settings(),
    smoke=Settings(
        source=Source(invented=200),
        reviews=120,
        dim=64,
        descent_steps=300,
        adam_steps=300,
        points=6,
    ),
)


def run(settings: Settings, results: dict) -> dict[str, np.ndarray]:
    """Train with both rules, and look at marks on the way."""
    splits, facts = load(settings.source)
    train = subsample(splits.train, settings.reviews, settings.seed)
    words = len(splits.words)
    memory.require(4 * words * settings.dim, f"--dim {settings.dim} for {words} words")
    posterior = np.asarray(posterior_difference(train), float)
    begin = gaussian(jax.random.key(settings.seed), vocabulary=words, dim=settings.dim)
    rules = {
        "descent": (optax.sgd(settings.descent_rate), settings.descent_steps),
        "adam": (optax.adam(settings.adam_rate), settings.adam_steps),
    }
    results |= {**facts, "trained_on": len(train.labels), "runs": {}}
    arrays: dict[str, np.ndarray] = {"posterior_difference": posterior}
    total = settings.descent_steps + settings.adam_steps
    with progress_bar("training", total) as advance:
        for name, (rule, steps) in rules.items():
            say(f"— {name} —")
            marks = np.unique(np.geomspace(1, steps, settings.points).round())
            rows: list[dict[str, float]] = []
            state = training.initial_state(begin, rule, training.Schedule(steps))
            for before, mark in zip([0, *marks[:-1]], marks, strict=True):
                for _ in range(int(mark - before)):
                    state = training.step(state, train, rule)
                advance(int(mark - before))
                rows.append(look(state.parameters, train, splits.validation, posterior))
                rows[-1]["step"] = mark
                if not np.isfinite(rows[-1]["loss"]):
                    say(f"step {mark:.0f}: the loss is not finite; take a shorter step")
                    rows.pop()
                    break
                say(line(rows[-1]))
            results["runs"][name] = rows
            for key in rows[0] if rows else ():
                arrays[f"{key} {name}"] = np.array([row[key] for row in rows])
            _, values = token_scores(state.parameters)
            arrays[f"values {name}"] = np.asarray(values, float)
    return arrays


def look(
    parameters: Parameters,
    train: SparseCorpus,
    held_out: SparseCorpus,
    posterior: np.ndarray,
) -> dict[str, float]:
    """One look at a run.

    Args:
        parameters: (E, p, v) now.
        train: the reviews trained on.
        held_out: others.
        posterior: posterior difference of every word.

    Returns:
        Numbers by name: loss; `rest`, the mean weight off the first word of a review;
        `shortfall`, mean 1 − y f/max y b, which is `rest` where one word of each has
        a value, and sees no weight shared by words of one value; `law`, what both are
        a multiple of where one does; the number of first words, and the largest |E·v|;
        `tendency` of all words, of the first words of reviews and of the others.
    """
    scores, values = (np.asarray(part, float) for part in token_scores(parameters))
    loss = float(evaluate(parameters, train).loss)
    counts = train.by_sequence.to_csr().astype(float)
    weights, begin = attention_weights(counts, scores).data, counts.indptr[:-1]
    review = np.repeat(np.arange(len(begin)), np.diff(counts.indptr))
    ahead = np.asarray(train.labels)[review] * values[counts.indices]
    heaviest = np.maximum.reduceat(weights, begin)
    best = np.maximum.reduceat(ahead, begin)
    margin = np.add.reduceat(weights * ahead, begin)
    first = np.zeros(len(posterior), bool)
    first[counts.indices[weights == heaviest[review]]] = True
    return {
        "step": 0.0,
        "loss": loss,
        "rest": float(1 - heaviest.mean()),
        "shortfall": float(np.mean(1 - margin[best > 0] / best[best > 0])),
        "held_out": float(evaluate(parameters, held_out).accuracy),
        "first_words": float(first.sum()),
        "law": law(loss),
        "largest": float(np.abs(values).max()),
        "tendency": tendency(posterior, values),
        "tendency_first": tendency(posterior[first], values[first]),
        "tendency_others": tendency(posterior[~first], values[~first]),
        "explained": explained(posterior, values),
    }


def law(loss: float) -> float:
    """The law 1/(s log s), s = log(1/L), that holds late; NaN before s = e.

    Example:
        >>> round(law(np.exp(-10.0)), 4)
        0.0434
    """
    late = -np.log(loss) if loss > 0 else np.inf
    return float(1 / (late * np.log(late))) if np.e < late < np.inf else np.nan


def tendency(posterior: np.ndarray, values: np.ndarray) -> float:
    """Spearman's correlation of E·v and posterior difference; NaN below three words.

    Example:
        >>> tendency(np.array([-1.0, 0.0, 0.5]), np.array([1.0, 5.0, 9.0]))
        1.0
    """
    if len(posterior) < 3:
        return float("nan")
    return float(scipy.stats.spearmanr(posterior, values).statistic)


def explained(posterior: np.ndarray, values: np.ndarray) -> float:
    """Share of the variance of E·v between bins of posterior difference.

    Example:
        >>> explained(np.array([-0.5, -0.5, 0.5, 0.5]), np.array([1.0, 1.0, 2.0, 2.0]))
        1.0
    """
    place = np.digitize(posterior, EDGES[1:-1])
    number = np.bincount(place)
    mean = np.bincount(place, values) / np.maximum(number, 1)
    return float(np.var(mean[place]) / np.var(values))


def line(row: dict[str, float]) -> str:
    """One line of the table."""
    return (
        f"step {row['step']:6.0f}   loss {row['loss']:.3e}   held out "
        f"{row['held_out']:.3f}   weight off the first word {row['rest']:.3f}, over "
        f"the law {row['rest'] / row['law']:.2f}; shortfall {row['shortfall']:.3f}, "
        f"{row['shortfall'] / row['law']:.2f}   rank correlation of E·v "
        f"{row['tendency']:.3f}, first words ({row['first_words']:.0f}) "
        f"{row['tendency_first']:.3f}, others {row['tendency_others']:.3f}   "
        f"explained {row['explained']:.3f}"
    )


def draw(finished: Finished) -> Figure:
    """Weight off the first word, the tendency, and the words in the end, by rule."""
    found, rules = finished.arrays, finished.results["runs"]
    count = 2 + len(rules)
    figure, axes = subplots(1, count, figsize=(3.8 * count, 3.8))
    for number, name in enumerate(rule for rule in rules if f"loss {rule}" in found):
        late, colour = -np.log(found[f"loss {name}"]), f"C{number}"
        axes[0].plot(late, found[f"rest {name}"], "o-", color=colour, label=name)
        short, label = found[f"shortfall {name}"], f"{name}, shortfall of the margin"
        axes[0].plot(late, short, "^-", color=colour, label=label, markersize=4)
        law = "1/(s log s), one word a review" if number == 0 else None
        axes[0].plot(late, found[f"law {name}"], "k--", label=law)
        for part, style in (("", "o-"), ("_first", "^--"), ("_others", "v:")):
            label = f"{name}{part.replace('_', ', ')}"
            column = found[f"tendency{part} {name}"]
            axes[1].plot(late, column, style, color=colour, label=label, markersize=4)
        values = found[f"values {name}"]
        cloud(axes[2 + number], found["posterior_difference"], values, f"E·v, {name}")
    axes[0].set(
        xlabel="log(1/L)", ylabel="mean weight off the first word", yscale="log"
    )
    axes[1].set(xlabel="log(1/L)", ylabel="rank correlation with posterior difference")
    for panel in axes[:2]:
        panel.set_xscale("log")
        panel.xaxis.set_minor_formatter(NullFormatter())
        panel.yaxis.set_minor_formatter(NullFormatter())
        panel.legend(fontsize="small")
    return figure


def show(found: Finished) -> Shown:
    """How well the posterior difference says E·v after long training."""
    runs = found.results["runs"].items()
    last = (f"{name} {num(rows[-1]['tendency'])}" for name, rows in runs if rows)
    return Shown(
        [f"Rank correlation of E·v with the posterior difference: {', '.join(last)}."]
    )


main = Experiment(
    run, draw=draw, show=show, title="All trained, and for long", precision="float32"
)


if __name__ == "__main__":
    command(main, PRESETS)
