"""Every edge of the phase diagram, predicted and measured.

On shapes that were not used to derive the theory, each edge is bisected over η₀ for
each seed and d; the study then asks for the collapse of the lower line and for the
log-time at which a captured class comes back. Finished rounds are kept, so the same
command resumes a stopped study.
"""

import dataclasses
import itertools
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, Scalar
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.common.claims import Claim, Measured, Shown, of_cases
from experiments.common.console import command, say
from experiments.common.edges import every_edge
from experiments.common.model import attend_corpus
from experiments.common.numbers import finite, in_words, num, percent
from experiments.common.palette import EDGES as LINES
from experiments.common.results import Finished
from experiments.common.resume import run_resumable, write_columns
from experiments.common.statistics import bootstrap
from experiments.common.study import Count, Experiment, Several, Study, presets
from experiments.common.style import power, subplots
from experiments.theory.phases import recovery_log_time
from experiments.theory.two_classes import Ensemble, critical_alignment
from experiments.theory.two_classes import step_size as step_size_of
from jaxselect.checks import BadInput
from jaxselect.data.corpus import Corpus
from jaxselect.data.synthetic import several_relevant
from jaxselect.flow.cls import cls_flow
from jaxselect.model.parameters import gaussian_reduced
from jaxselect.model.step import embedding_step
from jaxselect.problem import attention
from jaxselect.status import Reason
from jaxselect.sweep.store import read_chunk

MARKS = np.geomspace(0.05, 80.0, 192)
"""Values of log(1+t) at which weights are looked at."""
TWICE = float(np.log(2.0))
"""Log-ratio of the classes' weights beyond which their symmetry is broken."""
WHOLE = 0.999
"""Mean weight of important tokens from which all of them count as selected."""
LANES = 32
"""Runs to a call."""


class Shape(NamedTuple):
    """Sizes of a corpus: n, T, relevant tokens per class, others."""

    sequences: int
    length: int
    relevant: int
    irrelevant: int


class Run(NamedTuple):
    """Measurements of one run.

    Attributes:
        ratio: max_t |log q₊/q₋| of the classes' mean weights of important tokens.
        log_time: log(1+t) at which the losing class then holds half of its
            weight; NaN where it never does.
        least: the smaller mean weight at the end.
        most: the greater one.
        reached: whether the flow came to the norm asked for.
    """

    ratio: Any
    log_time: Any
    least: Any
    most: Any
    reached: Any


@dataclass(frozen=True)
class Case:
    """A shape, the law of its tokens, and the dimensions it is asked about."""

    name: str
    shape: Shape
    dims: tuple[float, ...]

    @property
    def ensemble(self) -> Ensemble:
        """The sizes that predictions are made from."""
        n, length, relevant, irrelevant = map(float, self.shape[:4])
        return Ensemble(n, length, relevant, irrelevant)

    @property
    def draw(self) -> Callable[[jax.Array], Corpus]:
        """Its corpus as a function of a key."""
        return partial(several_relevant, **self.shape._asdict(), per_sequence=1)

    def run(self, until_norm: float) -> Callable[..., Run]:
        """Its compiled runs."""
        return program(self.draw, self.shape, until_norm)


DIMS = (1e4, 1e5, 1e7, 1e9)
SHAPES = (
    (96, 8, 12, 40),
    (96, 10, 12, 40),
    (96, 8, 16, 40),
    (96, 8, 12, 80),
    (192, 8, 12, 40),
    (120, 12, 4, 40),
    (96, 12, 8, 24),
    (160, 6, 20, 60),
)
"""n, T, R and I: the first, one change of each of T, R, I and n, and three others; of
those that the theory predicts to stay captured at some d, none had a part in it."""
TIMES_WITHIN = 1.15


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Study):
    """Settings of the study.

    Attributes:
        shapes: n, T, R and I of each.
        seeds: draws per edge.
        rounds: of bisection.
        diagram: values of η₀ in the measured diagram.
        until_norm: ‖p‖ at which a run ends.
        workers: processes that run shapes side by side.
    """

    shapes: tuple[tuple[Count, Count, Count, Count], ...] = SHAPES
    seeds: Several = 16
    rounds: Count = 4
    diagram: Several = 20
    until_norm: float = 1e6
    workers: Count = 2
    out: Path = Path("results/phases")

    def check(self) -> None:
        """Refuse norms out of range."""
        if not 1e3 <= self.until_norm <= 1e12:
            raise BadInput(f"until norm {self.until_norm}: wanted 10³ … 10¹²")

    def cases(self) -> list[Case]:
        """The shapes, each at every dimension."""
        return [
            Case(f"n{n} T{t} R{r} I{i}", Shape(n, t, r, i), DIMS)
            for n, t, r, i in self.shapes
        ]


PRESETS = presets(
    full=Settings(),
    smoke=Settings(
        shapes=((8, 4, 2, 6),),
        seeds=2,
        rounds=1,
        diagram=3,
        until_norm=1e4,
    ),
)


def weights_of(
    draw: Callable[[Key[Array, ""]], Corpus],
    shape: Shape,
    seed: Int[Scalar, ""] | int,
    dim: Float[Scalar, ""],
    step_size: Float[Scalar, ""],
    until_norm: float,
) -> tuple[Float[Array, "marks 2"], Float[Array, " 2"], Int[Scalar, ""]]:
    """Mean weights of important tokens by class, at `MARKS` and the end."""
    corpus_key, key = jax.random.split(jax.random.key(seed))
    corpus = draw(corpus_key)
    before = gaussian_reduced(key, vocabulary=corpus.vocabulary, dim=dim)
    after = embedding_step(before, corpus, step_size)
    flow = cls_flow(
        attention(after, corpus),
        until_norm=until_norm,
        path_log_times=jnp.asarray(MARKS),
    )
    values = after.embeddings @ after.head
    important = corpus.tokens < 2 * shape.relevant
    positive = corpus.labels > 0

    def weights(query: Float[Array, " dim"]) -> Float[Array, " 2"]:
        found = attend_corpus(after.embeddings @ query, values, corpus)
        own = jnp.where(important, jnp.exp(found.log_weights), 0.0).sum(axis=1)
        sides = jnp.stack([positive, ~positive])
        return jnp.where(sides, own[None], 0.0).sum(axis=1) / sides.sum(axis=1)

    # After its end the flow stays as it is.
    there = jnp.isfinite(flow.path_query)
    path = jax.vmap(weights)(jnp.where(there, flow.path_query, flow.query[None]))
    return path, weights(flow.query), flow.status


def observe(
    path: Float[Array, "marks 2"], end: Float[Array, " 2"], status: Int[Scalar, ""]
) -> Run:
    """Measurements on a path of weights."""
    marks = jnp.asarray(MARKS)
    logs = jnp.log(jnp.maximum(path, 1e-300))
    apart = logs[:, 0] - logs[:, 1]
    widest = jnp.argmax(jnp.abs(apart))
    loser = jnp.where(apart[widest] > 0, logs[:, 1], logs[:, 0])
    below = (loser < -TWICE) & (jnp.arange(len(MARKS)) >= widest)
    last = len(MARKS) - 1 - jnp.argmax(below[::-1])
    to = jnp.minimum(last + 1, len(MARKS) - 1)
    share = (-TWICE - loser[last]) / (loser[to] - loser[last])
    back = marks[last] + share * (marks[to] - marks[last])
    returned = below.any() & (last < len(MARKS) - 1)
    return Run(
        ratio=jnp.abs(apart[widest]),
        log_time=jnp.where(returned, back, jnp.nan),
        least=end.min(),
        most=end.max(),
        reached=(status == Reason.NONE).astype(jnp.int32),
    )


def program(
    draw: Callable[[Key[Array, ""]], Corpus], shape: Shape, until_norm: float
) -> Callable:
    """Compiled runs of one shape: seeds, d and η₀ → `Run`, `LANES` to a call."""

    def lane(row: tuple) -> Run:
        seed, dim, step_size = row
        return observe(*weights_of(draw, shape, seed, dim, step_size, until_norm))

    compiled = jax.jit(lambda *rows: jax.lax.map(lane, rows))

    def run(seed: np.ndarray, dim: np.ndarray, step_size: np.ndarray) -> Run:
        found = []
        for cut in range(0, len(seed), LANES):
            here = slice(cut, cut + LANES)
            rows = seed[here].astype(np.int32), dim[here], step_size[here]
            there = len(rows[0])
            full = (np.pad(row, (0, LANES - there), mode="edge") for row in rows)
            got = jax.device_get(compiled(*map(jnp.asarray, full)))
            found.append(Run(*(column[:there] for column in got)))
        return Run(*(np.concatenate(column) for column in zip(*found, strict=True)))

    return run


def selected(run: Run) -> np.ndarray:
    """Whether every important token is selected."""
    return (run.least >= WHOLE) & (run.reached == 1)


def broken(run: Run) -> np.ndarray:
    """Whether one class ever had twice the other's weight."""
    return run.ratio >= TWICE


def captured(run: Run) -> np.ndarray:
    """Whether all tokens of one class are selected at the end, and not of the other."""
    return (run.least < 0.5) & (run.most >= WHOLE)


# The property that changes at an edge, and whether it holds above the edge.
EDGES: dict[str, tuple[Callable[[Run], np.ndarray], bool]] = {
    "selection": (selected, True),
    "breaking_lower": (broken, True),
    "breaking_upper": (broken, False),
    "capture_lower": (captured, True),
    "capture_upper": (captured, False),
    "largest_dim": (captured, False),
}


NAMES = tuple(EDGES)
# A bracket reaches this factor to either side of its prediction; that of d_c further.
REACH, REACH_OF_DIM = 2.0, 30.0
# Dimension whose predicted capture edges are the step sizes at which d_c is measured.
MIDDLE_DIM = 1e6


class Brackets(NamedTuple):
    """Brackets to bisect, one a row.

    Attributes:
        edge: place in `NAMES`.
        seed: random seed of the draw.
        fixed: the coordinate that is not bisected, d, or η₀ where d is.
        predicted: where theory sees the edge.
        low: the bracket's lower end.
        high: its upper end.
    """

    edge: np.ndarray
    seed: np.ndarray
    fixed: np.ndarray
    predicted: np.ndarray
    low: np.ndarray
    high: np.ndarray


class Prediction(NamedTuple):
    """Predicted edges of one case at its dimensions.

    Attributes:
        edges: η₀ by dimension and by `NAMES[:5]`.
        middle: both edges of capture at `MIDDLE_DIM`.
        critical: η₀ at γ_c.
    """

    edges: np.ndarray
    middle: np.ndarray
    critical: float


@jax.jit
def _edges(ensemble: Ensemble, dims: jax.Array) -> tuple[jax.Array, jax.Array]:
    def at(dim: jax.Array) -> jax.Array:
        found = every_edge(ensemble, dim)
        return jnp.stack([found[name] for name in NAMES[:5]])

    critical = step_size_of(ensemble, critical_alignment(ensemble))
    return jax.vmap(at)(dims), jnp.asarray(critical)


recovery = jax.jit(jax.vmap(recovery_log_time, (None, 0, 0)))
"""Predicted log(1+t) of the return, over pairs of d and η₀."""


def is_edge(step_size: np.ndarray) -> np.ndarray:
    """Whether a predicted step size is an edge: not 0, ∞ or NaN."""
    return (step_size > 0.0) & (step_size < np.inf)


def predict(case: Case, dims: tuple[float, ...]) -> Prediction:
    """Every edge of a case at some dimensions, by theory alone."""
    ensemble = jax.tree.map(jnp.asarray, case.ensemble)
    edges, critical = _edges(ensemble, jnp.array([*dims, MIDDLE_DIM]))
    found = np.asarray(edges)
    return Prediction(edges=found[:-1], middle=found[-1, 3:], critical=critical.item())


def brackets(case: Case, prediction: Prediction, seeds: np.ndarray) -> Brackets:
    """Brackets around each predicted edge that there is, for each seed."""
    rows = []
    for dim, at in zip(case.dims, prediction.edges, strict=True):
        # No bracket reaches beyond the middle between two edges.
        # Edges that are absent are 0 or ∞: their middle is NaN, and bounds nothing.
        with np.errstate(invalid="ignore"):
            products = at[0] * at[1], at[1] * at[2], at[3] * at[4]
            lowest, lower, upper = np.sqrt(products)
        walls = {
            "selection": (0.0, lowest),
            "breaking_lower": (lowest, lower),
            "breaking_upper": (lower, np.inf),
            "capture_lower": (lowest, upper),
            "capture_upper": (upper, np.inf),
        }
        for place, edge in enumerate(at):
            below, above = walls[NAMES[place]]
            low, high = max(edge / REACH, below), min(edge * REACH, above)
            if is_edge(edge) and 0 < low < edge < high < np.inf:
                rows.append((place, dim, edge, low, high))
    for step_size in prediction.middle[is_edge(prediction.middle)]:
        ends = MIDDLE_DIM / REACH_OF_DIM, MIDDLE_DIM * REACH_OF_DIM
        rows.append((len(NAMES) - 1, step_size, MIDDLE_DIM, *ends))
    edge, fixed, predicted, low, high = (
        np.repeat(np.asarray(column, float), len(seeds))
        for column in zip(*rows, strict=True)
    )
    return Brackets(
        edge=edge.astype(int),
        seed=np.tile(seeds, len(rows)),
        fixed=fixed,
        predicted=predicted,
        low=low,
        high=high,
    )


def bisect(asked: Brackets, rounds: int, ask: Callable[..., Run]) -> Brackets:
    """Brackets that are 2^rounds times narrower."""
    in_dim = asked.edge == len(NAMES) - 1
    for _ in range(rounds):
        middle = np.sqrt(asked.low * asked.high)
        dim = np.where(in_dim, np.round(middle), asked.fixed)
        step_size = np.where(in_dim, asked.fixed, middle)
        found = ask(asked.seed, dim, step_size)
        holds = np.zeros(len(middle), bool)
        for place, name in enumerate(NAMES):
            condition, above = EDGES[name]
            here = asked.edge == place
            holds[here] = (condition(found) == above)[here]
        asked = asked._replace(
            low=np.where(holds, asked.low, middle),
            high=np.where(holds, middle, asked.high),
        )
    return asked


def kept(folder: Path, index: int, whole: Iterable[int], run: Callable[[], Run]) -> Run:
    """A round's runs from disk, or made now and written there."""
    if index not in whole:
        write_columns(folder, index, run()._asdict())
    rows = read_chunk(folder, index)
    return Run(**{name: rows[name] for name in Run._fields})


WITHIN = {
    "selection": 1.2,
    "breaking_lower": 1.1,
    "breaking_upper": 1.1,
    "capture_lower": 1.25,
    "capture_upper": 1.25,
    "largest_dim": 3.0,
}
"""Largest ratio of measured to predicted edge, or its inverse, that counts."""


def compare(case: Case, asked: Brackets, ended: Brackets) -> list[dict]:
    """Measured over predicted, the geometric mean over draws with its interval."""
    measured = np.sqrt(ended.low * ended.high)
    at_end = (ended.low == asked.low) | (ended.high == asked.high)
    rows = []
    for edge, fixed in dict.fromkeys(zip(asked.edge, asked.fixed, strict=True)):
        here = (asked.edge == edge) & (asked.fixed == fixed)
        ratio = np.log(measured[here] / asked.predicted[here])
        low, high = bootstrap(ratio)
        rows.append(
            {
                "case": case.name,
                "edge": NAMES[edge],
                "fixed": fixed,
                "predicted": asked.predicted[here][0],
                "ratio": np.exp(ratio.mean()),
                "low": np.exp(low),
                "high": np.exp(high),
                "at_an_end": at_end[here].mean(),
            }
        )
    return rows


def share_within(ratios: list[float], bound: float) -> float:
    """Share of ratios between 1/bound and bound."""
    logs = np.abs(np.log(ratios))
    return float(np.mean(logs <= np.log(bound))) if len(logs) else float("nan")


def summary(rows: list[dict], name: str) -> dict[str, float]:
    """Accuracy of the prediction of one edge on shapes within the theory."""
    here = [row for row in rows if row["edge"] == name]
    ratios = [row["ratio"] for row in here]
    return {
        "edges": len(here),
        "within": share_within(ratios, WITHIN[name]),
        "median_ratio": float(np.median(ratios)) if here else float("nan"),
        "least": min(ratios, default=float("nan")),
        "most": max(ratios, default=float("nan")),
    }


WIDE = np.array([1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9])
"""Dimensions of the measured diagram."""
# Returns are asked about from here on; below, noise may win.
HIGH_DIM = 1e7


def returns(
    case: Case, prediction: Prediction, seeds: np.ndarray, run: Callable[..., Run]
) -> list[dict]:
    """Log-times of the losing class's return at three η₀ above the band."""
    points = []
    for dim, edges in zip(case.dims, prediction.edges, strict=True):
        start = edges[4] if is_edge(edges[4]) else edges[1]
        if dim >= HIGH_DIM and is_edge(edges[2]):
            grown = edges[2] / start
            points += [(dim, start * grown**part) for part in (0.25, 0.5, 0.75)]
    if not points:
        return []
    dim, step_size = np.array(points).T
    found = run(*_lanes(np.array(points), seeds))
    times = found.log_time.reshape(len(points), len(seeds))
    ensemble = jax.tree.map(jnp.asarray, case.ensemble)
    wanted = np.asarray(recovery(ensemble, dim, step_size))
    rows = []
    for place, predicted in enumerate(wanted):
        ratio = times[place][np.isfinite(times[place])] / predicted
        if len(ratio) > 1:
            low, high = bootstrap(ratio)
            rows.append(
                {
                    "case": case.name,
                    "dim": dim[place],
                    "step_size": step_size[place],
                    "predicted": predicted,
                    "ratio": ratio.mean(),
                    "low": low,
                    "high": high,
                    "returned": len(ratio),
                }
            )
    return rows


def diagram(
    case: Case,
    prediction: Prediction,
    seeds: np.ndarray,
    run: Callable[..., Run],
    points: int,
) -> dict[str, np.ndarray]:
    """Shares selected and captured over (d, η₀), beside every predicted edge."""
    low, high = prediction.edges[0, 0] / 1e3, 1.5 * prediction.critical
    steps = np.geomspace(low, high, points)
    found = run(*_lanes(_pairs(WIDE, steps), seeds))
    shape = len(WIDE), points, len(seeds)
    # As many as a case has: the program that is there serves again.
    some = np.geomspace(WIDE[0], WIDE[-1], len(case.dims))
    return {
        "dims": WIDE,
        "step_sizes": steps,
        "selected": selected(found).reshape(shape).mean(axis=2),
        "captured": captured(found).reshape(shape).mean(axis=2),
        "edge_dims": some,
        "edges": predict(case, tuple(some)).edges,
        "critical": np.array(prediction.critical),
    }


def collapse(
    case: Case,
    prediction: Prediction,
    seeds: np.ndarray,
    run: Callable[..., Run],
    points: int,
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Share selected over γ√d, and how far the curves of different d lie apart."""
    unit = step_size_of(case.ensemble, 1.0)
    dims, scaled = WIDE[::2], np.linspace(0.5, 4.0, points)
    some = _pairs(dims, scaled)
    some[:, 1] *= unit / np.sqrt(some[:, 0])
    found = selected(run(*_lanes(some, seeds)))
    share = found.reshape(len(dims), points, len(seeds)).mean(axis=2)
    # The share rises but for its noise.
    rising = np.maximum.accumulate(share, axis=1)
    places = np.array(
        [np.interp(0.5, row, scaled) if row[-1] > 0.5 else np.nan for row in rising]
    )
    predicted = prediction.edges[0, 0] * np.sqrt(case.dims[0]) / unit
    found_at = {
        "dims": dims.tolist(),
        "half_selected_at": places.tolist(),
        "predicted": predicted,
        "spread_before": np.std(np.log(places / np.sqrt(dims))),
        "spread_after": np.std(np.log(places)),
    }
    arrays = {"scaled": scaled, "scaled_dims": dims, "scaled_share": share}
    return found_at, arrays | {"predicted_scaled": np.array(predicted)}


def _pairs(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """All pairs, the second coordinate the faster."""
    return np.stack(np.meshgrid(first, second, indexing="ij"), -1).reshape(-1, 2)


def _lanes(
    some: np.ndarray, seeds: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Seeds, d and η₀ of every pair with every seed, the seed the fastest."""
    dim, step_size = np.repeat(some, len(seeds), axis=0).T
    return np.tile(seeds, len(some)), dim, step_size


def run(settings: Settings, results: dict) -> dict[str, np.ndarray]:
    """Predict, measure, and hold one against the other."""
    cases = settings.cases()
    names = [case.name for case in cases]
    work = partial(measure, settings)
    found = run_resumable(settings, work, cases, "shapes", study="phases", cases=names)
    rows = [row for case in found for row in case["edges"]]
    returned = [row for case in found for row in case["recovery"]]
    results |= {
        "edges": rows,
        "summary": {name: summary(rows, name) for name in NAMES},
        "recovery": returned,
        "recovery_within": share_within(
            [row["ratio"] for row in returned], TIMES_WITHIN
        ),
        "collapse": found[0]["collapse"],
    }
    for name, part in results["summary"].items():
        say(in_words({name: part}))
    say(in_words({x: results[x] for x in ("recovery_within", "collapse")}))
    arrays: dict[str, np.ndarray] = found[0]["arrays"]
    return arrays


def measure(
    settings: Settings,
    folder: Path,
    whole: set[int],
    stop: threading.Event,
    number: int,
    case: Case,
) -> dict[str, Any]:
    """Edges, returns and, for the first case, the diagram of a case."""
    seeds = settings.seed + np.arange(settings.seeds)
    prediction = predict(case, case.dims)
    run = case.run(settings.until_norm)
    # Files of a case: its rounds, then up to three blocks of other runs.
    files = itertools.count(number * (settings.rounds + 3))

    def answer(seed: np.ndarray, dim: np.ndarray, step_size: np.ndarray) -> Run:
        if stop.is_set():
            raise KeyboardInterrupt
        made = partial(run, seed, dim, step_size)
        return kept(folder, next(files), whole, made)

    asked = brackets(case, prediction, seeds)
    ended = bisect(asked, settings.rounds, answer)
    found: dict[str, Any] = {
        "edges": compare(case, asked, ended),
        "prediction": prediction,
        "recovery": returns(case, prediction, seeds, answer),
    }
    if number == 0:
        few, points = seeds[: max(settings.seeds // 4, 2)], settings.diagram
        found["arrays"] = diagram(case, prediction, few, answer, points)
        found["collapse"], arrays = collapse(
            case, prediction, seeds, answer, points // 2 + 1
        )
        found["arrays"] |= arrays
    say(f"{case.name}: {len(found['edges'])} edges of {settings.seeds} draws each")
    return found


COLOURS = {"selection": "tab:blue", "breaking": "tab:orange", "capture": "tab:red"}


def draw(finished: Finished) -> Figure:
    """Diagram with its edges; collapse."""
    figure, panels = subplots(1, 2, figsize=(13, 4.6))
    _diagram(panels[0], finished)
    _collapse(panels[1], finished)
    return figure


def _diagram(axes: Axes, finished: Finished) -> None:
    found = finished.arrays
    image = axes.pcolormesh(
        found["dims"],
        found["step_sizes"],
        (found["selected"] - found["captured"]).T,
        cmap="PiYG",
        vmin=-1,
        vmax=1,
        shading="nearest",
        alpha=0.7,
    )
    axes.figure.colorbar(image, ax=axes, label="share selected − share captured")
    for edge, name in zip(found["edges"].T, NAMES[:5], strict=True):
        kind, _, end = name.partition("_")
        line, words = LINES[kind]
        label = None if end == "upper" else words
        style: dict[str, Any] = {"linestyle": line, "color": COLOURS[kind]}
        axes.plot(found["edge_dims"], edge, label=label, **style)
    axes.axhline(
        float(found["critical"]),
        color="black",
        linewidth=0.7,
        label="$\\eta_0$ at $\\gamma_c$",
    )
    _measured(axes, finished)
    axes.set(
        xscale="log",
        yscale="log",
        ylim=(found["step_sizes"][0], found["step_sizes"][-1]),
        xlabel="embedding dimension d",
        ylabel="step size η₀",
        title="(a) predicted (lines) and measured (dots) edges",
    )
    axes.legend(fontsize="small", frameon=True, loc="upper right")


def _measured(axes: Axes, finished: Finished) -> None:
    first = finished.results["edges"][0]["case"]
    for row in finished.results["edges"]:
        if row["case"] == first and row["edge"] in NAMES[:5]:
            middle = row["predicted"] * row["ratio"]
            error = [
                [middle - row["predicted"] * row["low"]],
                [row["predicted"] * row["high"] - middle],
            ]
            axes.errorbar(
                row["fixed"],
                middle,
                np.maximum(error, 0.0),
                fmt="o",
                markersize=4,
                color=COLOURS[row["edge"].partition("_")[0]],
            )


def _collapse(axes: Axes, finished: Finished) -> None:
    found = finished.arrays
    for dim, share in zip(found["scaled_dims"], found["scaled_share"], strict=True):
        axes.plot(found["scaled"], share, ".-", label=f"d = {power(dim)}")
    axes.axvline(
        float(found["predicted_scaled"]),
        color="black",
        linestyle=":",
        label="predicted",
    )
    axes.set(
        xlabel="γ√d = η₀√d / 4RT",
        ylabel="share of draws that select all",
        title="(b) one curve for every d",
    )
    axes.legend(fontsize="small")


def foretold(found: Finished) -> Measured:
    """Every edge of the phase diagram is where theory puts it."""
    parts = found.results["summary"]
    total = sum(part["edges"] for part in parts.values())
    within = sum(
        round(part["edges"] * part["within"])
        for part in parts.values()
        if part["edges"]
    )
    least = min(finite(part["least"] for part in parts.values()), default=float("nan"))
    most = max(finite(part["most"] for part in parts.values()), default=float("nan"))
    return Measured(
        of_cases(within, total),
        f"measured over predicted from {num(least)} to {num(most)}",
        f"{total} edges on shapes the theory never saw",
        percent(total - within, total),
        "each edge bisected over η₀, draw by draw; bounds fixed beforehand",
    )


CLAIMS = (
    Claim(
        "For even counts and sizes of its domain first-order theory predicts the edges "
        "of the phase diagram, without a fitted parameter.",
        foretold,
    ),
)


def show(found: Finished) -> Shown:
    """Measured edges of the phase diagram over predicted ones."""
    rows = [["edge", "number", "as predicted", "median ratio", "range"]]
    rows += [
        [
            name.replace("_", " "),
            str(part["edges"]),
            percent(part["within"], 1),
            num(part["median_ratio"]),
            f"{num(part['least'])} … {num(part['most'])}",
        ]
        for name, part in found.results["summary"].items()
    ]
    return Shown(["Edges were bisected on shapes that the theory never saw."], rows)


main = Experiment(
    run, draw=draw, claims=CLAIMS, show=show, title="Edges of the phase diagram"
)


if __name__ == "__main__":
    command(main, PRESETS)
