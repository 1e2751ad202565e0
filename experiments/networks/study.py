"""Richer networks on reviews or invented tokens, beside what the authors published.

    two_layer            self-attention over the tokens, then CLS attention
    two_layer_key_query  the same with W¹ and W² trained
    mlp                  one layer, then an MLP
    stars                one layer, a head for each class

python -m experiments.networks --preset mlp --train imdb_train.parquet --test ...

An MLP makes the output vᵀφ(U z + c). Training moves E_s along the response
g = mean_X ∂f/∂z_X, and E_sᵀv grows only as far as g has a part along v: the sign of gᵀv
is random where that of U is (mathematics, section 5a). Therefore E_sᵀg/‖g‖ is shown
too, and `turned`, E_sᵀv times the sign of gᵀv; a published table of one draw with
gᵀv > 0 is compared with the latter.

With matrices in the logits the draw and the learning rate decide how far tokens move
along p and how far along v: the sizes of the two columns differ tenfold between runs,
in opposite ways. As in the base model a run may end captured by one class, with one arm
of the U missing; on IMDB at d = 2048 seed 0 does, at the sizes of the published table,
and seed 1 does not.

The x-axis of the published tables for classes is not defined beside them; it spans a
few hundredths, as differences of frequencies do, and not −1 … 1, as posterior
differences would.
"""

import dataclasses
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax
from matplotlib.figure import Figure
from scipy.stats import spearmanr

from experiments.common import memory
from experiments.common.claims import Shown
from experiments.common.console import say
from experiments.common.numbers import num
from experiments.common.progress import watched
from experiments.common.results import Finished, write
from experiments.common.statistics import beside, binned
from experiments.common.study import Count, Experiment, Positive, Study, presets
from experiments.common.style import cloud, subplots
from experiments.networks.data import posteriors, take
from experiments.text import baseline as bag_of_words
from experiments.text import published
from experiments.text.baseline import Counted
from experiments.text.data import Source, in_order, mapping
from jaxselect.checks import BadInput
from jaxselect.networks.embedding_step import predicted_change
from jaxselect.networks.network import (
    Design,
    Network,
    Variables,
    alignments,
    count_parameters,
    start,
)
from jaxselect.networks.training import (
    Strata,
    evaluate,
    response,
    risk_and_gradient,
    stratify,
    train,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Study):
    """A network, its data and its training.

    Attributes:
        source: the reviews and their vocabulary; without any, invented tokens of
            which the important ones are known.
        classes: of invented tokens, two by default and five for stars; that of reviews
            is read from their labels, and checked where it is given.
        drop: a class to leave out, by its label in the data.
        layers: 1 or 2.
        key_query: matrices in the logits.
        residual: add E_s to what the first of two layers makes of token s.
        activation: of an MLP after the attention, or none.
        hidden: start of the MLP's matrix.
        dim: d.
        step_size: η₀ of the one step compared with its prediction.
        steps: training steps, all parameters together.
        learning_rate: of Adam.
        query_rate: of Adam for p, where it has one of its own; likewise
        head_rate: for the heads, 0 holds them, and
        matrix_rate: for matrices in the logits.
        query_length: ‖p‖ at the start; as drawn, about one, by default.
        batch: sequences per step; 0 for all of them.
        every: steps between two reports; 0 for none.
        checked: sequences of each split that loss, accuracy and the one step are taken
            on, the same ones every time; 0 for all of them.
        seed: random seed of the initialisation and of the minibatches.
        preset: the study.
    """

    source: Source = Source()
    classes: int | None = None
    drop: str | None = None
    layers: Literal[1, 2] = 1
    key_query: Literal["none", "product", "tied", "separate"] = "none"
    residual: bool = True
    activation: Literal["relu", "gelu", "tanh", "identity"] | None = None
    hidden: Literal["gaussian", "identity"] = "gaussian"
    dim: Count = 256
    step_size: Positive = 1000.0
    steps: Count = 150
    learning_rate: Positive = 3e-3
    query_rate: float | None = None
    head_rate: float | None = None
    matrix_rate: float | None = None
    query_length: Positive | None = None
    batch: int = 240
    every: int = 50
    checked: int = 2500
    out: Path = Path("results/networks")

    def check(self) -> None:
        """Refuse sizes beyond memory."""
        square = self.key_query != "none" or self.activation is not None
        size = self.dim**2 if square else self.dim
        memory.require(4 * size, f"--dim {self.dim}")


PRESETS = presets(
    two_layer=Settings(layers=2),
    two_layer_key_query=Settings(layers=2, key_query="product"),
    mlp=Settings(activation="relu"),
    stars=Settings(),
    smoke=Settings(layers=2, dim=32, steps=20, batch=120, every=0),
)
PRESETS = {
    name: dataclasses.replace(chosen, out=Settings.out / name)
    for name, chosen in PRESETS.items()
}


def run(settings: Settings, results: dict) -> dict[str, np.ndarray]:
    """Train; compare with the predicted step and the published bins."""
    begun = time.perf_counter()
    usual = 5 if settings.preset == "stars" else 2
    data = take(
        settings.source, settings.classes, settings.drop, settings.seed, usual=usual
    )
    classes = data.classes
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
    if settings.query_length is not None:
        begin = with_query(begin, settings.query_length)
    strata = stratify(data.train, data.labels, classes=classes)
    looked_at = (
        subsample(Counted(data.train, data.labels), settings.checked),
        subsample(Counted(data.test, data.test_labels), settings.checked),
    )
    seen, unseen = (stratify(*part, classes=classes) for part in looked_at)
    parameters = count_parameters(begin)
    say(f"{data.train.shape[0]} sequences; parameters: {listed(parameters)}")
    for number, name in enumerate(data.names):
        say(f"class {number} is the label {name!r}")
    results |= {
        "vocabulary": len(data.words),
        "labels": mapping(data.names),
        "parameters": parameters,
        "one_step": one_step(network, begin, seen, settings.step_size),
    }
    say(f"one step: {listed(results['one_step'])}")
    end = fitted(network, begin, strata, unseen, settings)
    if not all(bool(jnp.isfinite(part).all()) for part in jax.tree.leaves(end)):
        results["status"] = "not finite"
        write(settings.out, settings=settings, results=results)
        raise BadInput(
            "training left the finite numbers: take a smaller --learning-rate (it was "
            f"{settings.learning_rate:g})"
        )
    results["status"] = "finished"
    for split, sequences in (("train", seen), ("test", unseen)):
        loss, right = evaluate(network, end, sequences)
        results |= {f"{split}_loss": float(loss), f"{split}_accuracy": float(right)}
    across, imbalance = posteriors(data, classes)
    columns, axes = alignment_columns(network, end, seen, across)
    if "response" in columns:
        ways = {"start": begin, "end": end}
        results["response"] = {
            name: towards_head(network, variables, seen)
            for name, variables in ways.items()
        }
    results["monotone"] = {name: rises(axes[name], columns[name]) for name in axes}
    called = settings.source.name if in_order(results["labels"]) else None
    results["published"] = compare(settings.preset, called, columns, across, imbalance)
    bag = bag_of_words.baseline(
        Counted(data.train, data.labels), train=looked_at[0], test=looked_at[1]
    )
    results["seconds"] = time.perf_counter() - begun
    say_tables(results, settings.preset)
    less = bag_of_words.say_bag(bag, **{name: results[name] for name in bag})
    results["bag_of_words"] = bag | {"ahead_of_ours": less}
    named = {f"x {name}": axis for name, axis in axes.items()}
    return columns | named | {"words": np.array(data.words)}


def with_query(variables: Variables, length: float) -> Variables:
    """The same with a p of another length."""
    query = variables["params"]["cls"]
    query = query * (length / jnp.linalg.norm(query))
    return {"params": variables["params"] | {"cls": query}}


def adam(usual: float, **rates: float | None) -> optax.GradientTransformation:
    """Adam with rates of their own for parameters whose names begin so.

    Args:
        usual: the rate of all others.
        rates: by beginning of a name; None for the usual one.

    Example:
        >>> rule, rows = adam(0.1, heads=0.0), jnp.ones(1)
        >>> there = {"params": {"embeddings": rows, "heads": rows}}
        >>> rule.update(there, rule.init(there))[0]["params"]["heads"].tolist()
        [0.0]
    """
    own = {name: rate for name, rate in rates.items() if rate is not None}

    def kind(name: str) -> str:
        return next((one for one in own if name.startswith(one)), "")

    return optax.partition(
        {name: optax.adam(rate) for name, rate in ({"": usual} | own).items()},
        lambda tree: {"params": {name: kind(name) for name in tree["params"]}},
    )


def fitted(
    network: Network,
    begin: Variables,
    strata: Strata,
    unseen: Strata,
    settings: Settings,
) -> Variables:
    """The variables after training; test losses are printed on the way."""
    losses: dict[int, float] = {}

    def report(step: int, variables: Variables) -> None:
        if settings.every and step % settings.every == 0:
            loss, right = evaluate(network, variables, unseen)
            losses[step] = float(loss)
            say(f"step {step:5d}   test loss {loss:.4f} accuracy {right:.4f}")
        advance(int(step > 0))

    with watched("training", settings.steps) as advance:
        end = train(
            network,
            begin,
            strata,
            adam(
                settings.learning_rate,
                cls=settings.query_rate,
                heads=settings.head_rate,
                product=settings.matrix_rate,
            ),
            steps=settings.steps,
            batch=settings.batch or None,
            key=jax.random.key(settings.seed + 1),
            report=report,
        )
    best = min(losses, key=losses.__getitem__, default=None)
    if best is not None and best < max(losses):
        say(
            f"the test loss was least at step {best} ({losses[best]:.4f}); what "
            f"follows is of step {settings.steps}, and --steps {best} ends there"
        )
    return end


def alignment_columns(
    network: Network, variables: Variables, strata: Strata, across: np.ndarray
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """E·p and E·v of every token, and the posterior difference to hold each against.

    Args:
        network: of one head, or one for each class.
        variables: after training.
        strata: sequences that the response of an MLP is averaged over.
        across: posterior differences by class.

    Returns:
        Columns by name, and their x by name; `turned` has none.
    """
    scores, values = (
        np.asarray(part, float) for part in alignments(network, variables)
    )
    columns = {"scores": scores}
    if network.design.heads > 1:
        parts = {f"values {k}": values[:, k] for k in range(values.shape[1])}
        return columns | parts, {name: across[:, k] for k, name in enumerate(parts)}
    columns["values"] = values[:, 0]
    if network.design.activation is not None:
        columns |= answering(network, variables, strata, columns["values"])
    return columns, {name: across[:, 1] for name in columns if name != "turned"}


def subsample(sequences: Counted, number: int) -> Counted:
    """A fixed sample of the sequences, or all of them."""
    order = np.random.default_rng(0).permutation(len(sequences.labels))
    kept = np.sort(order[:number] if number else order)
    return Counted(sequences.counts[kept], sequences.labels[kept])


def one_step(
    network: Network, begin: Variables, strata: Strata, step_size: Positive
) -> dict[str, float]:
    """Residual of the predicted first step, and slope of the measured step.

    Returns:
        `residual`, relative to the prediction; `slope` and `correlation` of what the
        step added along the heads, or along the response where there is an MLP.
    """
    directions = begin["params"]["heads"]
    if network.design.activation is not None:
        directions = response(network, begin, strata)
    number = sum(len(part.labels) for part in strata)
    predicted = sum(
        len(part.labels) / number * predicted_change(part, network.design, step_size)
        for part in strata
    )
    _, slope = risk_and_gradient(network, begin, strata)
    change = -step_size * slope["params"]["embeddings"]
    if not bool(jnp.isfinite(change).all()):
        raise BadInput(
            f"--step-size {step_size:g}: E is not finite after the step; take a smaller"
        )
    wanted = np.asarray(predicted, float).ravel()
    # Responses are not of norm one.
    dual = jnp.linalg.pinv(directions)
    along = np.asarray(change @ dual, float).ravel()
    left = jnp.linalg.norm(change - predicted @ directions)
    return {
        "residual": float(left / jnp.linalg.norm(predicted @ directions)),
        "slope": float(along @ wanted / (wanted @ wanted)),
        "correlation": float(np.corrcoef(along, wanted)[0, 1]),
    }


def answering(
    network: Network, variables: Variables, strata: Strata, values: np.ndarray
) -> dict[str, np.ndarray]:
    """E·g/‖g‖ of every token, and E·v times the sign of gᵀv; g is the response."""
    answer = response(network, variables, strata)[0]
    along = variables["params"]["embeddings"] @ (answer / jnp.linalg.norm(answer))
    sign = np.sign(towards_head(network, variables, strata))
    return {"response": np.asarray(along, float), "turned": sign * values}


def towards_head(network: Network, variables: Variables, strata: Strata) -> float:
    """Cosine of the response g and the head v."""
    answer = response(network, variables, strata)[0]
    head = variables["params"]["heads"][0]
    lengths = jnp.linalg.norm(answer) * jnp.linalg.norm(head)
    return float(answer @ head / lengths)


def rises(across: np.ndarray, upward: np.ndarray) -> dict[str, float]:
    """Rank correlation over tokens with x, with |x|, and over ten bin means with x."""
    kept = ~np.isnan(across)
    x, y = across[kept], upward[kept]
    edges = np.linspace(x.min(), x.max(), 11)
    positions, mean, _, _ = binned(x, y, edges)
    full = ~np.isnan(mean)
    return {
        "tokens": float(spearmanr(x, y).statistic),
        "tokens_absolute": float(spearmanr(np.abs(x), y).statistic),
        "bins": float(spearmanr(positions[full], mean[full]).statistic),
    }


def compare(
    preset: str,
    data: str | None,
    columns: dict,
    across: np.ndarray,
    imbalance: np.ndarray,
) -> dict:
    """Our bin means beside the published: rank correlation, signs, ratio of size.

    The published x-axis for classes is taken to be a difference of frequencies, and
    stretched to ours: its bins are used in proportion.

    Args:
        preset: name of the study, and of its tables.
        data: name of ours, where their classes are in order.
        columns: of our tokens.
        across: posterior differences.
        imbalance: differences of frequencies.

    Returns:
        By column; nothing where the data or the number of classes are others.
    """
    results: dict = {}
    if (data, across.shape[1]) != DATA[preset]:
        return results
    stars = preset == "stars"
    for name, (centres, theirs) in TABLES[preset].items():
        x, centre = across[:, 1], np.array(centres)
        if stars:
            x = imbalance[:, int(name.split()[1])]
            centre = centre * np.abs(x).max() / np.abs(centre).max()
        between = 0.5 * (centre[1:] + centre[:-1])
        low, high = min(np.nanmin(x), between[0]), max(np.nanmax(x), between[-1])
        edges = np.concatenate([[low - 1.0], between, [high + 1.0]])
        _, mean, _, number = binned(x, columns[name], edges)
        results[name] = {
            "x": centre.tolist(),
            "ours": mean.tolist(),
            "theirs": theirs,
            "number": number.tolist(),
            **beside(mean, np.array(theirs), level=name == "scores"),
        }
    return results


def listed(numbers: Mapping[str, float]) -> str:
    """Names and numbers on one line.

    Example:
        >>> listed({"slope_ratio": 0.98761, "words": 1200})
        'slope ratio 0.9876, words 1,200'
    """
    return ", ".join(
        f"{name.replace('_', ' ')} {value:,}"
        if isinstance(value, int)
        else f"{name.replace('_', ' ')} {value:.4g}"
        for name, value in numbers.items()
    )


def say_tables(results: dict, preset: str) -> None:
    """Print the tables of a study."""
    for split in ("train", "test"):
        loss, right = results[f"{split}_loss"], results[f"{split}_accuracy"]
        say(f"{split:5s} loss {loss:.4f} accuracy {right:.4f}")
    if "response" in results:
        say(f"cosine of the response and the head: {listed(results['response'])}")
    for name, row in results["monotone"].items():
        shown = "   ".join(f"{key} {value:+.3f}" for key, value in row.items())
        say(f"{name:9s} rank correlation: {shown}")
    if not results["published"]:
        data, classes = DATA[preset]
        say(
            f"nothing is published for these data: tables are of {data}, {classes} "
            "classes in order, and --named says what files hold"
        )
    for name, table in results["published"].items():
        say(f"{name}: ours beside the published")
        lines = zip(
            *(table[key] for key in ("x", "ours", "theirs", "number")), strict=True
        )
        for x, ours, theirs, number in lines:
            say(f"  {x:+9.4f} {ours:+9.3f} {theirs:+9.3f}   {number} words")
        say(
            f"  rank correlation {table['rank_correlation']:.3f}, same sign "
            f"{table['same_sign']:.2f}, ratio of size {table['ratio']:.2f}"
        )


# Published bin means; their source is in `experiments.text.published`.
MLP_SCORES = [4.76, 4.61, 3.26, 3.08, 2.8, 2.06, 1.6, 1.43, 0.89, 0.67]
MLP_SCORES += [0.59, 0.71, 1.11, 1.61, 2.02, 2.3, 3.28, 3.39, 4.84, 6.1]
MLP_VALUES = [0.13, 0.24, 0.06, 0.09, 0.04, 0.1, 0.01, 0.04, -0.01, 0.03]
MLP_VALUES += [0.06, 0.11, 0.18, 0.24, 0.34, 0.44, 0.57, 0.72, 0.87, 1.4]

CLASS_2 = [-0.026, -0.02, -0.017, -0.014, -0.011, -0.008, -0.005, -0.002, 0.001]
CLASS_2 += [0.005, 0.008, 0.011, 0.014, 0.017, 0.02, 0.023, 0.026, 0.029, 0.032]
CLASS_2_VALUES = [-42.375, -27.306, -51.164, -20.713, -40.923, -41.925, -41.884]
CLASS_2_VALUES += [-35.691, 18.255, 35.633, 30.524, 56.211, 44.184, 23.28, 45.341]
CLASS_2_VALUES += [43.21, 62.935, 81.274, 53.548]
CLASS_4 = [-0.021, -0.018, -0.016, -0.014, -0.011, -0.009, -0.007, -0.004, -0.002]
CLASS_4 += [0.0, 0.002, 0.005, 0.007, 0.009, 0.012, 0.014, 0.016, 0.019, 0.021]
CLASS_4_VALUES = [-64.776, -66.074, -37.04, -32.499, -31.109, -30.686, -26.341]
CLASS_4_VALUES += [-23.153, -22.31, -0.648, 31.915, 27.601, 30.951, 29.3, 19.455]
CLASS_4_VALUES += [29.693, 41.506, 34.151, 21.06]

# By study: column of our words, x of the bins, their means.
TABLES = {
    "two_layer": {
        "scores": (published.POSTERIOR, published.SCORES),
        "values": (published.POSTERIOR, published.VALUES),
    },
    "mlp": {
        "scores": (published.POSTERIOR, MLP_SCORES),
        "values": (published.POSTERIOR, MLP_VALUES),
        "turned": (published.POSTERIOR, MLP_VALUES),
    },
    "stars": {
        "values 1": (CLASS_2, CLASS_2_VALUES),
        "values 3": (CLASS_4, CLASS_4_VALUES),
    },
}
TABLES["two_layer_key_query"] = TABLES["smoke"] = TABLES["two_layer"]

# By study: the data its tables are of, and the number of their classes.
DATA = dict.fromkeys(TABLES, (published.DATA, 2)) | {"stars": ("yelp_review_full", 4)}


def draw(finished: Finished) -> Figure:
    """E·p and E·v of every token over its posterior difference, a panel per column."""
    columns = finished.arrays
    names = [name.removeprefix("x ") for name in columns if name.startswith("x ")]
    size = (4.5 * len(names), 4)
    figure, axes = subplots(1, len(names), figsize=size, squeeze=False)
    for panel, name in zip(axes[0], names, strict=True):
        label = name.replace("scores", "E·W²p").replace("values", "E·v")
        label = label.replace("response", "E·g/‖g‖")
        cloud(panel, columns[f"x {name}"], columns[name], label)
        panel.set_xlabel("posterior difference")
    return figure


def show(found: Finished) -> Shown:
    """Size, first step and accuracy of a network, and its bins beside the published."""
    results = found.results
    step, size = results["one_step"], sum(results["parameters"].values())
    rows = [["column", "rank correlation with the published bins"]]
    rows += [
        [name, num(table["rank_correlation"])]
        for name, table in results["published"].items()
    ]
    return Shown(
        [
            f"{size:,} parameters. The first step is the predicted one up to a "
            f"residual of {num(step['residual'])}; after training "
            f"{results['test_accuracy']:.1%} of the test sequences are right."
        ],
        rows if rows[1:] else (),
    )


main = Experiment(
    run,
    draw=draw,
    show=show,
    title="Words of a richer network",
    precision="float32",
)
