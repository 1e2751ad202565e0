"""Small problems made to refute certificates of text flows, and their truth.

Every certified end is followed by another integrator, with exact exponents, far
beyond the time of its certificate.

    python -m tests.sparse.attacks --number 2000

Source: mathematics, section 7c.
"""

import argparse
import collections

import jax
import jax.numpy as jnp
import numpy as np
from scipy.sparse import csr_array

from jaxselect.data.sparse import from_csr
from jaxselect.model.parameters import Parameters
from jaxselect.sparse.end import CertificateStatus, End
from jaxselect.sparse.flow import BdfSettings, Trajectory, trajectory
from tests.sparse.truth import Attack, refuted

# Sizes of every problem: one shape for each d compiles one program.
TOKENS, BAGS, WIDE = 6, 6, 3
# Where rounding holds a flow up, more steps lead nowhere.
BOUNDED = BdfSettings(max_steps=1000)


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


def large_attack(rng: np.random.Generator):
    """Values of tens: bags part when ties of others have rested for long."""
    found = list(random_attack(rng, rng.normal(size=(TOKENS, WIDE))))
    found[1] = found[1] * rng.choice([10.0, 20.0, 40.0])
    values = found[0] @ found[1]
    # Half of the labels agree with the values, so that margins are large.
    mean = (found[3] > 0) @ values
    found[4] = np.where(rng.random(BAGS) < 0.5, np.sign(mean), found[4])
    return tuple(found)


FAMILIES = {
    "margin": margin_attack,
    "near tie": near_tie_attack,
    "saddle": saddle_attack,
    "cancelling": cancelling_attack,
    "plain": plain_attack,
    "identity": identity_attack,
    "gauge": gauge_attack,
    "large margins": large_attack,
}


def attack(seed: int) -> Attack:
    """The problem of a seed; families take turns."""
    return draw(list(FAMILIES)[seed % len(FAMILIES)], seed)


def draw(family: str, seed: int) -> Attack:
    """The problem of a family with a seed."""
    return Attack(family, *FAMILIES[family](np.random.default_rng(seed)))


def followed(problem: Attack) -> Trajectory:
    """Its trajectory by the library."""
    model = Parameters(
        jnp.asarray(problem.embeddings),
        jnp.asarray(problem.start),
        jnp.asarray(problem.head),
    )
    bags = from_csr(csr_array(problem.counts), problem.labels)
    return trajectory(model, bags, settings=BOUNDED)


def main() -> None:
    """Shares by status, and what was refuted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--number", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    asked = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    table: collections.Counter = collections.Counter()
    wrong = []
    for seed in range(asked.first, asked.first + asked.number):
        problem = attack(seed)
        end = followed(problem)
        status, limit = end.ending.status, CertificateStatus(end.ending.limit.status)
        table[problem.family, status.name, limit.name] += 1
        if status != End.UNPROVED:
            against = refuted(problem, end)
            if against:
                wrong.append(seed)
                print(f"seed {seed} ({problem.family}, {limit.name}): {against}")
        if (seed + 1) % 100 == 0:
            print(f"{seed + 1 - asked.first} so far, {len(wrong)} refuted", flush=True)
    for (family, status, limit), number in sorted(table.items()):
        print(f"{family:12} {status:14} {limit:15} {number:5}")
    certified = sum(
        number for (_, status, _), number in table.items() if status != "UNPROVED"
    )
    print(f"{certified} of {asked.number} certified, {len(wrong)} refuted: {wrong}")


if __name__ == "__main__":
    main()
