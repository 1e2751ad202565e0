"""Train the model on labelled reviews and see which words it selects.

Takes one full-batch gradient step on the embeddings and compares it with Lemma 4.1;
then trains, with early stopping on held-out reviews, and compares what each word has
become with its posterior difference.

    python -m experiments.reviews --train imdb_train.parquet --test imdb_test.parquet
"""

from experiments.common import console  # isort: skip

import dataclasses
import hashlib
import math
import time
from pathlib import Path
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments.common.console import say
from experiments.text.data import Source, Splits, load
from jaxselect.model.attention import token_scores
from jaxselect.model.parameters import Parameters, gaussian
from jaxselect.text import training as descent
from jaxselect.text.objective import evaluate, expand, gradient
from jaxselect.text.sparse import SparseCorpus, importance, occurrences


@dataclasses.dataclass(frozen=True)
class Settings:
    """What to train on what.

    Attributes:
        source: the reviews and their vocabulary.
        embeddings: "one-step": one full-batch step, then fixed; "trained": trained with
            the rest; "random": fixed as they were drawn.
        train_head: train the head v too.
        dim: d.
        step_size: η₀ of the full-batch step.
        steps: training steps.
        learning_rate: of Adam; by default 0.001 for trained embeddings, else 0.03
            (chosen by `text_choice` on IMDB).
        batch: reviews per step; 0 for all of them.
        every: steps between two evaluations.
        seed: of the initialisation and of the minibatches.
        precision: of every number.
        checkpoint: keep the state on disk at every evaluation, and go on from there
            when the same command is given again.
        figure: draw the figure.
        preset: smoke (invented reviews, seconds), full (d = 2048) or together (full,
            with all of E, p and v trained).
        out: folder for results.
        json: print the results as one JSON object on standard output.
    """

    source: Source = dataclasses.field(default_factory=Source)
    embeddings: Literal["one-step", "trained", "random"] = "one-step"
    train_head: bool = False
    dim: int = 2048
    step_size: float = 1000.0
    steps: int = 300
    learning_rate: float | None = None
    batch: int = 0
    every: int = 10
    seed: int = 0
    precision: Literal["float32", "float64"] = "float32"
    checkpoint: bool = False
    figure: bool = True
    preset: Literal["full", "together", "smoke"] = "full"
    out: Path = Path("results") / "reviews"
    json: bool = False


PRESETS = {
    "full": Settings(),
    "together": Settings(embeddings="trained", train_head=True, batch=250),
    "smoke": Settings(
        source=Source(invented=1000),
        dim=256,
        steps=100,
        out=Path("results") / "reviews-smoke",
    ),
}


def main(settings: Settings) -> dict:
    """The whole study: bags, step, training, results on disk, figure.

    Args:
        settings: of the command line.

    Returns:
        What `--json` prints.
    """
    begun = time.perf_counter()
    check(settings)
    jax.config.update("jax_enable_x64", settings.precision == "float64")
    splits, facts = load(settings.source)
    loaded = time.perf_counter()
    before = gaussian(
        jax.random.key(settings.seed), vocabulary=len(splits.words), dim=settings.dim
    )
    after = full_batch_step(before, splits.train, settings.step_size)
    step = compare_with_lemma(before, after, splits.train, settings.step_size)
    say(
        f"one step, η₀ = {settings.step_size:g}: E_sᵀv against α_s has correlation "
        f"{step['correlation']:.4f} and slope {step['slope_ratio']:.4f} · η₀/2; "
        f"residual of the step {step['residual']:.4f}"
    )
    stepped = time.perf_counter()
    state, status = fit(
        after if settings.embeddings == "one-step" else before, splits, settings
    )
    trained = time.perf_counter()
    results = {
        "status": status,
        **facts,
        "dim": settings.dim,
        "one_step": step,
        "stopped": summary(state.best, splits) | {"step": int(state.best_step)},
        "last": summary(state.parameters, splits) | {"step": int(state.step)},
        "load_seconds": loaded - begun,
        "step_seconds": stepped - loaded,
        "train_seconds": trained - stepped,
        "device": jax.devices()[0].device_kind,
        "precision": settings.precision,
    }
    write(settings, results, splits, before, after, state)
    if settings.figure:
        console.draw("reviews", settings.out)
    say(f"{time.perf_counter() - begun:.1f} s in all; results in {settings.out}")
    return results


def check(settings: Settings) -> None:
    """Refuse settings no run can follow.

    Raises:
        ValueError: one line: what arrived and what was wanted.
    """
    rate = settings.learning_rate
    for name, value in (("step-size", settings.step_size), ("learning-rate", rate)):
        if value is not None and not (math.isfinite(value) and value > 0):
            raise ValueError(f"--{name} is {value}; wanted a positive, finite number")
    for name in ("dim", "steps", "every"):
        if getattr(settings, name) < 1:
            raise ValueError(f"--{name} is {getattr(settings, name)}; wanted 1 or more")
    if settings.batch < 0:
        raise ValueError(f"--batch is {settings.batch}; wanted 0 for all, or more")


def full_batch_step(
    before: Parameters, corpus: SparseCorpus, step_size: float
) -> Parameters:
    """E¹ = E⁰ − η₀ ∇_E L over the whole corpus; p and v stay.

    Args:
        before: (E⁰, p, v).
        corpus: the training reviews.
        step_size: η₀.

    Returns:
        (E¹, p, v).
    """
    _, downhill = gradient(before, corpus)
    change = step_size * expand(downhill, before).embeddings
    return Parameters(before.embeddings + change, before.cls, before.head)


def starting_point(splits: Splits, settings: Settings) -> Parameters:
    """What training starts from: as drawn, or after one full-batch step on E.

    Args:
        splits: the reviews.
        settings: of a run.

    Returns:
        (E, p, v).
    """
    drawn = gaussian(
        jax.random.key(settings.seed), vocabulary=len(splits.words), dim=settings.dim
    )
    if settings.embeddings != "one-step":
        return drawn
    return full_batch_step(drawn, splits.train, settings.step_size)


def compare_with_lemma(
    before: Parameters, after: Parameters, corpus: SparseCorpus, step_size: float
) -> dict[str, float]:
    """How E_s¹ᵀv follows (η₀/2) α_s, over the words.

    Args:
        before: (E⁰, p, v).
        after: (E¹, p, v).
        corpus: the training reviews.
        step_size: η₀.

    Returns:
        `correlation` of E_s¹ᵀv with α_s; `slope_ratio`, its regression slope over η₀/2;
        `noise`, the standard deviation of what the regression leaves; `residual`,
        ‖E¹ − E⁰ − (η₀/2) α vᵀ‖ / ‖(η₀/2) α‖.
    """
    alpha = importance(corpus)
    aligned = np.asarray(after.embeddings @ before.head, float)
    slope, offset = np.polyfit(np.asarray(alpha, float), aligned, 1)
    wanted = 0.5 * step_size * alpha
    change = after.embeddings - before.embeddings - jnp.outer(wanted, before.head)
    return {
        "correlation": float(np.corrcoef(alpha, aligned)[0, 1]),
        "slope_ratio": float(slope / (0.5 * step_size)),
        "noise": float(np.std(aligned - slope * np.asarray(alpha, float) - offset)),
        "residual": float(jnp.linalg.norm(change) / jnp.linalg.norm(wanted)),
    }


def fit(
    begin: Parameters, splits: Splits, settings: Settings
) -> tuple[descent.State, str]:
    """Train as the settings say, keeping the state at which validation was best.

    Args:
        begin: where to start.
        splits: the reviews.
        settings: what to train, and how.

    Returns:
        The last state and the reason for the end.
    """
    moving = settings.embeddings == "trained"
    chosen = (moving, True, settings.train_head)
    trained = tuple(
        name for name, yes in zip(descent.EVERYTHING, chosen, strict=True) if yes
    )
    schedule = descent.Schedule(
        settings.steps, settings.every, settings.batch or None, trained=trained
    )
    optimiser = optax.adam(settings.learning_rate or (1e-3 if moving else 3e-2))
    say("training " + ", ".join(trained))
    return descent.train(
        descent.start(begin, optimiser, schedule),
        splits.train,
        optimiser,
        schedule,
        validation=splits.validation,
        key=jax.random.key(settings.seed + 1),
        checkpoint=checkpoint(settings) if settings.checkpoint else None,
        report=lambda step, seen, unseen: say(
            f"step {step:5d}   train loss {float(seen.loss):.4f} accuracy "
            f"{float(seen.accuracy):.4f}   held out loss {float(unseen.loss):.4f} "
            f"accuracy {float(unseen.accuracy):.4f}"
        ),
    )


def checkpoint(settings: Settings) -> Path:
    """The file of a run's state: other settings have another one.

    Args:
        settings: of the command line.

    Returns:
        A path in the folder of results.
    """
    shaping = dataclasses.replace(settings, figure=True, json=False, preset="full")
    digest = hashlib.sha256(repr(shaping).encode()).hexdigest()[:12]
    settings.out.mkdir(parents=True, exist_ok=True)
    return settings.out / f"state-{digest}.eqx"


def summary(parameters: Parameters, splits: Splits) -> dict[str, float]:
    """Loss and accuracy on the training and the test reviews."""
    results = {}
    for name in ("train", "test"):
        metrics = evaluate(parameters, getattr(splits, name))
        results[f"{name}_loss"] = float(metrics.loss)
        results[f"{name}_accuracy"] = float(metrics.accuracy)
    say("   ".join(f"{name} {value:.4f}" for name, value in results.items()))
    return results


def write(
    settings: Settings,
    results: dict,
    splits: Splits,
    before: Parameters,
    after: Parameters,
    state: descent.State,
) -> None:
    """Settings, results and one row per word on disk."""
    number, excess = occurrences(splits.train)
    columns = {
        "words": np.array(splits.words),
        "occurrences": number,
        "posterior_difference": excess / jnp.where(number > 0, number, jnp.nan),
        "importance": importance(splits.train),
        "history": state.history[~jnp.isnan(state.history[:, 0])],
    }
    stages = {
        "initial": before,
        "step": after,
        "stopped": state.best,
        "last": state.parameters,
    }
    for stage, parameters in stages.items():
        scores, values = token_scores(parameters)
        columns |= {f"scores_{stage}": scores, f"values_{stage}": values}
    console.write_arrays(settings.out / "words.npz", columns)
    described = dataclasses.asdict(settings) | {"results": results}
    console.write_json(settings.out / "results.json", described)


if __name__ == "__main__":
    console.command(main, PRESETS)
