"""Influence of every token and sequence on the max-margin direction.

First-order influence, by implicit derivatives of the max-margin direction, of every
token's count and every sequence's weight, compared with actual removal of a tenth or of
all of it. Complete removal also removes constraints, which a derivative cannot predict;
there the prediction starts from the problem without them.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from scipy.stats import spearmanr

from experiments.beyond.problem import Problem
from experiments.common.claims import Claim, Measured, Shown, at_least
from experiments.common.console import command, say_each
from experiments.common.numbers import num
from experiments.common.progress import watched
from experiments.common.results import Finished
from experiments.common.study import Dimension, Experiment, Study, presets
from experiments.common.style import subplots
from jaxselect.checks import BadInput
from jaxselect.convergence import resolve_limit
from jaxselect.data.corpus import Corpus
from jaxselect.margin.limit import LimitStatus
from jaxselect.margin.max_margin import max_margin
from jaxselect.model.parameters import Parameters
from jaxselect.model.selection import competing_pairs
from jaxselect.model.step import embedding_step
from jaxselect.problem import attention


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Study):
    """Settings of the study.

    Attributes:
        problem: the corpora.
        dim: embedding dimension d.
        step_size: η₀ of the step on E.
        seed: random seed of the draw.
    """

    problem: Problem = Problem(60, 6, 5, 20)
    dim: Dimension = 1024.0
    step_size: float = 100.0
    out: Path = Path("results/influence")


PRESETS = presets(full=Settings(), smoke=Settings(problem=Problem(8, 4, 2, 5)))


def run(settings: Settings, results: dict) -> dict[str, np.ndarray]:
    """Rank tokens and sequences; take them away."""
    before, corpus = settings.problem.draw(settings.seed, settings.dim)
    after = embedding_step(before, corpus, settings.step_size)
    resolved = jax.jit(resolve_limit)(attention(after, corpus))
    if resolved.late.status != LimitStatus.PREDICTED:
        name = LimitStatus(resolved.late.status.item()).name
        raise BadInput(
            f"seed {settings.seed}, step size {settings.step_size}: its late flow is "
            f"{name}, wanted PREDICTED; take another"
        )
    chosen = resolved.selected
    problem = (before, corpus, settings.step_size, chosen)
    found: dict[str, np.ndarray] = {}
    results["kink"] = bool(resolved.kink)
    sizes = {"token": corpus.vocabulary, "sequence": len(corpus.labels)}
    removals = 3 * sum(sizes.values()) + corpus.vocabulary
    with watched("removals", removals) as advance:
        for kind, number in sizes.items():
            where = jax.jit(partial(direction, *problem, kind=kind))
            whole = jnp.ones(number)
            turns = np.asarray(jax.jacfwd(where)(whole))
            predicted = {0.1: -0.1 * turns, 1.0: removal(where, number, advance)}
            found |= {f"{kind}_turn": np.linalg.norm(turns, axis=0)}
            for part, foreseen in predicted.items():
                turn = lost(where, number, part, advance)
                found[f"{kind}_removed_{part:g}"] = np.linalg.norm(turn, axis=0)
                found[f"{kind}_predicted_{part:g}"] = np.linalg.norm(foreseen, axis=0)
                results[f"{kind}_{part:g}"] = agreement(foreseen, turn)
            results[f"{kind}_1_derivative_alone"] = agreement(-turns, turn)
            ranked = np.argsort(-found[f"{kind}_turn"])
            results[f"{kind}_most"] = ranked[:5].tolist()
        constant = jax.jit(partial(error_constant, *problem))
        slope = np.asarray(jax.jacfwd(constant)(jnp.ones(corpus.vocabulary)))
        change = lost(constant, corpus.vocabulary, 0.1, advance)
        found |= {"constant_slope": slope, "constant_removed": change}
    same = np.isfinite(change)
    results["constant_0.1"] = agreement(-0.1 * slope[None, same], change[None, same])
    results["constant_kept"] = float(same.mean())
    results["history_dim"] = int(resolved.late.history_dim)
    results["selection_kept"] = kept(problem)
    say_each(results)
    return found


def weighted(corpus: Corpus, share: jax.Array, kind: str) -> tuple[Corpus, jax.Array]:
    """The corpus with shares of its tokens, or sequences, left.

    Args:
        corpus: n bags with labels ±1.
        share: what is left of each token or sequence, one for all of it.
        kind: "token" or "sequence".

    Returns:
        The corpus with its weights, and a mask of slots that are left.
    """
    if kind == "sequence":
        left = jnp.broadcast_to(share[:, None] > 0, corpus.counts.shape)
        weights = share / share.sum()
        return dataclasses.replace(corpus, weights=weights), left & (corpus.counts > 0)
    counts = corpus.counts * share[corpus.tokens]
    return dataclasses.replace(corpus, counts=counts), counts > 0


def direction(
    before: Parameters,
    corpus: Corpus,
    step_size: float,
    chosen: jax.Array,
    share: jax.Array,
    present: jax.Array | None = None,
    *,
    kind: str,
) -> jax.Array:
    """p_mm/‖p_mm‖ with shares of the tokens or sequences left.

    Args:
        before: (E⁰, p_0, v).
        corpus: n bags with labels ±1.
        step_size: η₀.
        chosen: the selection, as far as it is left.
        share: see `weighted`.
        present: shares that decide which constraints are left; `share` by default.
        kind: see `weighted`.
    """
    thinned, left = weighted(corpus, share, kind)
    if present is not None:
        left = weighted(corpus, present, kind)[1]
    after = embedding_step(before, thinned, step_size)
    solution = max_margin(after.embeddings, pairs_left(thinned, chosen, left))
    return solution.direction / solution.norm


def pairs_left(corpus: Corpus, chosen: jax.Array, left: jax.Array) -> jax.Array:
    """The competing pairs among the slots that are left."""
    counts = jnp.where(left, corpus.counts, 0.0)
    return competing_pairs(chosen & left, dataclasses.replace(corpus, counts=counts))


def error_constant(
    before: Parameters,
    corpus: Corpus,
    step_size: float,
    chosen: jax.Array,
    share: jax.Array,
) -> jax.Array:
    """The constant of the direction error with shares of the tokens left.

    Part of it may be history, so the flow is followed; NaN where it selects otherwise.
    """
    thinned, _ = weighted(corpus, share, "token")
    after = embedding_step(before, thinned, step_size)
    resolved = resolve_limit(attention(after, thinned))
    same = jnp.all(resolved.selected == chosen)
    return jnp.where(same, resolved.late.error_constant, jnp.nan)


def lost(
    quantity: Callable, number: int, part: float, advance: Callable[[float], None]
) -> np.ndarray:
    """Change of a quantity as part of each token or sequence is removed."""
    share = jnp.ones((number, number)) - part * jnp.eye(number)
    whole = quantity(jnp.ones(number))
    each = []
    for row in share:
        each.append(quantity(row) - whole)
        advance(1)
    return np.stack(each, axis=-1)


def removal(
    quantity: Callable, number: int, advance: Callable[[float], None]
) -> np.ndarray:
    """Effect of removing each token or sequence, to first order.

    Its constraints are lifted first, which no derivative foresees; the derivative is
    that of the problem without them.
    """
    whole = jnp.ones(number)

    @jax.jit
    def once(row: jax.Array) -> jax.Array:
        without = partial(quantity, present=row)
        value, slope = jax.jvp(without, (whole,), (row - whole,))
        return value + slope - quantity(whole)

    each = []
    for row in 1 - jnp.eye(number):
        each.append(once(row))
        advance(1)
    return np.stack(each, axis=-1)


def agreement(predicted: np.ndarray, actual: np.ndarray) -> dict[str, float]:
    """Rank correlation and relative error of predicted changes.

    Returns:
        Spearman's coefficient of the sizes, and ‖predicted − actual‖ / ‖actual‖.
    """
    sizes = [np.linalg.norm(changes, axis=0) for changes in (predicted, actual)]
    off = np.linalg.norm(predicted - actual) / np.linalg.norm(actual)
    return {
        "rank_correlation": float(spearmanr(*sizes).statistic),
        "relative_error": float(off),
    }


def kept(problem: tuple) -> dict[str, float]:
    """Share of removals after which the flow still selects what it did."""
    before, corpus, step_size, chosen = problem

    def same(share: jax.Array, kind: str) -> jax.Array:
        thinned, left = weighted(corpus, share, kind)
        after = embedding_step(before, thinned, step_size)
        counts = jnp.where(left, thinned.counts, 0.0)
        # A sequence without tokens has no output: give it its selected ones back.
        bare = jnp.where(left.any(axis=1)[:, None], counts, chosen.astype(float))
        full = dataclasses.replace(corpus, counts=bare)
        selected = resolve_limit(attention(after, full)).selected
        return jnp.all(jnp.where(left, selected == chosen, True))

    shares = {}
    sizes = {"token": corpus.vocabulary, "sequence": len(corpus.labels)}
    for kind, number in sizes.items():
        without = jnp.ones((number, number)) - jnp.eye(number)
        run = jax.jit(partial(same, kind=kind))
        shares[kind] = float(np.mean([run(row) for row in without]))
    return shares


def draw(finished: Finished) -> Figure:
    """Tokens and sequences by influence, beside a tenth and all of them taken away."""
    found = finished.arrays
    figure, axes = subplots(1, 2, figsize=(11, 4))
    for panel, kind in zip(axes, ("token", "sequence"), strict=True):
        order = np.argsort(-found[f"{kind}_turn"])
        rank = np.arange(len(order))
        panel.bar(rank, found[f"{kind}_turn"][order], color="0.8", label="derivative")
        for part, mark in ((0.1, "o"), (1.0, "x")):
            turn = found[f"{kind}_removed_{part:g}"][order] / part
            panel.plot(rank, turn, mark, label=f"{part:.0%} removed")
        foreseen = found[f"{kind}_predicted_1"][order]
        panel.plot(rank, foreseen, "k+", label="100% predicted, constraints lifted")
        panel.set_xticks(rank, order.tolist(), fontsize=5, rotation=90)
        panel.set(
            xlabel=kind, ylabel="turn of p_mm/‖p_mm‖ per share removed", yscale="log"
        )
        panel.legend()
    return figure


RANK = 0.9
"""Rank correlation from which two tables count as one tendency."""


def foresees(found: Finished) -> Measured:
    """Derivatives foresee what taking a tenth of a token away does."""
    row = found.results["token_0.1"]
    rank = row["rank_correlation"]
    return Measured(
        at_least(rank, RANK),
        f"rank correlation {num(rank)}, relative error {num(row['relative_error'])}",
        f"{len(found.arrays['token_turn'])} tokens",
        "–",
        "solved again without the tenth",
    )


CLAIMS = (
    Claim(
        "Derivatives of p_mm foresee what becomes of it when a token fades.",
        foresees,
    ),
)


def show(found: Finished) -> Shown:
    """How well the derivative says how p_mm turns as a token fades."""
    rank = found.results["token_0.1"]["rank_correlation"]
    return Shown(
        [
            "A tenth of a token taken away turns p_mm as its derivative says: rank "
            f"correlation {num(rank)} over {len(found.arrays['token_turn'])} tokens."
        ]
    )


main = Experiment(run, draw=draw, claims=CLAIMS, show=show, title="Which token matters")


if __name__ == "__main__":
    command(main, PRESETS)
