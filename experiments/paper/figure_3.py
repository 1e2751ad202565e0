"""Figure 3: E·v and E·p of words over their posterior difference, on reviews.

One layer; E, p and v are trained together. The numbers of the authors' figure were not
published, its shape is what is compared.

    python -m experiments.paper.figure_3 --dataset imdb_reviews
"""

import dataclasses
from functools import partial
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from experiments.common.claims import Claim, Measured, Verdict, of_cases
from experiments.common.console import command
from experiments.common.numbers import num
from experiments.common.results import Finished, read
from experiments.common.statistics import binned
from experiments.common.study import Experiment
from experiments.common.style import cloud, legend_above, subplots
from experiments.paper import _reviews
from experiments.paper._tables import follows

PRAISE = ("excellent", "wonderful", "perfect", "amazing", "delicious", "loved")
BLAME = ("worst", "awful", "terrible", "waste", "horrible", "rude")
"""Words whose tone is known: where the labels disagree, they are swapped."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(_reviews.Settings):
    """The reviews and the training."""


PRESETS = _reviews.presets(Settings, "results/paper/figure_3")


def run(settings: Settings, results: dict) -> dict[str, np.ndarray]:
    """Train E, p and v together."""
    posterior, splits, trained = _reviews.models(settings, ["together"], results)
    (model,) = trained
    results["reached"] = model.path[-1].reached
    place = {word: row for row, word in enumerate(splits.words)}
    for name, words in (("praise", PRAISE), ("blame", BLAME)):
        known = [posterior[place[word]] for word in words if word in place]
        results[name] = float(np.mean(known)) if known else float("nan")
    return {"posterior": posterior, **model.path[-1].columns}


def draw(finished: Finished) -> Figure:
    """E·p and E·v of every word over its posterior difference, and their bin means."""
    arrays = finished.arrays
    figure, panels = subplots(1, 2, figsize=(7.2, 3.2))
    for panel, part, label in zip(panels, ("scores", "values"), "pv", strict=True):
        cloud(panel, arrays["posterior"], arrays[part], f"E·{label}, one layer")
    legend_above(figure, panels[0])
    return figure


def rises(found: Finished, part: str) -> Measured:
    """A column follows the posterior difference, or its size."""
    results, arrays = found.results, found.arrays
    if results["praise"] < results["blame"]:
        return Measured(
            Verdict.NOT_RUN, "labels are swapped: words of praise count as negative"
        )
    held = follows(arrays["posterior"], arrays["scores"], arrays["values"], part)
    reached = results["reached"]
    return held._replace(
        sample=f"{held.sample}; training accuracy {reached['train_accuracy']:.2f}, "
        f"test {reached['test_accuracy']:.2f}"
    )


def wider(found: Finished) -> Measured:
    """The spread within bins beside that of Figure 2, read from the folder beside."""
    synthetic = read(Path(found.settings["out"]).parent / "figure_2").arrays
    ours = found.arrays
    said, good = [], 0
    for part, letter in (("values", "v"), ("scores", "p")):
        here = relative_spread(ours["posterior"], ours[part])
        there = relative_spread(synthetic["posterior"], synthetic[f"{part} 1"])
        good += here > there
        said.append(
            f"E·{letter} {num(here, 2)} here, {num(there, 2)} on synthetic data"
        )
    return Measured(
        of_cases(good, 2),
        "standard deviation within bins over the range of their means: "
        + "; ".join(said),
        f"{len(ours['posterior']):,} words",
        "–",
        "larger here for both",
    )


def relative_spread(across: np.ndarray, column: np.ndarray) -> float:
    """Mean standard deviation within bins, over the range of the bin means."""
    bins = binned(across, column)
    full = bins.number > 1
    return float(bins.spread[full].mean() / np.ptp(bins.mean[full]))


CLAIMS = (
    Claim(
        "On IMDB and Yelp, too, E·v rises with the posterior difference.",
        partial(rises, part="values"),
        "Figure 3; the poster's second figure",
    ),
    Claim(
        "On IMDB and Yelp, too, E·p rises with the size of the posterior difference.",
        partial(rises, part="scores"),
        "Figure 3; the poster's second figure",
    ),
    Claim("There is more spread than on synthetic data.", wider, "Figure 3"),
)

main = Experiment(
    run,
    draw=draw,
    claims=CLAIMS,
    title="Figure 3: one layer on reviews",
    precision="float32",
)


if __name__ == "__main__":
    command(main, PRESETS)
