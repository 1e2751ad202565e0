"""Claims held against real text and richer networks."""

import itertools

from experiments.common.results import Finished
from experiments.report.measured import Claim, Measured
from experiments.report.numbers import counted, finite, num
from experiments.report.verdicts import (
    Verdict,
    at_least,
    at_most,
    of_cases,
    of_status,
)

EXPONENT = 0.02
"""Largest distance of a fitted exponent from its prediction, for a few seeds."""
LEMMA = 0.05
"""The same on reviews, where words are few and their counts uneven."""
RANK = 0.9
"""Rank correlation from which two tables count as one tendency."""
ENDS = {
    "SELECTED": Verdict.HOLDS,
    "TIED": Verdict.HOLDS,
    "AT_REST": Verdict.FAILS,
    "UNPROVED": Verdict.OPEN,
    "NOT_CERTIFIED": Verdict.OPEN,
    "LOSS_UNBOUNDED": Verdict.OPEN,
}
"""The verdict on growth without bound, by how a flow on text ends."""


def text_lemma(found: Finished) -> Measured:
    """Lemma 4.1 on words of real text."""
    results = found.results
    exponent = results["exponent"]
    return Measured(
        at_most(abs(exponent + 0.5), LEMMA),
        f"exponent {num(exponent)} in d; with plain counts "
        f"{num(results['exponent_plain_counts'])}",
        f"{results['vocabulary']:,} words, {len(results['dims'])} d",
        "–",
        f"the exponent within {LEMMA:g} of −½",
    )


def text_order(found: Finished) -> Measured:
    """E·v and E·p of words follow the posterior difference as published."""
    if not found.results.get("published"):
        return Measured(Verdict.OPEN, "nothing published to hold it against")
    models = found.results["models"]
    name = "together" if "together" in models else next(iter(models))
    shape = models[name]["shape"]
    ranks = {part: shape[part]["rank_correlation"] for part in ("values", "scores")}
    return Measured(
        of_cases(sum(rank >= RANK for rank in ranks.values()), len(ranks)),
        f"rank correlation with the published bins {num(ranks['values'])} (E·v), "
        f"{num(ranks['scores'])} (E·p)",
        f"{found.results['vocabulary']:,} words in 20 bins",
        "–",
        f"{RANK:g} or more in both",
    )


def review_step(found: Finished) -> Measured:
    """One step on film reviews follows α."""
    row = found.results["one_step"]
    return Measured(
        at_least(row["correlation"], RANK),
        f"correlation of E·v with α {num(row['correlation'])}, slope "
        f"{num(row['slope_ratio'])} · η₀/2",
        f"{found.results['vocabulary']:,} words",
        "–",
        f"correlation {RANK:g} or more",
    )


def text_end(found: Finished) -> Measured:
    """The flow of p on reviews has an end that is proved."""
    results = found.results
    return Measured(
        of_status(results["status"], ENDS),
        f"{results['status'].replace('_', ' ').lower()}: {results['tied_words']} words "
        f"at finite odds, growth {num(results['growth'])} per unit of log t",
        f"{results['reviews']:,} reviews, {results['vocabulary']:,} words",
        "–",
        "words at rest proved (Newton–Kantorovich), duality gap 1e-10, p on its way",
    )


def network_order(found: Finished) -> Measured:
    """Richer networks order words alike."""
    tables = found.results["published"]
    if not tables:
        return Measured(Verdict.OPEN, "nothing published to hold it against")
    ranks = {name: table["rank_correlation"] for name, table in tables.items()}
    shown = ", ".join(f"{name} {num(rank)}" for name, rank in ranks.items())
    return Measured(
        of_cases(sum(rank >= RANK for rank in ranks.values()), len(ranks)),
        f"rank correlation with the published bins: {shown}",
        f"{found.results['vocabulary']:,} words",
        "–",
        f"{RANK:g} or more in every table",
    )


def network_step(found: Finished) -> Measured:
    """The first step of richer networks is predicted by counts."""
    results = found.results
    steps = {name: row for name, row in results.items() if name.startswith("step size")}
    exponents = finite(row["exponent"] for row in steps.values())
    if not exponents.size:
        return Measured(Verdict.OPEN, "no exponent")
    close = int((abs(exponents + 0.5) <= EXPONENT).sum())
    return Measured(
        of_cases(close, len(steps)),
        f"error ∝ d^{num(exponents.mean())}",
        counted(results["lanes"], "run"),
        "–",
        f"exponents within {EXPONENT:g} of −½",
    )


CLAIMS = tuple(
    itertools.starmap(
        Claim,
        (
            (
                "On film reviews, too, one step moves words by their importance.",
                "Lemma 4.1",
                "reviews",
                "python -m experiments.reviews",
                review_step,
            ),
            (
                "On film reviews the error of that step falls like d^(−1/2).",
                "Lemma 4.1",
                "text.lemma",
                "python -m experiments.text.lemma",
                text_lemma,
            ),
            (
                "After training, E·v and E·p of words follow their posterior "
                "difference as in the published tables.",
                "Experiments of the paper",
                "text.training",
                "python -m experiments.text.training",
                text_order,
            ),
            (
                "On film reviews p grows for ever, but for words that both classes "
                "hold: they rest.",
                "",
                "text.flow",
                "python -m experiments.text.flow",
                text_end,
            ),
            (
                "Two layers, an MLP and many classes show the same tendencies.",
                "Discussion of the paper",
                "networks",
                "python -m experiments.networks",
                network_order,
            ),
            (
                "The first step of richer networks is what counts predict.",
                "",
                "networks.sweep",
                "python -m experiments.networks.sweep",
                network_step,
            ),
        ),
    )
)
