"""Limits of attention when E, p and v are trained together, or any of them.

The joint flow is followed to log t = 10⁶ on draws in d dimensions, beside its laws: the
weight off the important tokens for every subset of {E, p, v}; the values' memory of
frequency; the crossover over the rate η of E; and which tokens are selected where the
classes have unequal numbers of them. Finished runs are kept, so the same command
resumes a stopped study.

A further part freezes E: p beside a trained v heads for the max-margin solution of its
selection where v needs every sequence.
"""

import dataclasses
import functools
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.beyond import _trained_head
from experiments.beyond.problem import Problem
from experiments.common.claims import (
    Claim,
    Measured,
    Shown,
    Verdict,
    of_cases,
    of_runs,
    of_status,
)
from experiments.common.console import command, say
from experiments.common.devices import configure
from experiments.common.model import attend_corpus, empirical_risk
from experiments.common.numbers import counted, finite, in_words, percent
from experiments.common.results import Finished
from experiments.common.resume import run_resumable, write_columns
from experiments.common.statistics import bootstrap, largest
from experiments.common.study import (
    Bound,
    Count,
    Experiment,
    Positive,
    Several,
    Study,
    presets,
)
from experiments.common.style import power, subplots
from experiments.theory.joint import (
    ExactFamily,
    ExactFamilyFlow,
    exact_family,
    exact_family_flow,
    joint_limit,
    late_law,
)
from experiments.theory.joint_flow import LearningRates, joint_flow
from experiments.theory.two_classes import Real
from jaxselect.checks import BadInput
from jaxselect.compilation import compile_options
from jaxselect.data.corpus import Corpus
from jaxselect.model.parameters import Parameters, gaussian_reduced
from jaxselect.model.step import embedding_step
from jaxselect.status import Reason
from jaxselect.sweep.store import read_chunk

BLOCK = 32
"""Runs of one file."""


@dataclasses.dataclass(frozen=True)
class Cell:
    """One run of the study.

    Attributes:
        seed: random seed of the draw.
        dim: embedding dimension d.
        step_size: η₀ of the one step on E before the flow; zero for none.
        eta: rate of E.
        cls_rate: rate of p.
        head_rate: rate of v.
        positive: important tokens of the positive class R₊.
        negative: of the negative one, R₋.
        irrelevant: irrelevant tokens I.
        skew: important token i of a class is in a share ∝ 2^{−skew·i} of its sequences.
    """

    seed: int
    dim: float
    step_size: float
    eta: float = 1.0
    cls_rate: float = 1.0
    head_rate: float = 1.0
    positive: int = 2
    negative: int = 2
    irrelevant: int = 4
    skew: float = 0.0


Part = Literal["laws", "frequency", "crossover", "selection", "frozen"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Study):
    """Settings of the study: its runs, and the theory of the same problem.

    Attributes:
        parts: of the study.
        problem: n, T, R and I of the laws.
        dims: values of d.
        alignment: γ, the value of important tokens after the one step on E.
        alignments: likewise, of the part on selection.
        etas: rates of E in the crossover.
        selection_etas: rates of E in the part on selection.
        classes: R₊ and R₋ in the part on selection.
        until_log_time: log(1+t) at the end of a joint flow; later than 10⁸ the exponent
            log t − y f of a sequence has no digit left.
        points: of a path.
        seeds: number of draws of each kind.
        tolerance: of the frozen part, the largest ‖dp/dτ − p_mm‖/‖p_mm‖ at which p
            counts as moving along p_mm.
        workers: processes that run runs side by side.
    """

    parts: tuple[Part, ...] = ("laws", "frequency", "crossover", "selection", "frozen")
    problem: Problem = Problem(64, 4, 2, 4)
    dims: tuple[Positive, ...] = (1e2, 1e4, 1e6)
    alignment: Positive = 1.0
    alignments: tuple[float, ...] = (0.0, 1.0, 5.0)
    etas: tuple[Positive, ...] = tuple(10.0 ** (0.5 * power) for power in range(-8, 9))
    selection_etas: tuple[Positive, ...] = (1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0, 1e3)
    classes: tuple[tuple[Count, Count], ...] = ((4, 4), (3, 5), (2, 6), (1, 7), (1, 4))
    until_log_time: Annotated[float, Bound(1e3, 1e8, "10³ … 10⁸")] = 1e6
    points: Annotated[int, Bound(4, 10**9, "4 or more")] = 26
    seeds: Several = 8
    tolerance: Positive = 0.01
    workers: Count = 2
    out: Path = Path("results/joint")

    @property
    def marks(self) -> np.ndarray:
        """Values of log(1+t) at which runs are measured."""
        return np.geomspace(10.0, self.until_log_time, self.points)

    @property
    def draws(self) -> range:
        """Seeds of the draws."""
        return range(self.seed, self.seed + self.seeds)

    def cell(self, seed: int, dim: float, **kinds: Any) -> Cell:
        """A cell of the problem's own numbers, after the step of alignment γ."""
        own = self.problem.relevant
        kinds = {"positive": own, "negative": own} | kinds
        kinds.setdefault("irrelevant", self.problem.irrelevant)
        number = kinds["positive"] + kinds["negative"]
        alignment = kinds.pop("alignment", self.alignment)
        # Lemma 4.1 with α = 1/(T N).
        step_size = 2 * alignment * self.problem.length * number
        return Cell(seed, dim, kinds.pop("step_size", step_size), **kinds)

    def theory(self, rates: tuple[Real, Real, Real]) -> ExactFamily:
        """The two variables of the problem."""
        return exact_family(
            relevant=self.problem.relevant,
            irrelevant=self.problem.irrelevant,
            length=self.problem.length,
            rates=rates,
            alignment=self.alignment,
        )

    @property
    def sizes(self) -> Problem:
        """The shape that all runs share."""
        number = 2 * self.problem.relevant
        if {"selection", "frequency"} & {*self.parts}:
            number = max(number, 8, *(sum(pair) for pair in self.classes))
        return dataclasses.replace(self.problem, relevant=(number + 1) // 2)

    def check(self) -> None:
        """Refuse bags that would hold a token twice."""
        if self.problem.irrelevant < self.problem.length - 1:
            raise BadInput(
                f"irrelevant {self.problem.irrelevant}: wanted T − 1 = "
                f"{self.problem.length - 1} or more, as a bag holds none twice"
            )


PRESETS = presets(
    full=Settings(),
    smoke=Settings(
        problem=Problem(40, 3, 2, 4),
        dims=(1e6,),
        etas=(0.1, 10.0),
        alignments=(1.0,),
        selection_etas=(1.0,),
        classes=((1, 5),),
        until_log_time=1e4,
        points=4,
        workers=1,
        seeds=2,
    ),
)


FIELDS = [(field.name, float) for field in dataclasses.fields(Cell)]


def table(cells: list[Cell]) -> np.ndarray:
    """Cells as a structured array."""
    return np.array([dataclasses.astuple(cell) for cell in cells], FIELDS)


def instance(cell: dict, sizes: Problem) -> tuple[Parameters, Corpus]:
    """Parameters after the step on E, and bags of distinct tokens.

    The first slot holds the important token; a positive and a negative sequence share
    their T − 1 irrelevant ones, so that α of these is zero.

    Args:
        cell: numbers by name of `Cell`, which may be traced.
        sizes: n, T and the vocabulary, which are shapes; R and I are in the cell.

    Example:
        >>> cell = dataclasses.asdict(Cell(0, 1e4, 0.0, positive=1, negative=3))
        >>> _, bags = instance(cell, Problem(12, 3, 2, 4))
        >>> bags.tokens[:, 0].tolist()
        [0, 0, 0, 0, 0, 0, 1, 2, 3, 1, 3, 2]
    """
    half, vocabulary = sizes.sequences // 2, 2 * sizes.relevant + sizes.irrelevant
    keys = jax.random.split(jax.random.key(jnp.asarray(cell["seed"], int)), 4)
    most = jnp.arange(vocabulary)
    whole = ("positive", "negative", "irrelevant")
    positive, negative, irrelevant = (jnp.asarray(cell[x], int) for x in whole)
    skew = jnp.asarray(cell["skew"], float)

    def deck(key: jax.Array, number: jax.Array) -> jax.Array:
        share = jnp.where(most < number, 2.0 ** (-skew * most.astype(float)), 0.0)
        places = (jnp.arange(half).astype(float) + 0.5) / half
        found = jnp.searchsorted(jnp.cumsum(share) / share.sum(), places)
        return jax.random.permutation(key, found).astype(int)

    own = deck(keys[0], positive), positive + deck(keys[1], negative)
    order = jax.random.uniform(keys[2], (half, vocabulary))
    order = jnp.where(most[None] < irrelevant, order, 2.0)
    context = positive + negative + jnp.argsort(order, axis=1)[:, : sizes.length - 1]
    both = jnp.tile(context, (2, 1)).astype(int)
    tokens = jnp.concatenate([jnp.concatenate(own)[:, None], both], axis=1)
    labels = jnp.repeat(jnp.array([1, -1]), half)
    corpus = Corpus(
        tokens.astype(jnp.int32), jnp.ones(tokens.shape), labels, vocabulary
    )
    start = gaussian_reduced(keys[3], vocabulary=vocabulary, dim=cell["dim"])
    return embedding_step(start, corpus, cell["step_size"]), corpus


def lane(cell: dict, marks: jax.Array, sizes: Problem) -> dict[str, jax.Array]:
    """Measures of one joint flow along the marks and at its end.

    Args:
        cell: numbers by name of `Cell`.
        marks: log(1+t) to look at; the last one ends the flow.
        sizes: see `draw`.

    Returns:
        Along the marks `log_off`, of the mean weight off the important tokens, `value`,
        the mean y b_s of these, `log_loss`, |p|² and |v|², and all `values`; at the end
        `log_offs` and weights of the important tokens by sequence, what `joint_limit`
        says, and how far the conserved form EᵀE/η − ppᵀ/r_p − vvᵀ/r_v is off.
    """
    start, corpus = instance(cell, sizes)
    rates = LearningRates(cell["eta"], cell["cls_rate"], cell["head_rate"])
    flow = joint_flow(
        start, corpus, rates=rates, until_log_time=marks[-1], path_log_times=marks
    )

    def look(embeddings: jax.Array, query: jax.Array, head: jax.Array) -> dict:
        scores, values = embeddings @ query, embeddings @ head
        log_weights = attend_corpus(scores, values, corpus).log_weights
        log_off = jax.nn.logsumexp(log_weights[:, 1:], axis=1)
        own = corpus.labels * values[corpus.tokens[:, 0]]
        return {
            "log_off": jax.nn.logsumexp(log_off) - jnp.log(len(log_off)),
            "value": own.mean(),
            "loss": empirical_risk(Parameters(embeddings, query, head), corpus),
            "cls_square": query @ query,
            "head_square": head @ head,
            "values": values,
        }

    seen = jax.vmap(look)(flow.path_embeddings, flow.path_query, flow.path_head)
    scores, values = flow.embeddings @ flow.query, flow.embeddings @ flow.head
    log_weights = attend_corpus(scores, values, corpus).log_weights
    limit = joint_limit(scores, values, corpus)
    chosen = log_weights[:, 0] > jnp.log(0.5)
    number = jnp.zeros(corpus.vocabulary).at[corpus.tokens[:, 0]].add(1.0)
    return seen | {
        "status": flow.status,
        "steps": flow.num_steps,
        "selected": limit.selected,
        "square": limit.square,
        "stationarity": limit.stationarity,
        "slackness": limit.slackness,
        "balance": limit.balance,
        "covered": jnp.stack(
            [chosen[: len(chosen) // 2], chosen[len(chosen) // 2 :]]
        ).mean(axis=1, dtype=float),
        "frequency": number / len(corpus.labels),
        "form_change": form_change(
            start, Parameters(flow.embeddings, flow.query, flow.head), cell
        ),
    }


def form_change(start: Parameters, end: Parameters, cell: dict) -> jax.Array:
    """Change of EᵀE/η − ppᵀ/r_p − vvᵀ/r_v over its size; NaN for a zero rate."""

    def form(of: Parameters, sign: float) -> jax.Array:
        parts = ((of.embeddings, 1.0), (of.query[None], sign), (of.head[None], sign))
        rates = cell["eta"], cell["cls_rate"], cell["head_rate"]
        return sum(
            by * rows.T @ rows / rate
            for (rows, by), rate in zip(parts, rates, strict=True)
        )

    change = jnp.abs(form(end, -1.0) - form(start, -1.0)).max()
    return change / jnp.abs(form(end, 1.0)).max()


def block(
    folder: Path,
    whole: set[int],
    stop: threading.Event,
    number: int,
    cells: np.ndarray,
    *,
    marks: np.ndarray,
    sizes: Problem,
) -> np.ndarray:
    """A block of runs from disk, or run now and written there.

    Returns:
        One row per cell, with the fields of `Cell` and of `lane`.
    """
    if number not in whole:
        if stop.is_set():
            raise KeyboardInterrupt
        configure("float64")
        # Every block has one shape, and one program.
        padded = np.resize(cells, BLOCK)
        columns = {name: padded[name] for name in cells.dtype.names or ()}
        found = jax.device_get(_lanes()(columns, marks, sizes))
        made = {name: one[: len(cells)] for name, one in (columns | found).items()}
        write_columns(folder, number, made, first=BLOCK * number)
    return read_chunk(folder, number)


def _run(cells: dict, marks: jax.Array, sizes: Problem) -> dict[str, jax.Array]:
    return jax.lax.map(lambda cell: lane(cell, marks, sizes), cells)


@functools.cache
def _lanes() -> Callable[..., dict[str, jax.Array]]:
    """The program of a block; its options need the device."""
    options = compile_options(fast=True)
    return jax.jit(_run, static_argnums=2, compiler_options=options)


SUBSETS = {
    "p": (0.0, 1.0, 0.0),
    "p, v": (0.0, 1.0, 1.0),
    "E": (1.0, 0.0, 0.0),
    "E, p": (1.0, 1.0, 0.0),
    "E, v": (1.0, 0.0, 1.0),
    "E, p, v": (1.0, 1.0, 1.0),
    "E, p, v; η = 0.01": (0.01, 1.0, 1.0),
    "E, p, v; η = 100": (100.0, 1.0, 1.0),
}
"""Rates (η, r_p, r_v) by what they train; v alone selects nothing."""
WITHIN = 0.05
"""Deviation from a law at which it counts as begun."""
FREQUENCY_RATES = (0.01, 1.0, 100.0)


def laws_cells(plan: Settings) -> list[Cell]:
    """Every subset, dimension and seed."""
    return [
        plan.cell(seed, dim, eta=eta, cls_rate=p, head_rate=v)
        for eta, p, v in SUBSETS.values()
        for dim in plan.dims
        for seed in plan.draws
    ]


def laws(plan: Settings, rows: np.ndarray) -> tuple[Any, dict[str, np.ndarray]]:
    """Ratios to the law's constants, and the log t of its onset."""
    shape = len(SUBSETS), len(plan.dims), len(plan.draws)
    rows = rows.reshape(shape)
    found, arrays = [], {"off": np.exp(rows["log_off"])}
    laws, flows = predict(plan, list(SUBSETS.values()))
    arrays |= {"law": np.exp(laws.log_weight), "reduced": np.exp(flows.log_weight)}
    for place, (name, rates) in enumerate(SUBSETS.items()):
        law, flow = (
            jax.tree.map(lambda x, i=place: x[i], one) for one in (laws, flows)
        )
        for which, dim in enumerate(plan.dims):
            here = rows[place, which]
            ratios = _ratios(here, law)
            one: dict[str, Any] = {
                "trained": name,
                "dim": dim,
                "reached": int((here["status"] == Reason.NONE).sum()),
                "form_change": largest(finite(here["form_change"])),
            }
            for quantity, ratio in ratios.items():
                fixed = {"cls_norm": rates[1], "head_norm": rates[2]}.get(quantity, 1.0)
                if fixed:
                    one[quantity] = interval(ratio[:, -1])
                    one[quantity]["begins"] = begins(ratio.mean(axis=0), plan.marks)
            one["off"]["of_two_variables"] = float(
                np.exp(here["log_off"] - flow.log_weight[None])[:, -1].mean()
            )
            found.append(one)
    return found, arrays


def predict(
    plan: Settings, rates: Sequence[tuple[float, float, float]]
) -> tuple[ExactFamilyFlow, ExactFamilyFlow]:
    """Late law and two variables along the marks, for several rates."""

    @jax.jit
    @jax.vmap
    def both(rates: jax.Array) -> tuple[ExactFamilyFlow, ExactFamilyFlow]:
        theory = plan.theory((rates[0], rates[1], rates[2]))
        marks = jnp.asarray(plan.marks)
        return late_law(theory, marks), exact_family_flow(theory, marks)

    return jax.device_get(both(jnp.array(rates)))


def _ratios(here: np.ndarray, law: ExactFamilyFlow) -> dict[str, np.ndarray]:
    """Each quantity over that of the law, by seed and mark."""
    return {
        "off": np.exp(here["log_off"] - law.log_weight),
        "value": here["value"] / law.value,
        "cls_norm": np.sqrt(here["cls_square"] / law.cls_square),
        "head_norm": np.sqrt(here["head_square"] / law.head_square),
    }


def frequency_cells(plan: Settings) -> list[Cell]:
    """Important tokens in shares ∝ 8 : 4 : 2 : 1 of their class's sequences."""
    return [
        plan.cell(seed, plan.dims[-1], eta=eta, skew=1.0, positive=4, negative=4)
        for eta in FREQUENCY_RATES
        for seed in plan.draws
    ]


def frequency(plan: Settings, rows: np.ndarray) -> tuple[Any, dict[str, np.ndarray]]:
    """The b_s − b_r against log(π_s/π_r): the slope over tokens, along log t."""
    rows = rows.reshape(len(FREQUENCY_RATES), len(plan.draws))
    shares = rows["frequency"][..., :4]
    wanted = np.log(shares / shares[..., :1])
    values = rows["values"][..., :4]
    lead = values - values[..., :1]
    slopes = (lead * wanted[:, :, None]).sum(-1) / (wanted**2).sum(-1)[..., None]
    found = [
        {
            "eta": eta,
            "slope": interval(slopes[place, :, -1]),
            "largest_difference": float(
                np.abs(lead[place, :, -1] - wanted[place]).max()
            ),
            "begins": begins(slopes[place].mean(axis=0), plan.marks),
            "ratio": interval((values.min(-1) / values.max(-1))[place, :, -1]),
        }
        for place, eta in enumerate(FREQUENCY_RATES)
    ]
    return found, {"lead": lead, "wanted": wanted}


def crossover_cells(plan: Settings) -> list[Cell]:
    """All trained, over the rate of E."""
    return [
        plan.cell(seed, plan.dims[-1], eta=eta)
        for eta in plan.etas
        for seed in plan.draws
    ]


def crossover(plan: Settings, rows: np.ndarray) -> tuple[Any, dict[str, np.ndarray]]:
    """1 − q over η, beside two variables and the law, and where the law begins."""
    rows = rows.reshape(len(plan.etas), len(plan.draws))
    rates = [(eta, 1.0, 1.0) for eta in plan.etas]
    law, flow = predict(plan, rates)
    ratio = np.exp(rows["log_off"] - law.log_weight[:, None])
    found = [
        {
            "eta": eta,
            "off": interval(one[:, -1]),
            "begins": begins(one.mean(axis=0), plan.marks),
        }
        for eta, one in zip(plan.etas, ratio, strict=True)
    ]
    arrays = {
        "off": np.exp(rows["log_off"]),
        "law": np.exp(law.log_weight),
        "reduced": np.exp(flow.log_weight),
    }
    return found, arrays


def begins(ratio: np.ndarray, marks: np.ndarray) -> float | None:
    """First mark after which a ratio stays within 5 % of one, or None.

    Example:
        >>> begins(np.array([1.01, 1.2, 1.04, 0.97]), np.array([1.0, 2.0, 3.0, 4.0]))
        3.0
    """
    bad = np.flatnonzero(~(np.abs(ratio - 1) <= WITHIN))
    first = bad[-1] + 1 if len(bad) else 0
    return float(marks[first]) if first < len(marks) else None


def interval(values: np.ndarray) -> dict[str, float]:
    """Mean and its 95 % interval over draws."""
    low, high = bootstrap(values)
    return {"mean": float(values.mean()), "low": low, "high": high}


def selection_cells(plan: Settings) -> list[Cell]:
    """Unequal classes, over η and the step on E."""
    return [
        plan.cell(
            seed, plan.dims[-1], eta=eta, positive=more, negative=less, alignment=size
        )
        for more, less in plan.classes
        for size in plan.alignments
        for eta in plan.selection_etas
        for seed in plan.draws
    ]


def selection(plan: Settings, rows: np.ndarray) -> tuple[Any, dict[str, np.ndarray]]:
    """Numbers of selected tokens, and of runs that select every important one."""
    shape = (len(plan.classes), len(plan.alignments), len(plan.selection_etas))
    rows = rows.reshape(*shape, len(plan.draws))
    number = rows["selected"].sum(axis=-1)
    full = (rows["covered"] == 1).all(axis=-1)
    found = []
    for place in np.ndindex(*shape):
        here = rows[place]
        positive, negative = plan.classes[place[0]]
        found.append(
            {
                "positive": positive,
                "negative": negative,
                "alignment": plan.alignments[place[1]],
                "eta": plan.selection_etas[place[2]],
                "all_important": int(full[place].sum()),
                "tokens": interval(number[place].astype(float)),
                "draws": len(here),
            }
        )
    return found, {"number": number, "all": full}


PARTS = {
    "laws": (laws_cells, laws),
    "frequency": (frequency_cells, frequency),
    "crossover": (crossover_cells, crossover),
    "selection": (selection_cells, selection),
}
"""The runs of each part and its summary; `frozen` has no runs."""
FROZEN = {"equal": Problem(20, 6, 2, 14), "unequal": Problem(20, 6, 3, 12)}
"""Corpora for p beside v: important tokens equally frequent, and not."""
FROZEN_DIM, FROZEN_STEP = 4096.0, 100.0
FROZEN_MARKS = np.geomspace(10.0, 1e8, 29)


def run(settings: Settings, results: dict) -> dict[str, np.ndarray]:
    """Run the runs of all parts, and compare them with theory."""
    parts = [name for name in PARTS if name in settings.parts]
    cells = {name: PARTS[name][0](settings) for name in parts}
    rows = lanes(settings, table([cell for name in parts for cell in cells[name]]))
    arrays = {"log_times": settings.marks}
    for name in parts:
        here, rows = rows[: len(cells[name])], rows[len(cells[name]) :]
        results[name], columns = PARTS[name][1](settings, here)
        arrays |= {f"{name}_{key}": column for key, column in columns.items()}
        for row in results[name]:
            say(f"{name}: {in_words(row)}")
    if "frozen" in settings.parts:
        shown = frozen(settings)
        results |= shown
        say(in_words(shown))
    return arrays


def lanes(settings: Settings, cells: np.ndarray) -> np.ndarray:
    """One row per cell, from disk or run now."""
    if not len(cells):
        return cells
    work = partial(block, marks=settings.marks, sizes=settings.sizes)
    pieces = np.split(cells, range(BLOCK, len(cells), BLOCK))
    found = run_resumable(
        settings,
        work,
        pieces,
        "blocks of runs",
        ignored=("tolerance",),
        study="joint",
        form=2,  # Version of the columns of a run.
    )
    return np.concatenate(found)


def frozen(settings: Settings) -> dict[str, Any]:
    """With E fixed: how many draws of p beside a trained v have each heading."""
    seeds = settings.seed + jnp.arange(settings.seeds)
    found = {}
    follow = jax.jit(jax.vmap(_trained_head.follow, (0, 0, None)))
    for name, problem in FROZEN.items():
        after, corpus = jax.jit(jax.vmap(partial(drawn, problem)))(seeds)
        columns = jax.device_get(follow(after, corpus, jnp.asarray(FROZEN_MARKS)))
        status = _trained_head.classify(columns, settings.tolerance)["status"]
        counts = {one.name: int((status == one).sum()) for one in _trained_head.Heading}
        found[name] = {"draws": len(status), "status": counts}
    return found


def drawn(problem: Problem, seed: jax.Array) -> tuple[Parameters, Corpus]:
    """Parameters after the step on E, and a corpus, of the frozen part."""
    before, corpus = problem.draw(seed, FROZEN_DIM)
    return embedding_step(before, corpus, FROZEN_STEP), corpus


COLOURS = {"p": "#0072B2", "p, v": "#E69F00", "E, p": "#009E73", "E, p, v": "#D55E00"}
"""Colours that the colour-blind distinguish (M. Okabe and K. Ito), by subset."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")


def draw(finished: Finished) -> Figure:
    """Four panels of the study."""
    panels = {
        "laws": _laws,
        "frequency": _frequency,
        "crossover": _crossover,
        "selection": _selection,
    }
    there = [name for name in panels if name in finished.results]
    figure, axes = subplots(2, 2, figsize=(10, 8))
    for panel, name in zip(axes.flat, there, strict=False):
        panels[name](panel, finished)
    for panel in axes.flat[len(there) :]:
        panel.set_axis_off()
    return figure


def _laws(panel: Axes, finished: Finished) -> None:
    """1 − q against log t, measured and by law, at the largest d."""
    found, time = finished.arrays, finished.arrays["log_times"]
    rows = finished.results["laws"]
    names = list(dict.fromkeys(row["trained"] for row in rows))
    for name, colour in COLOURS.items():
        place = names.index(name)
        off = found["laws_off"][place, -1]
        panel.loglog(time, off.T, color=colour, alpha=0.4, linewidth=1)
        panel.plot([], [], color=colour, label=f"{name} trained")
        panel.loglog(time, found["laws_law"][place], "k--", linewidth=1)
    panel.plot([], [], "k--", linewidth=1, label="law")
    panel.set(
        ylim=(1e-14, 1),
        xlabel="log t",
        ylabel="1 − q",
        title="Weight off the important token, by what is trained",
    )
    panel.legend(loc="upper right", fontsize="small")


def _frequency(panel: Axes, finished: Finished) -> None:
    """b_s − b_r along log t, and log(π_s/π_r), at η = 1."""
    found, time = finished.arrays, finished.arrays["log_times"]
    place = [row["eta"] for row in finished.results["frequency"]].index(1.0)
    lead, wanted = found["frequency_lead"][place], found["frequency_wanted"][place]
    for token in range(1, lead.shape[-1]):
        colour = f"C{token - 1}"
        panel.semilogx(time, lead[:, :, token].T, color=colour, alpha=0.5, linewidth=1)
        panel.axhline(wanted[0, token], color="k", linestyle="--", linewidth=1)
        share = np.exp(wanted[0, token])
        panel.plot([], [], color=colour, label=rf"$\pi_s/\pi_r$ = {share:.2f}")
    panel.plot([], [], "k--", linewidth=1, label=r"$\log(\pi_s/\pi_r)$")
    panel.set(
        xlabel="log t",
        ylabel="$b_s - b_r$",
        title="Values forget frequency, but for a constant",
    )
    panel.legend()


def _crossover(panel: Axes, finished: Finished) -> None:
    """1 − q over the rate of E at several log t, with two variables and the law."""
    found, time = finished.arrays, finished.arrays["log_times"]
    etas = [row["eta"] for row in finished.results["crossover"]]
    some = [int(np.abs(time - wanted).argmin()) for wanted in (1e2, 1e4, 1e6)]
    for colour, mark in enumerate(dict.fromkeys(some)):
        off = found["crossover_off"][:, :, mark].mean(axis=1)
        panel.loglog(
            etas, off, "o", color=f"C{colour}", label=f"log t = {power(time[mark])}"
        )
        panel.loglog(etas, found["crossover_reduced"][:, mark], color=f"C{colour}")
        law = found["crossover_law"][:, mark]
        panel.loglog(etas, law, "--", color=f"C{colour}", linewidth=1)
    panel.plot([], [], "k", marker="", label="two variables")
    panel.plot([], [], "k--", linewidth=1, label="law")
    panel.set(
        xlabel="η, rate of E over that of p and v",
        ylabel="1 − q",
        title="Crossover: E, p and v trained",
    )
    panel.legend(loc=(0.36, 0.55), fontsize="small")


def _selection(panel: Axes, finished: Finished) -> None:
    """Mean number of selected tokens over η, by classes, after the middle step on E."""
    rows = finished.results["selection"]
    sizes = list(dict.fromkeys(row["alignment"] for row in rows))
    size = sizes[len(sizes) // 2]
    pairs = list(dict.fromkeys((row["positive"], row["negative"]) for row in rows))
    for place, pair in enumerate(pairs):
        here = [
            row
            for row in rows
            if (row["positive"], row["negative"]) == pair and row["alignment"] == size
        ]
        number = [row["tokens"]["mean"] for row in here]
        share = [one / sum(pair) for one in number]
        panel.semilogx(
            [row["eta"] for row in here],
            share,
            marker=MARKERS[place % len(MARKERS)],
            label=f"{pair[0]}, {pair[1]}: {min(number):g} … {max(number):g}",
        )
    panel.axhline(1.0, color="k", linestyle="--", linewidth=1)
    panel.set(
        xlabel="η, rate of E over that of p and v",
        ylabel=r"$|b_\mathrm{mm}|^2$ / number of important tokens",
        title=f"How many tokens are selected, γ = {size:g}",
    )
    panel.legend(
        title="R₊, R₋: tokens selected",
        loc="upper center",
        bbox_to_anchor=(0.48, 0.93),
        fontsize="small",
    )


LAW = 0.05
"""Largest relative deviation from an asymptotic law at the end of a flow."""
HEADINGS = {"UNCHANGED": Verdict.CERTIFIED, "RELAXED": Verdict.REFUTED} | dict.fromkeys(
    ("NOT_CERTIFIED", "NO_MAX_MARGIN", "NOT_REACHED"), Verdict.NOT_RUN
)
"""Where p heads beside a trained head."""


def beside_head(found: Finished) -> Measured:
    """With v trained besides, the direction of p stays as it is."""
    parts = [found.results[x] for x in ("equal", "unequal") if x in found.results]
    if not parts:
        return Measured(Verdict.NOT_RUN, "not a part of this study", counted(0, "draw"))
    counts = {verdict: 0 for verdict in HEADINGS.values()}
    for part in parts:
        for status, number in part["status"].items():
            counts[of_status(status, HEADINGS)] += number
    held, failed = counts[Verdict.CERTIFIED], counts[Verdict.REFUTED]
    total = sum(part["draws"] for part in parts)
    return Measured(
        of_runs(held, failed, total),
        f"{held} draws keep it; {failed} turn to another, relaxed problem's",
        f"{total} draws",
        percent(failed, held + failed),
        "dp/dτ beside both max-margin problems",
    )


def nothing_frozen(found: Finished) -> Measured:
    """With E, p and v trained 1 − q is on its law, which falls like 1/log t."""
    rows = [
        row
        for row in found.results.get("laws", [])
        if row["trained"].startswith("E, p, v")
    ]
    off = np.abs(finite(row["off"]["mean"] for row in rows) - 1)
    if not len(off):
        return Measured(Verdict.NOT_RUN, "not a part of this study", counted(0, "cell"))
    good = int((off <= LAW).sum())
    return Measured(
        of_cases(good, len(off)),
        f"1 − q off its law by {percent(off.max(), 1)} at most, for every d and η",
        counted(len(off), "cell"),
        percent(len(off) - good, len(off)),
        "the flow of all parameters, by a law that knows neither draws nor d",
    )


CLAIMS = (
    Claim(
        "Training v besides leaves the direction of p as it is.",
        beside_head,
        "Discussion of the paper",
    ),
    Claim(
        "With E, p and v trained the weight off the important token vanishes like "
        "1/(log t log log t), where p alone has 1/t.",
        nothing_frozen,
        "derived for the exact family",
    ),
)


def show(found: Finished) -> Shown:
    """Which tokens are selected with nothing frozen, and where p heads beside v."""
    results, said = found.results, []
    if "selection" in results:
        rows = results["selection"]
        runs = sum(row["draws"] for row in rows)
        few = runs - sum(row["all_important"] for row in rows)
        said.append(
            f"{few} of {runs} runs with E, p and v trained "
            "end on other tokens than all important ones."
        )
    said += [
        f"{name.capitalize()} frequencies, E fixed, p beside v: "
        + ", ".join(
            f"{number} {status.lower().replace('_', ' ')}"
            for status, number in results[name]["status"].items()
            if number
        )
        + "."
        for name in ("equal", "unequal")
        if name in results
    ]
    return Shown(said)


main = Experiment(
    run, draw=draw, claims=CLAIMS, show=show, title="E, p and v trained together"
)


if __name__ == "__main__":
    command(main, PRESETS)
