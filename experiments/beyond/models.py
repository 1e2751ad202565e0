"""One theorem for four kinds of attention, beside SciPy and what is published of each.

The scores of `attention`, `cross_attention`, `key_query` and `next_token` are linear in
what is trained. Small random problems of each are carried to their certified end by
`solve`. SciPy judges: Radau's implicit method follows the flow of the model as it is
defined, and non-negative least squares find the shortest vector that separates what it
selects. The same numbers are compared with three papers (mathematics, section 8):

* D. Ataee Tarzanagh and others, arXiv 2306.13596 and 2308.16898: the direction of a
  key-query matrix W tends to that of W_mm, and W before one query z is p zᵀ/‖z‖².
* Y. Li and others, arXiv 2403.08081: W of next tokens is a finite part, within the
  strongly connected components of the tokens, and a max-margin direction across them.
* B. Vasudeva, P. Deora and C. Thrampoulidis, arXiv 2402.05738: normalised descent
  turns to W_mm faster than descent with a constant step.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from scipy.integrate import solve_ivp
from scipy.linalg import null_space
from scipy.optimize import minimize, nnls
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.special import logsumexp, softmax

from experiments.common.claims import Claim, Measured, Shown, Verdict, of_cases
from experiments.common.console import command, say
from experiments.common.numbers import in_words, num
from experiments.common.palette import SERIES, STATUS
from experiments.common.progress import progress_bar
from experiments.common.results import Finished
from experiments.common.statistics import largest
from experiments.common.study import (
    Bound,
    Count,
    Experiment,
    Positive,
    Study,
    presets,
)
from experiments.common.style import subplots
from jaxselect.checks import BadInput
from jaxselect.data.corpus import from_sequences
from jaxselect.margin.certificate import CERTIFIED
from jaxselect.model.parameters import Parameters
from jaxselect.problem import (
    Problem,
    attention,
    cross_attention,
    key_query,
    next_token,
)
from jaxselect.stages import Solved, solve


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Study):
    """Settings of the study.

    Attributes:
        problems: random problems of each kind.
        checked: how many of them SciPy follows.
        steps: of normalised descent.
        step: length of each.
    """

    problems: Count = 32
    checked: Count = 8
    steps: Annotated[int, Bound(64, 10**9, "64 or more")] = 32_768
    step: Positive = 0.02
    out: Path = Path("results/models")

    def check(self) -> None:
        """Refuse more checks than problems."""
        if self.checked > self.problems:
            raise BadInput(
                f"--checked {self.checked}: wanted at most --problems {self.problems}"
            )


PRESETS = presets(full=Settings(), smoke=Settings(problems=3, checked=1, steps=8192))

SEQUENCES, LENGTH, DIM, OTHER = 6, 4, 8, 3
"""Of the first three kinds; W has the shape (DIM, OTHER)."""
VOCABULARY = 10
TOKENS, LAST, CONTEXTS = 6, 2, 4
"""Of next tokens; LAST different last tokens, with CONTEXTS sequences each."""
NORM = 1e4
"""Norm of what is trained at which a flow ends."""
SETTLED, TIED = 100.0, 10.0
"""Log-times at which SciPy reads a selection; the forces of ties are rounding later."""
KEPT = 0.02
"""Least weight, at that time, of what a sequence keeps."""
LATE = np.geomspace(1.0, 1e3, 40)
"""Log-times at which SciPy reads the direction of W."""


class Drawn(NamedTuple):
    """A problem, and the arrays of its definition, which SciPy works with.

    Attributes:
        problem: what `solve` is given.
        keys: of every position; its score is their product with θ.
        values: of every position.
        labels: ±1.
        start: θ_0.
        log_slope: log(−ℓ′) of the margin.
    """

    problem: Problem
    keys: np.ndarray
    values: np.ndarray
    labels: np.ndarray
    start: np.ndarray
    log_slope: Callable[[np.ndarray], np.ndarray]


def logistic(margin: np.ndarray) -> np.ndarray:
    """Compute log(−ℓ′) of the logistic loss."""
    return -np.logaddexp(0.0, margin)


def tokens(rng: np.random.Generator) -> Drawn:
    """Draw the paper's model: E, p_0 and v Gaussian, sequences of different tokens."""
    rows = rng.normal(size=(VOCABULARY, DIM))
    query, head = rng.normal(size=(2, DIM))
    bags = [np.sort(rng.permutation(VOCABULARY)[:LENGTH]) for _ in range(SEQUENCES)]
    labels = rng.choice([-1, 1], SEQUENCES)
    corpus = from_sequences(bags, labels, vocabulary=VOCABULARY)
    start = Parameters(*map(jnp.asarray, (rows, query, head)))
    problem = attention(start, corpus)
    return Drawn(problem, rows[bags], (rows @ head)[bags], labels, query, logistic)


def features(rng: np.random.Generator) -> Drawn:
    """Draw features, values and labels for one query p."""
    keys = rng.normal(size=(SEQUENCES, LENGTH, DIM))
    values = rng.normal(size=(SEQUENCES, LENGTH))
    labels = rng.choice([-1, 1], SEQUENCES)
    problem = cross_attention(keys, values, labels)
    return Drawn(problem, keys, values, labels, np.zeros(DIM), logistic)


def queries(rng: np.random.Generator) -> Drawn:
    """Draw the same, with a query z_i of each sequence, for a matrix W."""
    _, rows, values, labels, *_ = features(rng)
    return before(rows, rng.normal(size=(SEQUENCES, OTHER)), values, labels)


def before(
    rows: np.ndarray, query: np.ndarray, values: np.ndarray, labels: np.ndarray
) -> Drawn:
    """Make the problem of W from features and queries."""
    keys = np.einsum("itd,ie->itde", rows, query).reshape(SEQUENCES, LENGTH, -1)
    problem = key_query(rows, query, values, labels)
    return Drawn(problem, keys, values, labels, np.zeros(DIM * OTHER), logistic)


class Sentences(NamedTuple):
    """Contexts and what follows them.

    Attributes:
        contexts: token ids; the last of each asks.
        targets: the next token.
        rows: E.
    """

    contexts: np.ndarray
    targets: np.ndarray
    rows: np.ndarray


def sentences(rng: np.random.Generator) -> Sentences:
    """Draw contexts in which each last token meets all others, and their targets."""
    rows, contexts = rng.normal(size=(TOKENS, DIM)), []
    for last in rng.permutation(TOKENS)[:LAST]:
        others = np.delete(np.arange(TOKENS), last)
        found = np.array([])
        while len(np.unique(found)) < len(others):
            found = np.array([rng.permutation(others)[:3] for _ in range(CONTEXTS)])
        contexts += [[*some, last] for some in found.tolist()]
    return Sentences(
        np.array(contexts), np.array([rng.choice(some) for some in contexts]), rows
    )


def following(rng: np.random.Generator) -> Drawn:
    """Draw the problem of next tokens."""
    contexts, targets, rows = sentences(rng)
    bags = np.sort(contexts, axis=1)
    keys = np.einsum("itd,ie->itde", rows[bags], rows[contexts[:, -1]])
    return Drawn(
        next_token(contexts.tolist(), targets, rows),
        keys.reshape(*bags.shape, -1),
        (bags == targets[:, None]).astype(float),
        np.ones(len(bags), int),
        np.zeros(DIM * DIM),
        lambda margin: -np.log(margin),
    )


MODELS: dict[str, Callable[[np.random.Generator], Drawn]] = {
    "attention": tokens,
    "cross_attention": features,
    "key_query": queries,
    "next_token": following,
}
"""How a problem of each kind is drawn, by the name of its constructor."""


def field(log_time: float, theta: np.ndarray, drawn: Drawn) -> np.ndarray:
    """Compute −∇L times e^τ; the force of the top position is that of the others."""
    scores = drawn.keys @ theta
    place, top = np.arange(len(scores)), scores.argmax(axis=1)
    logs = scores - scores.max(axis=1, keepdims=True)
    logs -= np.log(np.exp(logs).sum(axis=1, keepdims=True))
    best = drawn.values[place, top][:, None]
    ahead = drawn.values - best
    mean = np.sum(np.exp(logs) * ahead, axis=1, keepdims=True)
    slope = drawn.log_slope(drawn.labels * (best + mean)[:, 0])
    exponent = np.minimum(slope[:, None] + logs + log_time, 300.0)
    forces = drawn.labels[:, None] * np.exp(exponent) * (ahead - mean) / len(scores)
    forces[place, top] = 0.0
    forces[place, top] = -forces.sum(axis=1)
    return np.einsum("it,itd->d", forces, drawn.keys)


def followed(drawn: Drawn, log_times: np.ndarray) -> np.ndarray:
    """Follow θ by Radau's implicit method; one row per log-time."""
    found = solve_ivp(
        field,
        (0.0, log_times[-1]),
        drawn.start,
        "Radau",
        log_times,
        args=(drawn,),
        rtol=1e-8,
        atol=1e-8,
    )
    assert found.success
    return found.y.T


def shortest(ahead: np.ndarray, equal: np.ndarray) -> np.ndarray:
    """Find argmin ‖θ‖ with D θ ≥ 1 and D′ θ = 0, by non-negative least squares.

    Source: Lawson and Hanson, Solving Least Squares Problems, 1974, chapter 23.

    Args:
        ahead: D.
        equal: D′.
    """
    axes = null_space(equal) if len(equal) else np.eye(ahead.shape[1])
    rows = ahead @ axes
    table = np.vstack([rows.T, np.ones(len(rows))])
    aim = np.append(np.zeros(len(axes.T)), 1.0)
    rest = aim - table @ nnls(table, aim)[0]
    return -axes @ rest[:-1] / rest[-1]


def separated(keys: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """Find the shortest θ that has what each sequence keeps lead, and else ties it."""
    ahead, equal = [], []
    for rows, chosen in zip(keys, kept, strict=True):
        one, *others = rows[chosen]
        equal += [one - other for other in others]
        ahead += [one - other for other in rows[~chosen]]
    return shortest(np.array(ahead), np.array(equal))


def decomposed(drawn: Drawn, given: Sentences) -> tuple[np.ndarray, np.ndarray]:
    """Predict weights and direction of next tokens from the contexts alone.

    A target beats the rest of its context. Tokens that beat each other, for one last
    token, form a component; within it the loss is that of a choice among those of the
    component that a context offers, and its minimum gives their odds: the frequencies
    of the targets where all contexts offer the same.

    Returns:
        The weights of every position at the end, and W_mm.
    """
    contexts, targets, _ = given
    last, bags = contexts[:, -1], np.sort(contexts, axis=1)
    weights, kept = np.zeros(bags.shape), np.zeros(bags.shape, bool)
    for asks in np.unique(last):
        mine = np.flatnonzero(last == asks)
        beats = np.repeat(targets[mine], bags.shape[1]), bags[mine].ravel()
        graph = coo_array((np.ones(len(beats[0])), beats), (TOKENS, TOKENS))
        part = connected_components(graph, connection="strong")[1]
        offered = part[bags[mine]] == part[targets[mine]][:, None]

        def loss(odds: np.ndarray, mine: Any, offered: Any) -> tuple[float, np.ndarray]:
            scores = np.where(offered, odds[bags[mine]], -np.inf)
            value = np.sum(logsumexp(scores, axis=1) - odds[targets[mine]])
            slope = np.bincount(
                bags[mine].ravel(), softmax(scores, axis=1).ravel(), TOKENS
            )
            return value, slope - np.bincount(targets[mine], minlength=TOKENS)

        exact = {"gtol": 1e-10}
        odds = minimize(
            loss, np.zeros(TOKENS), (mine, offered), "BFGS", jac=True, options=exact
        ).x
        weights[mine] = softmax(np.where(offered, odds[bags[mine]], -np.inf), axis=1)
        kept[mine] = offered
    return weights, separated(drawn.keys, kept)


def normalised(settings: Settings, drawn: Drawn) -> tuple[np.ndarray, np.ndarray]:
    """Descend by steps of one length; a few numbers of steps, and θ at each."""
    marks = np.unique(np.geomspace(16, settings.steps, 24).astype(int))
    theta, log_time, found = drawn.start, 0.0, []
    for number in range(1, settings.steps + 1):
        force = field(log_time, theta, drawn)
        length = np.linalg.norm(force)
        theta = theta + settings.step * force / length
        # The flow takes a time of step/‖∇L‖ for it.
        log_time += np.log1p(settings.step / length)
        if number in marks:
            found.append(theta)
    return marks, np.array(found)


def unit(vectors: np.ndarray) -> np.ndarray:
    """Divide vectors by their lengths."""
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def off(found: Any, wanted: Any) -> float:
    """Compute the relative distance of two arrays."""
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))


def run(settings: Settings, results: dict) -> dict[str, np.ndarray]:
    """Solve every problem, and compare the ends with SciPy and the papers."""
    rows: list[dict[str, Any]] = []
    results["rows"] = rows
    arrays: dict[str, list] = {
        name: []
        for name in ("norms", "errors", "steps", "descent", "predicted", "certified")
    }
    matrices, one_query, next_tokens = [], [], []
    with progress_bar("kinds of attention", len(MODELS) * settings.problems) as advance:
        for name, draw in MODELS.items():
            statuses: Counter[str] = Counter()
            directions = []
            for number in range(settings.problems):
                seed = [settings.seed, number]
                drawn = draw(np.random.default_rng(seed))
                found = solve(drawn.problem, until_norm=NORM)
                statuses[found.status.name] += 1  # type: ignore[union-attr]
                advance(1)
                if found.status not in CERTIFIED:
                    continue
                if name == "next_token":
                    given = sentences(np.random.default_rng(seed))
                    next_tokens.append(beside_graph(drawn, given, found, arrays))
                if number >= settings.checked:
                    continue
                tied = (np.asarray(found.selected_mask).sum(axis=1) > 1).any()
                theta = followed(drawn, np.array([TIED if tied else SETTLED]))[-1]
                judged = softmax(drawn.keys @ theta, axis=1)
                wanted = separated(drawn.keys, judged > KEPT)
                directions.append(off(np.ravel(found.direction), wanted))
                if name == "key_query":
                    matrices.append(turned(settings, drawn, found, wanted, arrays))
                if name == "cross_attention":
                    one_query.append(before_one_query(drawn, found, seed))
            rows.append(
                {
                    "model": name,
                    "statuses": dict(statuses),
                    "directions": directions,
                }
            )
            say(f"{name}: {in_words(statuses)}")
    results |= {
        "matrices": matrices,
        "one_query": one_query,
        "next_tokens": next_tokens,
    }
    return {name: np.array(values) for name, values in arrays.items()}


def turned(
    settings: Settings,
    drawn: Drawn,
    found: Solved,
    wanted: np.ndarray,
    arrays: dict[str, list],
) -> dict[str, float]:
    """Measure how the direction of W turns to W_mm, by flow and by normalised steps.

    Returns:
        The error of the direction times ‖W‖ over the predicted constant, at the end of
        both; its exponents in ‖W‖, and in the number of steps.
    """
    constant = float(found.limit.error_constant)
    path = followed(drawn, LATE)
    marks, points = normalised(settings, drawn)
    ends = {}
    for name, across, thetas in (
        ("flow", np.linalg.norm(path, axis=1), path),
        ("descent", marks, points),
    ):
        errors = np.linalg.norm(unit(thetas) - unit(wanted), axis=1)
        norms = np.linalg.norm(thetas, axis=1)
        late = across > across[-1] / 8
        slope = np.polyfit(np.log(across[late]), np.log(errors[late]), 1)[0]
        ends[name] = float(errors[-1] * norms[-1] / constant)
        ends[f"{name}_exponent"] = float(slope)
        arrays["norms" if name == "flow" else "steps"].append(norms)
        arrays["errors" if name == "flow" else "descent"].append(errors / constant)
    return ends


def before_one_query(drawn: Drawn, found: Solved, seed: list[int]) -> float:
    """Compare W before one query z for all sequences with p zᵀ/‖z‖², at one norm."""
    query = np.random.default_rng([*seed, 1]).normal(size=OTHER)
    length = float(np.linalg.norm(query))
    same = np.tile(query, (SEQUENCES, 1))
    matrix = before(drawn.keys, same, drawn.values, drawn.labels)
    ended = solve(matrix.problem, until_norm=NORM / length)
    return off(ended.trained, np.outer(found.trained, query) / length**2)


def beside_graph(
    drawn: Drawn, given: Sentences, found: Solved, arrays: dict[str, list]
) -> dict[str, float]:
    """Compare weights and direction of next tokens with those of the graph."""
    wanted, direction = decomposed(drawn, given)
    weights = np.asarray(found.weights())
    several = (wanted > 0) & (wanted < 1 - ODDS)
    arrays["predicted"] += wanted[several].tolist()
    arrays["certified"] += weights[several].tolist()
    return {
        "weights": float(np.abs(weights - wanted).max()),
        "direction": off(np.ravel(found.direction), direction),
        "tied": int(several.any()),
    }


def statuses_of(rows: list[dict[str, Any]]) -> list[str]:
    """List the statuses of all problems, in the order of the palette."""
    return [name for name in STATUS if any(name in row["statuses"] for row in rows)]


def draw(finished: Finished) -> Figure:
    """How problems of each kind end; odds of next tokens; how W turns to W_mm."""
    figure, axes = subplots(1, 3, figsize=(12, 3.8))
    found, rows = finished.arrays, finished.results["rows"]
    seen = statuses_of(rows)
    left = np.zeros(len(rows))
    for name in seen:
        count = np.array([row["statuses"].get(name, 0) for row in rows])
        share = count / [sum(row["statuses"].values()) for row in rows]
        look = STATUS[name]
        axes[0].barh(
            range(len(rows)), share, left=left, color=look.colour, label=look.words
        )
        left += share
    names = [row["model"].replace("_", "\n") for row in rows]
    axes[0].set_yticks(range(len(rows)), names)
    axes[0].invert_yaxis()
    axes[0].set(xlabel="share of random problems", title="how random problems end")
    axes[0].legend(loc="upper center", bbox_to_anchor=(0.4, -0.2), ncols=2)
    axes[1].plot([0, 1], [0, 1], "k--")
    axes[1].plot(found["predicted"], found["certified"], ".", color=SERIES[0])
    axes[1].set(
        xlabel="predicted from frequencies",
        ylabel="certified",
        title="next token: weights of tied tokens",
    )
    for name, norms, mark, label in (
        ("errors", "norms", "-", "flow, by SciPy"),
        ("descent", "steps", ".", "normalised descent"),
    ):
        for row, (across, upward) in enumerate(
            zip(found[norms], found[name], strict=True)
        ):
            axes[2].loglog(
                across,
                upward,
                mark,
                color=SERIES[name == "descent"],
                alpha=0.6,
                label=label if row == 0 else None,
            )
    if found["norms"].size:
        ends = np.array([1.0, found["norms"].max()])
        axes[2].loglog(ends, 1 / ends, "k--", label="predicted")
    axes[2].set(
        xlabel="‖W‖",
        ylabel="direction error / predicted constant",
        title="key-query matrix: W turns to $W_{mm}$",
    )
    axes[2].legend()
    return figure


DIRECTION = 1e-6
"""Largest relative distance of p_mm or W_mm from SciPy's."""
CONSTANT = 0.02
"""Largest relative deviation of an error from its predicted constant over ‖W‖."""
EXPONENT = 0.05
"""Largest distance of an exponent from its prediction."""
ODDS = 1e-6
"""Largest difference of a weight from that of the choice within its component."""
EQUAL = 1e-6
"""Largest relative distance of W from p zᵀ/‖z‖²."""
SURE = {status.name for status in CERTIFIED}


def shares(hits: int, total: int, value: str, what: str, judge: str) -> Measured:
    """State what so many of all cases show, and the failing share."""
    failing = num(1 - hits / max(total, 1))
    return Measured(of_cases(hits, total), value, f"{total} {what}", failing, judge)


def decided(found: Finished) -> Measured:
    """Every problem ends with a certificate."""
    counts = sum((Counter(row["statuses"]) for row in found.results["rows"]), Counter())
    total = sum(counts.values())
    hits = sum(count for name, count in counts.items() if name in SURE)
    left = ", ".join(f"{counts[x]} {x}" for x in sorted(counts) if x not in SURE)
    return Measured(
        of_cases(hits, total, Verdict.CERTIFIED),
        f"{hits} of {total} certified" + (f"; {left}" if left else ""),
        f"{total} problems",
        num(1 - hits / max(total, 1)),
        "theorem 3e.4, and 3g.6 for ties",
    )


def judged(found: Finished) -> Measured:
    """SciPy finds the same selection, and its shortest vector."""
    apart = [one for row in found.results["rows"] for one in row["directions"]]
    hits = sum(one <= DIRECTION for one in apart)
    return shares(
        hits,
        len(apart),
        f"directions to {num(largest(apart))}",
        "certified problems",
        "Radau's method, and non-negative least squares",
    )


def near(found: Finished, name: str) -> Measured:
    """The error of W's direction is the predicted constant over ‖W‖."""
    rows = found.results["matrices"]
    exponents = [row[f"{name}_exponent"] for row in rows]
    constants = [abs(row[name] - 1) for row in rows]
    pairs = zip(exponents, constants, strict=True)
    hits = sum(abs(one + 1) <= EXPONENT and other <= CONSTANT for one, other in pairs)
    across = "‖W‖" if name == "flow" else "the number of steps"
    return shares(
        hits,
        len(rows),
        f"exponents in {across} {num(min(exponents, default=None))} … "
        f"{num(max(exponents, default=None))}; constants to {num(largest(constants))}",
        "problems",
        "Radau's method" if name == "flow" else "descent as it is defined",
    )


def alike(found: Finished) -> Measured:
    """W before one query is p zᵀ/‖z‖²."""
    apart = found.results["one_query"]
    hits = sum(one <= EQUAL for one in apart)
    return shares(
        hits,
        len(apart),
        f"relative distance {num(largest(apart))} at most",
        "pairs of problems",
        "two flows, to one norm",
    )


def graphs(found: Finished) -> Measured:
    """Next tokens end at the finite part and the direction of their graph."""
    rows = found.results["next_tokens"]
    hits = sum(row["weights"] <= ODDS and row["direction"] <= DIRECTION for row in rows)
    return shares(
        hits,
        len(rows),
        f"weights to {num(largest([row['weights'] for row in rows]))}, W_mm to "
        f"{num(largest([row['direction'] for row in rows]))}; "
        f"{sum(row['tied'] for row in rows)} have a component of several tokens",
        "certified problems",
        "strongly connected components, a convex loss, least squares",
    )


CLAIMS = (
    Claim("Problems of all four kinds end with a certificate.", decided),
    Claim("An independent integrator and program find the certified ends.", judged),
    Claim(
        "The direction of W tends to W_mm; its error is a known constant over ‖W‖.",
        lambda found: near(found, "flow"),
        "Tarzanagh et al. 2023",
    ),
    Claim(
        "W before one query z is p zᵀ/‖z‖².",
        alike,
        "Tarzanagh et al. 2023, Lemma 1",
    ),
    Claim(
        "Next tokens keep finite odds within the components of their graph, and W_mm "
        "leads across them.",
        graphs,
        "Li et al. 2024",
    ),
    Claim(
        "Normalised descent turns to W_mm like 1/k in the number k of steps.",
        lambda found: near(found, "descent"),
        "Vasudeva et al. 2025",
    ),
)


def show(found: Finished) -> Shown:
    """How the problems of each kind end."""
    rows = found.results["rows"]
    seen = statuses_of(rows)
    table = [["model", *(STATUS[name].words for name in seen)]]
    for row in rows:
        counts = [str(row["statuses"].get(name, 0)) for name in seen]
        table.append([row["model"], *counts])
    return Shown(
        [
            "Random problems of four kinds of attention, whose scores are linear in "
            "what is trained, by how they end."
        ],
        table,
    )


main = Experiment(
    run, draw=draw, claims=CLAIMS, show=show, title="Four kinds of attention"
)


if __name__ == "__main__":
    command(main, PRESETS)
