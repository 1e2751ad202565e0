"""Small problems made to refute certificates of text flows, and their truth.

Every certified end is followed by an integrator of its own, with exact exponents, far
beyond the time of its certificate.

    python -m tests.text.attacks --number 2000
"""

import argparse
import collections
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from scipy.integrate import solve_ivp
from scipy.optimize import minimize, root
from scipy.sparse import csr_array
from scipy.special import expit

from jaxselect.model.parameters import Parameters
from jaxselect.text.ending import TextEndStatus
from jaxselect.text.flow import TextFlowSettings
from jaxselect.text.late_flow import INACTIVE
from jaxselect.text.limit_certificate import LimitStatus
from jaxselect.text.sparse import from_csr
from jaxselect.text.trajectory import Trajectory, text_trajectory

# Of every problem: one shape for each d compiles one program.
TOKENS, BAGS, WIDE = 6, 6, 3
# Log-time until which a certified end is followed.
FAR = 1e4
# Share of a bag from which a token that lost has returned.
RETURNED = 1e-3
# Of ‖p_mm‖, how far the late pace may be off; of a budget, what the integrator errs by.
PACE, INEXACT = 0.05, 1e-4


# Where rounding holds a flow up, more steps lead nowhere.
BOUNDED = TextFlowSettings(max_steps=1000)


class Attack(NamedTuple):
    """A problem: family, E, v, p_0, counts and labels."""

    family: str
    embeddings: np.ndarray
    head: np.ndarray
    start: np.ndarray
    counts: np.ndarray
    labels: np.ndarray


def star(rng: np.random.Generator, differences: np.ndarray, head: np.ndarray):
    """Token 0 at the origin against five others, one bag each, y = 1, p_0 for 0."""
    counts = np.zeros((BAGS, TOKENS))
    for row, loser in enumerate([1, 2, 3, 4, 5, rng.integers(1, 6)]):
        counts[row, [0, loser]] = np.ceil(400 ** rng.uniform(0, 1, 2))
    embeddings = np.zeros((TOKENS, WIDE))
    embeddings[1:, :2] = -differences
    start = np.array([rng.uniform(1, 6), rng.uniform(-4, 4), 0.0])
    return embeddings, np.append(head, 0.0), start, counts, np.ones(BAGS)


def fillers(rng: np.random.Generator, number: int) -> list:
    """Differences with margins of 1.1 to 3 under (1, 0), forces of either sign."""
    margins, aside = rng.uniform(1.1, 3, number), -3 * np.abs(rng.normal(size=number))
    return list(np.stack([margins, aside], axis=1))


def hidden(rng: np.random.Generator, small: float):
    """A pair of wrong sign, margin 1 + ε, out of sight when all else has settled.

    D_2 = (1, t) has a dual of `small` or none, so that p_2 rises by as much as it began
    low, and the force of D_3 = (1 + ε, −g) like s^{g/t} e^{−ε s}.
    """
    head = np.array([1.0, rng.uniform(0.5, 2)])
    aside, steep = rng.uniform(0.5, 2), rng.uniform(3, 12)
    excess = 10 ** rng.uniform(-3, -1)
    rows = [(1, -small), (1, aside), (1 + excess, -steep)]
    found = list(star(rng, np.array(rows + fillers(rng, 2)), head))
    begin = rng.uniform(2, 6)
    found[2] = np.array([begin, -(begin + rng.uniform(-2, 4)) / aside, 0.0])
    # Token 0 keeps its bag with token 2 for a while.
    found[3][1, [0, 2]] = 400, 1
    found[3][2, [0, 3]] = np.ceil(400 ** rng.uniform(0, 1)), 1
    return tuple(found)


def margin_attack(rng: np.random.Generator):
    """A tie of no dual, and a pair of wrong sign with a margin of 1 + ε."""
    return hidden(rng, 0.0)


def near_tie_attack(rng: np.random.Generator):
    """The same with a small dual instead of none."""
    return hidden(rng, 10 ** rng.uniform(-4, -1))


def saddle_attack(rng: np.random.Generator):
    """A pair of margin one and wrong sign between two others: minimum and saddle."""
    head = np.array([0.3, 1.0]) * rng.uniform(0.5, 2)
    up, down = rng.uniform(0.4, 2, 2)
    between = rng.uniform(-down, -0.31)
    rows = [(1, up), (1, rng.uniform(-0.29, -0.01)), (1, between), (2, 1), (2, 2)]
    found = list(star(rng, np.array(rows, float), head))
    counts = found[3]
    strong = 10 ** rng.uniform(-1.5, 0.5)
    counts[2, [0, 3]] = np.maximum(1, np.round([40, 40 * strong]))
    return tuple(found)


def cancelling_attack(rng: np.random.Generator):
    """Bags of both labels that nearly cancel, or do."""
    head = np.array([1.0, rng.uniform(-1, 1)])
    rows = [(1, 0), (1, rng.uniform(0.2, 2)), (1 + 10 ** rng.uniform(-3, 0), -2)]
    found = list(star(rng, np.array(rows + fillers(rng, 2)), head))
    counts, labels = found[3], found[4]
    number = rng.integers(100, 401)
    counts[2, [0, 3]] = number, 1
    counts[5] = 0
    counts[5, [0, 3]] = number + rng.integers(-2, 3), 1
    labels[5] = -1
    return tuple(found)


def random_attack(rng: np.random.Generator, embeddings: np.ndarray):
    """Bags, labels and values at random."""
    counts = np.zeros((BAGS, TOKENS))
    for row in range(BAGS):
        counts[row, rng.permutation(TOKENS)[:2]] = np.ceil(400 ** rng.uniform(0, 1, 2))
    labels = rng.choice([-1.0, 1.0], BAGS)
    head = rng.normal(size=embeddings.shape[1]) * rng.uniform(0.3, 3)
    start = 3 * rng.normal(size=embeddings.shape[1])
    return embeddings, head, start, counts, labels


def plain_attack(rng: np.random.Generator):
    """Gaussian tokens in three dimensions, or two."""
    embeddings = rng.normal(size=(TOKENS, WIDE))
    if rng.random() < 0.5:
        embeddings[:, 2] = 0
    return random_attack(rng, embeddings)


def identity_attack(rng: np.random.Generator):
    """Orthonormal tokens, p_0 shifted by what no softmax sees."""
    found = list(random_attack(rng, np.eye(TOKENS)))
    found[2] = found[2] + rng.choice([0.0, 1e3, 1e6])
    return tuple(found)


def gauge_attack(rng: np.random.Generator):
    """The attack on margins, p_0 shifted across all differences."""
    found = list(margin_attack(rng))
    found[2] = found[2] + np.array([0, 0, 10 ** rng.uniform(2, 6)])
    return tuple(found)


FAMILIES = {
    "margin": margin_attack,
    "near tie": near_tie_attack,
    "saddle": saddle_attack,
    "cancelling": cancelling_attack,
    "plain": plain_attack,
    "identity": identity_attack,
    "gauge": gauge_attack,
}


def attack(seed: int) -> Attack:
    """The problem of a seed; families take turns."""
    family = list(FAMILIES)[seed % len(FAMILIES)]
    return Attack(family, *FAMILIES[family](np.random.default_rng(seed)))


def followed(problem: Attack) -> Trajectory:
    """What the library makes of it."""
    model = Parameters(
        jnp.asarray(problem.embeddings),
        jnp.asarray(problem.start),
        jnp.asarray(problem.head),
    )
    bags = from_csr(csr_array(problem.counts), problem.labels)
    return text_trajectory(model, bags, settings=BOUNDED)


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
        """Of every entry: e^s joins the exponents before any is exponentiated."""
        log_force, total = self.shares(s, z)
        share = np.exp(np.minimum(log_force - s, 50.0)) / total[self.bag]
        output = self.kept / total
        output += np.bincount(self.bag, share * self.value, len(self.labels))
        wrong = self.labels * expit(-self.labels * output) / len(self.labels)
        force = np.exp(np.minimum(log_force, 200.0)) / total[self.bag]
        return force * wrong[self.bag] * (self.value - output[self.bag])


def clock(end: Trajectory) -> float:
    """log(1+t) of the last stage's own time: the field knows no other."""
    return float(end.stages[-1].log_time)


def truth_of(problem: Attack, end: Trajectory) -> Truth:
    """The exact late field of what was certified."""
    ending, p, s = end.ending, np.asarray(end.cls), clock(end)
    counts = csr_array(problem.counts)
    row = np.repeat(np.arange(BAGS), np.diff(counts.indptr))
    axes, scores = ending.axes, problem.embeddings
    values = problem.embeddings @ problem.head
    tied = at_rest(problem, ending, row, counts, axes.T @ p)
    p = p - axes @ (axes.T @ p) + axes @ tied
    chosen, lost = ending.selected, np.flatnonzero(~ending.selected)
    first = np.array([counts.indices[(row == bag) & chosen][0] for bag in range(BAGS)])
    free = scores - scores @ axes @ axes.T
    relative = (scores[counts.indices] - scores[first[row]]) @ p
    weight = np.where(chosen, counts.data * np.exp(np.where(chosen, relative, 0)), 0)
    whole = np.bincount(row, weight, BAGS)
    kept = np.bincount(row, weight * values[counts.indices], BAGS) / whole
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
    alone = np.bincount(row[chosen], minlength=BAGS) < 2
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
    """What the truth says against a certified end; nothing if it agrees."""
    ending = end.ending
    if ending.status == TextEndStatus.AT_REST or ending.selected.all():
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


def main() -> None:
    """Shares by status, and what was refuted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--number", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    asked = parser.parse_args()
    table: collections.Counter = collections.Counter()
    wrong = []
    for seed in range(asked.first, asked.first + asked.number):
        problem = attack(seed)
        end = followed(problem)
        status, limit = end.ending.status, LimitStatus(end.ending.limit.status)
        table[problem.family, status.name, limit.name] += 1
        if status != TextEndStatus.NOT_CERTIFIED:
            against = refuted(problem, end)
            if against:
                wrong.append(seed)
                print(f"seed {seed} ({problem.family}, {limit.name}): {against}")
        if (seed + 1) % 100 == 0:
            print(f"{seed + 1 - asked.first} so far, {len(wrong)} refuted", flush=True)
    for (family, status, limit), number in sorted(table.items()):
        print(f"{family:12} {status:14} {limit:15} {number:5}")
    certified = sum(
        number for (_, status, _), number in table.items() if status != "NOT_CERTIFIED"
    )
    print(f"{certified} of {asked.number} certified, {len(wrong)} refuted: {wrong}")


if __name__ == "__main__":
    main()
