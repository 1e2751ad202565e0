"""Several classes: the formula of one step for K classes, and four classes of reviews.

Reply to reviewer E1M4, Q2. The formula, E_sᵀv_k ≈ η₀ α_s^k, is held against one step on
synthetic tokens of four classes at growing d. With reviews of four classes the network
with a head for each is trained, and its bins are compared with the tables of Yelp. The
x-axis of these tables is not defined; it is taken to be α_s^k with a token of a
sequence counted once. Heads start as long as v ~ N(0, I) is at the authors' d = 2,048,
by one learning rate for all; `experiments.networks.protocol` tries other lengths and
rates.

    python -m experiments.paper.classes [--train FILE --test FILE --drop LABEL]
"""

import dataclasses
from functools import partial

import jax
import numpy as np
from matplotlib.figure import Figure

from experiments.common.claims import Claim, Measured, Verdict, of_interval
from experiments.common.console import command
from experiments.common.numbers import num
from experiments.common.results import Finished
from experiments.common.statistics import fitted_exponent
from experiments.common.study import Dimension, Experiment, Several
from experiments.common.style import power, subplots
from experiments.paper import _network
from experiments.paper._tables import in_size, published, tables_of
from jaxselect import embedding_step, gaussian_reduced
from jaxselect.data.corpus import Corpus
from jaxselect.data.synthetic import multi_class
from jaxselect.model.attention import token_scores
from jaxselect.model.step import alignment_error, predicted_alignment

CLASSES, STEP = 4, 100.0
TABLE = "stars"
EXPONENT = 0.02
"""Largest distance of the exponent from −½."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(_network.Settings):
    """The network with a head for each class, and the draws for the formula.

    Attributes:
        dims: values of d for the formula.
        draws: at each d.
    """

    dims: tuple[Dimension, ...] = (1e4, 1e5, 1e6, 1e7)
    draws: Several = 16


PRESETS = _network.presets(
    Settings,
    TABLE,
    "results/paper/classes",
    learning_rate=2.8e-2,
    head_length=45.0,
    steps=300,
)


def run(settings: Settings, results: dict) -> dict[str, np.ndarray]:
    """Check the formula; train the network where there are reviews of it."""
    arrays = formula(settings)
    exponent = fitted_exponent(np.array(settings.dims), arrays["error"])
    results["exponent"] = list(exponent)
    source = settings.source
    results["published"] = False
    if source.train is not None or source.dataset is not None:
        arrays |= _network.run(settings, results, TABLE)
    return arrays


def corpus(seed: int) -> Corpus:
    """Tokens of four classes; each sequence holds one of its own class."""
    sizes = {"sequences": 160, "length": 8, "relevant": 5, "irrelevant": 40}
    return multi_class(jax.random.key(seed), **sizes, classes=CLASSES)


def formula(settings: Settings) -> dict[str, np.ndarray]:
    """E_sᵀv_k of one draw beside the formula, and the relative error of many."""
    bags = corpus(settings.seed)

    def one(key: jax.Array, dim: jax.Array) -> tuple[jax.Array, jax.Array]:
        sizes = {"vocabulary": bags.vocabulary, "heads": CLASSES}
        start = gaussian_reduced(key, **sizes, dim=dim)
        after = embedding_step(start, bags, STEP)
        return token_scores(after)[1], alignment_error(start, after, bags, STEP)

    over = jax.jit(jax.vmap(one, in_axes=(0, None)))
    found = [
        over(jax.random.split(jax.random.key(settings.seed + 1), settings.draws), dim)
        for dim in settings.dims
    ]
    return {
        "formula": np.asarray(predicted_alignment(bags, STEP)),
        "measured": np.asarray(found[-1][0][0]),
        "error": np.stack([np.asarray(error) for _, error in found]),
    }


def draw(finished: Finished) -> Figure:
    """E·v_k after one step, against the formula; of reviews, beside published means."""
    tables = tables_of(finished, TABLE)
    count = 1 + len(tables)
    figure, panels = subplots(1, count, figsize=(3.6 * count, 3.2), squeeze=False)
    wanted, got = (finished.arrays[name] for name in ("formula", "measured"))
    first = panels[0, 0]
    for k in range(CLASSES):
        # Hollow and of decreasing size: points of one class hide no other's.
        look = {"marker": "os^v"[k], "markersize": 9 - 2 * k, "fillstyle": "none"}
        label = f"class {k + 1}"
        first.plot(wanted[:, k], got[:, k], linestyle="", label=label, **look)
    ends = np.array([wanted.min(), wanted.max()])
    first.plot(ends, ends, "k--", marker="", label="the formula")
    dim = power(finished.settings["dims"][-1])
    first.set(xlabel="η₀ α_s^k", ylabel=f"E·v_k after one step, d = {dim}")
    first.legend()
    for panel, (name, table) in zip(panels[0, 1:], tables.items(), strict=True):
        centres, theirs = published(TABLE)[name]
        panel.plot(centres, table["ours"], "o-", label="ours")
        panel.plot(centres, theirs, "ks--", markersize=3, label="published")
        number = int(name.split()[1]) + 1
        panel.locator_params(axis="x", nbins=4)
        panel.set(xlabel="α_s^k", ylabel=f"E·v_k, class {number}")
        panel.legend()
    return figure


def k_class_formula(found: Finished) -> Measured:
    """The exponent of the error of the formula in d."""
    middle, low, high = found.results["exponent"]
    error = float(np.median(found.arrays["error"][-1]))
    dims = found.settings["dims"]
    return Measured(
        of_interval(low, high, -0.5, EXPONENT),
        f"relative error {num(error)} at d = {num(dims[-1])}, falls like "
        f"d^({num(middle)})",
        f"{found.settings['draws']} draws at {len(dims)} d",
        "–",
        f"the 95 % interval of the exponent, {low:.4f} … {high:.4f}, within "
        f"{EXPONENT:g} of −½",
    )


def of_class(found: Finished, part: str) -> Measured:
    """Bin means of one class beside the published; none without reviews."""
    if "values 0" not in found.arrays:
        return Measured(Verdict.NOT_RUN)
    return in_size(found, TABLE, part)


CLAIMS = (
    Claim(
        "One step for K classes: E_s·v_k ≈ (η₀/T) E Σ_i [(K−1)/K 1{y=k, x_i=s} − "
        "1/K 1{y≠k, x_i=s}].",
        k_class_formula,
        "Reply to reviewer E1M4, Q2, formula",
    ),
    Claim(
        "On Yelp with four classes E·v_k rises with the importance of a token for "
        "class k: from −42 to 81 for class 2.",
        partial(of_class, part="values 1"),
        "Reply to reviewer E1M4, Q2, table of class 2",
    ),
    Claim(
        "The same for class 4: from −66 to 42.",
        partial(of_class, part="values 3"),
        "Reply to reviewer E1M4, Q2, table of class 4",
    ),
)

main = Experiment(
    run, draw=draw, claims=CLAIMS, title="Several classes", precision="float32"
)


if __name__ == "__main__":
    command(main, PRESETS)
