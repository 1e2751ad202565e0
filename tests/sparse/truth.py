"""The exact field from a certified end on, by an integrator with exact exponents.

Source: mathematics, section 7c.
"""

from typing import NamedTuple

import numpy as np
from scipy.integrate import solve_ivp
from scipy.optimize import minimize, root
from scipy.sparse import csr_array
from scipy.special import log_expit

from jaxselect.sparse.end import INACTIVE, End
from jaxselect.sparse.flow import Trajectory

# Log-time until which a certified end is followed.
FAR = 1e4
# Share of a bag from which a token that lost has returned.
RETURNED = 1e-3
# Largest errors: of the late pace over ‖p_mm‖, and of the integrator in a budget.
PACE, INEXACT = 0.05, 1e-4


class Attack(NamedTuple):
    """A problem: family, E, v, p_0, counts and labels."""

    family: str
    embeddings: np.ndarray
    head: np.ndarray
    start: np.ndarray
    counts: np.ndarray
    labels: np.ndarray


class Truth(NamedTuple):
    """The exact field orthogonal to tied tokens, which rest, in how far z has moved.

    z = p − p_mm s. Arrays have a row for each losing entry (bag, token); its log-weight
    over that of its bag's selected tokens is taken where z begins.
    """

    bag: np.ndarray
    ahead: np.ndarray
    excess: np.ndarray
    log_ratio: np.ndarray
    value: np.ndarray
    kept: np.ndarray
    labels: np.ndarray

    def shares(self, s: float, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Log-weights of losers over their bag's selected tokens, plus s; totals."""
        # With s inside nothing cancels late: margins of one do not know it.
        log_force = self.log_ratio - self.ahead @ z - self.excess * s
        ratio = np.exp(np.minimum(log_force - s, 50.0))
        return log_force, 1 + np.bincount(self.bag, ratio, len(self.labels))

    def force(self, s: float, z: np.ndarray) -> np.ndarray:
        """Force of every entry: e^s joins the exponents before any is exponentiated."""
        log_force, total = self.shares(s, z)
        share = np.exp(np.minimum(log_force - s, 50.0)) / total[self.bag]
        output = self.kept / total
        output += np.bincount(self.bag, share * self.value, len(self.labels))
        slope = log_expit(-self.labels * output) - np.log(total * len(self.labels))
        force = np.exp(np.minimum(log_force + slope[self.bag], 200.0))
        return force * self.labels[self.bag] * (self.value - output[self.bag])


def clock(end: Trajectory) -> float:
    """log(1+t) of the last stage's own time: the field knows no other."""
    return float(end.stages[-1].log_time)


def truth_of(problem: Attack, end: Trajectory) -> Truth:
    """The exact late field of what was certified."""
    ending, p, s = end.ending, np.asarray(end.query), clock(end)
    counts = csr_array(problem.counts)
    row = np.repeat(np.arange(len(problem.labels)), np.diff(counts.indptr))
    axes, scores = ending.axes, problem.embeddings
    values = problem.embeddings @ problem.head
    tied = at_rest(problem, ending, row, counts, axes.T @ p)
    p = p - axes @ (axes.T @ p) + axes @ tied
    chosen, lost = ending.selected, np.flatnonzero(~ending.selected)
    bags = len(problem.labels)
    first = np.array([counts.indices[(row == bag) & chosen][0] for bag in range(bags)])
    free = scores - scores @ axes @ axes.T
    relative = (scores[counts.indices] - scores[first[row]]) @ p
    weight = np.where(chosen, counts.data * np.exp(np.where(chosen, relative, 0)), 0)
    whole = np.bincount(row, weight, bags)
    kept = np.bincount(row, weight * values[counts.indices], bags) / whole
    word, winner = counts.indices[lost], first[row[lost]]
    ahead = free[winner] - free[word]
    excess = ahead @ ending.margin.direction - 1
    excess[np.abs(excess) < INACTIVE] = 0.0
    log_ratio = np.log(counts.data[lost] / whole[row[lost]])
    log_ratio += ((scores[word] - scores[winner]) @ axes) @ tied
    # Gauges cancel here, and nowhere later.
    log_ratio -= ahead @ (p - axes @ (axes.T @ p)) - (excess + 1) * s
    return Truth(
        row[lost], ahead, excess, log_ratio, values[word], kept, problem.labels
    )


def at_rest(problem, ending, row, counts, begin):
    """Where tied tokens rest, by another method than the library's."""
    if not len(begin):
        return begin
    chosen = ending.selected
    alone = np.bincount(row[chosen], minlength=len(problem.labels)) < 2
    places = problem.embeddings @ ending.axes
    values = problem.embeddings @ problem.head

    def risk(u):
        total = 0.0
        for bag in np.flatnonzero(~alone):
            on = (row == bag) & chosen
            logit = np.log(counts.data[on]) + places[counts.indices[on]] @ u
            weight = np.exp(logit - logit.max())
            output = weight @ values[counts.indices[on]] / weight.sum()
            total += np.logaddexp(0, -problem.labels[bag] * output)
        return total

    return minimize(risk, begin, method="BFGS", options={"gtol": 1e-10}).x


def refuted(problem: Attack, end: Trajectory) -> str:
    """The objection of the truth to a certified end; nothing if it agrees."""
    ending = end.ending
    if ending.status == End.AT_REST or ending.selected.all():
        return ""
    field, growth = truth_of(problem, end), ending.margin.direction
    begin, limit = np.zeros(len(growth)), ending.limit

    def returns(s, z):
        log_force, total = field.shares(s, z)
        log_share = log_force - s - np.log(total[field.bag])
        return float(np.max(log_share) - np.log(RETURNED))

    returns.terminal = True
    first = clock(end)
    if returns(first, begin) > 0:
        return f"a loser has {RETURNED} of a bag where it is certified"
    times = np.geomspace(first, FAR, 200)
    done = solve_ivp(
        lambda s, z: -field.force(s, z) @ field.ahead - growth,
        (first, FAR),
        begin,
        method="Radau",
        t_eval=times,
        events=returns,
        # Without what losers do to each other, which is nothing while they have lost.
        jac=lambda s, z: (field.ahead.T * field.force(s, z)) @ field.ahead,
        rtol=1e-6,
        atol=1e-7,
    )
    if done.status != 0:
        last = done.t_events[0] if done.status == 1 else done.t[-1:]
        return f"the selection changes, or the flow breaks off, near {last}"
    if np.isfinite(limit.budget):
        line = line_of(field, growth)
        away = np.linalg.norm(done.y - line[:, None], axis=0)
        if away.max() > limit.budget + INEXACT:
            return f"{away.max():.3g} from its line, budget {limit.budget:.3g}"
    half = np.searchsorted(times, FAR / 2)
    pace = (done.y[:, -1] - done.y[:, half]) / (FAR - times[half])
    if np.linalg.norm(pace) > PACE * np.linalg.norm(growth):
        return f"its late pace is off by {np.linalg.norm(pace):.3g}"
    return ""


def line_of(field: Truth, growth: np.ndarray) -> np.ndarray:
    """The line p_mm s + ρ seen from where z begins, ρ by SciPy from active pairs."""
    on = field.excess == 0
    _, size, axes = np.linalg.svd(field.ahead[on], full_matrices=False)
    axes = axes[size > 1e-9 * size.max()]

    def late(x):
        force = field.force(1e8, axes.T @ x)[on]
        return axes @ (-force @ field.ahead[on] - growth)

    def slope(x):
        force = field.force(1e8, axes.T @ x)[on]
        seen = field.ahead[on] @ axes.T
        return (seen.T * force) @ seen

    return axes.T @ root(late, np.zeros(len(axes)), jac=slope, tol=1e-12).x
