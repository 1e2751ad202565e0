"""Other people's solvers on the max-margin problem, each in its best form.

The same problem every time: min ½‖p‖² subject to p·D ≥ 1, D = E_s − E_r for the pairs.
Solvers of dense problems are given the rows D, ready made; solvers of sparse ones the
scores a = E p as variables too, which makes the constraints a_s − a_r ≥ 1 sparse (5 to
15 times faster for them than the dense rows).
"""

import importlib
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


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


def nnls(given: Problem) -> np.ndarray:
    """Lawson and Hanson: the least-distance dual, non-negative least squares in λ."""
    solver = importlib.import_module("scipy.optimize").nnls
    number, dim = given.rows.shape
    matrix = np.vstack([given.rows.T, np.ones((1, number))])
    target = np.zeros(dim + 1)
    target[-1] = 1.0
    residual = matrix @ solver(matrix, target, maxiter=30 * number)[0] - target
    return -residual[:-1] / residual[-1]


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


def cvxpy(given: Problem) -> np.ndarray:
    """Clarabel through CVXPY, as most people would call it, on scores."""
    library = importlib.import_module("cvxpy")
    tokens, dim = given.embeddings.shape
    direction, scores = library.Variable(dim), library.Variable(tokens)
    differ = _difference_matrix(given)
    task = library.Problem(
        library.Minimize(0.5 * library.sum_squares(direction)),
        [scores == given.embeddings @ direction, differ @ scores >= 1],
    )
    tight = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-13)
    task.solve(solver=library.CLARABEL, max_threads=1, **tight)
    return direction.value


def osqp(given: Problem) -> np.ndarray:
    """Operator splitting with its direct solver and polishing, on scores."""
    library = importlib.import_module("osqp")
    sparse = importlib.import_module("scipy.sparse")
    cost, equal, ahead = _score_form(given)
    tokens, pairs = equal.shape[0], ahead.shape[0]
    solver = library.OSQP()
    solver.setup(
        cost,
        np.zeros(cost.shape[0]),
        sparse.vstack([equal, ahead]).tocsc(),
        np.r_[np.zeros(tokens), np.ones(pairs)],
        np.r_[np.zeros(tokens), np.full(pairs, np.inf)],
        verbose=False,
        eps_abs=1e-9,
        eps_rel=1e-9,
        polishing=True,
        max_iter=200_000,
    )
    return solver.solve(raise_error=False).x[: given.rows.shape[1]]


def linear_svc(given: Problem) -> np.ndarray:
    """scikit-learn's LinearSVC without intercept, rows labelled ±1 in turn, C = 10¹⁰.

    The problem is a homogeneous support vector machine, so any row may change its sign
    with its label. SVC (kernels, SMO) took 20 to 100 times longer to 10⁻⁶.
    """
    estimator = importlib.import_module("sklearn.svm").LinearSVC
    label = np.where(np.arange(len(given.rows)) % 2 == 0, 1.0, -1.0)
    machine = estimator(
        C=1e10, loss="hinge", fit_intercept=False, tol=1e-11, max_iter=1_000_000
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        machine.fit(given.rows * label[:, None], label)
    return machine.coef_[0]


# By the name to print: the package it needs and the call.
RIVALS: dict[str, tuple[str, Callable[[Problem], np.ndarray]]] = {
    "daqp": ("daqp", daqp),
    "quadprog": ("quadprog", quadprog),
    "SciPy NNLS dual": ("scipy", nnls),
    "PIQP": ("piqp", piqp),
    "Clarabel": ("clarabel", clarabel),
    "CVXPY + Clarabel": ("cvxpy", cvxpy),
    "OSQP": ("osqp", osqp),
    "LinearSVC": ("sklearn", linear_svc),
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
