"""Learning rate and minibatch for training on reviews, chosen without the test split.

Every pair of them trains for the same number of steps, which cost the same whatever the
minibatch; the highest accuracy on the held-out tenth of the training reviews decides.

    python -m experiments.text.lr_search --train imdb_train.parquet --test ...
"""

import dataclasses
import itertools
from pathlib import Path
from typing import Literal

from experiments.common.claims import Shown
from experiments.common.console import command, say
from experiments.common.numbers import num
from experiments.common.progress import watched
from experiments.common.results import Finished
from experiments.common.study import Count, Experiment, Positive, Study, check, presets
from experiments.text.baseline import of_reviews, say_bag
from experiments.text.data import Source, load
from experiments.text.fitting import Fit, fit, starting_point


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Study):
    """The learning rates and minibatches to choose from.

    Attributes:
        source: the reviews and their vocabulary; the test split is not looked at.
        embeddings: "trained", or fixed: "one-step" or "random".
        learning_rates: of Adam.
        batches: reviews per step; 0 for all of them.
        dim: d.
        steps: training steps of each run.
        seed: random seed of the initialisation and of the minibatches.
        preset: full or smoke (invented reviews).
    """

    source: Source = Source()
    embeddings: Literal["one-step", "trained", "random"] = "trained"
    learning_rates: tuple[Positive, ...] = (3e-4, 1e-3, 3e-3, 1e-2)
    batches: tuple[int, ...] = (250, 1000, 4000)
    dim: Count = 2048
    steps: Count = 300
    out: Path = Path("results/text-lr-search")

    def runs(self) -> list[Fit]:
        """The runs, one per pair."""
        return [
            Fit(
                embeddings=self.embeddings,
                train_head=True,
                dim=self.dim,
                steps=self.steps,
                learning_rate=rate,
                batch=batch,
                every=20,
                seed=self.seed,
            )
            for rate, batch in itertools.product(self.learning_rates, self.batches)
        ]

    def check(self) -> None:
        """Refuse models that cannot be trained."""
        for run in self.runs():
            check(run)


PRESETS = presets(
    full=Settings(),
    smoke=Settings(
        source=Source(invented=600),
        learning_rates=(1e-3, 1e-2),
        batches=(200, 0),
        dim=128,
        steps=40,
    ),
)


def run(settings: Settings, results: dict) -> None:
    """Train once for every pair, the best first."""
    runs = settings.runs()
    splits, facts = load(settings.source)
    begin = starting_point(splits, runs[0])
    tried: list[dict] = []
    results |= facts | {"tried": tried}
    with watched("training", settings.steps * len(runs)) as advance:
        for run in runs:
            state, status = fit(begin, splits, run, advance=advance)
            tried.append(
                {
                    "learning_rate": run.learning_rate,
                    "batch": run.batch,
                    "held_out_accuracy": float(state.best_accuracy),
                    "step": int(state.best_step),
                    "status": status,
                }
            )
    tried.sort(key=lambda row: -row["held_out_accuracy"])
    say("\nlearning rate   batch   held-out accuracy   at step")
    for row in tried:
        say(
            f"{row['learning_rate']:13g}   {row['batch']:5d}   "
            f"{row['held_out_accuracy']:17.4f}   {row['step']:7d}   {row['status']}"
        )
    bag = of_reviews(splits, "validation")
    ahead = say_bag(bag, validation_accuracy=tried[0]["held_out_accuracy"])
    results["bag_of_words"] = bag | {"ahead_of_ours": ahead}


def show(found: Finished) -> Shown:
    """Every setting tried, with what decided."""
    rows = [["learning rate", "batch", "held-out accuracy", "step"]]
    rows += [
        [
            num(row["learning_rate"]),
            "all" if not row["batch"] else str(row["batch"]),
            f"{row['held_out_accuracy']:.4f}",
            str(row["step"]),
        ]
        for row in found.results["tried"]
    ]
    return Shown(["Chosen on held-out reviews, not on those tested."], rows)


main = Experiment(run, show=show, title="How training was chosen", precision="float32")


if __name__ == "__main__":
    command(main, PRESETS)
