"""Where discrete training of p leaves the gradient flow, and by how much.

Gradient descent p ← p − h ∇L and its normalised form p ← p − h ∇L/‖∇L‖ at many step
sizes, held against the curve of the flow. Theory says where: descent is stable while
h λ < 2, normalised descent while h λ / ‖∇L‖ < 2, λ the largest curvature on the way.
Late ∇L and λ fall alike, so descent stays stable and the normalised limit is a number.
"""

import dataclasses
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from experiments.common.claims import Claim, Measured, Shown, at_most
from experiments.common.console import command, say
from experiments.common.numbers import num
from experiments.common.progress import watched
from experiments.common.results import Finished
from experiments.common.study import (
    Count,
    Experiment,
    Positive,
    Study,
    in_order,
    presets,
)
from experiments.common.style import subplots
from experiments.theory.problem import Problem
from jaxselect.data.corpus import Corpus
from jaxselect.flow.cls import FlowSettings, cls_flow, velocity
from jaxselect.model.curvature import score_curvature
from jaxselect.model.parameters import Parameters
from jaxselect.model.step import embedding_step


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Study):
    """Settings of the study.

    Attributes:
        problem: the corpora.
        dim: embedding dimension d.
        step_size: η₀ of the step on E.
        until_time: t at which gradient descent stops.
        until_length: arc length at which normalised descent stops.
        smallest: smallest h, as a share of the stable limit predicted.
        largest: largest h, likewise.
        points: step sizes h.
        tolerance: distance to the flow's curve, over ‖p‖, that counts as leaving it.
        seeds: number of draws.
    """

    problem: Problem = Problem()
    dim: Positive = 4096.0
    step_size: Positive = 100.0
    until_time: Positive = 1e4
    until_length: Positive = 100.0
    smallest: Positive = 0.03
    largest: Positive = 30.0
    points: Count = 25
    tolerance: Positive = 0.01
    seeds: Count = 5
    out: Path = Path("results/discrete")

    def check(self) -> None:
        """Refuse step sizes that are not in order."""
        in_order(self, "smallest", "largest")


PRESETS = presets(
    full=Settings(),
    smoke=Settings(
        problem=Problem(8, 3, 1, 4),
        until_time=1e3,
        until_length=30.0,
        points=6,
        seeds=1,
    ),
)
RULES = ("descent", "normalised")
LOOKS = 200
"""Points of a run that are held against the flow."""


def run(settings: Settings, results: dict) -> dict[str, np.ndarray]:
    """Run both rules at every step size."""
    shares = np.geomspace(settings.smallest, settings.largest, settings.points)
    follow = jax.jit(partial(curve, settings))
    train = {
        rule: jax.jit(partial(deviation, normalised=rule == "normalised"))
        for rule in RULES
    }
    length = {"descent": settings.until_time, "normalised": settings.until_length}
    limits = np.zeros((len(RULES), settings.seeds))
    off = np.zeros((len(RULES), settings.seeds, settings.points))
    results |= {"shares": shares.tolist(), "seeds": {}}
    with watched("discrete steps", off.size) as advance:
        for row in range(settings.seeds):
            after, corpus, line, stable = follow(settings.seed + row)
            for number, rule in enumerate(RULES):
                limits[number, row] = stable[number]
                for column, share in enumerate(shares):
                    step = float(share * stable[number])
                    steps = max(1, round(length[rule] / step))
                    away = train[rule](after, corpus, line, jnp.array(step), steps)
                    off[number, row, column] = float(away)
                    advance(1)
            say(f"seed {settings.seed + row}: stable up to h = {limits[:, row]}")
            results["seeds"][str(settings.seed + row)] = {
                "stable_limit": limits[:, row].tolist(),
                "deviations": off[:, row].tolist(),
            }
    del results["seeds"]
    for number, rule in enumerate(RULES):
        left = [leaving(shares, line, settings.tolerance) for line in off[number]]
        results[rule] = {
            "stable_limit": limits[number].tolist(),
            "leaves_at_share_of_limit": left,
            "deviation_at_a_tenth": float(at_share(shares, off[number], 0.1)),
            "deviation_at_the_limit": float(at_share(shares, off[number], 1.0)),
            "deviation_at_ten_times": float(at_share(shares, off[number], 10.0)),
        }
        say(f"{rule}: {results[rule]}")
    return {"shares": shares, "limits": limits, "deviations": off}


def curve(
    settings: Settings, seed: jax.Array
) -> tuple[Parameters, Corpus, jax.Array, jax.Array]:
    """A problem, points along its flow, and both stable limits predicted there."""
    before, corpus = settings.problem.draw(seed, settings.dim)
    after = embedding_step(before, corpus, settings.step_size)
    # Arc length is at least ‖p‖ ≈ ‖p_mm‖ s, with ‖p_mm‖ of order one.
    end = 2 * max(np.log1p(settings.until_time), settings.until_length)
    times = jnp.concatenate([jnp.zeros(1), jnp.geomspace(1e-3, end, 1500)])
    tight = FlowSettings(1e-9, 1e-9)
    line = cls_flow(
        after, corpus, until_log_time=end, path_log_times=times, settings=tight
    ).path_query

    limits = partial(stable_steps, after, corpus)
    on_the_way = jax.lax.map(lambda point: limits(*point), (times, line))
    within = times[:, None] <= jnp.array([np.log1p(settings.until_time), jnp.inf])
    return after, corpus, line, jnp.where(within, on_the_way, jnp.inf).min(axis=0)


def stable_steps(
    after: Parameters, corpus: Corpus, log_time: jax.Array, query: jax.Array
) -> jax.Array:
    """The largest h with which either rule contracts around a point of the flow.

    Args:
        after: (E¹, ·, v).
        corpus: n bags with labels ±1.
        log_time: log(1+t), a scale that keeps late gradients from underflowing.
        query: p.

    Returns:
        2/λ for gradient descent and 2‖∇L‖/λ for its normalised form, with λ the largest
        eigenvalue of ∂²L/∂p².
    """
    values = after.embeddings @ after.head
    scores = after.embeddings @ query
    gradient, jacobian = score_curvature(scores, values, corpus, log_time)
    hessian = -after.embeddings.T @ jacobian @ after.embeddings
    largest = jnp.linalg.eigvalsh(hessian)[-1]
    steep = jnp.linalg.norm(gradient @ after.embeddings)
    # Where nothing curves upwards, no step is too long.
    largest = jnp.maximum(largest, 1e-12 * steep)
    return 2 / largest * jnp.stack([jnp.exp(log_time), steep])


def update(
    after: Parameters,
    corpus: Corpus,
    query: jax.Array,
    *,
    step: jax.Array | float,
    normalised: bool,
) -> jax.Array:
    """One step of either rule: p − h ∇L, or p − h ∇L/‖∇L‖."""
    down = velocity(after, corpus, 0.0, query)
    if normalised:
        down = down / jnp.linalg.norm(down)
    return query + step * down


def deviation(
    after: Parameters,
    corpus: Corpus,
    line: jax.Array,
    step: jax.Array,
    steps: jax.Array,
    normalised: bool,
) -> jax.Array:
    """Largest distance to the flow's curve over ‖p‖ in one run."""

    def once(_: int, query: jax.Array) -> jax.Array:
        return update(after, corpus, query, step=step, normalised=normalised)

    def look(query: jax.Array, share: jax.Array) -> tuple[jax.Array, jax.Array]:
        first, last = (jnp.floor(x * steps).astype(int) for x in share)
        query = jax.lax.fori_loop(first, last, once, query)
        return query, distance(query, line) / jnp.linalg.norm(query)

    marks = jnp.linspace(0.0, 1.0, LOOKS + 1)
    # Early steps matter most: the looks crowd there.
    marks = marks**3
    _, away = jax.lax.scan(
        look, after.query, jnp.stack([marks[:-1], marks[1:]], axis=1)
    )
    return away.max()


def distance(point: jax.Array, line: jax.Array) -> jax.Array:
    """Distance of a point to a polygonal line.

    Example:
        >>> corners = jnp.array([[0.0, 0.0], [2.0, 0.0]])
        >>> distance(jnp.array([1.0, 3.0]), corners).item()
        3.0
    """
    chord, ahead = line[1:] - line[:-1], point[None] - line[:-1]
    size = jnp.maximum(jnp.sum(chord**2, axis=1), jnp.finfo(line.dtype).tiny)
    along = jnp.clip(jnp.sum(chord * ahead, axis=1) / size, 0.0, 1.0)
    return jnp.min(jnp.linalg.norm(ahead - along[:, None] * chord, axis=1))


def leaving(shares: np.ndarray, off: np.ndarray, tolerance: float) -> float | None:
    """Smallest step, over the stable one, at which descent leaves the flow."""
    beyond = np.flatnonzero(off > tolerance)
    return float(shares[beyond[0]]) if beyond.size else None


def at_share(shares: np.ndarray, off: np.ndarray, share: float) -> float:
    """The median deviation over seeds at the step size nearest to a share."""
    return float(np.median(off[:, np.argmin(np.abs(np.log(shares / share)))]))


def draw(finished: Finished) -> Figure:
    """Deviation of both rules, step sizes in units of the predicted stable limit."""
    found = finished.arrays
    figure, axes = subplots(1, 2, figsize=(9, 3.8))
    titles = ("gradient descent", "normalised gradient descent")
    for panel, off, limits, title in zip(
        axes, found["deviations"], found["limits"], titles, strict=True
    ):
        panel.loglog(found["shares"], off.T, "o-", color="C0", alpha=0.5)
        panel.axvline(1, color="k", linestyle="--", label="stable up to here")
        panel.set(
            xlabel="h / predicted limit",
            ylabel="largest distance to the flow / ‖p‖",
            title=f"{title}, limit h ≈ {np.median(limits):.3g}",
        )
        panel.legend()
    return figure


CLOSE = 1e-2
"""Largest relative deviation of a constant from its prediction."""


def follows_the_flow(found: Finished) -> Measured:
    """Gradient descent follows the flow below the step size at which 2/h is curved."""
    row = found.results["descent"]
    off = row["deviation_at_a_tenth"]
    return Measured(
        at_most(off, CLOSE),
        f"off the flow by {num(off)} ‖p‖ at a tenth of the limit, "
        f"{num(row['deviation_at_the_limit'])} at the limit",
        f"{len(row['stable_limit'])} draws",
        "–",
        "distance to the flow's own curve",
    )


CLAIMS = (
    Claim(
        "Gradient descent on p follows the flow while its step stays below 2/λ.",
        follows_the_flow,
    ),
)


def show(found: Finished) -> Shown:
    """How far gradient descent is from the flow, below its limit and at it."""
    row = found.results["descent"]
    return Shown(
        [
            "Below the step h = 2/λ, λ the largest curvature on the way, discrete "
            f"steps stay with the flow, at {num(row['deviation_at_a_tenth'])} ‖p‖ from "
            f"it for a tenth of that; at the limit they are off by "
            f"{num(row['deviation_at_the_limit'])}."
        ]
    )


main = Experiment(
    run, draw=draw, claims=CLAIMS, show=show, title="Steps in place of the flow"
)


if __name__ == "__main__":
    command(main, PRESETS)
