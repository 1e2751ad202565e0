"""Differences between discrete training of p and the gradient flow.

Gradient descent p ← p − h ∇L and its normalised form p ← p − h ∇L/‖∇L‖ are run at many
step sizes and compared with the curve of the flow. To first order in h they leave it by
h e_⊥, where e is the error of Euler's method, which is integrated beside the flow. Both
are stable while h λ < 2 or h λ / ‖∇L‖ < 2, λ the largest curvature on the way. Late ∇L
and λ fall alike, so descent stays stable and the normalised limit is a number.

The end of descent is that of the flow: the offset ρ, for every h and size of the
minibatches, as far as p is from p_mm log(h j) + ρ after j steps.
"""

import dataclasses
import math
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from experiments.beyond.problem import Problem
from experiments.common.claims import Claim, Measured, Shown, at_most, of_cases
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
from jaxselect.compilation import fast_compile_options
from jaxselect.data.corpus import Corpus
from jaxselect.flow.cls import FlowSettings, cls_flow, velocity
from jaxselect.margin.certificate import CERTIFIED
from jaxselect.margin.descent import certify_descent
from jaxselect.model.curvature import score_curvature
from jaxselect.model.parameters import Parameters
from jaxselect.model.step import embedding_step
from jaxselect.problem import attention

OFFSET_PROBLEM = Problem(12, 3, 2, 3)
"""The corpus whose offset is measured, after a step of 20 on E."""


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
        seeds: number of draws.
        offset_steps: step sizes h.
        offset_time: t = h j.
        batches: sizes of minibatches, at the middle h.
        noises: repetitions of each, for its error.
    """

    problem: Problem = Problem()
    dim: Positive = 4096.0
    step_size: Positive = 100.0
    until_time: Positive = 1e4
    until_length: Positive = 100.0
    smallest: Positive = 0.03
    largest: Positive = 30.0
    points: Count = 25
    seeds: Count = 5
    offset_steps: tuple[Positive, ...] = (2.0, 5.0, 10.0, 20.0, 40.0)
    offset_time: Positive = 5e6
    batches: tuple[Count, ...] = (6, 3, 1)
    noises: Count = 8
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
        offset_steps=(5.0, 20.0),
        offset_time=2e5,
        batches=(2,),
        noises=2,
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
    slopes = np.zeros((len(RULES), settings.seeds))
    off = np.zeros((len(RULES), settings.seeds, settings.points))
    results |= {"shares": shares.tolist(), "seeds": {}}
    with watched("discrete steps", off.size) as advance:
        for row in range(settings.seeds):
            after, corpus, line, stable, slope = follow(settings.seed + row)
            limits[:, row], slopes[:, row] = stable, slope
            for number, rule in enumerate(RULES):
                for column, share in enumerate(shares):
                    step = float(share * stable[number])
                    steps = max(1, round(length[rule] / step))
                    away = train[rule](after, corpus, line, jnp.array(step), steps)
                    off[number, row, column] = float(away)
                    advance(1)
            say(f"seed {settings.seed + row}: stable up to h = {limits[:, row]}")
            results["seeds"][str(settings.seed + row)] = {
                "stable_limit": limits[:, row].tolist(),
                "slopes": slopes[:, row].tolist(),
                "deviations": off[:, row].tolist(),
            }
    del results["seeds"]
    for number, rule in enumerate(RULES):
        first_order = slopes[number, :, None] * limits[number, :, None] * shares
        results[rule] = {
            "stable_limit": limits[number].tolist(),
            "over_first_order": (off[number] / first_order).tolist(),
            "deviation_at_a_tenth": at_share(shares, off[number], 0.1).tolist(),
            "deviation_at_the_limit": at_share(shares, off[number], 1.0).tolist(),
            "deviation_at_ten_times": at_share(shares, off[number], 10.0).tolist(),
        }
        say(f"{rule}: {results[rule]}")
    results["offsets"] = offsets(settings)
    for row in results["offsets"]:
        say(str(row))
    return {
        "shares": shares,
        "limits": limits,
        "slopes": slopes,
        "deviations": off,
    }


OFFSET_STEP, OFFSET_DIM = 20.0, 1e6
"""η₀ and d of the problem whose offset is measured."""


def offsets(settings: Settings) -> list[dict]:
    """Largest |D_kᵀ(p − p_mm log(1 + h j) − ρ)| over A, by h and by batch."""
    before, corpus = OFFSET_PROBLEM.draw(settings.seed, OFFSET_DIM)
    after = jax.jit(embedding_step)(before, corpus, OFFSET_STEP)

    @partial(jax.jit, static_argnums=3)
    @partial(jax.vmap, in_axes=(0, None, None, None))
    def train(
        key: jax.Array, step: jax.Array, steps: jax.Array, batch: int
    ) -> tuple[jax.Array, jax.Array]:
        return trained(after, corpus, key, step, steps, batch)

    @partial(jax.jit, compiler_options=fast_compile_options())
    def judged(
        query: jax.Array, half: jax.Array, step: jax.Array, steps: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        found = certify_descent(
            attention(after, corpus),
            query,
            steps=steps,
            step_size=step,
            earlier_query=half,
        )
        return found.late_flow_residual, found.status

    middle = settings.offset_steps[len(settings.offset_steps) // 2]
    runs = [(step, 0) for step in settings.offset_steps]
    runs += [(middle, batch) for batch in settings.batches]
    rows = []
    for step, batch in runs:
        number = settings.noises if batch else 1
        keys = jax.random.split(jax.random.key(settings.seed), number)
        steps = jnp.array(round(settings.offset_time / step))
        size = jnp.array(step)
        ends = zip(*train(keys, size, steps, batch), strict=True)
        # One program certifies all, one after the other.
        found = [judged(query, half, size, steps) for query, half in ends]
        away, status = map(np.array, zip(*jax.device_get(found), strict=True))
        rows.append(
            {
                "step": step,
                "batch": batch or len(corpus.labels),
                "residual": float(away.mean()),
                "residual_deviation": float(away.std()),
                "residual_largest": float(away.max()),
                # Of minibatches nothing is certified.
                "certified": None if batch else int(status[0] in list(CERTIFIED)),
            }
        )
    return rows


def trained(
    after: Parameters,
    corpus: Corpus,
    key: jax.Array,
    step: jax.Array,
    steps: jax.Array,
    batch: int,
) -> tuple[jax.Array, jax.Array]:
    """The p after j steps of a batch, 0 for all sequences, and at half of log t."""

    def once(number: jax.Array, state: tuple) -> tuple[jax.Array, jax.Array]:
        query, half = state
        mine = jax.random.fold_in(key, number)
        part = minibatch(corpus, mine, batch) if batch else corpus
        query = update(after, part, query, step=step, normalised=False)
        begun = jnp.log1p(step * number) <= jnp.log1p(step * steps) / 2
        return query, jnp.where(begun, query, half)

    return jax.lax.fori_loop(0, steps, once, (after.query, after.query))


def minibatch(corpus: Corpus, key: jax.Array, batch: int) -> Corpus:
    """The corpus with the weights of sequences drawn with replacement."""
    number = len(corpus.labels)
    weights = corpus.weighted(jnp.ones(number))
    drawn = jax.random.choice(key, number, (batch,), p=weights)
    hits = jnp.zeros(number).at[drawn].add(1.0 / batch)
    return dataclasses.replace(corpus, weights=hits)


def curve(
    settings: Settings, seed: jax.Array
) -> tuple[Parameters, Corpus, jax.Array, jax.Array, jax.Array]:
    """A problem, points along its flow, stable limits and slopes predicted there.

    Slopes are the distance to the flow over h ‖p‖, to first order in h.
    """
    before, corpus = settings.problem.draw(seed, settings.dim)
    after = embedding_step(before, corpus, settings.step_size)
    # Arc length is at least ‖p‖ ≈ ‖p_mm‖ s, with ‖p_mm‖ of order one.
    end = 2 * max(np.log1p(settings.until_time), settings.until_length)
    times = jnp.concatenate([jnp.zeros(1), jnp.geomspace(1e-3, end, 6000)])
    tight = FlowSettings(1e-9, 1e-9)
    line = cls_flow(
        attention(after, corpus),
        until_log_time=end,
        path_log_times=times,
        settings=tight,
    ).path_query

    limits = partial(stable_steps, after, corpus)
    on_the_way = jax.lax.map(lambda point: limits(*point), (times, line))
    length = jnp.cumsum(jnp.linalg.norm(jnp.diff(line, axis=0), axis=1))
    length = jnp.concatenate([jnp.zeros(1), length])
    within = jnp.stack(
        [times <= np.log1p(settings.until_time), length <= settings.until_length], 1
    )
    stable = jnp.where(within, on_the_way, jnp.inf).min(axis=0)
    first = [first_order(after, corpus, times, line, rule) for rule in RULES]
    slopes = jnp.where(within, jnp.stack(first, axis=1), 0.0).max(axis=0)
    return after, corpus, line, stable, slopes


def first_order(
    after: Parameters, corpus: Corpus, times: jax.Array, line: jax.Array, rule: str
) -> jax.Array:
    """‖e_⊥‖/‖p‖ along the flow, h e + O(h²) the error of a rule's steps.

    A step of p ← p + h f(p) misses the flow of f by −½ h² f′f, so that de/ds = f′(e −
    ½ f) in the time s of f (mathematics, section 3k); e_⊥ is orthogonal to f.
    """
    normalised = rule == "normalised"
    move = partial(update, after, corpus, step=1.0, normalised=normalised)

    def linear(point: tuple) -> tuple[jax.Array, jax.Array, jax.Array]:
        log_time, query = point
        down = velocity(attention(after, corpus), log_time, query)
        pace = jnp.linalg.norm(down) if normalised else jnp.exp(log_time)
        bent = pace * (jax.jacfwd(move)(query) - jnp.eye(len(query)))
        return bent, -bent @ (move(query) - query) / 2, down / jnp.linalg.norm(down)

    bent, forced, along = jax.lax.map(linear, (times, line))

    def trapezoid(error: jax.Array, piece: tuple) -> tuple[jax.Array, jax.Array]:
        width, (bent, after_bent), (forced, after_forced) = piece
        right = error + width / 2 * (bent @ error + forced + after_forced)
        error = jnp.linalg.solve(jnp.eye(len(error)) - width / 2 * after_bent, right)
        return error, error

    pieces = jax.tree.map(lambda x: (x[:-1], x[1:]), (bent, forced))
    start = jnp.zeros_like(after.query)
    _, error = jax.lax.scan(trapezoid, start, (jnp.diff(times), *pieces))
    error = jnp.concatenate([start[None], error])
    across = error - jnp.sum(error * along, axis=1)[:, None] * along
    return jnp.linalg.norm(across, axis=1) / jnp.linalg.norm(line, axis=1)


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
    logits = corpus.logits(after.embeddings @ query)
    gradient, jacobian = score_curvature(
        logits, corpus.gather(values), corpus, log_time
    )
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
    down = velocity(attention(after, corpus), 0.0, query)
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


def at_share(shares: np.ndarray, off: np.ndarray, share: float) -> np.ndarray:
    """Deviations of all seeds at the step size nearest to a share."""
    return off[:, np.argmin(np.abs(np.log(shares / share)))]


def draw(finished: Finished) -> Figure:
    """Deviation of both rules; distance from the late line."""
    found, results = finished.arrays, finished.results
    figure, (*axes, late) = subplots(1, 3, figsize=(13, 3.7))
    titles = ("gradient descent", "normalised gradient descent")
    names = ("deviations", "limits", "slopes")
    rules = zip(axes, *(found[name] for name in names), titles, strict=True)
    for panel, off, limits, slopes, title in rules:
        panel.loglog(found["shares"], off.T, "o", color="C0", alpha=0.5)
        small = found["shares"] <= 1
        first = np.outer(found["shares"][small], limits * slopes)
        lines = panel.loglog(found["shares"][small], first, color="0.4", linewidth=1)
        lines[0].set_label("predicted to first order in h")
        panel.axvline(1, color="k", linestyle="--", label="stable up to here")
        panel.set(
            xlabel="h / predicted limit",
            ylabel="largest distance to the flow / ‖p‖",
            title=f"{title}, limit h ≈ {np.median(limits):.3g}",
        )
        panel.legend()
    for batch in sorted({row["batch"] for row in results["offsets"]}):
        part = [row for row in results["offsets"] if row["batch"] == batch]
        names = ("step", "residual", "residual_deviation")
        points = [[row[name] for row in part] for name in names]
        late.errorbar(*points, fmt="o", label=f"{batch} per step")
    late.set(xscale="log", yscale="log", xlabel="h")
    late.tick_params(axis="x", which="minor", labelbottom=False)
    late.set_ylabel("largest |Dᵀ(p − p_mm log hj − ρ)|")
    late.legend()
    return figure


FIRST, REMAINDER = 0.1, 2.0
"""Shares of the stable step up to which the first order is judged, within this times
the share: with s h λ = 2 one step of Euler's method errs by its first order times
1 + O(h λ)."""


def leaves_by_first_order(found: Finished) -> Measured:
    """Up to a tenth of the stable step both rules leave the flow by h e_⊥."""
    shares = np.array(found.results["shares"])
    small = shares <= FIRST * 1.001
    ratio = np.array([found.results[rule]["over_first_order"] for rule in RULES])
    ratio = ratio[..., small]
    hits = int((np.abs(ratio - 1) <= REMAINDER * shares[small]).sum())
    row = found.results["descent"]
    off, limit = row["deviation_at_a_tenth"], row["deviation_at_the_limit"]
    return Measured(
        of_cases(hits, ratio.size),
        f"measured over predicted {num(ratio.min())} … {num(ratio.max())}; descent is "
        f"off the flow by {num(min(off))} … {num(max(off))} ‖p‖ at a tenth of the "
        f"limit, {num(min(limit))} … {num(max(limit))} at the limit",
        f"{len(off)} draws, both rules, {int(small.sum())} step sizes",
        num(1 - hits / ratio.size),
        "distance to the flow's own curve, the error of Euler's method beside it",
    )


ON_THE_LINE = 5e-2
"""Largest distance of a score from the late line at the end of minibatches."""


def ends_like_the_flow(found: Finished) -> Measured:
    """Every h and every batch ends on the line of the flow's offset."""
    rows = found.results["offsets"]
    most = max(row["residual_largest"] for row in rows)
    # What was not asked is NaN on disk.
    whole = [row for row in rows if not math.isnan(row["certified"])]
    certified = sum(int(row["certified"]) for row in whole)
    return Measured(
        at_most(most, ON_THE_LINE),
        f"largest distance of an active score {num(most)}; {certified} of {len(whole)} "
        "runs with all sequences certified",
        f"{len(whole)} step sizes, {len(rows) - len(whole)} batches",
        "–",
        "ρ from the selection alone",
    )


CLAIMS = (
    Claim(
        "Descent on p leaves the flow in proportion to h, by a predicted factor.",
        leaves_by_first_order,
    ),
    Claim(
        "The offset of descent is the flow's, whatever its step and its minibatches.",
        ends_like_the_flow,
    ),
)


def show(found: Finished) -> Shown:
    """How far gradient descent is from the flow, and from the flow's late line."""
    row = found.results["descent"]
    names = ("step", "batch", "residual", "residual_deviation")
    table = [["h", "batch", "distance from the line", "± (deviation)"]]
    table += [[num(one[name]) for name in names] for one in found.results["offsets"]]
    return Shown(
        [
            "Discrete steps leave the flow in proportion to h: at a tenth of the step "
            "2/λ, λ the largest curvature on the way, descent is at "
            f"{num(np.median(row['deviation_at_a_tenth']))} ‖p‖ from it (the median "
            f"draw), at that step at {num(np.median(row['deviation_at_the_limit']))}."
        ],
        table,
    )


main = Experiment(
    run, draw=draw, claims=CLAIMS, show=show, title="Steps in place of the flow"
)


if __name__ == "__main__":
    command(main, PRESETS)
