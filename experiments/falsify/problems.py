"""Attacks on the certificate, and plain random problems, by seed."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.random import Generator
from scipy.optimize import nnls

from .lines import lever, margin_above_one, near_saddle, near_tie, zero_dual
from .problem import DIM, TOKENS, Problem, an_end, counted, log_uniform, problem


def draw(kind: str, seed: int) -> Problem:
    """The problem of a kind with a seed."""
    made = KINDS[kind](np.random.default_rng([*kind.encode(), seed]))
    return replace(made, kind=kind, seed=seed)


def attacks(number: int, seed: int = 0) -> list[Problem]:
    """Attacks of all kinds in turn."""
    return [draw(ATTACKS[i % len(ATTACKS)], seed + i) for i in range(number)]


def plain_problems(number: int, seed: int = 0) -> list[Problem]:
    """Random problems, with nothing made difficult."""
    return [draw("plain", seed + i) for i in range(number)]


def _plain(random: Generator) -> Problem:
    tokens = int(random.integers(2, TOKENS + 1))
    if random.random() < 0.4:
        rows = np.eye(tokens)
    else:
        dim = int(random.integers(1, DIM + 1))
        rows = random.normal(size=(tokens, dim)) * random.choice([0.3, 1.0, 3.0])
    number = random.integers(1, 7)
    bags, labels = [], random.choice([-1, 1], number)
    for _ in range(number):
        size = random.integers(2, tokens + 1)
        bags.append(counted(random, random.permutation(tokens)[:size], most=400))
    dim = rows.shape[1]
    head = random.normal(size=dim) * random.choice([0.3, 1.0, 5.0])
    until, norm = an_end(random), np.inf
    if random.random() < 0.3:
        until, norm = 1e15, random.choice([30.0, 1e2, 1e4, 1e6])
    start = random.normal(size=dim) * random.choice([0.1, 1.0, 10.0])
    return problem(rows, start, head, bags, labels, until, norm)


def _separable(random: Generator) -> Problem:
    """Bags whose labels agree with their values, so that p has somewhere to go."""
    plain = _plain(random)
    values = plain.embeddings @ plain.head
    labels = [1 if np.mean([values[t] for t, _ in b]) > 0 else -1 for b in plain.bags]
    return replace(plain, labels=tuple(labels))


def _one_of(random: Generator, *makers: Callable[[Generator], Problem]) -> Problem:
    return makers[random.integers(len(makers))](random)


def _three_bags(random: Generator) -> Problem:
    """Three tokens in three bags, long and lopsided."""
    bags = [[(0, 1000), (1, 1)], [(0, 1), (2, 500)], [(1, 1000), (2, 1)]]
    bags = [[(t, max(1, int(c * random.random()))) for t, c in bag] for bag in bags]
    start = random.normal(size=3) * random.choice([1.0, 10.0])
    labels = random.choice([-1, 1], 3)
    return problem(np.eye(3), start, random.normal(size=3), bags, labels, 20.0)


def _gauge(random: Generator) -> Problem:
    """p_0 moved far along what no softmax sees: components, or an unused axis."""
    some = _plain, _separable, _three_bags, _three_bags, _return, _wrong_sign
    others = margin_above_one, margin_above_one, near_tie, lever, near_saddle
    made = _one_of(random, *some, *others)
    until = made.until_log_time
    if until > 1e6 or random.random() < 0.7:
        until = random.uniform(5, 60)
    made = replace(made, until_log_time=float(until), until_norm=np.inf)
    tokens, dim = made.embeddings.shape
    far = log_uniform(random, 2, 6) * random.choice([-1.0, 1.0])
    if np.array_equal(made.embeddings, np.eye(tokens)):
        group = np.arange(tokens)
        for bag in made.bags:
            for token, _ in bag:
                group[group == group[token]] = group[bag[0][0]]
        shift = random.normal(size=(tokens,))[group]
        return replace(made, query=made.query + far * shift)
    if dim == DIM:
        return made
    rows = np.pad(made.embeddings, [(0, 0), (0, 1)])
    head = np.append(made.head, random.normal())
    return replace(made, embeddings=rows, head=head, query=np.append(made.query, far))


def _nearly_cancelling(random: Generator) -> Problem:
    """The same bag with both labels, and values that hardly differ."""
    tokens = int(random.integers(2, 5))
    small = log_uniform(random, -10, -3)
    values = random.normal(size=tokens)
    values[1] = values[0] + small * random.choice([-1.0, 1.0])
    bags, labels = [], []
    for _ in range(random.integers(1, 4)):
        bag = counted(
            random, random.permutation(tokens)[: random.integers(2, tokens + 1)]
        )
        bags += [bag, [(t, c + random.integers(0, 2)) for t, c in bag]]
        labels += [1, -1]
    bags.append([(0, 1), (1, 1)])
    labels.append(random.choice([-1, 1]))
    start = random.normal(size=tokens) * random.choice([0.3, 3.0, 10.0])
    return problem(np.eye(tokens), start, values, bags, labels, an_end(random))


def _wrong_sign(random: Generator) -> Problem:
    """Crossed bags of winners and losers, where some active pair pulls its loser."""
    winners = int(random.integers(1, 3))
    tokens = winners + int(random.integers(2, 4))
    losers = np.arange(winners, tokens)
    values = np.concatenate(
        [random.uniform(0.5, 2, winners), random.uniform(-1, 1, len(losers))]
    )
    values[winners] = values[0] + log_uniform(random, -4, 0)
    bags = [counted(random, [i, j], 400) for i in range(winners) for j in losers]
    start = np.where(np.arange(tokens) < winners, 1.0, -1.0)
    start = start * random.choice([1.0, 5.0, 20.0]) + random.normal(size=tokens)
    labels = np.ones(len(bags))
    return problem(np.eye(tokens), start, values, bags, labels, an_end(random))


def _long_p0(random: Generator) -> Problem:
    made = _one_of(random, _plain, _separable)
    length = log_uniform(random, 1, 6)
    start = made.query / max(np.linalg.norm(made.query), 1e-300)
    until = random.choice([1.0, 3.0]) * max(length, 30.0)
    return replace(made, query=start * length, until_log_time=until, until_norm=np.inf)


def _twins(random: Generator) -> Problem:
    made = _plain(random)
    count = min(len(made.bags), 3)
    bags = [made.bags[i % count] for i in range(2 * count)]
    bags = [
        tuple((t, int(c) + (i >= count) * int(random.integers(0, 3))) for t, c in bag)
        for i, bag in enumerate(bags)
    ]
    return replace(made, bags=tuple(bags), labels=(1,) * count + (-1,) * count)


def _return(random: Generator) -> Problem:
    """Mathematics 7d: a token far behind comes back at log t = 2 gap + log ⅔."""
    gap = random.uniform(3, 60)
    tokens = int(random.integers(3, 6))
    rows = np.eye(tokens)
    if random.random() < 0.5:
        rows = rows + 0.2 * random.normal(size=(tokens, tokens))
    head = np.zeros(tokens)
    head[:3] = [0.0, 1.0, -log_uniform(random, -1, 0.5)]
    start = random.normal(size=tokens)
    start[1] -= gap
    bags = [counted(random, [0, 1], 400), counted(random, [0, 2], 400)]
    if tokens > 3:
        bags.append(counted(random, [random.integers(0, 3), 3]))
    if tokens > 4:
        bags.append(counted(random, [3, 4]))
    until = gap * random.uniform(0.5, 3)
    return problem(rows, start, head, bags, [1] * len(bags), until)


def _on_a_line(random: Generator) -> Problem:
    """p_0 beside the max-margin line of some selection, deserved or not."""
    made = _one_of(random, _plain, _separable, _wrong_sign)
    rows = made.embeddings
    wish = rows @ random.normal(size=rows.shape[1])
    pairs = []
    for bag in made.bags:
        ids = [token for token, _ in bag]
        top = max(ids, key=lambda token: wish[token])
        pairs += [rows[top] - rows[token] for token in ids if token != top]
    # The least-distance problem, after Lawson and Hanson.
    system = np.vstack([np.transpose(pairs), np.ones(len(pairs))])
    wanted = np.append(np.zeros(rows.shape[1]), 1.0)
    off = system @ nnls(system, wanted)[0] - wanted
    if abs(off[-1]) < 1e-9:
        return made
    ahead = random.uniform(1, 30)
    start = -off[:-1] / off[-1] * ahead + random.normal(size=rows.shape[1])
    until = ahead * random.uniform(1, 4)
    return replace(made, query=start, until_log_time=until, until_norm=np.inf)


def _sure(random: Generator) -> Problem:
    """Values so long that residuals are e^{−γ}: pulls start at any size."""
    made = _separable(random)
    long = log_uniform(random, 1, 2.8)
    return replace(made, head=made.head * long)


def _far(random: Generator) -> Problem:
    """Norms at which the rounding of p is no small part of a lead."""
    made = _one_of(random, _plain, _separable, _wrong_sign, near_tie)
    norm = 10.0 ** random.integers(6, 12)
    return replace(made, until_log_time=1e15, until_norm=norm)


KINDS = {
    "plain": _plain,
    "near_tie": near_tie,
    "zero_dual": zero_dual,
    "margin_above_one": margin_above_one,
    "lever": lever,
    "gauge": _gauge,
    "nearly_cancelling": _nearly_cancelling,
    "saddle": near_saddle,
    "wrong_sign": _wrong_sign,
    "long_p0": _long_p0,
    "twins": _twins,
    "return": _return,
    "on_a_line": _on_a_line,
    "sure": _sure,
    "far": _far,
}
ATTACKS = [kind for kind in KINDS if kind != "plain"]
