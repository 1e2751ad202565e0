"""Train the model on labelled reviews and see which words it selects.

Takes one full-batch gradient step on the embeddings and compares it with Lemma 4.1;
then trains, with early stopping on held-out reviews, and compares what each word has
become with its posterior difference.

    python -m experiments.reviews --train imdb_train.parquet --test imdb_test.parquet
"""

import dataclasses
import hashlib
import time
from pathlib import Path
from typing import Literal

import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from experiments.common.claims import Claim, Measured, Shown, at_least
from experiments.common.console import command, say
from experiments.common.numbers import num
from experiments.common.progress import progress_bar
from experiments.common.results import Finished, write
from experiments.common.study import Experiment, Study, presets
from experiments.common.style import cloud, subplots
from experiments.text.baseline import of_reviews, say_bag
from experiments.text.counts import (
    SparseCorpus,
    importance,
    occurrences,
    posterior_difference,
)
from experiments.text.data import Splits, load, mostly_left_out, say_mostly_left_out
from experiments.text.fitting import (
    BEST,
    LAST,
    NOT_FINITE,
    Fit,
    fit,
    full_batch_step,
    initial_parameters,
    require_finite,
    summary,
)
from experiments.text.source import Source
from jaxselect.model.attention import token_scores
from jaxselect.model.parameters import Parameters


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Fit, Study):
    """Settings of the training.

    Attributes:
        source: the reviews and their vocabulary.
        precision: of every number.
        checkpoint: keep the state on disk at every evaluation, and go on from there
            when the same command is given again.
        figure: draw the figure.
        preset: smoke (synthetic reviews, seconds), full (d = 2048) or together (full,
            with all of E, p and v trained).
    """

    source: Source = Source()
    precision: Literal["float32", "float64"] = "float32"
    checkpoint: bool = False
    figure: bool = True
    out: Path = Path("results/reviews")


PRESETS = presets(
    full=Settings(),
    together=Settings(embeddings="trained", train_head=True, batch=250),
    smoke=Settings(
        source=Source(invented=1000),
        dim=256,
        steps=100,
        out=Path("results/reviews-smoke"),
    ),
)


def run(settings: Settings, results: dict) -> dict:
    """The whole study: bags, step, training, results on disk, figure."""
    begun = time.perf_counter()
    splits, facts = load(settings.source)
    loaded = time.perf_counter()
    before = initial_parameters(splits, settings)
    after = full_batch_step(before, splits.train, settings.step_size)
    step = compare_with_lemma(before, after, splits.train, settings.step_size)
    say(
        f"one step, η₀ = {settings.step_size:g}: E_sᵀv against α_s has correlation "
        f"{step['correlation']:.4f} and slope {step['slope_ratio']:.4f} · η₀/2; "
        f"residual of the step {step['residual']:.4f}"
    )
    stepped = time.perf_counter()
    with progress_bar("training", settings.steps) as advance:
        state, status = fit(
            after if settings.embeddings == "one-step" else before,
            splits,
            settings,
            checkpoint(settings) if settings.checkpoint else None,
            advance,
        )
    trained = time.perf_counter()
    stopped = summary(state.best, splits, BEST)
    last = summary(state.parameters, splits, LAST)
    bag = of_reviews(splits, "train", "test")
    reached = {name: stopped[name] for name in bag}
    say_mostly_left_out(facts)
    results |= {
        "status": status,
        **facts,
        "dim": settings.dim,
        "one_step": step,
        "stopped": stopped | {"step": int(state.best_step)},
        "last": last | {"step": int(state.step)},
        "bag_of_words": bag | {"ahead_of_ours": say_bag(bag, **reached)},
        "load_seconds": loaded - begun,
        "step_seconds": stepped - loaded,
        "train_seconds": trained - stepped,
    }
    stages = {
        "initial": before,
        "step": after,
        "stopped": state.best,
        "last": state.parameters,
    }
    course = state.history[~jnp.isnan(state.history[:, 0])]
    arrays = columns(splits, stages) | {"history": course}
    if status == NOT_FINITE:
        write(settings.out, settings=settings, results=results, arrays=arrays)
        require_finite(status, settings)
    say(f"{time.perf_counter() - begun:.1f} s in all; results in {settings.out}")
    return arrays


def compare_with_lemma(
    before: Parameters, after: Parameters, corpus: SparseCorpus, step_size: float
) -> dict[str, float]:
    """How E_s¹ᵀv follows (η₀/2) α_s, over the words.

    Returns:
        `correlation` of E_s¹ᵀv with α_s; `slope_ratio`, its regression slope over η₀/2;
        `residual`, ‖E¹ − E⁰ − (η₀/2) α vᵀ‖ / ‖(η₀/2) α‖.
    """
    alpha = importance(corpus)
    aligned = np.asarray(after.embeddings @ before.head, float)
    slope, _ = np.polyfit(np.asarray(alpha, float), aligned, 1)
    wanted = 0.5 * step_size * alpha
    change = after.embeddings - before.embeddings - jnp.outer(wanted, before.head)
    return {
        "correlation": float(np.corrcoef(alpha, aligned)[0, 1]),
        "slope_ratio": float(slope / (0.5 * step_size)),
        "residual": float(jnp.linalg.norm(change) / jnp.linalg.norm(wanted)),
    }


def checkpoint(settings: Settings) -> Path:
    """The file of a run's state: other settings have another one.

    Returns:
        A path in the folder of results.
    """
    shaping = dataclasses.replace(settings, figure=True, json=False, preset="full")
    digest = hashlib.sha256(repr(shaping).encode()).hexdigest()[:12]
    settings.out.mkdir(parents=True, exist_ok=True)
    return settings.out / f"state-{digest}.eqx"


def columns(splits: Splits, stages: dict[str, Parameters]) -> dict:
    """One row per word: its statistics, and its score and value at every stage."""
    found = {
        "words": np.array(splits.words),
        "occurrences": occurrences(splits.train),
        "posterior_difference": posterior_difference(splits.train),
        "importance": importance(splits.train),
    }
    for stage, parameters in stages.items():
        scores, values = token_scores(parameters)
        found |= {f"scores_{stage}": scores, f"values_{stage}": values}
    return found


def draw(finished: Finished) -> Figure:
    """Four panels: the step, E_sᵀv, E_sᵀp, and the course of training."""
    step_size = finished.settings["step_size"]
    columns = finished.arrays
    figure, panels = subplots(2, 2, figsize=(7.0, 5.6))
    axes = panels.ravel()

    alpha, aligned = columns["importance"], columns["values_step"]
    ends = np.array([alpha.min(), alpha.max()])
    axes[0].plot(alpha, aligned, ".", markersize=2, alpha=0.4, rasterized=True)
    axes[0].plot(ends, 0.5 * step_size * ends, "k--", label="(η₀/2) α")
    axes[0].set(xlabel="importance α", ylabel="E·v after one step")
    axes[0].ticklabel_format(axis="x", scilimits=(0, 0))
    axes[0].legend()

    posterior = columns["posterior_difference"]
    cloud(axes[1], posterior, columns["values_last"], "E·v after training")
    cloud(axes[2], posterior, columns["scores_last"], "E·p after training")

    step, train_loss, train_accuracy, held_loss, held_accuracy = columns["history"].T
    for name, curve in (("train", train_loss), ("held out", held_loss)):
        axes[3].plot(step, curve, label=f"loss, {name}")
    for name, curve in (("train", train_accuracy), ("held out", held_accuracy)):
        axes[3].plot(step, curve, "--", label=f"accuracy, {name}")
    axes[3].axvline(finished.results["stopped"]["step"], color="grey", linewidth=1)
    axes[3].set(xlabel="step", ylim=(0, 1.05))
    axes[3].legend()

    return figure


RANK = 0.9
"""Rank correlation from which two tables count as one tendency."""


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


CLAIMS = (
    Claim(
        "On film reviews, too, one step moves words by their importance.",
        review_step,
        "Lemma 4.1",
    ),
)


def show(found: Finished) -> Shown:
    """The step, and the model after training."""
    results = found.results
    warning = mostly_left_out(results)
    return Shown(
        [
            f"{results['vocabulary']:,} words, {results['train_reviews']:,} reviews: "
            f"after one step E·v follows α with correlation "
            f"{num(results['one_step']['correlation'])}. Trained on, the model is "
            f"right in {results['last']['test_accuracy']:.1%} of the test reviews.",
            *([f"But {warning}."] if warning else []),
        ],
    )


main = Experiment(
    run, draw=draw, claims=CLAIMS, show=show, title="One step, then attention"
)


if __name__ == "__main__":
    command(main, PRESETS)
