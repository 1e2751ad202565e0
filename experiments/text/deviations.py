"""Words whose E_sᵀv deviates from that of equal posterior difference, and why.

Trains E, p and v together and asks of every word by how much its E_sᵀv differs from
the mean of words with the same posterior difference. Three second-order statistics are
then given the chance to explain it:

    context     mean posterior difference of the other words in its reviews, which
                explain a part of the labels already
    negation    posterior difference where a negator stands among the three words
                before it, less that where none does, times the share of such places
    rarity      minus the logarithm of its number of occurrences, times its sign

    python -m experiments.text.deviations --train imdb_train.parquet --test ...
"""

import dataclasses
from pathlib import Path
from typing import Literal

import jax
import numpy as np
from matplotlib.figure import Figure

from experiments.common.claims import Shown
from experiments.common.console import command, say
from experiments.common.progress import watched
from experiments.common.results import Finished
from experiments.common.study import Count, Experiment, Study, presets
from experiments.common.style import subplots
from experiments.text.data import Source, fitted_reviews, load
from experiments.text.fitting import Fit, fit, require_finite, starting_point
from jaxselect.checks import BadInput
from jaxselect.data.sparse import (
    SparseCorpus,
    occurrences,
    posterior_difference,
    products,
)
from jaxselect.model.attention import token_scores
from jaxselect.text.reviews import Reviews
from jaxselect.text.words import words_of

NEGATORS = frozenset({"not", "no", "never", "nothing", "nobody", "neither", "nor"})
NEGATORS |= {"cannot", "without", "hardly"}
REACH = 3
# Occurrences of a word from which its posterior difference is compared.
ENOUGH = 50


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Fit, Study):
    """The model, and the number of words to list.

    Attributes:
        source: the reviews and their vocabulary.
        shown: words to list.
        preset: full or smoke (invented reviews).
    """

    source: Source = Source()
    embeddings: Literal["one-step", "trained", "random"] = "trained"
    train_head: bool = True
    batch: int = 250
    every: Count = 20
    shown: int = 20
    out: Path = Path("results/text-deviations")


PRESETS = presets(
    full=Settings(),
    smoke=Settings(source=Source(invented=600), dim=128, steps=60, batch=200, shown=5),
)


def run(settings: Settings, results: dict) -> dict[str, np.ndarray]:
    """Train, measure deviations, regress them on the three statistics."""
    splits, facts = load(settings.source)
    begin = starting_point(splits, settings)
    with watched("training", settings.steps) as advance:
        state, status = fit(begin, splits, settings, advance=advance)
    require_finite(status, settings)
    values = np.asarray(token_scores(state.parameters)[1], float)

    number = np.asarray(occurrences(splits.train), float)
    chosen = number >= ENOUGH
    if chosen.sum() < 10:
        raise BadInput(f"{chosen.sum()} words occur {ENOUGH} times; wanted 10 or more")
    posterior = np.nan_to_num(np.asarray(posterior_difference(splits.train), float))
    deviation = values - neighbours_mean(posterior, values)
    turned = negation(fitted_reviews(settings.source), splits.words)
    statistics = {
        "context": context_posterior(splits.train, posterior),
        "negation": turned,
        "rarity": -np.log(np.maximum(number, 1)) * np.sign(posterior),
    }
    results |= {
        **facts,
        "compared": int(chosen.sum()),
        "spread": float(deviation[chosen].std()),
        "explained": explained(
            deviation[chosen],
            posterior[chosen],
            {name: column[chosen] for name, column in statistics.items()},
        ),
    }
    say(
        f"{results['compared']} words; standard deviation around the mean of words "
        f"with the same posterior difference {results['spread']:.3f}"
    )
    for name, row in results["explained"].items():
        say(f"{name:10s} " + "   ".join(f"{key} {row[key]:+.3f}" for key in row))
    most = np.flatnonzero(chosen)[np.argsort(-np.abs(deviation[chosen]))]
    say("word, posterior difference, deviation, then the three statistics:")
    for place in most[: settings.shown]:
        row = [posterior[place], deviation[place]]
        row += [column[place] for column in statistics.values()]
        say(f"{splits.words[place]:16s}" + "".join(f"{entry:9.3f}" for entry in row))
    arrays = {"posterior_difference": posterior, "deviation": deviation}
    return arrays | {"values": values, "compared": chosen} | statistics


def neighbours_mean(across: np.ndarray, upward: np.ndarray) -> np.ndarray:
    """Mean of one quantity over the hundredth of words nearest in another."""
    order = np.argsort(across, kind="stable")
    half = max(len(across) // 200, 2)
    total = np.concatenate([[0.0], np.cumsum(upward[order])])
    place = np.arange(len(across))
    low, high = np.maximum(place - half, 0), np.minimum(place + half + 1, len(across))
    mean = np.empty(len(across))
    mean[order] = (total[high] - total[low]) / (high - low)
    return mean


def context_posterior(corpus: SparseCorpus, posterior: np.ndarray) -> np.ndarray:
    """Mean posterior difference of the other words beside each word.

    Args:
        corpus: the training reviews.
        posterior: posterior difference of every word.
    """
    real = corpus.by_token.counts.dtype
    each = jax.numpy.asarray(posterior, real)
    total, length = products(corpus.by_sequence, each, jax.numpy.ones_like(each))
    mean, ones = products(corpus.by_token, total / length, jax.numpy.ones_like(length))
    # A review's mean holds the word itself with weight C/T: take one such share out.
    share, _ = products(corpus.by_token, 1 / length, 1 / length)
    number = np.maximum(np.asarray(ones, float), 1)
    return (np.asarray(mean, float) - posterior * np.asarray(share, float)) / number


def negation(given: Reviews, vocabulary: tuple[str, ...]) -> np.ndarray:
    """Tone of each word after a negator less its tone without one.

    Args:
        given: the training texts, words in order.
        vocabulary: the known words.

    Returns:
        Share of negated occurrences times the difference of the two posterior
        differences; each of them shrunk by two added occurrences of tone zero.
    """
    place = {word: number for number, word in enumerate(vocabulary)}
    number, excess = np.zeros((2, len(vocabulary))), np.zeros((2, len(vocabulary)))
    for text, label in zip(given.texts, given.labels.tolist(), strict=True):
        since = REACH
        for word in words_of(text):
            known = place.get(word)
            if known is not None:
                number[int(since < REACH), known] += 1
                excess[int(since < REACH), known] += label
            since = 0 if word in NEGATORS or word.endswith("n't") else since + 1
    tone = excess / (number + 2)
    return (tone[1] - tone[0]) * number[1] / np.maximum(number.sum(axis=0), 1)


def explained(
    deviation: np.ndarray, posterior: np.ndarray, statistics: dict[str, np.ndarray]
) -> dict[str, dict[str, float]]:
    """Share of the deviations' variance that each statistic explains, and all together.

    Args:
        deviation: what is to be explained, one number per word.
        posterior: first taken out of every statistic, linearly.
        statistics: one number per word each.

    Returns:
        Per statistic the correlation `r` and `share` = r²; for "all" the multiple one;
        for "chance" the share that as many shuffled statistics explain.
    """
    known = np.stack([np.ones_like(posterior), posterior], axis=1)

    def rest(column: np.ndarray) -> np.ndarray:
        left = column - known @ np.linalg.lstsq(known, column, rcond=None)[0]
        return left / max(float(np.linalg.norm(left)), np.finfo(float).tiny)

    target = rest(deviation)
    left = np.stack([rest(column) for column in statistics.values()], axis=1)
    shuffled = np.random.default_rng(0).permutation(left, axis=0)
    results = {}
    for place, name in enumerate(statistics):
        correlation = float(target @ left[:, place])
        results[name] = {"r": correlation, "share": correlation**2}
    for name, columns in (("all", left), ("chance", shuffled)):
        fitted = columns @ np.linalg.lstsq(columns, target, rcond=None)[0]
        results[name] = {"share": float(fitted @ fitted)}
    return results


def draw(finished: Finished) -> Figure:
    """One panel per statistic, one dot per word."""
    described = finished.results
    kept = finished.arrays
    columns = {name: column[kept["compared"]] for name, column in kept.items()}
    figure, axes = subplots(1, 3, figsize=(7.0, 2.6), sharey=True)
    names = [name for name in described["explained"] if name not in ("all", "chance")]
    for panel, name in zip(axes, names, strict=True):
        dots = panel.scatter(
            columns[name],
            columns["deviation"],
            c=columns["posterior_difference"],
            s=3,
            cmap="coolwarm",
            rasterized=True,
        )
        correlation = described["explained"][name]["r"]
        panel.set(xlabel=name, title=f"r = {correlation:.2f}")
    axes[0].set_ylabel("deviation of E·v")
    figure.colorbar(dots, label="posterior difference")
    return figure


def show(found: Finished) -> Shown:
    """Causes of a word's distance from words of like posterior difference."""
    explained = found.results["explained"]
    share, chance = (explained[name]["share"] for name in ("all", "chance"))
    return Shown(
        [
            f"Company, negation and rarity explain {share:.1%} of the spread of E·v "
            f"around words of the same posterior difference; chance would {chance:.1%}."
        ]
    )


main = Experiment(
    run, draw=draw, show=show, title="Where the theory errs", precision="float32"
)


if __name__ == "__main__":
    command(main, PRESETS)
