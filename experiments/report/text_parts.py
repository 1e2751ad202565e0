"""Findings of the studies of real text, in sentences and tables."""

from typing import Any

import numpy as np

from experiments.report.folders import Found
from experiments.report.numbers import num, short
from experiments.report.sections import Part, Shown, Topic
from experiments.text import published

VOCABULARY = 20_000
"""Words of a model that travel with the page, the most frequent ones."""


def reviews(found: Found) -> Shown:
    """The step, the model after training, and a sentence to try."""
    results = found.results
    return Shown(
        [
            f"{results['vocabulary']:,} words, {results['train_reviews']:,} reviews: "
            f"after one step E·v follows α with correlation "
            f"{num(results['one_step']['correlation'])}. Trained on, the model is "
            f"right in {results['last']['test_accuracy']:.1%} of the test reviews."
        ],
        words=_model(found.arrays),
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


def lemma(found: Found) -> Shown:
    """Exponents of the error of the step in d."""
    results = found.results
    return Shown(
        [
            f"With α the error of the predicted step goes like "
            f"d^({num(results['exponent'])}), with plain counts in its place like "
            f"d^({num(results['exponent_plain_counts'])})."
        ]
    )


def deviations(found: Found) -> Shown:
    """Causes of a word's distance from words of like posterior difference."""
    explained = found.results["explained"]
    share, chance = (explained[name]["share"] for name in ("all", "chance"))
    return Shown(
        [
            f"Company, negation and rarity explain {share:.1%} of the spread of E·v "
            f"around words of the same posterior difference; chance would {chance:.1%}."
        ]
    )


def joint(found: Found) -> Shown:
    """How well the posterior difference says E·v after long training."""
    runs = found.results["runs"].items()
    last = (f"{name} {num(rows[-1]['tendency'])}" for name, rows in runs if rows)
    return Shown(
        [f"Rank correlation of E·v with the posterior difference: {', '.join(last)}."]
    )


def flow(found: Found) -> Shown:
    """The course of p, its end, and the words at rest."""
    results, columns = found.results, found.arrays
    tied = ", ".join(str(columns["words"][place]) for place in columns["tied"][:12])
    sentences = [
        f"At log t = {num(log_time)} a word that had lost comes back."
        for log_time in results.get("returns", [])
    ]
    sentences.append(results["sentence"])
    if tied:
        sentences.append(
            f"{results['tied_words']} words rest at finite odds, in "
            f"{results['tied_dimensions']} dimensions: {tied}."
        )
    if results["growth"]:
        sentences.append(
            f"‖p‖ grows by {num(results['growth'])} per unit of log t; "
            f"{results['active_pairs']} of {results['pairs']:,} pairs decide."
        )
    return Shown(sentences)


def assumption_violation(found: Found) -> Shown:
    """A row per cell."""
    table = [["c", "d", "η₀", "words", "end", "tied words", "‖p_mm‖"]]
    table += [
        [
            num(cell["at_least"]),
            str(cell["dim"]),
            num(cell["step_size"]),
            str(cell["words"]),
            cell["status"].replace("_", " ").lower(),
            str(cell["tied_words"]),
            num(cell["growth"]),
        ]
        for cell in found.results["cells"]
    ]
    counted = found.results["statuses"]
    return Shown(
        [", ".join(f"{name} {number}" for name, number in counted.items()) + "."],
        table,
    )


def lr_search(found: Found) -> Shown:
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
    return Shown(["Chosen on held-out reviews, not on those tested."], rows)


SECTION = Topic(
    "text",
    "Real text",
    "The same step and the same attention on reviews, where no word belongs to one "
    "class alone.",
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
                ("lr_search", "How training was chosen", lr_search),
                ("flow", "The flow of p, to its proved end", flow),
                ("assumption_violation", "Where p rests", assumption_violation),
            )
        ),
    ),
)
