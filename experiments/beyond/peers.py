"""Numbers that others published, computed again by this package.

Four public repositories: max-margin token selection, transformers as support vector
machines, softmax that polarises, and next tokens. Their random draws are repeated from
their seeds or copied, their recurrences are run as stated, and their curve is read from
their figure. A row holds theirs, ours, the difference, and the reason where they
differ.

Three further lines of work are not special cases of this model. Single-location
regression (Marion et al., arXiv 2410.01537) has a squared loss, erf in place of softmax
and Gaussian tokens without a vocabulary. Margins in other norms (Julistiono et al.,
arXiv 2410.14581) come from mirror descent: no loss gives them to a gradient flow.
Benign overfitting of one head (Magen et al., arXiv 2410.07746) trains p and v on fixed
tokens: its flow is `joint_flow` at the rate 0 of E, its statement, on fresh samples, is
not ours.
"""

import dataclasses
import json
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from scipy.optimize import linprog

from experiments.common.claims import Claim, Measured, Shown, of_cases
from experiments.common.console import command, say
from experiments.common.numbers import num
from experiments.common.progress import progress_bar
from experiments.common.results import Finished
from experiments.common.study import Count, Experiment, Study, presets
from experiments.common.style import subplots
from experiments.theory.joint_flow import LearningRates, joint_flow
from jaxselect.data.corpus import from_sequences
from jaxselect.data.loss import NEXT_TOKEN
from jaxselect.flow.cls import cls_flow, direction_error
from jaxselect.margin.certificate import CERTIFIED, TrialStatus, certify
from jaxselect.margin.max_margin import max_margin
from jaxselect.model.parameters import Parameters
from jaxselect.problem import attention, key_query
from jaxselect.stages import solve
from jaxselect.status import Reason


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Study):
    """Settings of the study.

    Attributes:
        sequences: numbers n of sequences of the rank curve; published are 5, 10, 15.
        dims: dimensions d; published are 1, 2, 3, 4, 5, 10, 15, 20.
        iterations: steps of the descent that polarises; published are 10⁶.
    """

    sequences: tuple[Count, ...] = (5, 10, 15)
    dims: tuple[Count, ...] = (1, 2, 3, 4, 5, 10, 15, 20)
    iterations: Count = 1_000_000
    out: Path = Path("results/peers")


PRESETS = presets(
    full=Settings(),
    smoke=Settings(sequences=(5,), dims=(2, 4), iterations=20_000),
)

SELECTION = "github.com/ucr-optml/max_margin_attention, MaxMarginTokenSelection"
RANKS = "github.com/umich-sota/TF-as-SVM, svm_rank.ipynb"
POLARISES = "github.com/tml-epfl/softmax, visualizations/toy_experiments.ipynb"
NEXT = "arXiv 2403.08081, official code, notebook on global convergence"

# Read off the figure in their notebook: middles of markers, in pixels.
DIMS = (1, 2, 3, 4, 5, 10, 15, 20)
CURVE = {
    5: (1.0, 1.34, 2.81, 3.99, 4.95, 5.0, 5.0, 5.0),
    10: (1.0, 1.0, 1.26, 3.62, 5.0, 10.0, 10.0, 10.0),
    15: (1.0, 1.0, 1.0, 1.45, 4.86, 10.0, 15.0, 15.0),
}
READING = 0.05
"""Largest error of a rank read off the figure: a pixel and a half."""
DRAWS, LENGTH = 100, 5
"""Of each point of their curve: seeds 0 … 99, tokens per sequence."""
RANK_TOLERANCE = 1e-7
"""Smallest singular value that they count."""
LOGGED = 5e-6
"""Half of the last digit that their solver prints."""
BOUNCE = 2e-5
"""Of a correlation after steps of one length, which bounce across the valley of tied
tokens: changes of W_0 by rounding to single precision move it by up to 7e-6, measured
on 30 draws."""
SAMPLES = Path(__file__).with_name("li2024.json")
DESCENT = 0.01
"""Relative error of descent in steps of 0.1, from its first steps; measured 3e-3."""
LATE = 1e9
"""Log(1+t) to which p and v are trained."""


class Row(NamedTuple):
    """One published number.

    Attributes:
        quantity: what it is.
        theirs: as published, or by their recurrence.
        ours: by this package.
        within: largest difference that is the error of theirs; None where the reason
            explains a difference.
        source: where it is published.
        reason: how it was read, and why ours differs.
    """

    quantity: str
    theirs: float
    ours: float
    within: float | None
    source: str
    reason: str

    @property
    def agrees(self) -> bool:
        """Whether both are the same but for the error of theirs."""
        return self.within is not None and abs(self.ours - self.theirs) <= self.within


def run(settings: Settings, results: dict) -> dict[str, np.ndarray]:
    """Every row, and the rank curve."""
    results["rows"] = []

    def add(rows: list[Row]) -> None:
        for row in rows:
            difference = row.ours - row.theirs
            within = "" if row.within is None else f", within {num(row.within, 2)}"
            agrees = "as published" if row.agrees else row.reason
            ours = f"{num(row.theirs, 6)}, ours {num(row.ours, 6)}{within}"
            say(f"{row.quantity}: {ours}: {agrees}")
            each = row._asdict() | {"difference": difference, "agrees": row.agrees}
            results["rows"].append(each)

    add(margins())
    add(one_query())
    add(query_and_head())
    add(next_tokens())
    add(polarises(settings.iterations))
    comparable = [row for row in results["rows"] if row["within"] is not None]
    hits = sum(row["agrees"] for row in comparable)
    say(f"{hits} of {len(comparable)} within the last digit printed or read")
    points = [(n, d) for n in settings.sequences for d in settings.dims]
    with progress_bar("points of the rank curve", len(points)) as advance:
        found = []
        for point in points:
            found.append(rank_point(*point))
            advance(1)
    shape = len(settings.sequences), len(settings.dims)
    arrays = {
        name: np.array([getattr(point, name) for point in found]).reshape(shape)
        for name in RankPoint._fields
    }
    add(rank_rows(settings, arrays))
    return arrays | {
        "sequences": np.array(settings.sequences),
        "dims": np.array(settings.dims),
    }


SOLVE = jax.jit(max_margin)


def separate(bags: np.ndarray, chosen: np.ndarray, size: int = 0) -> tuple:
    """The max-margin p of chosen tokens over all others of their own sequence.

    Args:
        bags: vectors of each token, (n, T, dim).
        chosen: place of the chosen token in each sequence.
        size: number of tokens and axes to pad to, so that problems share a program.

    Returns:
        p, its norm and a `Reason`.
    """
    number, length, _ = bags.shape
    tokens = bags.reshape(number * length, -1).astype(float)
    # In axes of their span, of which there are no more than tokens.
    axes, inside = np.linalg.qr(tokens.T)
    places = np.arange(number) * length + chosen
    pairs = np.zeros((len(tokens), len(tokens)), bool)
    for sequence, place in enumerate(places):
        pairs[place, sequence * length : (sequence + 1) * length] = True
    pairs[places, places] = False
    room = max(size - len(tokens), 0)
    wide = max(size, len(inside)) - len(inside)
    padded = np.pad(inside.T, ((0, room), (0, wide)))
    found = SOLVE(padded, np.pad(pairs, (0, room)))
    direction = axes @ np.asarray(found.direction)[: len(inside)]
    return direction, float(found.norm), Reason(found.status.item())


ALONE = np.array([[[-0.1, 1.0], [1.0, 0.0], [0.0, 0.0]]])
TOGETHER = np.array(
    [[[0.0, 0.0], [1.0, 1.0]], [[0.0, 0.0], [1.0, -1.0]], [[0.0, 0.0], [0.5, 1.0]]]
)


def several_inputs() -> np.ndarray:
    """Their three sequences of seven tokens in three dimensions, from seed 0."""
    bags = 0.2 * torch_normals(0)(3, 7, 3).astype(float)
    bags[:, 0, 0] += 1
    bags[:, 1:4] += [-1, 1, 0]
    bags[:, 4:] += [-0.5, -0.5, 0]
    bags[..., 2] = 0.5
    bags[:, 0, 2] = 1
    return bags


def margins() -> list[Row]:
    """½‖p‖² of the programs whose logs are in their notebooks."""
    several, place = several_inputs(), "single_input_converge.ipynb"
    problems = {
        "first of three tokens": (ALONE, [0], 0.49505, place),
        "second of three tokens": (ALONE, [1], 0.5, place),
        "three pairs": (TOGETHER, [1, 1, 1], 0.94444, "joint_training.ipynb"),
        "two pairs": (TOGETHER[:2], [1, 1], 0.5, "joint_training.ipynb"),
        "several inputs": (several, [0] * 3, 0.31319, "multi_input_converge.ipynb"),
    }
    reasons = {
        "two pairs": " They ask ≥ 0 of the third pair; the p found has 0.5 there.",
        "several inputs": " In three axes, of which their training moves two.",
    }
    rows = []
    for name, (bags, chosen, theirs, file) in problems.items():
        _, length, _ = separate(bags, np.array(chosen), size=25)
        rows.append(
            Row(
                f"½‖p_mm‖², {name}",
                theirs,
                0.5 * length**2,
                LOGGED,
                f"{SELECTION}/{file}",
                "Five digits of the log of cvxopt." + reasons.get(name, ""),
            )
        )
    return rows


def one_query() -> list[Row]:
    """Their normalised descent of p on several inputs, beside the flow."""
    bags = several_inputs()
    keys, values = bags[..., :2].reshape(-1, 2), bags[..., 2].ravel()
    # Values that no score sees: an axis of E too short to move p.
    short = 2.0**-30
    model = Parameters(
        jnp.column_stack([keys, short * values]),
        jnp.zeros(3),
        jnp.array([0.0, 0.0, 1 / short]),
    )
    corpus = from_sequences(
        np.arange(21).reshape(3, 7).tolist(), [1] * 3, vocabulary=21
    )

    def risk(query: jax.Array) -> jax.Array:
        weights = jax.nn.softmax(bags[..., :2] @ query, axis=1)
        outputs = jnp.sum(weights * bags[..., 2], axis=1)
        return jnp.mean(jax.nn.softplus(-outputs))

    steps = partial(normalised, risk, steps=1000, step=0.1, beside=1e-12)
    descended = jax.jit(steps)(jnp.zeros(2))
    size = float(jnp.linalg.norm(descended))
    problem = attention(model, corpus)
    flow = jax.jit(cls_flow)(problem, until_norm=size)
    # Far beyond their last step, where the limit is certified.
    far = jax.jit(cls_flow)(problem, until_norm=1e4)
    found = jax.jit(certify)(problem, far)
    status = TrialStatus(found.status.item()).name
    limit = found.ending.margin.direction
    late = np.rad2deg(float(found.ending.late.error_constant) / size)
    return [
        Row(
            "angle of p to p_mm in degrees, several inputs",
            angle(descended, limit[:2]),
            angle(flow.query, limit),
            0.02,
            f"{SELECTION}/multi_input_converge.ipynb",
            "Their recurrence, 1,000 normalised steps of 0.1 from 0, run here; their "
            f"10⁻¹² beside ‖∇L‖ all but stops it at ‖p‖ = {num(size)}. Steps are "
            f"{num(angle(descended, flow.query[:2]))}° off the flow, whose limit is "
            f"{status}. It is not late there: the constant over ‖p‖ is {num(late)}°.",
        )
    ]


def normalised(
    risk: Callable, start: jax.Array, *, steps: int, step: float, beside: float = 0.0
) -> jax.Array:
    """Point after a number of steps `step` ∇L/(‖∇L‖ + `beside`) down a risk."""

    def once(_: int, point: jax.Array) -> jax.Array:
        slope = jax.grad(risk)(point)
        return point - step * slope / (jnp.linalg.norm(slope) + beside)

    return jax.lax.fori_loop(0, steps, once, start)


def angle(one: jax.Array, other: jax.Array) -> float:
    """Between two vectors, in degrees."""
    return float(2 * jnp.rad2deg(jnp.arcsin(direction_error(one, other) / 2)))


def query_and_head() -> list[Row]:
    """Where p and v turn to when both are trained, on their three pairs."""
    tokens = jnp.array([[0.0, 0.0], [1.0, 1.0], [1.0, -1.0], [0.5, 1.0]])
    corpus = from_sequences([[0, 1], [0, 2], [0, 3]], [1, -1, 1], vocabulary=4)
    start = Parameters(tokens, jnp.array([0.0, -1.0]), jnp.array([-1.0, 0.0]))
    flow = jax.jit(joint_flow)(
        start, corpus, rates=LearningRates(embeddings=0.0), until_log_time=LATE
    )
    slow = (
        "The line that they draw. Directions err by a constant over the norm: at "
        f"log t = {num(LATE)} ‖p‖ is {num(float(jnp.linalg.norm(flow.query)))}, "
        f"‖v‖ {num(float(jnp.linalg.norm(flow.head)))}."
    )
    source = f"{SELECTION}/joint_training.ipynb"
    wanted = {"p": (flow.query, (4.0, 1.0)), "v": (flow.head, (0.0, 1.0))}
    return [
        Row(
            f"direction of {name}, p and v trained: angle in degrees",
            float(np.rad2deg(np.arctan2(line[1], line[0]))),
            float(np.rad2deg(np.arctan2(found[1], found[0]))),
            90 / float(jnp.linalg.norm(found)),
            source,
            slow,
        )
        for name, (found, line) in wanted.items()
    ]


def next_tokens() -> list[Row]:
    """Norms of their W_svm, and its correlations with their normalised descent of W."""
    rows = []
    for number, sample in enumerate(json.loads(SAMPLES.read_text())["samples"]):
        contexts, targets = np.array(sample["contexts"]), np.array(sample["targets"])
        keys = np.array(sample["embeddings"])[contexts]
        hit = contexts == targets[:, None]
        # As `next_token`, but of a shape that all samples share, and so their programs.
        problem = key_query(
            keys, keys[:, -1], 1.0 * hit, np.ones(len(hit)), loss=NEXT_TOKEN
        )
        found = solve(problem)
        matrix = np.asarray(found.direction)
        norm = float(np.linalg.norm(matrix))
        descended = np.asarray(descend(keys, hit, np.array(sample["start"])))
        correlation = np.sum(matrix * descended) / norm / np.linalg.norm(descended)
        status = "" if found.status in CERTIFIED else " Ours is not certified."
        rows += [
            Row(
                f"‖W_svm‖, next tokens, sample {number}",
                sample["printed_norm"],
                norm,
                LOGGED,
                NEXT,
                f"A solver to six digits.{status}",
            ),
            Row(
                f"correlation of W with W_svm, next tokens, sample {number}",
                sample["printed_correlation"],
                float(correlation),
                BOUNCE,
                NEXT,
                "Their recurrence in single precision, 4,000 normalised steps of 0.01, "
                "run here in double: steps of one length bounce.",
            ),
        ]
    return rows


@jax.jit
def descend(keys: jax.Array, hit: jax.Array, start: jax.Array) -> jax.Array:
    """Their W of next tokens after 4,000 steps."""

    def risk(matrix: jax.Array) -> jax.Array:
        scores = jnp.einsum("itd,de,ie->it", keys, matrix, keys[:, -1])
        hits = jnp.sum(jax.nn.softmax(scores, axis=1) * hit, axis=1)
        return -jnp.mean(jnp.log(hits))

    return normalised(risk, start, steps=4000, step=0.01)


def polarises(iterations: int) -> list[Row]:
    """Their toy: L = log(1 + e^{−uᵀσ(a)}), a and u trained in steps of 0.1."""
    size, step = 8, 0.1
    draws = np.random.RandomState(123)
    matrix = 0.1 * draws.randn(size, size)
    draws.randn(size)
    target = draws.randn(size)
    values = jnp.asarray(matrix.T @ (target / np.linalg.norm(target)))

    marks = np.unique(np.geomspace(1, iterations, 25).astype(int))
    reached = jax.jit(descent)(values, step, jnp.asarray(marks))

    # E = I: the scores are p, the values v.
    start = Parameters(jnp.eye(size), jnp.zeros(size), values)
    corpus = from_sequences([list(range(size))], [1], vocabulary=size)
    times = jnp.log1p(step * jnp.asarray(marks, float))
    flow = jax.jit(joint_flow)(
        start,
        corpus,
        rates=LearningRates(embeddings=0.0),
        until_log_time=times[-1],
        path_log_times=times,
    )
    followed = flow.path_query, flow.path_head
    reason = f"Their recurrence, {iterations:,} steps of {step}, run here. "
    measures: dict[str, Callable] = {
        "loss at the end": lambda scores, values: loss(scores, values)[-1],
        "weight off its token at the end": lambda scores, _: off(scores)[-1],
        "largest score at the end": lambda scores, _: scores[-1].max(),
        "largest value at the end": lambda _, values: values[-1].max(),
    }
    rows = []
    for name, measure in measures.items():
        theirs, ours = float(measure(*reached)), float(measure(*followed))
        rows.append(Row(name, theirs, ours, DESCENT * theirs, POLARISES, reason))
    way = max(
        float(jnp.max(jnp.abs(one - other)))
        for one, other in zip(reached, followed, strict=True)
    )
    rows.append(
        Row(
            "largest difference of a and u along the path",
            0.0,
            way,
            DESCENT,
            POLARISES,
            reason,
        )
    )
    return rows


def descent(values: jax.Array, step: float, marks: jax.Array) -> tuple:
    """(a, u) after each number of steps."""

    def risk(state: tuple) -> jax.Array:
        scores, values = state
        return jax.nn.softplus(-jax.nn.softmax(scores) @ values)

    def once(_: int, state: tuple) -> tuple:
        slope = jax.grad(risk)(state)
        return jax.tree.map(lambda x, g: x - step * g, state, slope)

    def until(state: tuple, ends: jax.Array) -> tuple:
        state = jax.lax.fori_loop(ends[0], ends[1], once, state)
        return state, state

    ends = jnp.stack([jnp.roll(marks, 1).at[0].set(0), marks], axis=1)
    return jax.lax.scan(until, (jnp.zeros_like(values), values), ends)[1]


def loss(scores: jax.Array, values: jax.Array) -> jax.Array:
    """Logistic loss of each row."""
    return jax.nn.softplus(-jnp.sum(jax.nn.softmax(scores) * values, axis=-1))


def off(scores: jax.Array) -> jax.Array:
    """Weight off the token of largest score."""
    return 1 - jax.nn.softmax(scores).max(axis=-1)


class RankPoint(NamedTuple):
    """A point of the rank curve, over their draws.

    Attributes:
        feasible: number of draws with a solution.
        counted: mean rank with 1 for a draw without one.
        rank: mean rank of those with one; NaN where there is none.
        contradicted: draws of which HiGHS says otherwise.
    """

    feasible: int
    counted: float
    rank: float
    contradicted: int


def rank_point(sequences: int, dim: int) -> RankPoint:
    """Rank of the W of least Frobenius norm that separates each best token.

    (x_s − x_r)ᵀ W z ≥ 1 is a margin of ⟨W, x zᵀ⟩: tokens are the products x zᵀ.
    """
    ranks, contradicted = np.zeros(DRAWS), 0
    for seed in range(DRAWS):
        products, best = rank_draw(seed, sequences, dim)
        found, _, status = separate(products, best, size=sequences * LENGTH)
        if status == Reason.NONE:
            matrix = found.reshape(dim, dim)
            ranks[seed] = np.linalg.matrix_rank(matrix, tol=RANK_TOLERANCE)
        contradicted += feasible(products, best) != (status == Reason.NONE)
    solved = ranks > 0
    return RankPoint(
        int(solved.sum()),
        float(np.where(solved, ranks, 1).mean()),
        float(ranks[solved].mean()) if solved.any() else np.nan,
        contradicted,
    )


def rank_draw(seed: int, sequences: int, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Products x zᵀ of a draw of theirs, and the best token of each sequence."""
    normal = torch_normals(seed)

    def unit(*shape: int) -> np.ndarray:
        drawn = normal(*shape)
        return drawn / np.linalg.norm(drawn, axis=-1, keepdims=True)

    head = unit(dim)
    labels = np.where(normal(sequences) > 0, 1, -1)
    tokens, queries = unit(sequences, LENGTH, dim), unit(sequences, dim)
    best = np.argmax(labels[:, None] * (tokens @ head), axis=1)
    products = tokens[..., None].astype(float) * queries[:, None, None]
    return products.reshape(sequences, LENGTH, -1), best


def feasible(products: np.ndarray, best: np.ndarray) -> bool:
    """Whether HiGHS finds a W with every margin ≥ 1."""
    chosen = np.take_along_axis(products, best[:, None, None], axis=1)
    losers = np.arange(products.shape[1]) != best[:, None]
    behind = (products - chosen)[losers]
    found = linprog(
        np.zeros(behind.shape[1]),
        A_ub=behind,
        b_ub=-np.ones(len(behind)),
        bounds=(None, None),
        method="highs",
    )
    return found.status == 0


def rank_rows(settings: Settings, arrays: dict[str, np.ndarray]) -> list[Row]:
    """Rows of the rank curve: as published, and of draws with a solution."""
    contradicted = float(arrays["contradicted"].sum())
    draws, why = DRAWS * arrays["rank"].size, "A linear program of each draw."
    name = f"of {draws:,} draws, those of which HiGHS says otherwise"
    rows = [Row(name, 0.0, contradicted, 0.0, RANKS, why)]
    for i, sequences in enumerate(settings.sequences):
        for j, dim in enumerate(settings.dims):
            if sequences not in CURVE or dim not in DIMS:
                continue
            theirs = CURVE[sequences][DIMS.index(dim)]
            counted, rank = arrays["counted"][i, j], arrays["rank"][i, j]
            solved, place = arrays["feasible"][i, j], f"n = {sequences}, d = {dim}"
            read = "Read off the figure; draws without a solution count as rank 1."
            name = f"mean rank as published, {place}"
            rows.append(Row(name, theirs, counted, READING, RANKS, read))
            if solved < DRAWS:
                why = (
                    f"{DRAWS - solved} of {DRAWS} draws have no solution: the solver "
                    "returns None, whose rank NumPy gives as 1."
                )
                name = f"mean rank where there is a solution, {place}"
                rows.append(Row(name, theirs, float(rank), None, RANKS, why))
    return rows


def torch_normals(seed: int) -> Callable[..., np.ndarray]:
    """Standard normal numbers as PyTorch draws them on a CPU from a seed.

    Words of a Mersenne twister by Box and Muller's method: in double precision, pair
    by pair, for arrays of less than 16 entries; else in single precision, in blocks of
    8 radii and 8 angles, the last block drawn anew where it is not full.

    Example:
        >>> torch_normals(0)(3).astype(float).round(4).tolist()
        [1.541, -0.2934, -2.1788]
    """
    words = np.random.RandomState(seed)
    kept: list[float] = []

    def drawn(number: int) -> np.ndarray:
        return words.randint(0, 2**32, size=number, dtype=np.uint32)

    def single() -> float:
        if kept:
            return kept.pop()
        pairs = drawn(4).astype(object).reshape(2, 2) @ [2**32, 1]
        turn, rest = ((int(pair) % 2**53) / 2**53 for pair in pairs)
        radius = np.sqrt(-2 * np.log1p(-rest))
        kept.append(radius * np.sin(2 * np.pi * turn))
        return radius * np.cos(2 * np.pi * turn)

    def uniform(number: int) -> np.ndarray:
        return (drawn(number) % 2**24).astype(np.float32) / np.float32(2**24)

    def blocks(uniform: np.ndarray) -> np.ndarray:
        rest, turn = uniform.reshape(-1, 2, 8).swapaxes(0, 1)
        radius, turn = np.sqrt(-2 * np.log(1 - rest)), np.float32(2 * np.pi) * turn
        return np.stack([radius * np.cos(turn), radius * np.sin(turn)], axis=1).ravel()

    def normal(*shape: int) -> np.ndarray:
        number = int(np.prod(shape))
        if number < 16:
            return np.array([single() for _ in range(number)], np.float32).reshape(
                shape
            )
        first, whole = uniform(number), number // 16 * 16
        found = np.concatenate([blocks(first[:whole]), first[whole:]])
        if number > whole:
            found[-16:] = blocks(uniform(16))
        return found.reshape(shape)

    return normal


def draw(finished: Finished) -> Figure:
    """Mean rank over d: read, counted like theirs, and where there is a solution."""
    found = finished.arrays
    figure, axes = subplots(1, 2, figsize=(9, 3.8), sharey=True)
    for row, sequences in enumerate(found["sequences"].tolist()):
        look = {"color": f"C{row}", "label": f"n = {sequences}"}
        axes[0].plot(found["dims"], found["counted"][row], "o-", **look)
        if sequences in CURVE:
            axes[0].plot(DIMS, CURVE[sequences], "k+")
        axes[1].plot(found["dims"], found["rank"][row], "o-", **look)
    axes[0].set(title="draws without a solution as rank 1\n(+: read off their figure)")
    axes[1].set(title="draws with a solution")
    for panel in axes:
        panel.set(xlabel="d", ylabel="mean rank of W", xticks=found["dims"])
        panel.legend()
    return figure


FULL = 0.95
"""Least mean rank of draws with a solution, over min(n, d)."""


def come_out(found: Finished) -> Measured:
    """Every number that is comparable agrees within the error of theirs."""
    # What is not comparable is NaN on disk.
    rows = [row for row in found.results["rows"] if not math.isnan(row["within"])]
    hits = sum(row["agrees"] for row in rows)
    return Measured(
        of_cases(hits, len(rows)),
        f"{hits} of {len(rows)} within the last digit printed or read",
        f"{len(rows)} numbers",
        f"{1 - hits / len(rows):.0%}",
        "their logs, their figure, their recurrences",
    )


def full_rank(found: Finished) -> Measured:
    """Where there is a solution its rank is min(n, d)."""
    arrays = found.arrays
    most = np.minimum(arrays["sequences"][:, None], arrays["dims"])
    share = (arrays["rank"] / most)[arrays["feasible"] > 0]
    hits = int((share >= FULL).sum())
    contradicted = int(arrays["contradicted"].sum())
    return Measured(
        of_cases(0 if contradicted else hits, share.size),
        f"mean rank over min(n, d) at least {num(share.min())}; HiGHS contradicts the "
        f"status of {contradicted} draws",
        f"{share.size} points of the curve",
        f"{1 - hits / share.size:.0%}",
        "duality gap, or Farkas' certificate, of each draw",
    )


CLAIMS = (
    Claim("Numbers that others published for these problems come out.", come_out),
    Claim(
        "W_mm has rank min(n, d): the lower ranks of the published curve are draws "
        "without a solution.",
        full_rank,
    ),
)


def show(found: Finished) -> Shown:
    """All rows."""
    head = ("quantity", "theirs", "ours", "difference", "reason", "source")
    rows = [
        (
            row["quantity"],
            num(row["theirs"], 6),
            num(row["ours"], 6),
            num(row["difference"]),
            row["reason"],
            row["source"],
        )
        for row in found.results["rows"]
    ]
    return Shown(
        [
            "Published numbers of neighbouring work beside ours. The paper's own are "
            "with its items.",
            "No corner of this model: single-location regression (squared loss, no "
            "softmax), margins in other norms (mirror descent). Of benign overfitting "
            "of one head the flow is one, the statement on fresh samples is not.",
        ],
        [head, *rows],
    )


main = Experiment(
    run, draw=draw, claims=CLAIMS, show=show, title="Beside what others published"
)


if __name__ == "__main__":
    command(main, PRESETS)
