"""Film reviews: words over their posterior difference, ours beside the published."""

from typing import Any

import numpy as np

from experiments.report import flow_parts
from experiments.report.charts import axis, chart, series
from experiments.report.cloud import POSTERIOR, cloud
from experiments.report.folders import Found
from experiments.report.numbers import num, short
from experiments.report.sections import Part, Shown, Topic
from experiments.text import published

VOCABULARY = 20_000
"""Words of a model that travel with the page, the most frequent ones."""


def reviews(found: Found) -> Shown:
    """The step, the words after training, and a sentence to try."""
    results, arrays = found.results, found.arrays
    step, last = results["one_step"], results["last"]
    words, posterior = arrays["words"], arrays["posterior_difference"]
    eta = found.settings["step_size"]
    alpha = arrays["importance"]
    ends = np.array([alpha.min(), alpha.max()], float)
    history = arrays["history"].T
    charts = [
        chart(
            "reviews-step",
            "One step on E",
            "Value of every word after the step, over its importance.",
            axis("importance α"),
            axis("E·v after one step"),
            [
                series(
                    "words",
                    alpha,
                    arrays["values_step"],
                    kind="dots",
                    colour=6,
                    text=words,
                ),
                series("(η₀/2) α", ends, 0.5 * eta * ends, kind="dash", colour=1),
            ],
        ),
        cloud(
            "reviews-values",
            "E·v after training",
            posterior,
            arrays["values_last"],
            words,
        ),
        cloud(
            "reviews-scores",
            "E·p after training",
            posterior,
            arrays["scores_last"],
            words,
        ),
        chart(
            "reviews-course",
            "Training",
            "Accuracy on the reviews trained on, and on those held out.",
            axis("step"),
            axis("accuracy"),
            [
                series("train", history[0], history[2]),
                series("held out", history[0], history[4], colour=1),
            ],
        ),
    ]
    return Shown(
        [
            f"{results['vocabulary']:,} words, {results['train_reviews']:,} reviews: "
            f"after one step E·v follows α with correlation "
            f"{num(step['correlation'])}. Trained on, the model is right in "
            f"{last['test_accuracy']:.1%} of the test reviews."
        ],
        charts,
        words=_model(arrays),
    )


def _model(arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """The model's most frequent words, to weigh a sentence with."""
    often = np.argsort(-arrays["occurrences"], kind="stable")[:VOCABULARY]
    words = arrays["words"][often]
    scores, values = arrays["scores_last"][often], arrays["values_last"][often]
    # Something to begin with: what this model attends to, among plain words.
    plain = often[: min(len(often), 400)]
    top = plain[np.argsort(-arrays["scores_last"][plain])[:3]]
    rest = plain[:6]
    example = [
        str(arrays["words"][place])[:40] for place in (*rest[:3], *top, *rest[3:])
    ]
    return {
        "name": "reviews",
        "words": [str(word)[:60] for word in words],
        "scores": short(scores),
        "values": short(values),
        "example": " ".join(example),
    }


def training(found: Found) -> Shown:
    """Accuracy beside the published, and bin means likewise."""
    results = found.results
    known = results.get("published", False)
    centres = np.array(published.POSTERIOR)
    charts = []
    for part, name, theirs in (
        ("values", "E·v", published.VALUES),
        ("scores", "E·p", published.SCORES),
    ):
        drawn = [series("published", centres, _even(theirs), kind="dash", colour=6)]
        drawn = drawn if known else []
        drawn += [
            series(
                model,
                centres,
                _even(row["shape"][part]["bin_means"]),
                kind="points",
                colour=place,
            )
            for place, (model, row) in enumerate(results["models"].items())
        ]
        charts.append(
            chart(
                f"training-{part}",
                f"{name}: ours beside the published bin means"
                if known
                else f"{name}: bin means",
                "Each divided by its own deviation over the bins; the level of E·p "
                "is taken away, since attention cannot see it.",
                axis(POSTERIOR),
                axis(f"bin mean of {name} / its deviation"),
                drawn,
            )
        )
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
    return Shown([said], charts, rows)


def _even(means: list[float]) -> np.ndarray:
    """Bin means less their level, over their deviation."""
    values = np.array(means, float)
    return (values - np.nanmean(values)) / np.nanstd(values)


def lemma(found: Found) -> Shown:
    """The error of the step over d."""
    results = found.results
    dims = np.array(results["dims"], float)
    reference = results["errors"][0] * (dims / dims[0]) ** -0.5
    return Shown(
        [
            f"With α the error of the predicted step goes like "
            f"d^({num(results['exponent'])}), with plain counts in its place like "
            f"d^({num(results['exponent_plain_counts'])})."
        ],
        [
            chart(
                "text-lemma",
                "Error of one step on E",
                "Against α it falls with d, against plain counts it stays.",
                axis("embedding dimension d", log=True),
                axis("relative error", log=True),
                [
                    series("with α", dims, results["errors"], kind="points"),
                    series(
                        "with plain counts",
                        dims,
                        results["errors_plain_counts"],
                        kind="points",
                        colour=1,
                    ),
                    series("d^(−1/2)", dims, reference, kind="dash", colour=6),
                ],
            )
        ],
    )


def deviations(found: Found) -> Shown:
    """What explains a word's distance from words of like posterior difference."""
    explained = found.results["explained"]
    share, chance = (explained[name]["share"] for name in ("all", "chance"))
    kept = found.arrays["compared"]
    return Shown(
        [
            f"Company, negation and rarity explain {share:.1%} of the spread of E·v "
            f"around words of the same posterior difference; chance would {chance:.1%}."
        ],
        [
            chart(
                f"deviations-{name}",
                f"Deviation of E·v over {name}",
                f"Correlation {num(explained[name]['r'])}.",
                axis(name),
                axis("deviation of E·v"),
                [
                    series(
                        "words",
                        found.arrays[name][kept],
                        found.arrays["deviation"][kept],
                        kind="dots",
                        colour=6,
                    )
                ],
            )
            for name in ("company", "negation", "rarity")
        ],
    )


def joint(found: Found) -> Shown:
    """Weight off the first word, and the tendency, as the loss falls."""
    runs = {name: rows for name, rows in found.results["runs"].items() if rows}

    def lines(key: str) -> list:
        return [
            series(
                name,
                [-np.log(row["loss"]) for row in rows],
                [row[key] for row in rows],
                colour=place,
            )
            for place, (name, rows) in enumerate(runs.items())
        ]

    last = (f"{name} {num(rows[-1]['tendency'])}" for name, rows in runs.items())
    return Shown(
        [f"Rank correlation of E·v with the posterior difference: {', '.join(last)}."],
        [
            chart(
                f"text-joint-{key}",
                title,
                "E, p and v trained together; each dot a look on the way.",
                axis("log(1/L)", log=True),
                axis(label),
                lines(key),
            )
            for key, title, label in (
                ("rest", "Attention narrows", "weight off the first word"),
                ("tendency", "E·v and posterior difference", "rank correlation"),
            )
        ],
    )


def choice(found: Found) -> Shown:
    """Every setting tried, with what decided."""
    rows = [["learning rate", "batch", "held-out accuracy", "step"]]
    rows += [
        [
            num(row["learning_rate"]),
            "all" if not row["batch"] else str(row["batch"]),
            f"{row['held_out_accuracy']:.4f}",
            str(row["step"]),
        ]
        for row in found.results["tried"]
    ]
    return Shown(["Chosen on held-out reviews, not on those tested."], [], rows)


SECTION = Topic(
    "text",
    "Real text",
    "The same step and the same attention on reviews, where no word belongs to one "
    "class alone. Point at a dot for its word.",
    (
        Part(
            "reviews",
            "One step, then attention",
            "python -m experiments.reviews",
            reviews,
        ),
        *(
            Part(f"text.{name}", title, f"python -m experiments.text.{name}", show)
            for name, title, show in (
                ("training", "Trained as published", training),
                ("joint", "All trained, and for long", joint),
                ("lemma", "Lemma 4.1 on words", lemma),
                ("deviations", "Where the theory errs", deviations),
                ("choice", "How training was chosen", choice),
                ("flow", "The flow of p, to its proved end", flow_parts.flow),
                ("bridge", "Where p goes on, and where it rests", flow_parts.bridge),
            )
        ),
    ),
)
