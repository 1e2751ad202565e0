"""What the items of richer networks share: settings, training, columns of the words.

An MLP makes the output vᵀφ(U z + c). Training moves E_s along the response
g = mean_X ∂f/∂z_X, and E_sᵀv grows only as far as g has a part along v: the sign of gᵀv
is random where that of U is (mathematics, section 5a). Therefore `turned`, E_sᵀv times
the sign of gᵀv, is kept beside E_sᵀv; a published table of one draw with gᵀv > 0 is
compared with it.

With matrices in the logits the draw and the learning rate decide how far tokens move
along p and how far along v: the sizes of the two columns differ tenfold between runs,
in opposite ways. As in the base model a run may end captured by one class, with one arm
of the U missing; on IMDB at d = 2048 seed 0 does, at the sizes of the published table,
and seed 1 does not.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
from matplotlib.figure import Figure

from experiments.common import memory, study
from experiments.common.claims import Claim
from experiments.common.console import say
from experiments.common.progress import progress_bar
from experiments.common.results import Finished, write
from experiments.common.study import Count, Experiment, Positive, Study
from experiments.networks.data import posteriors, take
from experiments.networks.network import (
    Design,
    Network,
    Variables,
    alignments,
    count_parameters,
    start,
)
from experiments.networks.training import Strata, evaluate, response, stratify, train
from experiments.paper import _tables
from experiments.text.baseline import Counted, baseline, say_bag
from experiments.text.data import in_order, mapping
from experiments.text.source import Source
from jaxselect.checks import BadInput


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Study):
    """A network, its data and its training.

    Attributes:
        source: the reviews and their vocabulary; without any, synthetic tokens of
            which the important ones are known.
        classes: of synthetic tokens, two by default; that of reviews is read from their
            labels, and checked where it is given.
        drop: a class to leave out, by its label in the data.
        layers: 1 or 2.
        key_query: matrices in the logits.
        residual: add E_s to what the first of two layers makes of token s.
        activation: of an MLP after the attention, or none.
        hidden: start of the MLP's matrix.
        dim: d.
        steps: training steps, all parameters together.
        learning_rate: of Adam.
        query_rate: of Adam for p, where it has one of its own; likewise
        head_rate: for the heads, 0 holds them, and
        matrix_rate: for matrices in the logits, or that of the MLP.
        query_length: ‖p‖ at the start; as drawn, about one, by default.
        head_length: of each head, likewise; one by default.
        batch: sequences per step; 0 for all of them.
        every: steps between two reports; 0 for none.
        checked: sequences of each split that loss and accuracy are taken on, the same
            ones every time; 0 for all of them.
        seed: random seed of the initialisation and of the minibatches.
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
    steps: Count = 150
    learning_rate: Positive = 3e-3
    query_rate: float | None = None
    head_rate: float | None = None
    matrix_rate: float | None = None
    query_length: Positive | None = None
    head_length: Positive | None = None
    batch: int = 240
    every: int = 50
    checked: int = 2500
    out: Path = Path("results/paper/network")

    def check(self) -> None:
        """Refuse sizes beyond memory."""
        square = self.key_query != "none" or self.activation is not None
        size = self.dim**2 if square else self.dim
        memory.require(4 * size, f"--dim {self.dim}")


SMALL = {"dim": 32, "steps": 20, "batch": 120, "every": 0, "checked": 200}
"""Sizes of a training of seconds."""
Chosen = TypeVar("Chosen", bound=Settings)


def presets(
    kind: Callable[..., Chosen], name: str, out: str, **chosen: Any
) -> dict[str, Chosen]:
    """The presets of an item, in its own class and folder.

    Args:
        kind: the item's class of settings.
        name: of the first preset.
        out: folder for results.
        chosen: design and training of the item.

    Returns:
        The preset of that name, and a `smoke` of seconds, on synthetic tokens.
    """
    full, small = (kind(**chosen | sizes, out=Path(out)) for sizes in ({}, SMALL))
    return study.presets(**{name: full}, smoke=small)


def run(settings: Settings, results: dict, table: str | None) -> dict[str, np.ndarray]:
    """Train a network.

    Args:
        settings: of the item.
        results: filled.
        table: name of its published tables; None of a network without any.

    Returns:
        `scores` and `values` of every word, and the posterior difference that each
        column is drawn over, as `x` and its name.
    """
    data = take(settings.source, settings.classes, settings.drop, settings.seed)
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
    begin = with_length(begin, "cls", settings.query_length)
    begin = with_length(begin, "heads", settings.head_length)
    strata = stratify(data.train, data.labels, classes=classes)
    looked_at = (
        subsample(Counted(data.train, data.labels), settings.checked),
        subsample(Counted(data.test, data.test_labels), settings.checked),
    )
    seen, unseen = (stratify(*part, classes=classes) for part in looked_at)
    results |= {
        "vocabulary": len(data.words),
        "labels": mapping(data.names),
        "parameters": count_parameters(begin),
    }
    say(
        f"{data.train.shape[0]} sequences; parameters: "
        f"{sum(results['parameters'].values()):,}"
    )
    for number, name in enumerate(data.names):
        say(f"class {number} is the label {name!r}")
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
        loss, right = map(float, evaluate(network, end, sequences))
        results |= {f"{split}_loss": loss, f"{split}_accuracy": right}
        say(f"{split:5s} loss {loss:.4f} accuracy {right:.4f}")
    known = settings.source.name if in_order(results["labels"]) else None
    results["published"] = table is not None and (known, classes) == _tables.DATA[table]
    bag = baseline(
        Counted(data.train, data.labels), train=looked_at[0], test=looked_at[1]
    )
    less = say_bag(bag, **{name: results[name] for name in bag})
    results["bag_of_words"] = bag | {"ahead_of_ours": less}
    return word_columns(network, end, seen) | {
        "words": np.array(data.words),
        **differences(*posteriors(data, classes)),
    }


def with_length(variables: Variables, name: str, length: float | None) -> Variables:
    """The same with p, or each head, of another length."""
    if length is None:
        return variables
    drawn = variables["params"][name]
    longer = drawn * (length / jnp.linalg.norm(drawn, axis=-1, keepdims=True))
    return {"params": variables["params"] | {name: longer}}


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
            if step < settings.steps:
                say(f"step {step:5d}   test loss {loss:.4f} accuracy {right:.4f}")
        advance(int(step > 0))

    with progress_bar("training", settings.steps) as advance:
        end = train(
            network,
            begin,
            strata,
            adam(
                settings.learning_rate,
                cls=settings.query_rate,
                heads=settings.head_rate,
                product=settings.matrix_rate,
                hidden=settings.matrix_rate,
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


def word_columns(
    network: Network, variables: Variables, strata: Strata
) -> dict[str, np.ndarray]:
    """E·p and E·v of every word, by name.

    Args:
        network: of one head, or one for each class.
        variables: after training.
        strata: sequences that the response of an MLP is averaged over.
    """
    scores, values = (
        np.asarray(part, float) for part in alignments(network, variables)
    )
    if network.design.heads > 1:
        parts = {f"values {k}": values[:, k] for k in range(values.shape[1])}
        return {"scores": scores} | parts
    columns = {"scores": scores, "values": values[:, 0]}
    if network.design.activation is not None:
        answer = response(network, variables, strata)[0]
        sign = np.sign(float(answer @ variables["params"]["heads"][0]))
        columns["turned"] = sign * values[:, 0]
    return columns


def differences(posterior: np.ndarray, importance: np.ndarray) -> dict[str, np.ndarray]:
    """What the columns are drawn over: for two classes, that of the second one."""
    if posterior.shape[1] == 2:
        return {"x values": posterior[:, 1]}
    return {f"x values {k}": column for k, column in enumerate(importance.T)}


def subsample(sequences: Counted, number: int) -> Counted:
    """A fixed sample of the sequences, or all of them."""
    order = np.random.default_rng(0).permutation(len(sequences.labels))
    kept = np.sort(order[:number] if number else order)
    return Counted(sequences.counts[kept], sequences.labels[kept])


def against_tables(
    kind: type[Settings], name: str, title: str, claims: tuple[Claim, ...]
) -> Experiment:
    """A network whose bin means are compared with published ones.

    Args:
        kind: the item's class of settings.
        name: of its published tables.
        title: of the item.
        claims: of the item.
    """

    def trained(settings: Settings, results: dict) -> dict[str, np.ndarray]:
        return run(settings, results, name)

    # The help shows the text of the item's own file.
    trained.__module__ = kind.__module__

    def draw(finished: Finished) -> Figure:
        """Words, their bin means, and the published means of the same network."""
        return _tables.draw(finished, name)

    return Experiment(
        trained, draw=draw, claims=claims, title=title, precision="float32"
    )
