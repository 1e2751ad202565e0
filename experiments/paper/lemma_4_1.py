"""Lemma 4.1: one step on E adds (η₀/2) α_s v, with an error that falls like d^(−1/2).

On synthetic tokens, or on the words of reviews where some are given. One full-batch
step on E from several draws at each d; the error relative to the prediction, and its
exponent. Beside it the same with plain counts in place of α, which gives every word,
not every review, the same weight: no multiple of it is the limit where lengths differ.

    python -m experiments.paper.lemma_4_1 [--train FILE --test FILE]
"""

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from experiments.common import memory
from experiments.common.claims import Claim, Measured, at_most
from experiments.common.console import command, say
from experiments.common.numbers import num
from experiments.common.progress import progress_bar
from experiments.common.results import Finished
from experiments.common.statistics import exponent
from experiments.common.study import Count, Experiment, Study, presets
from experiments.common.style import subplots
from experiments.text.counts import SparseCorpus, from_corpus, importance, products
from experiments.text.data import load
from experiments.text.objective import risk_and_score_descent
from experiments.text.source import Source
from jaxselect.data.synthetic import assumption_one
from jaxselect.model.attention import token_scores
from jaxselect.model.parameters import Parameters, gaussian


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Study):
    """Dimensions and draws.

    Attributes:
        source: reviews and their vocabulary; synthetic tokens where there are none.
        dims: values of d.
        seeds: draws of the parameters at each d.
        preset: full or smoke (synthetic reviews).
    """

    source: Source = Source()
    dims: tuple[Count, ...] = (64, 128, 256, 512, 1024, 2048, 4096)
    seeds: Count = 5
    out: Path = Path("results/paper/lemma_4_1")

    def check(self) -> None:
        """Refuse numbers beyond memory."""
        memory.require(8 * max(self.dims), f"--dims {max(self.dims)}")
        memory.require(16 * self.seeds, f"--seeds {self.seeds}")


PRESETS = presets(
    full=Settings(),
    smoke=Settings(source=Source(invented=300), dims=(64, 256, 1024), seeds=2),
)


# The error is a small difference of larger numbers.
def run(settings: Settings, results: dict) -> dict[str, np.ndarray]:
    """Errors at every d, their mean and their exponent."""
    corpus, facts = sequences(settings.source)
    per_review = importance(corpus)
    label = corpus.labels.astype(per_review.dtype)
    per_word, _ = products(corpus.by_token, label, label)
    results |= {**facts, "dims": [], "errors": [], "errors_plain_counts": []}
    with progress_bar("steps", settings.seeds * sum(settings.dims)) as advance:
        for dim in settings.dims:
            errors = np.zeros((2, settings.seeds))
            for seed in range(settings.seeds):
                key = jax.random.fold_in(jax.random.key(settings.seed + seed), dim)
                model = gaussian(key, vocabulary=facts["vocabulary"], dim=dim)
                errors[0, seed] = error(model, corpus, per_review)
                errors[1, seed] = error(model, corpus, per_word)
                advance(dim)
            by_review, by_word = errors.mean(axis=1).tolist()
            results["dims"].append(dim)
            results["errors"].append(by_review)
            results["errors_plain_counts"].append(by_word)
            shown = f"error {by_review:.4f}   with plain counts {by_word:.4f}"
            say(f"d = {dim:6d}   {shown}")
    for name in ("", "_plain_counts"):
        results[f"exponent{name}"] = exponent(settings.dims, results[f"errors{name}"])
    added = along_head(model, corpus)[0]
    return {"importance": np.asarray(per_review), "added": np.asarray(added)}


def sequences(source: Source) -> tuple[SparseCorpus, dict]:
    """The training reviews, or the synthetic tokens of `make sweep`; and their size."""
    if source.train is None and source.dataset is None and source.invented is None:
        key = jax.random.key(0)
        sizes = {"sequences": 200, "length": 8, "relevant": 8, "irrelevant": 48}
        corpus = assumption_one(key, **sizes)
        return from_corpus(corpus), {"vocabulary": corpus.vocabulary}
    splits, facts = load(source)
    return splits.train, facts


def along_head(model: Parameters, corpus: SparseCorpus) -> tuple[jax.Array, ...]:
    """−∇_E L v, token by token, and the two factors of −∇_E L = g pᵀ + h vᵀ."""
    _, (by_score, by_value) = risk_and_score_descent(*token_scores(model), corpus)
    overlap = jnp.vdot(model.query, model.head)
    return by_value + overlap * by_score, by_score, by_value


def error(model: Parameters, corpus: SparseCorpus, direction: jax.Array) -> float:
    """‖−∇_E L − c u vᵀ‖ / ‖c u‖ at the best multiple c of a direction u.

    For u = α the lemma says c = 1/2 too; leaving c free makes plain counts, which have
    no natural scale, comparable. With −∇_E L = g pᵀ + h vᵀ nothing of size |S| × d is
    needed.
    """
    along, by_score, by_value = along_head(model, corpus)
    overlap = jnp.vdot(model.query, model.head)
    # c fits u to the part along v.
    multiple = jnp.vdot(along, direction) / jnp.vdot(direction, direction)
    left = by_value - multiple * direction
    square = (
        jnp.vdot(by_score, by_score) * jnp.vdot(model.query, model.query)
        + 2 * jnp.vdot(by_score, left) * overlap
        + jnp.vdot(left, left)
    )
    return float(jnp.sqrt(square) / (jnp.abs(multiple) * jnp.linalg.norm(direction)))


def draw(finished: Finished) -> Figure:
    """Left: what one step adds to E·v, against α/2. Right: its error, against d."""
    results, arrays = finished.results, finished.arrays
    dims = np.array(results["dims"])
    figure, (left, right) = subplots(1, 2, figsize=(7.2, 3.2))
    half = arrays["importance"] / 2
    dots = {"markersize": 3, "alpha": 0.5, "rasterized": True}
    left.plot(half, arrays["added"], ".", label=f"measured, d = {dims[-1]:,}", **dots)
    ends = np.array([half.min(), half.max()])
    left.plot(ends, ends, "k--", marker="", label="Lemma 4.1")
    left.set(xlabel=r"$\alpha_s/2$", ylabel="(E¹ − E⁰)·v / η₀")
    right.loglog(dims, results["errors"], "o-", label="relative to α")
    # Of sequences of one length α is a multiple of plain counts.
    plain = results["errors_plain_counts"]
    if not np.allclose(plain, results["errors"]):
        right.loglog(dims, plain, "s-", label="relative to plain counts")
    reference = results["errors"][-1] * (dims / dims[-1]) ** -0.5
    right.loglog(dims, reference, "k--", label="$d^{-1/2}$")
    right.set(xlabel="dimension d", ylabel="relative error of one step")
    for panel in (left, right):
        panel.legend()
    return figure


LEMMA = 0.05
"""Largest distance of the exponent from −½: in a small d the next order shows."""


def text_lemma(found: Finished) -> Measured:
    """The exponent of the error, and that with plain counts in place of α."""
    results = found.results
    exponent, plain = results["exponent"], results["exponent_plain_counts"]
    # Of sequences of one length α is a multiple of plain counts.
    same = num(plain) == num(exponent)
    other = f"; if α counted occurrences, like d^({num(plain)})" * (not same)
    return Measured(
        at_most(abs(exponent + 0.5), LEMMA),
        f"the error falls like d^({num(exponent)}), to {num(results['errors'][-1])} at "
        f"d = {results['dims'][-1]:,}{other}",
        f"{results['vocabulary']:,} tokens, {len(results['dims'])} d",
        "–",
        f"the exponent within {LEMMA:g} of −½",
    )


CLAIMS = (
    Claim(
        "E_s¹ ≈ E_s⁰ + (η₀/2) α_s v for all s, for d large, whatever the data.",
        text_lemma,
        "Lemma 4.1; its scope, reply to reviewer vwUg",
    ),
)


main = Experiment(run, draw=draw, claims=CLAIMS, title="Lemma 4.1")


if __name__ == "__main__":
    command(main, PRESETS)
