"""Figure 3: E·v and E·p of words over their posterior difference, on reviews.

One layer; E, p and v are trained together. The numbers of the authors' figure were not
published, its shape is what is compared.

    python -m experiments.paper.figure_3 --dataset imdb_reviews
"""

import dataclasses

import numpy as np
from matplotlib.figure import Figure

from experiments.common.claims import Claim, Measured, Verdict, of_cases
from experiments.common.console import command
from experiments.common.numbers import num
from experiments.common.results import Finished
from experiments.common.study import Experiment
from experiments.common.style import cloud, legend_above, subplots
from experiments.paper import _reviews
from experiments.paper._tables import RANK, tendency

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


def one_layer(found: Finished) -> Measured:
    """Both columns follow the posterior difference."""
    results, arrays = found.results, found.arrays
    if results["praise"] < results["blame"]:
        return Measured(Verdict.OPEN, "labels are swapped: words of praise lie left")
    ranks = tendency(arrays["posterior"], arrays["scores"], arrays["values"])
    return Measured(
        of_cases(sum(rank >= RANK for rank in ranks.values()), len(ranks)),
        f"over bins, rank correlation of E·v with the posterior difference "
        f"{num(ranks['values'])}, of E·p with its size {num(ranks['scores'])}; "
        f"training accuracy {results['reached']['train_accuracy']:.2f}, test "
        f"{results['reached']['test_accuracy']:.2f}",
        f"{results['vocabulary']:,} words",
        "–",
        f"{RANK:g} or more in both",
    )


CLAIMS = (
    Claim(
        "On IMDB and Yelp, too, E·v rises with the posterior difference and E·p with "
        "its size, with more spread than on invented data.",
        one_layer,
        "Figure 3; the poster's second figure",
    ),
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
