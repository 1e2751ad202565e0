"""Training on reviews: what the studies of real text share."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import jax
import jax.numpy as jnp
import optax

from experiments.common import memory
from experiments.common.console import say
from experiments.common.model import Metrics
from experiments.common.study import Count, Positive, Seed
from experiments.text import training as descent
from experiments.text.counts import SparseCorpus
from experiments.text.data import Splits
from experiments.text.objective import evaluate, expand, risk_and_descent
from jaxselect.checks import BadInput
from jaxselect.model.parameters import Parameters, gaussian

NOT_FINITE = "not finite"
"""Status of training whose last parameters are not all finite."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fit:
    """Parameters to train, and how.

    Attributes:
        embeddings: "one-step": one full-batch step, then fixed; "trained": trained with
            the rest; "random": fixed as they were drawn.
        train_head: train the head v too.
        dim: d.
        step_size: η₀ of the full-batch step.
        steps: training steps.
        learning_rate: of Adam; by default, the best on held-out reviews of IMDB, 0.001
            for trained embeddings and 0.03 for fixed ones.
        batch: reviews per step; 0 for all of them.
        every: steps between two evaluations.
        seed: random seed of the initialisation and of the minibatches.
    """

    embeddings: Literal["one-step", "trained", "random"] = "one-step"
    train_head: bool = False
    dim: Count = 2048
    step_size: Positive = 1000.0
    steps: Count = 300
    learning_rate: Positive | None = None
    batch: int = 0
    every: Count = 10
    seed: Seed = 0

    def check(self) -> None:
        """Refuse sizes beyond memory."""
        # One word at least, in single precision; one row of history per evaluation.
        memory.require(4 * self.dim, f"--dim {self.dim}")
        memory.require(20 * self.steps // self.every, f"--steps {self.steps}")


def full_batch_step(
    before: Parameters, corpus: SparseCorpus, step_size: float
) -> Parameters:
    """E¹ = E⁰ − η₀ ∇_E L over the whole corpus; p and v stay.

    Raises:
        BadInput: the step leaves the finite numbers.
    """
    _, downhill = risk_and_descent(before, corpus)
    change = step_size * expand(downhill, before).embeddings
    after = Parameters(before.embeddings + change, before.query, before.head)
    if not finite(after):
        raise BadInput(
            f"--step-size {step_size:g}: E is not finite after the step; take a smaller"
        )
    return after


def initial_parameters(splits: Splits, settings: Fit) -> Parameters:
    """Random (E, p, v).

    Raises:
        BadInput: E is larger than memory.
    """
    words = len(splits.words)
    memory.require(4 * words * settings.dim, f"--dim {settings.dim} for {words} words")
    key = jax.random.key(settings.seed)
    return gaussian(key, vocabulary=words, dim=settings.dim)


def starting_point(splits: Splits, settings: Fit) -> Parameters:
    """The start of training: as drawn, or after one full-batch step on E."""
    drawn = initial_parameters(splits, settings)
    if settings.embeddings != "one-step":
        return drawn
    return full_batch_step(drawn, splits.train, settings.step_size)


def fit(
    begin: Parameters,
    splits: Splits,
    settings: Fit,
    checkpoint: Path | None = None,
    advance: Callable[[int], None] = lambda steps: None,
    look: Callable[[int, Parameters], None] = lambda step, parameters: None,
) -> tuple[descent.State, str]:
    """State after training, with the parameters of best validation accuracy.

    Args:
        begin: where to start.
        splits: the reviews.
        settings: what to train, and how.
        checkpoint: file to keep the state in, and to go on from.
        advance: called at every evaluation with the steps since the one before.
        look: called there with the step and the parameters.

    Returns:
        The last state and the reason for the end; `NOT_FINITE` where training left the
        finite numbers.
    """
    moving = settings.embeddings == "trained"
    chosen = (moving, True, settings.train_head)
    trained = tuple(
        name for name, yes in zip(descent.EVERYTHING, chosen, strict=True) if yes
    )
    schedule = descent.Schedule(
        settings.steps, settings.every, settings.batch or None, trained=trained
    )
    optimiser = optax.adam(rate_of(settings))
    say("training " + ", ".join(trained))

    reported = [0]

    def report(step: int, now: Parameters, seen: Metrics, unseen: Metrics) -> None:
        say(
            f"step {step:5d}   train loss {float(seen.loss):.4f} accuracy "
            f"{float(seen.accuracy):.4f}   held out loss {float(unseen.loss):.4f} "
            f"accuracy {float(unseen.accuracy):.4f}"
        )
        look(step, now)
        advance(step - reported[-1])
        reported.append(step)

    state, status = descent.train(
        descent.initial_state(begin, optimiser, schedule),
        splits.train,
        optimiser,
        schedule,
        validation=splits.validation,
        key=jax.random.key(settings.seed + 1),
        checkpoint=checkpoint,
        report=report,
    )
    return state, status if finite(state.parameters) else NOT_FINITE


def finite(parameters: Parameters) -> bool:
    """Whether every number of a model is one."""
    return bool(_finite(parameters))


@jax.jit
def _finite(parameters: Parameters) -> jax.Array:
    parts = [jnp.isfinite(part).all() for part in jax.tree.leaves(parameters)]
    return jnp.stack(parts).all()


def require_finite(status: str, settings: Fit) -> None:
    """Refuse a model with parameters that are not finite.

    Raises:
        BadInput: training left the finite numbers.
    """
    if status == NOT_FINITE:
        raise BadInput(
            "training left the finite numbers: take a smaller --learning-rate "
            f"(it was {rate_of(settings):g}) or --step-size"
        )


def rate_of(settings: Fit) -> float:
    """The learning rate given, or the one chosen for what is trained."""
    default = 1e-3 if settings.embeddings == "trained" else 3e-2
    return settings.learning_rate or default


BEST = "where held-out reviews are best"
LAST = "after the last step"
"""How the stages of training are called in what is printed."""


def summary(parameters: Parameters, splits: Splits, when: str = "") -> dict[str, float]:
    """Loss and accuracy on training and test reviews; printed where `when` is given."""
    results = {}
    for name in ("train", "test"):
        metrics = evaluate(parameters, getattr(splits, name))
        results[f"{name}_loss"] = float(metrics.loss)
        results[f"{name}_accuracy"] = float(metrics.accuracy)
    shown = (f"{name.replace('_', ' ')} {value:.4f}" for name, value in results.items())
    if when:
        say(f"{when}: {', '.join(shown)}")
    return results
