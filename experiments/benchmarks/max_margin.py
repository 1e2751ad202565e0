"""The max-margin problem: time and gap of ours and of other people's solvers.

Two families. `bags`: d = |S| + 2, and in each of 2|S| random bags of 8 the token on top
under a hidden p must beat the rest. `wide`: d = 16 |S|, brought to |S| + 2 coordinates
for everyone, and a quarter of the tokens must each beat half of the rest, as after a
long flow in many dimensions. Every solver gets the same problems in float64, one core
and one thread. The gap of an answer is measured alike for all: the answer is scaled
until it is feasible, and its ½‖p‖² compared with our certified lower bound.

Solvers of dense problems are given the rows D = E_s − E_r, ready made; Clarabel, which
takes sparse ones, the scores a = E p as variables too.
"""

import dataclasses
import importlib
import importlib.util
import os
import statistics
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.common.claims import Shown
from experiments.common.console import command, say
from experiments.common.numbers import num
from experiments.common.results import Finished
from experiments.common.study import Count, Experiment, Study, presets
from jaxselect.checks import BadInput


class Problem(NamedTuple):
    """One max-margin problem.

    Attributes:
        embeddings: E.
        winner: s of each pair.
        loser: r of each pair.
        rows: D = E_s − E_r.
    """

    embeddings: np.ndarray
    winner: np.ndarray
    loser: np.ndarray
    rows: np.ndarray


def problem(embeddings: np.ndarray, pairs: np.ndarray) -> Problem:
    """Lay a problem out for the others.

    Args:
        embeddings: E.
        pairs: True at [s, r] where s must be ahead of r.

    Returns:
        The rows of its constraints.
    """
    winner, loser = np.nonzero(pairs)
    rows = np.ascontiguousarray(embeddings[winner] - embeddings[loser])
    return Problem(embeddings, winner, loser, rows)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Study):
    """Settings of the comparison.

    Attributes:
        preset: full, or quick: two sizes and small budgets, under two minutes.
        quick: the same as `--preset quick`.
        sizes: vocabularies |S|.
        lanes: problems in a batch.
        budget: seconds for one solver's batch; lanes beyond it are not run, and the
            mean is over those that were.
        patience: a solver that needs more seconds than this for one problem sits out
            the larger sizes.
        seed: random seed of the problems.
    """

    quick: bool = False
    sizes: tuple[Count, ...] = (64, 256, 512)
    lanes: Count = 64
    budget: float = 8.0
    patience: float = 4.0
    out: Path = Path("results/benchmarks/max_margin")


PRESETS = presets(
    full=Settings(),
    quick=Settings(sizes=(64, 128), budget=1.5, patience=1.0),
)
FAMILIES = ("bags", "wide")


def run(settings: Settings, results: dict) -> None:
    """Run the comparison."""
    available = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, available[:1])

    present = installed()
    records: list[dict] = []
    results |= {"lanes": settings.lanes, "records": records}
    for family in FAMILIES:
        rivals = dict(present)
        for size in settings.sizes:
            found = compare(settings, family, size, rivals)
            records += found
            table(found)
            for record in found:
                if record["seconds"] > settings.patience:
                    rivals.pop(record["solver"], None)


def installed() -> dict[str, Callable[[Problem], np.ndarray]]:
    """The rivals that are there, warmed up; the others sit out and it is said.

    Returns:
        Rivals by name.
    """
    present = {}
    trial = problem(np.eye(3), np.eye(3, k=1, dtype=bool))
    for name, (package, rival) in RIVALS.items():
        if importlib.util.find_spec(package) is None:
            say(f"{name} sits out: no {package} here; pip install '.[benchmark]'")
        else:
            # The first call pays for imports and caches.
            rival(trial)
            present[name] = rival
    return present


def instance(family: str, size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Embeddings in |S| + 2 coordinates and the pairs that must be kept apart.

    Returns:
        E and the mask of pairs.
    """
    rng = np.random.default_rng([seed, size, FAMILIES.index(family)])
    pairs = np.zeros((size, size), bool)
    if family == "bags":
        embeddings = rng.normal(size=(size, size + 2)) / size**0.5
        scores = embeddings @ rng.normal(size=size + 2)
        for _ in range(2 * size):
            bag = rng.choice(size, 8, replace=False)
            pairs[bag[np.argmax(scores[bag])], bag] = True
        np.fill_diagonal(pairs, False)
        return embeddings, pairs
    wide = rng.normal(size=(size, 16 * size)) / (16 * size) ** 0.5
    upper = np.linalg.qr(wide.T)[1]
    relevant, irrelevant = np.split(rng.permutation(size), [size // 4])
    for winner in relevant:
        beaten = rng.choice(irrelevant, len(irrelevant) // 2, replace=False)
        pairs[winner, beaten] = True
    return np.pad(upper.T, [(0, 0), (0, 2)]), pairs


def compare(
    settings: Settings,
    family: str,
    size: int,
    rivals: dict[str, Callable[[Problem], np.ndarray]],
) -> list[dict]:
    """Ours and every rival on one family and size.

    Returns:
        One record per solver, ours first.
    """
    import jax
    import jax.numpy as jnp

    from jaxselect.margin.max_margin import max_margin
    from jaxselect.status import Reason

    drawn = [
        instance(family, size, settings.seed + lane) for lane in range(settings.lanes)
    ]
    problems = [problem(*each) for each in drawn]
    embeddings, pairs = (
        jnp.asarray(np.stack(each)) for each in zip(*drawn, strict=True)
    )
    one = jax.jit(max_margin)
    # On a CPU lanes one after another beat lanes in lockstep.
    batch = jax.jit(lambda e, p: jax.lax.map(lambda each: max_margin(*each), (e, p)))
    solution = jax.block_until_ready(batch(embeddings, pairs))
    first = embeddings[0], pairs[0]
    jax.block_until_ready(one(*first))
    if (solution.status != Reason.NONE).any():
        raise BadInput(f"{family} at |S| = {size}: a lane of ours was not solved")
    # The value of the duals bounds ½‖p‖² from below, whoever found p.
    bound = np.asarray(solution.norm) ** 2 * (1 - np.asarray(solution.gap)) / 2

    def record(name: str, seconds: float, each: float, ran: int, gap: float) -> dict:
        return {
            "family": family,
            "size": size,
            "pairs": len(problems[0].rows),
            "solver": name,
            "seconds": seconds,
            "seconds_per_lane": each,
            "lanes_run": ran,
            "largest_gap": gap,
        }

    def solve_batch() -> Any:
        return jax.block_until_ready(batch(embeddings, pairs))

    ours = record(
        "ours",
        median_seconds(lambda: jax.block_until_ready(one(*first)), 1.0),
        median_seconds(solve_batch, 1.0) / settings.lanes,
        settings.lanes,
        float(np.max(np.asarray(solution.gap))),
    )
    ours["iterations"] = float(np.mean(np.asarray(solution.iterations)))
    records = [ours]
    for name, rival in rivals.items():
        # Some compile a program for the shape.
        rival(problems[0])
        alone = median_seconds(partial(rival, problems[0]), 1.0)
        taken, gaps = 0.0, []
        for lane, given in enumerate(problems):
            start = time.perf_counter()
            answer = rival(given)
            taken += time.perf_counter() - start
            gaps.append(relative_gap(answer, given, bound[lane]))
            if taken > settings.budget:
                break
        each = taken / len(gaps)
        records.append(record(name, alone, each, len(gaps), max(gaps)))
    return records


def median_seconds(call: Callable[[], Any], budget: float) -> float:
    """Median time of a call, over at most nine runs or a budget.

    Args:
        call: what to time.
        budget: seconds after which no further run begins.

    Returns:
        Seconds.
    """
    times: list[float] = []
    while not times or (len(times) < 9 and sum(times) < budget):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def relative_gap(answer: np.ndarray | None, given: Problem, bound: float) -> float:
    """How far ½‖p‖² is above a lower bound, once p is scaled to be feasible.

    Args:
        answer: p, or None where a solver gave none.
        given: the problem.
        bound: a value of the dual.

    Returns:
        1 − bound / value: zero is exact, one means that p keeps some pair on the wrong
        side.
    """
    least = -1.0 if answer is None else float((given.rows @ answer).min())
    if answer is None or not least > 0:
        return 1.0
    return 1 - bound / (0.5 * float(answer @ answer) / least**2)


def table(records: list[dict]) -> None:
    """Print the records of one family and size, each beside ours."""
    ours = records[0]
    say(f"\n{ours['family']}, |S| = {ours['size']}, {ours['pairs']} pairs")
    say("  solver             one, ms  × ours  batch, ms each  × ours  lanes    gap")
    for record in records:
        one, each = record["seconds"], record["seconds_per_lane"]
        say(
            f"  {record['solver']:<17}{1e3 * one:9.2f}{one / ours['seconds']:8.1f}"
            f"{1e3 * each:16.2f}{each / ours['seconds_per_lane']:8.1f}"
            f"{record['lanes_run']:7d}{record['largest_gap']:7.0e}"
        )


def daqp(given: Problem) -> np.ndarray:
    """A dual active-set method in C."""
    solver = importlib.import_module("daqp")
    number, dim = given.rows.shape
    return solver.solve(
        np.eye(dim),
        np.zeros(dim),
        given.rows,
        np.full(number, 1e30),
        np.ones(number),
        np.zeros(number, np.int32),
    )[0]


def quadprog(given: Problem) -> np.ndarray:
    """Goldfarb and Idnani's dual active-set method."""
    solver = importlib.import_module("quadprog")
    number, dim = given.rows.shape
    return solver.solve_qp(np.eye(dim), np.zeros(dim), given.rows.T, np.ones(number))[0]


def piqp(given: Problem) -> np.ndarray:
    """A proximal interior point, dense interface (its sparse one is slower here)."""
    library = importlib.import_module("piqp")
    number, dim = given.rows.shape
    solver = library.DenseSolver()
    solver.settings.eps_abs = solver.settings.eps_rel = 1e-12
    solver.settings.check_duality_gap = True
    solver.settings.eps_duality_gap_abs = solver.settings.eps_duality_gap_rel = 1e-12
    none = np.zeros((0, dim))
    upper = np.full(number, 1e30)
    solver.setup(
        np.eye(dim), np.zeros(dim), none, none[:, 0], given.rows, np.ones(number), upper
    )
    solver.solve()
    return np.array(solver.result.x)


def clarabel(given: Problem) -> np.ndarray:
    """A conic interior point, called directly, on scores."""
    library = importlib.import_module("clarabel")
    sparse = importlib.import_module("scipy.sparse")
    cost, equal, ahead = _score_form(given)
    tokens, pairs = equal.shape[0], ahead.shape[0]
    settings = library.DefaultSettings()
    settings.verbose = False
    settings.max_threads = 1
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-13
    solution = library.DefaultSolver(
        cost,
        np.zeros(cost.shape[0]),
        sparse.vstack([equal, -ahead]).tocsc(),
        np.r_[np.zeros(tokens), -np.ones(pairs)],
        [library.ZeroConeT(tokens), library.NonnegativeConeT(pairs)],
        settings,
    ).solve()
    return np.array(solution.x)[: given.rows.shape[1]]


def qpax(given: Problem) -> np.ndarray:
    """A primal-dual interior point in JAX, compiled, on dense rows."""
    jax = importlib.import_module("jax")
    rows, least = _padded(given.rows)
    dim = rows.shape[1]
    solve = _compiled(_interior_point)
    none = np.zeros((0, dim))
    found = solve(np.eye(dim), np.zeros(dim), none, none[:, 0], -rows, -least)
    return np.asarray(jax.block_until_ready(found)[0])


def _interior_point(*problem: Any) -> Any:
    library = importlib.import_module("qpax")
    return library.solve_qp(*problem, solver_tol=1e-10, max_iter=50)


def _padded(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows and their least products, with more that hold: problems share a program."""
    room = -len(rows) % 512
    return np.pad(rows, ((0, room), (0, 0))), np.append(np.ones(len(rows)), [-1] * room)


@cache
def _compiled(solve: Callable) -> Callable:
    """One compiled function for all problems of a shape."""
    return importlib.import_module("jax").jit(solve)


# By the name to print: the package it needs and the call.
RIVALS: dict[str, tuple[str, Callable[[Problem], np.ndarray]]] = {
    "daqp": ("daqp", daqp),
    "quadprog": ("quadprog", quadprog),
    "PIQP": ("piqp", piqp),
    "Clarabel": ("clarabel", clarabel),
    "qpax": ("qpax", qpax),
}


def _difference_matrix(given: Problem) -> Any:
    """Scores to leads, two entries a row."""
    sparse = importlib.import_module("scipy.sparse")
    pair = np.arange(len(given.rows))
    entries = np.r_[np.ones(len(pair)), -np.ones(len(pair))]
    places = np.r_[pair, pair], np.r_[given.winner, given.loser]
    return sparse.csr_matrix((entries, places), (len(pair), len(given.embeddings)))


def _score_form(given: Problem) -> tuple[Any, Any, Any]:
    """In the variables (p, a): the cost ½‖p‖², E p − a = 0, and the leads of a."""
    sparse = importlib.import_module("scipy.sparse")
    tokens, dim = given.embeddings.shape
    cost = sparse.block_diag([sparse.eye(dim), sparse.csc_matrix((tokens, tokens))])
    equal = sparse.hstack([sparse.csc_matrix(given.embeddings), -sparse.eye(tokens)])
    differ = _difference_matrix(given)
    ahead = sparse.hstack([sparse.csc_matrix((differ.shape[0], dim)), differ])
    return cost.tocsc(), equal.tocsc(), ahead.tocsc()


def show(found: Finished) -> Shown:
    """Time per problem of every solver, as a ratio to ours."""
    records = found.results["records"]
    rows = [["family", "|S|", "solver", "seconds per problem", "ratio to ours", "gap"]]
    for record in records:
        same = [
            other
            for other in records
            if (other["family"], other["size"]) == (record["family"], record["size"])
        ]
        ours = next(
            other["seconds_per_lane"] for other in same if other["solver"] == "ours"
        )
        rows.append(
            [
                record["family"],
                str(record["size"]),
                record["solver"],
                num(record["seconds_per_lane"]),
                num(record["seconds_per_lane"] / ours),
                num(record["largest_gap"]),
            ]
        )
    return Shown(["Each solver's time over ours, on the same problems."], rows)


main = Experiment(run, show=show, title="Max-margin problems")


if __name__ == "__main__":
    command(main, PRESETS)
