"""Which laws of the joint flow hold under descent, minibatches, Adam, weight decay?

E, p and v are trained by optax on the exact family (mathematics, sections 3i and 3k).
With small steps descent is the flow at t = the sum of its step sizes, which bounds what
it can show: log t is 12 after 10⁵ steps of size one. The weight off the important
tokens is compared with the flow of two variables at that t; for Adam, which has no such
time, at equal loss. Where tokens are unequally frequent, b_s − b_r has a limit.
Training with weight decay has a finite end, which is compared with its closed form.
"""

import dataclasses
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from matplotlib.figure import Figure

from experiments.beyond.problem import Problem
from experiments.common.claims import Shown
from experiments.common.console import command, say
from experiments.common.numbers import num
from experiments.common.progress import watched
from experiments.common.results import Finished
from experiments.common.study import Count, Experiment, Positive, Study, presets
from experiments.common.style import subplots
from jaxselect.checks import BadInput
from jaxselect.data.corpus import Corpus
from jaxselect.data.synthetic import assumption_one
from jaxselect.model.attention import (
    attend_corpus,
    empirical_risk,
    negative_gradient,
    token_scores,
)
from jaxselect.model.parameters import Parameters, gaussian
from jaxselect.theory.joint import exact_family, exact_family_flow
from jaxselect.theory.steps import decay_end


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Study):
    """Settings of the study.

    Attributes:
        problem: the corpora, of two important tokens per class.
        dim: embedding dimension d.
        ratio: how much more frequent the first of two tokens is where they differ.
        step_size: of descent, with all sequences, with minibatches and with decay.
        steps: of descent.
        batch: sequences of a minibatch.
        adam_rate: learning rate of Adam.
        adam_steps: steps of Adam.
        decays: λ of weight decay.
        decay_times: time that decay is given, in units of 1/λ.
        points: looks at each run, geometric in steps.
        seeds: number of draws.
    """

    problem: Problem = Problem(64, 4, 2, 4)
    dim: Count = 256
    ratio: Positive = 3.0
    step_size: Positive = 1.0
    steps: Count = 100_000
    batch: Count = 8
    adam_rate: Positive = 1e-3
    adam_steps: Count = 20_000
    decays: tuple[Positive, ...] = (1e-2, 3e-3, 1e-3, 3e-4)
    decay_times: Positive = 30.0
    points: int = 20
    seeds: Count = 4
    out: Path = Path("results/optimizers")

    def check(self) -> None:
        """Refuse problems of other than two tokens, and minibatches beyond them."""
        if self.problem.relevant != 2 or self.points < 4:
            raise BadInput(
                f"relevant {self.problem.relevant}, points {self.points}: wanted two "
                "relevant tokens per class, whose frequencies are compared, and ≥ 4"
            )
        if self.batch > self.problem.sequences:
            raise BadInput(f"batch {self.batch}: wanted at most all sequences")


PRESETS = presets(
    full=Settings(),
    smoke=Settings(
        problem=Problem(16, 3, 2, 2),
        steps=1000,
        adam_steps=1000,
        decays=(1e-2,),
        points=6,
        seeds=2,
    ),
)


MEASURED = ("log_loss", "rest", "values", "share")
"""log L; weight off the important tokens; their y b_s; share that selects one."""


def minibatch(key: jax.Array, corpus: Corpus, batch: int) -> Corpus:
    """The corpus with weights of a random minibatch, unbiased."""
    number = len(corpus.labels)
    chosen = jax.random.permutation(key, number) < batch
    assert corpus.weights is not None
    weights = jnp.where(chosen, corpus.weights, 0.0) * (number / batch)
    return dataclasses.replace(corpus, weights=weights)


def gradient(parameters: Parameters, corpus: Corpus) -> Parameters:
    """∇L in E, p and v: −∇_E L = h_a pᵀ + h_b vᵀ."""
    down = negative_gradient(*token_scores(parameters), corpus)
    both = jnp.stack([down.scores, down.values], axis=1)
    pair = jnp.stack([parameters.query, parameters.head])
    pulled = both.T @ parameters.embeddings
    return Parameters(-both @ pair, -pulled[0], -pulled[1])


def measure(parameters: Parameters, corpus: Corpus) -> dict[str, jax.Array]:
    """Numbers by name of `MEASURED`."""
    scores, values = token_scores(parameters)
    weights = jnp.exp(attend_corpus(scores, values, corpus).log_weights)
    important = corpus.present & (corpus.tokens < 4)
    own = jnp.sum(jnp.where(important, weights, 0.0), axis=1)
    top = jnp.argmax(jnp.where(corpus.present, weights, -1.0), axis=1)
    selected = jnp.take_along_axis(important, top[:, None], axis=1)[:, 0]
    return {
        "log_loss": jnp.log(empirical_risk(parameters, corpus)),
        "rest": corpus.mean(1 - own),
        "values": values[:4] * jnp.array([1.0, 1.0, -1.0, -1.0]),
        "share": selected.astype(float).mean(),
    }


def residuals(
    decay: float, parameters: Parameters, corpus: Corpus
) -> tuple[jax.Array, jax.Array]:
    """Largest entries of ∇L + λ (E, p, v) and of EᵀE − p pᵀ − v vᵀ."""
    total = jax.tree.map(
        lambda slope, part: jnp.abs(slope + decay * part).max(),
        gradient(parameters, corpus),
        parameters,
    )
    pair = jnp.stack([parameters.query, parameters.head])
    rows = parameters.embeddings
    off = jnp.abs(rows.T @ rows - pair.T @ pair).max()
    return jnp.stack(jax.tree.leaves(total)).max(), off


LATEST = 1e3
"""Log-time that the two variables are followed to, for their loss."""


def run(settings: Settings, results: dict) -> dict[str, np.ndarray]:
    """Train with every rule, then with decay."""
    descent, adam = optax.sgd(settings.step_size), optax.adam(settings.adam_rate)
    rules = {
        "descent": (descent, settings.steps, 0, settings.step_size),
        "minibatches": (descent, settings.steps, settings.batch, settings.step_size),
        "adam": (adam, settings.adam_steps, 0, settings.adam_rate),
    }
    rest, log_loss = predicted(settings, np.geomspace(0.1, LATEST, 200))
    arrays: dict[str, np.ndarray] = {"flow_rest": rest, "flow_log_loss": log_loss}
    results |= {"rules": {}, "decay": []}
    with watched("training", 2 * len(rules) + len(settings.decays)) as advance:
        for name, (rule, steps, batch, size) in rules.items():
            marks = np.unique(np.geomspace(1, steps, settings.points).astype(int))
            for kind, ratio in (("equal", 1.0), ("unequal", settings.ratio)):
                found, _ = train(settings, rule, marks, batch, ratio)
                arrays |= {f"{key} {name}, {kind}": found[key] for key in found}
                advance(1)
            times = np.log1p(size * marks)
            arrays |= {f"log_times {name}": times}
            arrays[f"predicted {name}"] = predicted(settings, times)[0]
            results["rules"][name] = summary(settings, arrays, name)
            say(f"{name}: {results['rules'][name]}")
        for decay in settings.decays:
            results["decay"].append(decayed(settings, decay))
            say(f"decay {decay:g}: {results['decay'][-1]}")
            advance(1)
    return arrays


def train(
    settings: Settings,
    rule: optax.GradientTransformation,
    marks: np.ndarray,
    batch: Count,
    ratio: Positive,
) -> tuple[dict[str, np.ndarray], tuple[Parameters, Corpus]]:
    """Runs of all seeds with one rule.

    Args:
        settings: of the study.
        rule: of optax.
        marks: steps at which to look, increasing.
        batch: sequences of a minibatch; 0 for all.
        ratio: of the frequencies of the two important tokens of a class.

    Returns:
        Arrays (marks, seeds, …) by name of `MEASURED`; the last parameters and corpora.
    """
    seeds = settings.seed + jnp.arange(settings.seeds)
    parameters, corpus = jax.jit(jax.vmap(partial(instance, settings, ratio)))(seeds)

    def more(
        state: tuple, corpus: Corpus, seed: jax.Array, first: jax.Array, last: jax.Array
    ) -> tuple:
        def once(number: jax.Array, state: tuple) -> tuple:
            parameters, memory = state
            key = jax.random.fold_in(jax.random.key(seed), number)
            part = minibatch(key, corpus, batch) if batch else corpus
            move, memory = rule.update(gradient(parameters, part), memory, parameters)
            return optax.apply_updates(parameters, move), memory

        return jax.lax.fori_loop(first, last, once, state)

    follow = jax.jit(jax.vmap(more, (0, 0, 0, None, None)))
    seen, looks = jax.jit(jax.vmap(measure)), []
    # Optimisers multiply arrays by numbers of another type.
    with jax.numpy_dtype_promotion("standard"):
        state = (parameters, jax.vmap(rule.init)(parameters))
        for first, last in zip([0, *marks[:-1]], marks, strict=True):
            state = follow(state, corpus, seeds, jnp.array(first), jnp.array(last))
            looks.append(jax.device_get(seen(state[0], corpus)))
    found = {name: np.array([one[name] for one in looks]) for name in MEASURED}
    return found, (state[0], corpus)


def instance(
    settings: Settings, ratio: float, seed: jax.Array
) -> tuple[Parameters, Corpus]:
    """Gaussian parameters in R^d, and a corpus whose weights make tokens unequal."""
    corpus_key, key = jax.random.split(jax.random.key(seed))
    corpus = assumption_one(corpus_key, **dataclasses.asdict(settings.problem))
    # Ids are in the order of the classes; the first of each class is the frequent one.
    frequent = (corpus.present & (corpus.tokens < 4) & (corpus.tokens % 2 == 0)).any(1)
    weights = jnp.where(frequent, ratio, 1.0)
    corpus = dataclasses.replace(corpus, weights=weights / weights.sum())
    return gaussian(key, vocabulary=corpus.vocabulary, dim=settings.dim), corpus


def predicted(settings: Settings, log_times: np.ndarray) -> np.ndarray:
    """Rows 1 − q and log L of the two variables of the flow, at log(1+t), d → ∞."""
    of = settings.problem
    problem = exact_family(
        relevant=of.relevant, irrelevant=of.irrelevant, length=of.length
    )
    found = exact_family_flow(problem, jnp.asarray(log_times))
    return np.stack([np.exp(found.log_weight), np.asarray(found.log_loss)])


def summary(
    settings: Settings, arrays: dict[str, np.ndarray], name: str
) -> dict[str, Any]:
    """Deviations of a rule from the laws, as means over seeds.

    Returns:
        Plain numbers: log(1+t), log(1/L), 1 − q, its ratio to the flow's at that t and
        at that loss, the exponent of 1 − q in L over the last third of log L, the
        difference b_s − b_r of unequally frequent tokens and its limit, and the least
        share of sequences that select an important token.
    """
    log_loss, rest = (
        arrays[f"{key} {name}, equal"].mean(axis=1) for key in ("log_loss", "rest")
    )
    late = log_loss <= log_loss.min() * 2 / 3
    slope = np.polyfit(log_loss[late], np.log(rest[late]), 1)[0]
    values = arrays[f"values {name}, unequal"][-1]
    at_loss = np.interp(-log_loss[-1], -arrays["flow_log_loss"], arrays["flow_rest"])
    return {
        "log_time": float(arrays[f"log_times {name}"][-1]),
        "log_inverse_loss": float(-log_loss[-1]),
        "rest": float(rest[-1]),
        "over_flow": float(rest[-1] / arrays[f"predicted {name}"][-1]),
        "over_flow_at_loss": float(rest[-1] / at_loss),
        "exponent_in_loss": float(slope),
        "difference": float((values[:, ::2] - values[:, 1::2]).mean()),
        "difference_limit": float(np.log(settings.ratio)),
        "selected": float(arrays[f"share {name}, equal"][-1].min()),
    }


def decayed(settings: Settings, decay: float) -> dict[str, Any]:
    """The end under weight decay, and its closed form.

    Returns:
        Plain numbers, over seeds: the largest entry of ∇L + λ (E, p, v); that of EᵀE −
        p pᵀ − v vᵀ; means of 1 − q and β; the spread of β over tokens, and what the
        symmetric end predicts.
    """
    size = settings.step_size
    rule = optax.chain(optax.add_decayed_weights(decay), optax.sgd(size))
    steps = max(1, round(settings.decay_times / (decay * size)))
    found, end = train(settings, rule, np.array([steps]), 0, 1.0)
    of = settings.problem
    sizes = {"relevant": of.relevant, "irrelevant": of.irrelevant, "length": of.length}
    wanted = decay_end(**sizes, decay=decay)
    left, balance = jax.jit(jax.vmap(partial(residuals, decay)))(*end)
    values = found["values"][-1]
    return {
        "decay": decay,
        "stationary": float(left.max()),
        "balance": float(balance.max()),
        "rest": float(found["rest"][-1].mean()),
        "rest_predicted": float(wanted.unselected),
        "value": float(values.mean()),
        "value_predicted": float(wanted.value),
        "value_spread": float(np.ptp(values, axis=1).max()),
        "selected": float(found["share"][-1].min()),
    }


def draw(finished: Finished) -> Figure:
    """Weight off the important tokens, the effect of frequency, the end under decay."""
    found, rules = finished.arrays, finished.results["rules"]
    figure, axes = subplots(1, 3, figsize=(12, 3.8))
    for number, name in enumerate(rules):
        late = -found[f"log_loss {name}, equal"].mean(axis=1)
        rest = found[f"rest {name}, equal"].mean(axis=1)
        axes[0].plot(late, rest, "o-", color=f"C{number}", markersize=4, label=name)
        values = found[f"values {name}, unequal"]
        apart = (values[..., ::2] - values[..., 1::2]).mean(axis=(1, 2))
        late = -found[f"log_loss {name}, unequal"].mean(axis=1)
        axes[1].plot(late, apart, "o-", color=f"C{number}", markersize=4, label=name)
    shown = found["flow_log_loss"] > min(
        found[f"log_loss {name}, equal"].min() for name in rules
    )
    late, rest = -found["flow_log_loss"][shown], found["flow_rest"][shown]
    axes[0].plot(late, rest, "k--", label="flow, two variables")
    limit = next(iter(rules.values()))["difference_limit"]
    axes[1].axhline(limit, color="k", linestyle="--", label="log of the ratio")
    rows = finished.results["decay"]
    decays = np.array([row["decay"] for row in rows])
    axes[2].loglog(decays, [row["rest"] for row in rows], "o", label="trained")
    axes[2].plot(
        decays, [row["rest_predicted"] for row in rows], "k--", label="closed form"
    )
    axes[0].set(xlabel="log(1/L)", ylabel="1 − q", yscale="log")
    axes[1].set(xlabel="log(1/L)", ylabel="b_s − b_r, unequally frequent tokens")
    axes[2].set(xlabel="weight decay λ", ylabel="1 − q at the end")
    for panel in axes:
        panel.legend(fontsize="small")
    return figure


def show(found: Finished) -> Shown:
    """Which laws every rule keeps; the end under decay beside its closed form."""
    rows = [["rule", "log(1/L)", "1 − q", "over the flow at that loss", "b_s − b_r"]]
    for name, row in found.results["rules"].items():
        keys = ("log_inverse_loss", "rest", "over_flow_at_loss", "difference")
        rows.append([name, *(f"{row[key]:.4g}" for key in keys)])
    for row in found.results["decay"]:
        ratio = f"{row['rest'] / row['rest_predicted']:.4g} (closed form)"
        rows.append([f"decay {row['decay']:g}", "", f"{row['rest']:.4g}", ratio, ""])
    limit = next(iter(found.results["rules"].values()))["difference_limit"]
    return Shown([f"In the flow b_s − b_r tends to {num(limit)}."], rows)


main = Experiment(run, draw=draw, show=show, title="Adam, minibatches, decay")


if __name__ == "__main__":
    command(main, PRESETS)
