"""How much does E itself learn to attend if it takes k steps instead of one?

For k = 1, 2, 4, … gradient steps on E with p and v fixed the study measures what the
flow of p then starts from and ends in, with intervals over draws, beside the two
variables that theory reduces the steps to.
"""

import dataclasses
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from experiments.beyond.problem import Problem
from experiments.common.claims import Shown
from experiments.common.console import command, say
from experiments.common.numbers import num
from experiments.common.progress import progress_bar
from experiments.common.results import Finished
from experiments.common.statistics import bootstrap
from experiments.common.study import Bound, Count, Experiment, Positive, Study, presets
from experiments.common.style import subplots
from experiments.theory.steps import reduced_steps
from jaxselect.compilation import fast_compile_options
from jaxselect.data.corpus import Corpus
from jaxselect.flow.cls import cls_flow
from jaxselect.margin.certificate import CERTIFIED, certify
from jaxselect.model.attention import attend_corpus
from jaxselect.model.parameters import Parameters
from jaxselect.model.selection import important_tokens
from jaxselect.model.step import embedding_steps
from jaxselect.problem import attention

MEASURED = ("alignment", "rest", "cosine", "margin_norm")
"""γ; weight off the important tokens before p trains; cos(p_mm, p_0); ‖p_mm‖."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Study):
    """Settings of the study.

    Attributes:
        problem: the corpora.
        dim: embedding dimension d.
        step_size: η₀ of each step on E.
        doublings: the numbers of steps are 1, 2, 4, … 2 to this power.
        until_norm: the flow of p stops where ‖p‖ is this.
        seeds: number of draws.
    """

    problem: Problem = Problem(200, 8, 8, 48)
    dim: Positive = 1e6
    step_size: Positive = 100.0
    doublings: Annotated[int, Bound(0, 20, "0 … 20")] = 12
    until_norm: Positive = 1e6
    seeds: Count = 8
    out: Path = Path("results/embedding-steps")


PRESETS = presets(
    default=Settings(),
    smoke=Settings(problem=Problem(8, 3, 1, 4), doublings=3, until_norm=1e3, seeds=2),
)


def run(settings: Settings, results: dict) -> dict[str, np.ndarray]:
    """Step on E, follow p, and compare with the two variables."""
    numbers = 2 ** np.arange(settings.doublings + 1)
    arrays = {"numbers": numbers, **measured(settings, numbers)}
    arrays |= {f"predicted_{name}": at for name, at in predicted(settings, numbers)}
    rows = [row(arrays, place) for place in range(len(numbers))]
    for one in rows:
        say(" ".join(f"{name} {_text(value)}" for name, value in one.items()))
    results["steps"] = rows
    return arrays


def measured(settings: Settings, numbers: np.ndarray) -> dict[str, np.ndarray]:
    """Every quantity for every number of steps and seed.

    Args:
        settings: of the study.
        numbers: of steps, increasing; each goes on from the one before it.

    Returns:
        Arrays (numbers, seeds), by name of `MEASURED`, and `status`.
    """
    seeds = settings.seed + jnp.arange(settings.seeds)
    draw = jax.jit(jax.vmap(partial(settings.problem.draw, dim=settings.dim)))
    before, corpus = draw(seeds)

    def more(number: jax.Array, now: Parameters, corpus: Corpus) -> Parameters:
        return embedding_steps(number)(now, corpus, settings.step_size)

    step = jax.jit(jax.vmap(more, (None, 0, 0)))
    look = jax.jit(partial(outcome, settings), compiler_options=fast_compile_options())
    rows, now = [], before
    with progress_bar("steps on E", len(numbers)) as advance:
        for taken in np.diff(numbers, prepend=0):
            now = step(jnp.asarray(taken), now, corpus)
            lanes = [
                jax.device_get(look(*jax.tree.map(lambda x, i=i: x[i], (now, corpus))))
                for i in range(settings.seeds)
            ]
            rows.append(lanes)
            advance(1)
    return {
        name: np.array([[lane[name] for lane in lanes] for lanes in rows])
        for name in (*MEASURED, "status")
    }


def outcome(
    settings: Settings, after: Parameters, corpus: Corpus
) -> dict[str, jax.Array]:
    """Numbers by name of `MEASURED`, and the `status`, of one draw after its steps."""
    scores, values = after.embeddings @ after.query, after.embeddings @ after.head
    important = important_tokens(corpus)
    weights = jnp.exp(attend_corpus(scores, values, corpus).log_weights)
    rest = jnp.sum(jnp.where(important[corpus.tokens], 0.0, weights), axis=1)
    problem = attention(after, corpus)
    flow = cls_flow(problem, until_norm=settings.until_norm)
    found = certify(problem, flow)
    margin = found.ending.margin
    size = jnp.linalg.norm(after.query) * margin.norm
    return {
        "alignment": jnp.abs(values).mean(where=important),
        "rest": rest.mean(),
        "cosine": margin.direction @ after.query / size,
        "margin_norm": margin.norm,
        "status": found.status,
    }


def predicted(settings: Settings, numbers: np.ndarray) -> list[tuple[str, np.ndarray]]:
    """The same by two variables, for d → ∞; `late_rest` is the law 2/(κ²β²)."""
    of = settings.problem
    found = reduced_steps(
        relevant=of.relevant,
        irrelevant=of.irrelevant,
        length=of.length,
        step_size=settings.step_size,
        number=int(numbers[-1]),
    )
    value, _, log_rest, norm, cosine = (np.asarray(one)[numbers] for one in found)
    late = 2 / ((1 + 2 * of.relevant / of.irrelevant) * value**2)
    columns = (value, np.exp(log_rest), cosine, norm)
    return [*zip(MEASURED, columns, strict=True), ("late_rest", late)]


def row(arrays: dict[str, np.ndarray], place: int) -> dict[str, Any]:
    """Mean, interval and prediction of every quantity at one number of steps."""
    found: dict[str, Any] = {
        "number": int(arrays["numbers"][place]),
        "certified": int(np.isin(arrays["status"][place], CERTIFIED).sum()),
    }
    for name in MEASURED:
        # Without a max-margin solution there is no p_mm to compare with.
        values = arrays[name][place]
        low, high = bootstrap(values[np.isfinite(values)])
        found[name] = {
            "mean": float(np.nanmean(values)) if np.isfinite(values).any() else None,
            "low": low,
            "high": high,
            "predicted": float(arrays[f"predicted_{name}"][place]),
        }
    return found


def _text(value: Any) -> str:
    if not isinstance(value, dict):
        return f"{value:4}"
    if value["mean"] is None:
        return "none"
    return (
        f"{value['mean']:.4g} [{value['low']:.4g}, {value['high']:.4g}] "
        f"({value['predicted']:.4g})"
    )


PANELS = {
    "alignment": "γ, mean |E_sᵀv| of important tokens",
    "rest": "weight off the important tokens at p = p_0",
    "cosine": "cos(p_mm, p_0)",
    "margin_norm": "‖p_mm‖",
}


def draw(finished: Finished) -> Figure:
    """The four quantities against k: draws, their mean, and the two variables."""
    found, across = finished.arrays, finished.arrays["numbers"]
    figure, axes = subplots(1, 4, figsize=(14, 3.6))
    for panel, (name, title) in zip(axes, PANELS.items(), strict=True):
        panel.plot(across, found[name], ".", color="C0", alpha=0.4, markersize=4)
        means = np.ma.masked_invalid(found[name]).mean(axis=1)
        panel.plot(across, means, "o-", color="C0", label="mean over draws")
        panel.plot(across, found[f"predicted_{name}"], "k--", label="two variables")
        panel.set(xscale="log", xlabel="steps on E", title=title)
        panel.set_xscale("log", base=2)
    axes[1].plot(across[2:], found["predicted_late_rest"][2:], "C1:", label="2/(κ²β²)")
    for panel in (axes[0], axes[1], axes[3]):
        panel.set_yscale("log")
    axes[1].legend()
    return figure


def show(found: Finished) -> Shown:
    """Results of p after k steps on E: means over draws beside the two variables."""
    columns = ("alignment", "rest", "cosine", "margin_norm")
    rows = [["steps", "γ", "weight off before p trains", "cos(p_mm, p_0)", "‖p_mm‖"]]
    for row in found.results["steps"]:
        both = [(row[name]["mean"], row[name]["predicted"]) for name in columns]
        shown = [f"{num(mean)} ({num(law)})" for mean, law in both]
        rows.append([str(row["number"]), *shown])
    return Shown(["Means over draws; in brackets, by two variables alone."], rows)


main = Experiment(run, draw=draw, show=show, title="More than one step on E")


if __name__ == "__main__":
    command(main, PRESETS)
