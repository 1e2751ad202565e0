"""What the items on reviews share: settings, and models trained on the same reviews.

    together         E, p and v trained
    one step         one full-batch step on E, then p and v trained
    random           E as it was drawn, p and v trained
    random, long     the same at the learning rate chosen for a fixed E

The authors do not say how long p and v are trained where E is fixed. So one protocol
trains the first three, and each is looked at on its way.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from experiments.common import study
from experiments.common.console import say
from experiments.common.progress import progress_bar
from experiments.common.study import Count, Positive, Study, check
from experiments.text.counts import posterior_difference
from experiments.text.data import Splits, load, say_mostly_left_out
from experiments.text.fitting import (
    Fit,
    fit,
    require_finite,
    starting_point,
    summary,
)
from experiments.text.source import Source
from jaxselect.model.attention import token_scores
from jaxselect.model.parameters import Parameters

# By name: use of E, and the setting that holds the steps.
MODELS = {
    "together": ("trained", "steps"),
    "one step": ("one-step", "steps_fixed"),
    "random": ("random", "steps_fixed"),
    "random, long": ("random", "steps_long"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Study):
    """The reviews and the training of every model.

    Attributes:
        source: the reviews and their vocabulary.
        dim: d.
        step_size: η₀ of the full-batch step.
        steps: training steps of E, p and v together.
        steps_fixed: training steps of p and v alone.
        learning_rate: of Adam.
        batch: reviews in a minibatch.
        steps_long: those of the long one, on all reviews at once and at the learning
            rate that `reviews` takes for fixed E.
        seed: random seed of the initialisation and of the minibatches.
        preset: full or smoke (synthetic reviews).
    """

    source: Source = Source()
    dim: Count = 2048
    step_size: Positive = 1000.0
    steps: Count = 300
    steps_fixed: Count = 2400
    learning_rate: Positive = 1e-3
    batch: int = 250
    steps_long: Count = 800
    out: Path = Path("results/paper/reviews")

    def runs(self) -> dict[str, Fit]:
        """The runs by name of `MODELS`."""
        return {
            name: Fit(
                embeddings=embeddings,  # type: ignore[arg-type]
                train_head=True,
                steps=getattr(self, steps),
                learning_rate=None if steps == "steps_long" else self.learning_rate,
                batch=0 if steps == "steps_long" else self.batch,
                every=20,
                dim=self.dim,
                step_size=self.step_size,
                seed=self.seed,
            )
            for name, (embeddings, steps) in MODELS.items()
        }

    def check(self) -> None:
        """Refuse models that cannot be trained."""
        for run in self.runs().values():
            check(run)


SMALL: dict[str, Any] = {"dim": 128, "steps": 60, "batch": 200}
SMALL |= {"steps_fixed": 80, "steps_long": 60}
"""Sizes of a training of seconds, on synthetic reviews."""
Chosen = TypeVar("Chosen", bound=Settings)


class Look(NamedTuple):
    """A model at one step of its training.

    Attributes:
        step: number of it.
        columns: `scores` E_sᵀp and `values` E_sᵀv of every word.
        reached: loss and accuracy of both splits.
    """

    step: int
    columns: dict[str, np.ndarray]
    reached: dict[str, float]


class Model(NamedTuple):
    """A trained model.

    Attributes:
        name: of `MODELS`.
        path: looks at it, from the start of its training to the end.
    """

    name: str
    path: list[Look]


def presets(kind: Callable[..., Chosen], out: str) -> dict[str, Chosen]:
    """The presets of an item, in its own class and folder."""
    full = kind(out=Path(out))
    small = dataclasses.replace(full, source=Source(invented=600), **SMALL)
    return study.presets(full=full, smoke=small)


def models(
    settings: Settings, names: Sequence[str], results: dict
) -> tuple[np.ndarray, Splits, Iterator[Model]]:
    """Posterior differences of the words, the reviews, and models trained on these."""
    splits, facts = load(settings.source)
    results |= facts
    posterior = np.asarray(posterior_difference(splits.train), float)
    return posterior, splits, _trained(settings, names, splits, facts)


def _trained(
    settings: Settings, names: Sequence[str], splits: Splits, facts: dict
) -> Iterator[Model]:
    runs = {name: settings.runs()[name] for name in names}
    with progress_bar("training", sum(run.steps for run in runs.values())) as advance:
        for name, run in runs.items():
            say(f"model: {name}")
            model = Model(name, [])

            def look(step: int, now: Parameters, path: list[Look] = model.path) -> None:
                both = (np.asarray(column, float) for column in token_scores(now))
                columns = dict(zip(("scores", "values"), both, strict=True))
                path.append(Look(step, columns, summary(now, splits)))

            begin = starting_point(splits, run)
            _, status = fit(begin, splits, run, advance=advance, look=look)
            require_finite(status, run)
            say_mostly_left_out(facts)
            yield model
