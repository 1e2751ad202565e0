"""Richer networks on reviews or invented tokens, beside what the authors published.

two_layer            self-attention over the tokens, then CLS attention
two_layer_key_query  the same with W¹ and W² trained
mlp                  one layer, an MLP behind it
stars                one layer, a head for each class

python -m experiments.networks --preset mlp --train imdb_train.parquet --test ...
"""

from . import console  # isort: skip

import dataclasses
import time
from pathlib import Path
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax
from scipy.sparse import csr_array
from scipy.stats import spearmanr

from jaxselect.design import Design
from jaxselect.network_step import predicted_change
from jaxselect.network_training import evaluate, risk_and_gradient, train
from jaxselect.networks import Network, Variables, alignments, count_parameters, start
from jaxselect.strata import Strata, stratify

from .console import say
from .figures.reviews import binned
from .network_data import posteriors, take
from .published_networks import TABLES
from .review_data import Source


@dataclasses.dataclass(frozen=True)
class Settings:
    """Which network on what.

    Attributes:
        source: the reviews and their vocabulary; without any, invented tokens of
            which the important ones are known.
        classes: in the labels of the reviews.
        drop: a class to leave out, such as 2 for three stars of five.
        layers: 1 or 2.
        key_query: matrices in the logits.
        residual: add E_s to what the first of two layers makes of token s.
        activation: of an MLP behind the attention, or none.
        hidden: start of the MLP's matrix.
        dim: d.
        step_size: η₀ of the one step compared with its prediction.
        steps: training steps, all parameters together.
        learning_rate: of Adam.
        batch: sequences per step; 0 for all of them.
        every: steps between two reports; 0 for none.
        checked: sequences of each split that loss, accuracy and the one step are taken
            on, the same ones every time; 0 for all of them.
        seed: of the initialisation and of the minibatches.
        preset: the study.
        out: folder for results.
        json: print the results as one JSON object on standard output.
    """

    source: Source = dataclasses.field(default_factory=Source)
    classes: int = 2
    drop: int | None = None
    layers: Literal[1, 2] = 1
    key_query: Literal["none", "product", "tied", "separate"] = "none"
    residual: bool = True
    activation: Literal["relu", "gelu", "tanh", "identity"] | None = None
    hidden: Literal["gaussian", "identity"] = "gaussian"
    dim: int = 256
    step_size: float = 1000.0
    steps: int = 150
    learning_rate: float = 3e-3
    batch: int = 240
    every: int = 50
    checked: int = 2500
    seed: int = 0
    preset: Literal["two_layer", "two_layer_key_query", "mlp", "stars"] = "two_layer"
    out: Path = Path("results") / "networks"
    json: bool = False


PRESETS = {
    "two_layer": Settings(layers=2),
    "two_layer_key_query": Settings(layers=2, key_query="product"),
    "mlp": Settings(activation="relu"),
    "stars": Settings(classes=5),
}
PRESETS = {
    name: dataclasses.replace(chosen, out=chosen.out / name)
    for name, chosen in PRESETS.items()
}


def main(settings: Settings) -> dict:
    """Train, compare with the prediction for one step and with the published bins.

    Args:
        settings: of the command line.

    Returns:
        What `--json` prints.
    """
    begun = time.perf_counter()
    for name in ("dim", "steps"):
        if getattr(settings, name) < 1:
            raise ValueError(f"--{name} is {getattr(settings, name)}; wanted 1 or more")
    classes = settings.classes - (settings.drop is not None)
    data = take(settings.source, settings.classes, settings.drop, settings.seed)
    design = Design(
        settings.layers,
        settings.key_query,
        settings.residual,
        settings.activation,
        settings.hidden,
        heads=1 if classes == 2 else classes,
    )
    network = Network(len(data.words), settings.dim, design)
    begin = start(network, jax.random.key(settings.seed))
    strata = stratify(data.train, data.labels)
    seen = some(data.train, data.labels, settings.checked)
    unseen = some(data.test, data.test_labels, settings.checked)
    say(f"{data.train.shape[0]} sequences; parameters {count_parameters(begin)}")
    results: dict = {
        "vocabulary": len(data.words),
        "parameters": count_parameters(begin),
        "one_step": one_step(network, begin, seen, settings.step_size),
    }
    say(f"one step: {results['one_step']}")

    def report(step: int, variables: Variables) -> None:
        if settings.every and step % settings.every == 0:
            loss, right = evaluate(network, variables, unseen)
            say(f"step {step:5d}   test loss {loss:.4f} accuracy {right:.4f}")

    end = train(
        network,
        begin,
        strata,
        optax.adam(settings.learning_rate),
        settings.steps,
        settings.batch or None,
        jax.random.key(settings.seed + 1),
        report=report,
    )
    for split, sequences in (("train", seen), ("test", unseen)):
        loss, right = evaluate(network, end, sequences)
        results |= {f"{split}_loss": float(loss), f"{split}_accuracy": float(right)}
    scores, values = alignments(network, end)
    columns = {"scores": np.asarray(scores, float)}
    across, imbalance = posteriors(data, classes)
    if design.heads == 1:
        columns |= {"values": np.asarray(values[:, 0], float)}
        axes = {"scores": across[:, 1], "values": across[:, 1]}
    else:
        parts = {f"values {k}": np.asarray(values[:, k], float) for k in range(classes)}
        columns |= parts
        axes = {f"values {k}": across[:, k] for k in range(classes)}
    results["monotone"] = {name: rises(axes[name], columns[name]) for name in axes}
    results["published"] = compare(settings, columns, across, imbalance)
    results["seconds"] = time.perf_counter() - begun
    tell(results)
    named = {f"x {name}": axis for name, axis in axes.items()}
    console.write_arrays(
        settings.out / "words.npz", columns | named | {"words": np.array(data.words)}
    )
    described = dataclasses.asdict(settings) | {"results": results}
    console.write_json(settings.out / "results.json", described)
    console.draw("networks", settings.out)
    return results


def some(counts: csr_array, labels: np.ndarray, number: int) -> Strata:
    """Strata of a fixed sample of the sequences, or of all of them."""
    order = np.random.default_rng(0).permutation(len(labels))
    kept = np.sort(order[:number] if number else order)
    return stratify(counts[kept], labels[kept])


def one_step(
    network: Network, begin: Variables, strata: Strata, step_size: float
) -> dict[str, float]:
    """Residual of the predicted first step, and slope of E_s¹ᵀv_k against it.

    Args:
        network: which.
        begin: its variables at the start.
        strata: the sequences.
        step_size: η₀.

    Returns:
        `residual`, relative to the prediction; `slope` and `correlation` of what the
        step added along the heads. Empty with an MLP, for which nothing is predicted.
    """
    if network.design.activation is not None:
        return {}
    number = sum(len(part.labels) for part in strata)
    predicted = sum(
        len(part.labels) / number * predicted_change(part, network.design, step_size)
        for part in strata
    )
    _, slope = risk_and_gradient(network, begin, strata)
    change = -step_size * slope["params"]["embeddings"]
    heads = begin["params"]["heads"]
    wanted = np.asarray(predicted, float).ravel()
    along = np.asarray(change @ heads.T, float).ravel()
    left = jnp.linalg.norm(change - predicted @ heads)
    return {
        "residual": float(left / jnp.linalg.norm(wanted)),
        "slope": float(along @ wanted / (wanted @ wanted)),
        "correlation": float(np.corrcoef(along, wanted)[0, 1]),
    }


def rises(across: np.ndarray, upward: np.ndarray) -> dict[str, float]:
    """Rank correlation over tokens with x, with |x|, and over ten bin means with x."""
    kept = ~np.isnan(across)
    x, y = across[kept], upward[kept]
    edges = np.linspace(x.min(), x.max(), 11)
    centres, mean, _, _ = binned(x, y, edges)
    full = ~np.isnan(mean)
    return {
        "tokens": float(spearmanr(x, y).statistic),
        "tokens_absolute": float(spearmanr(np.abs(x), y).statistic),
        "bins": float(spearmanr(centres[full], mean[full]).statistic),
    }


def compare(
    settings: Settings, columns: dict, across: np.ndarray, imbalance: np.ndarray
) -> dict:
    """Our bin means beside the published: rank correlation, signs, ratio of size.

    The published x-axis for classes is taken to be a difference of frequencies, and
    stretched to ours: its bins are used in proportion.

    Args:
        settings: whose preset names the tables.
        columns: of our tokens.
        across: posterior differences.
        imbalance: differences of frequencies.

    Returns:
        By column; nothing where the number of classes is another.
    """
    results = {}
    stars = settings.preset == "stars"
    for name, (centres, theirs) in TABLES[settings.preset].items():
        if stars and across.shape[1] != 4:
            continue
        x, centre = across[:, 1], np.array(centres)
        if stars:
            x = imbalance[:, int(name.split()[1])]
            centre = centre * np.abs(x).max() / np.abs(centre).max()
        between = 0.5 * (centre[1:] + centre[:-1])
        edges = np.concatenate([[np.nanmin(x) - 1e-9], between, [np.nanmax(x) + 1e-9]])
        _, mean, _, number = binned(x, columns[name], edges)
        full = number > 0
        ours, wanted = mean[full], np.array(theirs)[full]
        # Attention does not see the level of the scores.
        level = (ours.mean(), wanted.mean()) if name == "scores" else (0.0, 0.0)
        results[name] = {
            "x": centre.tolist(),
            "ours": mean.tolist(),
            "theirs": theirs,
            "number": number.tolist(),
            "rank_correlation": float(spearmanr(ours, wanted).statistic),
            "same_sign": float(np.mean((ours > level[0]) == (wanted > level[1]))),
            "ratio": float(ours.std() / wanted.std()),
        }
    return results


def tell(results: dict) -> None:
    """The tables, for people."""
    for split in ("train", "test"):
        loss, right = results[f"{split}_loss"], results[f"{split}_accuracy"]
        say(f"{split:5s} loss {loss:.4f} accuracy {right:.4f}")
    for name, row in results["monotone"].items():
        shown = "   ".join(f"{key} {value:+.3f}" for key, value in row.items())
        say(f"{name:9s} rank correlation: {shown}")
    for name, table in results["published"].items():
        say(f"{name}: ours beside the published")
        lines = zip(
            *(table[key] for key in ("x", "ours", "theirs", "number")), strict=True
        )
        for x, ours, theirs, number in lines:
            say(f"  {x:+8.3f} {ours:+9.3f} {theirs:+9.3f}   {number} words")
        say(
            f"  rank correlation {table['rank_correlation']:.3f}, same sign "
            f"{table['same_sign']:.2f}, ratio of size {table['ratio']:.2f}"
        )


if __name__ == "__main__":
    console.command(main, PRESETS)
