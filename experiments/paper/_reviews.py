"""What the items on reviews share: models of `text.training`, by their names there."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from experiments.common.console import say
from experiments.common.progress import watched
from experiments.text import training
from experiments.text.data import Splits, load
from experiments.text.fitting import (
    LAST,
    fit,
    require_finite,
    starting_point,
    summary,
)
from jaxselect.data.sparse import posterior_difference

Chosen = TypeVar("Chosen", bound=training.Settings)


class Model(NamedTuple):
    """A trained model.

    Attributes:
        name: in `text.training`.
        columns: `scores` and `values` of every word.
        reached: loss and accuracy of both splits after the last step.
    """

    name: str
    columns: dict[str, np.ndarray]
    reached: dict[str, float]


def presets(kind: Callable[..., Chosen], out: str) -> dict[str, Chosen]:
    """The presets of `text.training` in a class and a folder of an item's own."""
    folders = {"full": Path(out), "smoke": Path(f"{out}-smoke")}
    return {
        name: kind(**vars(training.PRESETS[name]) | {"out": folder})
        for name, folder in folders.items()
    }


def models(
    settings: training.Settings, names: Sequence[str], results: dict
) -> tuple[np.ndarray, Splits, Iterator[Model]]:
    """Posterior differences of the words, the reviews, and models trained on these."""
    splits, facts = load(settings.source)
    results |= facts
    posterior = np.asarray(posterior_difference(splits.train), float)
    return posterior, splits, _trained(settings, names, splits)


def _trained(
    settings: training.Settings, names: Sequence[str], splits: Splits
) -> Iterator[Model]:
    runs = {name: settings.runs()[name] for name in names}
    with watched("training", sum(run.steps for run in runs.values())) as advance:
        for name, run in runs.items():
            say(f"— {name} —")
            begin = starting_point(splits, run)
            state, status = fit(begin, splits, run, advance=advance)
            require_finite(status, run)
            reached: dict[str, Any] = summary(state.parameters, splits, LAST)
            yield Model(name, training.columns(state.parameters), reached)
