"""Lemma 4.1 on real text: how the error of (η₀/2) α_s v falls with the dimension.

One full-batch step on E from several draws at each d; the error relative to the
prediction, and its exponent. Beside it the same with plain counts in place of α, which
gives every word, not every review, the same say: no multiple of that is the limit.

    python -m experiments.paper.lemma_4_1 --train imdb_train.parquet --test imdb_test.parquet
"""

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from experiments.common import memory
from experiments.common.claims import Claim, Measured, Shown, at_most
from experiments.common.console import command, say
from experiments.common.numbers import num
from experiments.common.progress import watched
from experiments.common.results import Finished
from experiments.common.study import Count, Experiment, Study, presets
from experiments.common.style import subplots
from experiments.text.data import Source, load
from jaxselect.data.sparse import SparseCorpus, importance, products
from jaxselect.model.attention import token_scores
from jaxselect.model.parameters import Parameters, gaussian
from jaxselect.model.sparse_objective import risk_and_score_descent


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Study):
    """Dimensions and draws.

    Attributes:
        source: the reviews and their vocabulary.
        dims: values of d.
        seeds: draws of the parameters at each d.
        preset: full or smoke (invented reviews).
    """

    source: Source = Source()
    dims: tuple[Count, ...] = (64, 128, 256, 512, 1024, 2048, 4096)
    seeds: Count = 5
    out: Path = Path("results/text-lemma")

    def check(self) -> None:
        """Refuse numbers beyond memory."""
        memory.require(8 * max(self.dims), f"--dims {max(self.dims)}")
        memory.require(16 * self.seeds, f"--seeds {self.seeds}")


PRESETS = presets(
    full=Settings(),
    smoke=Settings(source=Source(invented=300), dims=(64, 256, 1024), seeds=2),
)


# The error is a small difference of larger numbers.
def run(settings: Settings, results: dict) -> None:
    """Errors at every d, their mean and their exponent."""
    splits, facts = load(settings.source)
    per_review = importance(splits.train)
    label = splits.train.labels.astype(per_review.dtype)
    per_word, _ = products(splits.train.by_token, label, label)
    results |= {**facts, "dims": [], "errors": [], "errors_plain_counts": []}
    with watched("steps", settings.seeds * sum(settings.dims)) as advance:
        for dim in settings.dims:
            errors = np.zeros((2, settings.seeds))
            for seed in range(settings.seeds):
                key = jax.random.fold_in(jax.random.key(settings.seed + seed), dim)
                model = gaussian(key, vocabulary=len(splits.words), dim=dim)
                errors[0, seed] = error(model, splits.train, per_review)
                errors[1, seed] = error(model, splits.train, per_word)
                advance(dim)
            by_review, by_word = errors.mean(axis=1).tolist()
            results["dims"].append(dim)
            results["errors"].append(by_review)
            results["errors_plain_counts"].append(by_word)
            shown = f"error {by_review:.4f}   with plain counts {by_word:.4f}"
            say(f"d = {dim:6d}   {shown}")
    for name in ("", "_plain_counts"):
        results[f"exponent{name}"] = slope(settings.dims, results[f"errors{name}"])
    say(
        f"exponent {results['exponent']:.3f} (predicted -0.5); with plain counts "
        f"{results['exponent_plain_counts']:.3f}"
    )


def error(model: Parameters, corpus: SparseCorpus, direction: jax.Array) -> float:
    """‖−∇_E L − c u vᵀ‖ / ‖c u‖ at the best multiple c of a direction u.

    For u = α the lemma says c = 1/2 too; leaving c free makes plain counts, which have
    no natural scale, comparable. With −∇_E L = g pᵀ + h vᵀ nothing of size |S| × d is
    needed.
    """
    _, (by_score, by_value) = risk_and_score_descent(*token_scores(model), corpus)
    # The part of −∇_E L along v, word by word; c fits u to it.
    overlap = jnp.vdot(model.query, model.head)
    along = by_value + overlap * by_score
    multiple = jnp.vdot(along, direction) / jnp.vdot(direction, direction)
    left = by_value - multiple * direction
    square = (
        jnp.vdot(by_score, by_score) * jnp.vdot(model.query, model.query)
        + 2 * jnp.vdot(by_score, left) * overlap
        + jnp.vdot(left, left)
    )
    return float(jnp.sqrt(square) / (jnp.abs(multiple) * jnp.linalg.norm(direction)))


def slope(dims: tuple[Count, ...], errors: list[float]) -> float:
    """Exponent of a power law through the errors; NaN for a single dimension."""
    if len(dims) < 2:
        return float("nan")
    return float(np.polyfit(np.log(dims), np.log(errors), 1)[0])


def draw(finished: Finished) -> Figure:
    """Both errors on logarithmic axes, beside d^{−1/2}."""
    results = finished.results
    dims = np.array(results["dims"])
    figure, axes = subplots(figsize=(5, 4))
    axes.loglog(dims, results["errors"], "o-", label="against α")
    axes.loglog(dims, results["errors_plain_counts"], "s-", label="plain counts")
    reference = results["errors"][0] * (dims / dims[0]) ** -0.5
    axes.loglog(dims, reference, "k--", label="d^(−1/2)")
    axes.set(xlabel="dimension d", ylabel="relative error of one step")
    axes.legend()
    return figure


LEMMA = 0.05
"""The same on reviews, where words are few and their counts uneven."""


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


CLAIMS = (
    Claim(
        "On film reviews the error of that step falls like d^(−1/2).",
        text_lemma,
        "Lemma 4.1",
    ),
)


def show(found: Finished) -> Shown:
    """Exponents of the error of the step in d."""
    results = found.results
    return Shown(
        [
            f"With α the error of the predicted step goes like "
            f"d^({num(results['exponent'])}), with plain counts in its place like "
            f"d^({num(results['exponent_plain_counts'])})."
        ]
    )


main = Experiment(run, draw=draw, claims=CLAIMS, show=show, title="Lemma 4.1 on words")


if __name__ == "__main__":
    command(main, PRESETS)
