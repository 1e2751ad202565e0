"""Ways to train on the same reviews, against what the authors published.

    together         E, p and v trained
    head fixed       E and p trained
    one step         one full-batch step on E, then p and v trained
    random           E as it was drawn, p and v trained
    …, long          the same two for longer, at the learning rate chosen for them

The cost of a fixed E depends on how long p and v are trained, which the authors do not
say. With the optimiser and the number of steps of `together` our figures are like
theirs; p and v alone move slowly, and come far nearer when they are trained longer.

Reports accuracy and loss on both splits, the shape of E_sᵀv and E_sᵀp over the
posterior difference, how far words scatter around it, and what is attended to.

    python -m experiments.text.training --train imdb_train.parquet --test ...
"""

import dataclasses
import time
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from experiments.common.claims import Shown
from experiments.common.console import command, say
from experiments.common.numbers import num
from experiments.common.progress import watched
from experiments.common.results import Finished
from experiments.common.statistics import beside, binned
from experiments.common.study import Count, Experiment, Positive, Study, check, presets
from experiments.common.style import cloud, subplots
from experiments.text import published
from experiments.text.attended import agreement, attend, describe
from experiments.text.baseline import of_reviews
from experiments.text.data import Source, in_order, load
from experiments.text.fitting import (
    BEST,
    LAST,
    Fit,
    fit,
    require_finite,
    starting_point,
    summary,
)
from jaxselect.data.sparse import importance, posterior_difference
from jaxselect.model.attention import token_scores
from jaxselect.model.parameters import Parameters

# By name: use of E, whether v is trained, whether training is long.
MODELS = {
    "together": ("trained", True, False),
    "head fixed": ("trained", False, False),
    "one step": ("one-step", True, False),
    "random": ("random", True, False),
    "one step, long": ("one-step", True, True),
    "random, long": ("random", True, True),
}
LATE = [(split, what) for split in ("train", "test") for what in ("accuracy", "loss")]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Study):
    """The reviews and the training of every model.

    Attributes:
        source: the reviews and their vocabulary.
        dim: d.
        step_size: η₀ of the full-batch step.
        steps: training steps.
        learning_rate: of Adam.
        batch: reviews in a minibatch.
        steps_long: training steps of the long ones, on all reviews at once and at the
            learning rate that `reviews` takes for fixed E.
        seed: random seed of the initialisation and of the minibatches.
        shown: words in each list.
        preset: full or smoke (invented reviews).
    """

    source: Source = Source()
    dim: Count = 2048
    step_size: Positive = 1000.0
    steps: Count = 300
    learning_rate: Positive = 1e-3
    batch: int = 250
    steps_long: Count = 800
    shown: int = 20
    out: Path = Path("results/text-training")

    def runs(self) -> dict[str, Fit]:
        """The runs by name of `MODELS`."""
        return {
            name: Fit(
                embeddings=embeddings,  # type: ignore[arg-type]
                train_head=train_head,
                steps=self.steps_long if long else self.steps,
                learning_rate=None if long else self.learning_rate,
                batch=0 if long else self.batch,
                every=20,
                dim=self.dim,
                step_size=self.step_size,
                seed=self.seed,
            )
            for name, (embeddings, train_head, long) in MODELS.items()
        }

    def check(self) -> None:
        """Refuse models that cannot be trained."""
        for run in self.runs().values():
            check(run)


PRESETS = presets(
    full=Settings(),
    smoke=Settings(
        source=Source(invented=600),
        dim=128,
        steps=60,
        batch=200,
        steps_long=60,
        shown=5,
    ),
)


def run(settings: Settings, results: dict) -> dict[str, np.ndarray]:
    """Train the models, compare them with each other and with the paper."""
    begun = time.perf_counter()
    runs = settings.runs()
    splits, facts = load(settings.source)
    known = settings.source.name == published.DATA and in_order(facts["labels"])
    posterior = np.asarray(posterior_difference(splits.train))
    alpha = np.asarray(importance(splits.train))

    results |= {**facts, "published": known, "models": {}}
    words, attention = {}, {}
    total = sum(run.steps for run in runs.values())
    with watched("training", total) as advance:
        for name, run in runs.items():
            say(f"— {name} —")
            begin = starting_point(splits, run)
            state, status = fit(begin, splits, run, advance=advance)
            require_finite(status, run)
            words[name] = columns(state.parameters)
            attention[name] = attend(words[name]["scores"], splits.test)
            results["models"][name] = {
                "status": status,
                "stopped": summary(state.best, splits, BEST)
                | {"step": int(state.best_step)},
                "last": summary(state.parameters, splits, LAST)
                | {"step": int(state.step)},
                "shape": shape(posterior, words[name], known),
                "attention": describe(
                    attention[name], splits.words, alpha, settings.shown
                ),
            }
    results["spread_ratio"] = {
        name: spread_ratio(posterior, words["together"], words[name])
        for name in MODELS
        if name.startswith("one step")
    }
    results["same_selection"] = agreement(
        attention["together"], attention["head fixed"]
    )
    bag = of_reviews(splits, "train", "test")
    results["bag_of_words"] = bag | {"ahead_of": ahead(bag, results["models"])}
    results["seconds"] = time.perf_counter() - begun
    say_tables(results)
    arrays: dict = {"posterior_difference": posterior}
    for name, both in words.items():
        arrays |= {f"{part} {name}": column for part, column in both.items()}
    return arrays


def columns(parameters: Parameters) -> dict[str, np.ndarray]:
    """`scores` E_sᵀp and `values` E_sᵀv of every word."""
    scores, values = token_scores(parameters)
    return {"scores": np.asarray(scores, float), "values": np.asarray(values, float)}


def ahead(bag: dict[str, float], models: dict) -> list[str]:
    """Models below the bag of words on the test reviews."""
    return [
        name
        for name, model in models.items()
        if model["stopped"]["test_accuracy"] < bag["test_accuracy"]
    ]


def shape(
    posterior: np.ndarray, words: dict[str, np.ndarray], known: bool = True
) -> dict:
    """Bin means against the published ones: rank correlation, signs, ratio of size.

    Args:
        posterior: posterior difference of every word.
        words: of `columns`.
        known: whether the data are those that the published ones are of.

    Returns:
        For scores and values: bin means; and of known data `rank_correlation` and
        `same_sign` (after subtracting the mean over bins for the scores, whose level
        attention cannot see), and `ratio` of the standard deviations over the bins,
        ours over theirs.
    """
    centres = np.array(published.POSTERIOR)
    between = 0.5 * (centres[1:] + centres[:-1])
    edges = np.concatenate([[-1.0], between, [1.0]])
    results = {}
    for name, theirs in (("scores", published.SCORES), ("values", published.VALUES)):
        mean = binned(posterior, words[name], edges).mean
        results[name] = {"bin_means": mean.tolist()}
        if known:
            results[name] |= beside(mean, np.array(theirs), level=name == "scores")
    return results


def spread_ratio(
    posterior: np.ndarray, trained: dict[str, np.ndarray], fixed: dict[str, np.ndarray]
) -> dict[str, float]:
    """Standard deviation within bins: E trained over E fixed after one step.

    Args:
        posterior: posterior difference of every word.
        trained: `columns` of the model with E trained.
        fixed: `columns` of the other.

    Returns:
        The ratio of the means over bins, as published; and `relative`, each spread
        first divided by the range of its bin means.
    """
    results = {}
    for part in ("values", "scores"):
        spreads, relative = [], []
        for columns in (trained, fixed):
            _, mean, spread, number = binned(posterior, columns[part])
            filled = number > 1
            spreads.append(spread[filled].mean())
            relative.append(spreads[-1] / np.ptp(mean[filled]))
        results[part] = float(spreads[0] / spreads[1])
        results[f"{part}_relative"] = float(relative[0] / relative[1])
    return results


def say_tables(results: dict) -> None:
    """Print the tables."""
    say("\n                  stopped            last")
    say("model               train     test    train     loss     test     loss")
    for name, model in results["models"].items():
        early, late = model["stopped"], model["last"]
        early = [early[key] for key in ("train_accuracy", "test_accuracy")]
        late = [late[f"{split}_{what}"] for split, what in LATE]
        say(f"{name:16s}" + "".join(f"{value:9.4f}" for value in early + late))
    bag = results["bag_of_words"]
    reached = [bag[f"{split}_accuracy"] for split in ("train", "test")]
    say("bag of words    " + "".join(f"{value:9.4f}" for value in reached))
    if bag["ahead_of"]:
        say(f"below the bag of words on the test split: {'; '.join(bag['ahead_of'])}")
    if results["published"]:
        say_published(results)
    else:
        say(
            f"nothing is published for these data: figures are of {published.DATA}, "
            "and --named says what files hold"
        )
    say("\nspread within bins, trained over one step")
    for name, row in results["spread_ratio"].items():
        say(f"{name:16s}" + "   ".join(f"{part} {row[part]:.2f}" for part in row))
    say(f"\nsame selection with the head fixed: {results['same_selection']}")
    for name, model in results["models"].items():
        attention = model["attention"]
        listed = ", ".join(f"{word} {a:+.1e}" for word, _, a in attention["words"])
        say(
            f"{name}: {attention['positions']:.1f} positions attended, first word "
            f"{attention['top']:.2f}; most attended, with α: {listed}"
        )


def say_published(results: dict) -> None:
    """Print the authors' figures, and our bins beside theirs."""
    say(f"published, said to be test: trained {published.TRAINED}, {published.RANDOM}")
    say(f"published spread within bins, trained over one step {published.SPREAD_RATIO}")
    say("\nbin means against the published: rank correlation, same sign, ratio of size")
    for name, model in results["models"].items():
        for part in ("values", "scores"):
            row = model["shape"][part]
            say(
                f"{name:16s} {part}   {row['rank_correlation']:.3f}   "
                f"{row['same_sign']:.2f}   {row['ratio']:.2f}"
            )


def draw(finished: Finished) -> Figure:
    """E_sᵀv and E_sᵀp against the posterior difference, a row per model."""
    columns = finished.arrays
    models = [name.partition(" ")[2] for name in columns if name.startswith("scores")]
    figure, axes = subplots(
        len(models), 2, figsize=(7.0, 2.6 * len(models)), squeeze=False
    )
    for row, model in enumerate(models):
        for column, (part, label) in enumerate((("values", "E·v"), ("scores", "E·p"))):
            across, upward = columns["posterior_difference"], columns[f"{part} {model}"]
            panel = axes[row, column]
            cloud(panel, across, upward, f"{label}, {model}")
    return figure


def show(found: Finished) -> Shown:
    """Accuracies and rank correlations beside the published."""
    results = found.results
    known = results.get("published", False)
    rows = [["model", "train", "test", "E·v rank corr.", "E·p rank corr."]]
    rows += [
        [
            model,
            f"{row['last']['train_accuracy']:.3f}",
            f"{row['last']['test_accuracy']:.3f}",
            *(
                num(row["shape"][part]["rank_correlation"]) if known else "–"
                for part in ("values", "scores")
            ),
        ]
        for model, row in results["models"].items()
    ]
    if bag := results.get("bag_of_words"):
        reached = [f"{bag[f'{split}_accuracy']:.3f}" for split in ("train", "test")]
        rows.append(["bag of words, logistic regression", *reached, "–", "–"])
    said = f"Bins and accuracies were published for {published.DATA}, not for these."
    if known:
        accuracy = f"{published.TRAINED['accuracy']:.2f}"
        rows.append(["published, E p v trained", "–", accuracy, "–", "–"])
        said = f"Bins and accuracies were published for these data, {published.DATA}."
    return Shown([said], rows)


main = Experiment(
    run,
    draw=draw,
    show=show,
    title="Trained as published",
    precision="float32",
)


if __name__ == "__main__":
    command(main, PRESETS)
