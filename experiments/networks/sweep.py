"""Richer networks over seeds, dimensions and step sizes: one program for a grid.

One step of size η₀ on E, compared with what counts predict, then gradient descent on
all parameters. Everything happens in the span of the embeddings, so d is any number.
Each lane ends with a status; a lane that is not finite is counted and enters no mean.

python -m experiments.networks.sweep --preset two_layer_key_query
"""

import dataclasses
import enum
import time
from pathlib import Path
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, Scalar

from experiments.common import memory
from experiments.common.claims import Claim, Measured, Shown, Verdict, of_cases
from experiments.common.console import command, say
from experiments.common.numbers import counted, finite, num
from experiments.common.results import Finished
from experiments.common.statistics import fitted_exponent
from experiments.common.study import (
    Count,
    Dimension,
    Experiment,
    Positive,
    Several,
    Study,
    presets,
)
from jaxselect.checks import BadInput
from jaxselect.data import synthetic
from jaxselect.data.corpus import Corpus
from jaxselect.networks.embedding_step import (
    change_error,
    network_risk,
    network_step,
    predicted_change,
)
from jaxselect.networks.network import (
    Design,
    Network,
    Variables,
    alignments,
    start_reduced,
)


class LaneStatus(enum.IntEnum):
    """How a lane ended."""

    NOT_FINITE = 0
    UNORDERED = 1
    """Some important token has no greater E_sᵀv_k than all others."""
    ORDERED = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Study):
    """The grid, and what is trained on it.

    Attributes:
        layers: 1 or 2.
        key_query: matrices in the logits.
        residual: add E_s to what the first of two layers makes of token s.
        classes: 2, or more with one layer.
        seeds: initialisations for each d and η₀.
        dims: values of d.
        step_sizes: values of η₀.
        steps: of gradient descent after the first one.
        learning_rate: of these steps.
        preset: the study.
    """

    layers: Literal[1, 2] = 2
    key_query: Literal["none", "product", "tied", "separate"] = "none"
    residual: bool = True
    classes: Several = 2
    seeds: Several = 32
    dims: tuple[Dimension, ...] = (1e3, 1e5, 1e7, 1e9)
    step_sizes: tuple[Positive, ...] = (1.0, 10.0, 100.0)
    steps: Count = 100
    learning_rate: Positive = 0.5
    out: Path = Path("results/network_sweep")

    def check(self) -> None:
        """Refuse a single d, of which there is no exponent, and too many lanes."""
        if len(self.dims) < 2:
            raise BadInput(f"--dims {self.dims}: an exponent wants two or more")
        vocabulary, heads = invent(self.classes)[1].shape
        least = vocabulary + heads + 1
        if min(self.dims) < least:
            raise BadInput(f"--dims has {min(self.dims)}; wanted {least} or more")
        lanes = self.seeds * len(self.dims) * len(self.step_sizes)
        memory.require(8 * lanes * vocabulary * least, f"{lanes} lanes")


PRESETS = presets(
    two_layer=Settings(),
    two_layer_key_query=Settings(key_query="product"),
    classes=Settings(layers=1, classes=4),
    smoke=Settings(seeds=4, dims=(1e3, 1e5), step_sizes=(1.0, 10.0), steps=10),
)
PRESETS = {
    name: dataclasses.replace(chosen, out=Settings.out / name)
    for name, chosen in PRESETS.items()
}


def explore(settings: Settings, results: dict) -> dict[str, np.ndarray]:
    """Run the grid, fit the exponent of the error in d."""
    corpus, wanted = invent(settings.classes)
    heads = wanted.shape[1]
    design = Design(settings.layers, settings.key_query, settings.residual, heads=heads)
    network = Network(corpus.vocabulary, corpus.vocabulary + heads + 1, design)
    traces = []

    def lane(
        key: Key[Array, ""], dim: Float[Scalar, ""], step_size: Float[Scalar, ""]
    ) -> dict[str, Scalar]:
        traces.append(1)
        return run(network, corpus, wanted, settings, key, dim, step_size)

    over = jax.vmap(lane, in_axes=(None, None, 0))
    over = jax.vmap(jax.vmap(over, in_axes=(0, None, None)), in_axes=(None, 0, None))
    keys = jax.random.split(jax.random.key(settings.seed), settings.seeds)
    begun = time.perf_counter()
    ran = jax.jit(over)(keys, jnp.array(settings.dims), jnp.array(settings.step_sizes))
    found = {name: np.asarray(value) for name, value in ran.items()}
    seconds = time.perf_counter() - begun
    results |= {"lanes": found["error"].size, "traces": len(traces), "seconds": seconds}
    say(f"{results['lanes']} lanes, traced {len(traces)} time(s), {seconds:.1f} s")
    for place, step_size in enumerate(settings.step_sizes):
        here = {name: value[:, :, place] for name, value in found.items()}
        results[f"step size {step_size:g}"] = row = summary(settings.dims, here)
        counted = ", ".join(f"{n} {name}" for name, n in row["statuses"].items())
        say(
            f"step size {step_size:7g}   error ∝ d^{row['exponent']:.4f} "
            f"[{row['low']:.4f}, {row['high']:.4f}]   "
            f"loss {row['loss']:.4f}   {counted}"
        )
    axes = {
        "dims": np.array(settings.dims),
        "step_sizes": np.array(settings.step_sizes),
    }
    return found | axes | {"seeds": np.arange(settings.seeds)}


def summary(dims: tuple[Dimension, ...], lanes: dict[str, np.ndarray]) -> dict:
    """Statuses counted, and means over the lanes that are finite.

    Args:
        dims: values of d.
        lanes: `status`, `error` and `loss`, one row per d, one column per seed.

    Returns:
        `statuses`; `loss`; `exponent` of the error in d, with the interval `low` to
        `high`, from the seeds that are finite at every d, of which there are `fitted`.
        NaN where nothing is left.
    """
    status = lanes["status"]
    finite = status != LaneStatus.NOT_FINITE
    whole = finite.all(axis=0)
    fit = (np.nan, np.nan, np.nan)
    if whole.any():
        fit = fitted_exponent(np.array(dims), lanes["error"][:, whole])
    return {
        "statuses": {code.name: int(np.sum(status == code)) for code in LaneStatus},
        "loss": float(lanes["loss"][finite].mean()) if finite.any() else np.nan,
        "fitted": int(whole.sum()),
        **dict(zip(("exponent", "low", "high"), fit, strict=True)),
    }


def invent(classes: Several) -> tuple[Corpus, Float[np.ndarray, "vocabulary heads"]]:
    """A corpus, and a mark for each token and head: 1 important for it, −1 against."""
    key = jax.random.key(7)
    if classes == 2:
        corpus = synthetic.several_relevant(
            key,
            sequences=24,
            length=8,
            relevant=4,
            irrelevant=8,
            per_sequence=3,
            purity=0.8,
        )
        wanted = np.zeros((corpus.vocabulary, 1))
        wanted[:4], wanted[4:8] = 1, -1
    else:
        corpus = synthetic.multi_class(
            key,
            sequences=10 * classes,
            length=8,
            relevant=2,
            irrelevant=12,
            classes=classes,
        )
        wanted = np.zeros((corpus.vocabulary, classes))
        for k in range(classes):
            wanted[2 * k : 2 * k + 2, k] = 1
    return corpus, wanted


def run(
    network: Network,
    corpus: Corpus,
    wanted: Float[np.ndarray, "vocabulary heads"],
    settings: Settings,
    key: Key[Array, ""],
    dim: Float[Scalar, ""],
    step_size: Float[Scalar, ""],
) -> dict[str, Scalar]:
    """Error of the predicted step and loss after training of one lane."""
    begin = start_reduced(network, key, dim)
    predicted = predicted_change(corpus, network.design, step_size)
    after = network_step(network, begin, corpus, step_size)

    def descend(variables: Variables, _: None) -> tuple[Variables, None]:
        slope = jax.grad(network_risk, argnums=1)(network, variables, corpus)
        moved = jax.tree.map(
            lambda x, g: x - settings.learning_rate * g, variables, slope
        )
        return moved, None

    end, _ = jax.lax.scan(descend, after, None, length=settings.steps)
    values = alignments(network, end)[1]
    least = jnp.where(wanted > 0, values, jnp.inf).min()
    greatest = jnp.where(wanted > 0, -jnp.inf, values).max()
    error = change_error(begin, after, predicted)
    loss = network_risk(network, end, corpus)
    ended = jnp.where(least > greatest, LaneStatus.ORDERED, LaneStatus.UNORDERED)
    finite = jnp.isfinite(error) & jnp.isfinite(loss)
    return {
        "status": jnp.where(finite, ended, LaneStatus.NOT_FINITE),
        "error": error,
        "loss": loss,
    }


EXPONENT = 0.02
"""Largest distance of a fitted exponent from its prediction, for a few seeds."""


def first_step(found: Finished) -> Measured:
    """The first step of richer networks is predicted by counts."""
    results = found.results
    steps = {name: row for name, row in results.items() if name.startswith("step size")}
    exponents = finite(row["exponent"] for row in steps.values())
    if not exponents.size:
        return Measured(Verdict.OPEN, "no exponent")
    close = int((abs(exponents + 0.5) <= EXPONENT).sum())
    return Measured(
        of_cases(close, len(steps)),
        f"error ∝ d^{num(exponents.mean())}",
        counted(results["lanes"], "run"),
        "–",
        f"exponents within {EXPONENT:g} of −½",
    )


CLAIMS = (
    Claim(
        "The first step of richer networks is what counts predict.",
        first_step,
    ),
)


def show(found: Finished) -> Shown:
    """Exponents of the first step, and how lanes ended."""
    rows = [["η₀", "error ∝ d^", "95 % interval", "loss", "endings"]]
    for name, row in found.results.items():
        if not name.startswith("step size"):
            continue
        endings = ", ".join(
            f"{number} {status.lower().replace('_', ' ')}"
            for status, number in row["statuses"].items()
            if number
        )
        interval = f"{num(row['low'])} … {num(row['high'])}"
        rows.append(
            [
                name.removeprefix("step size "),
                num(row["exponent"]),
                interval,
                num(row["loss"]),
                endings,
            ]
        )
    return Shown([f"{found.results['lanes']} runs in one program."], rows)


main = Experiment(explore, claims=CLAIMS, show=show, title="Over seeds, d and η₀")


if __name__ == "__main__":
    command(main, PRESETS)
