"""Attacks on the certificate, and plain random problems, by seed."""

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import brentq, minimize_scalar, nnls

# Every problem fits in arrays of one shape, so that one program serves all.
TOKENS, DIM, BAGS, WIDTH = 6, 6, 12, 6


@dataclass(frozen=True)
class Problem:
    """A flow to integrate and to certify.

    Attributes:
        kind: what was made difficult.
        seed: what it was drawn with.
        embeddings, cls, head: E, p_0 and v; ‖v‖ is not one everywhere.
        bags: (token, count) pairs.
        labels: ±1.
        until_log_time, until_norm: where the flow is to end.
    """

    kind: str
    seed: int
    embeddings: np.ndarray
    cls: np.ndarray
    head: np.ndarray
    bags: tuple[tuple[tuple[int, int], ...], ...]
    labels: tuple[int, ...]
    until_log_time: float
    until_norm: float = np.inf

    @property
    def name(self):
        return f"{self.kind}:{self.seed}"


def draw(kind, seed):
    """The problem of a kind with a seed."""
    made = KINDS[kind](np.random.default_rng([*kind.encode(), seed]))
    return replace(made, kind=kind, seed=seed)


def attacks(number, seed=0):
    """Attacks of all kinds in turn."""
    return [draw(ATTACKS[i % len(ATTACKS)], seed + i) for i in range(number)]


def plain_problems(number, seed=0):
    """Random problems, with nothing made difficult."""
    return [draw("plain", seed + i) for i in range(number)]


def problem(embeddings, cls, head, bags, labels, until, until_norm=np.inf):
    """A `Problem` of lists; a bag is a list of tokens or of (token, count) pairs."""
    pairs = tuple(
        tuple((int(x), 1) if np.ndim(x) == 0 else (int(x[0]), int(x[1])) for x in bag)
        for bag in bags
    )
    arrays = (np.asarray(array, float) for array in (embeddings, cls, head))
    labels = tuple(int(y) for y in labels)
    return Problem("", 0, *arrays, pairs, labels, float(until), float(until_norm))


def _until(random):
    """A log-time to end at, mostly late."""
    return random.choice([8.0, 12.0, 20.0, 30.0, 50.0, 100.0, 1e3, 1e4])


def _log(random, low, high):
    """A number whose decimal logarithm is uniform."""
    return 10.0 ** random.uniform(low, high)


def _rotation(random, dim):
    return np.linalg.qr(random.normal(size=(dim, dim)))[0]


def _bag(random, tokens, most=1):
    counts = random.choice([1, 1, 1, 10, 400][: 3 if most == 1 else 5], len(tokens))
    return [(token, count) for token, count in zip(tokens, counts, strict=True)]


def _plain(random):
    tokens = random.integers(2, TOKENS + 1)
    if random.random() < 0.4:
        rows = np.eye(tokens)
    else:
        dim = random.integers(1, DIM + 1)
        rows = random.normal(size=(tokens, dim)) * random.choice([0.3, 1.0, 3.0])
    number = random.integers(1, 7)
    bags, labels = [], random.choice([-1, 1], number)
    for _ in range(number):
        size = random.integers(2, tokens + 1)
        bags.append(_bag(random, random.permutation(tokens)[:size], most=400))
    dim = rows.shape[1]
    head = random.normal(size=dim) * random.choice([0.3, 1.0, 5.0])
    until, norm = _until(random), np.inf
    if random.random() < 0.3:
        until, norm = 1e15, random.choice([30.0, 1e2, 1e4, 1e6])
    start = random.normal(size=dim) * random.choice([0.1, 1.0, 10.0])
    return problem(rows, start, head, bags, labels, until, norm)


def _separable(random):
    """Bags whose labels agree with their values, so that p has somewhere to go."""
    plain = _plain(random)
    values = plain.embeddings @ plain.head
    labels = [1 if np.mean([values[t] for t, _ in b]) > 0 else -1 for b in plain.bags]
    return replace(plain, labels=tuple(labels))


def _against(random, differences, weak, strong, until):
    """Bags {0, k} in a plane, where D_k of k ≥ 2 may pull towards the loser.

    The head is drawn such that token 0 deserves to win against 1; the label of every
    other bag, and the strength of all, are drawn.
    """
    differences = np.asarray(differences, float)
    dim = differences.shape[1]
    rows = -np.vstack([np.zeros(dim), differences])
    head = random.normal(size=dim)
    head = head * np.sign(head @ differences[0])
    bags = [[(0, 1), (1, 1)]]
    labels = [1]
    for token in range(2, len(rows)):
        bags.append([(0, random.choice(weak)), (token, random.choice(strong))])
        labels.append(random.choice([-1, 1]))
    start = random.normal(size=dim) * random.choice([0.3, 3.0])
    # At the start token 0 is ahead.
    start = start + differences[0] * random.choice([0.0, 3.0])
    if random.random() < 0.5:
        turn = _rotation(random, dim) * random.choice([0.5, 1.0, 2.0])
        rows, head, start = rows @ turn, head @ turn, start @ turn
    return problem(rows, start, head, bags, labels, until)


def _near_tie(random):
    shift = random.choice([-1.0, 1.0]) * _log(random, -12, -1)
    differences = [[1.0, 0.0], [1.0 + shift, random.choice([-1.0, 1.0])]]
    if random.random() < 0.5:
        differences.append([1.0 + _log(random, -3, 0), random.normal()])
    return _against(random, differences, [1, 10], [1, 10, 400], _until(random))


def _zero_dual(random):
    differences = [[1.0, 0.0], [1.0, 1.0]]
    if random.random() < 0.5:
        above = random.choice([0.01, 0.1, 1.0])
        differences.append([1.0 + above, random.choice([-10.0, -1.0, 1.0])])
    until = _log(random, 1.2, 9.5)
    return _against(random, differences, [1, 10, 400], [1, 10], until)


def _margin_above_one(random):
    lever = random.choice([0.0, 1.0, 10.0, 100.0]) * random.choice([-1.0, 1.0])
    differences = [[1.0, 0.0], [1.0 + _log(random, -4, -1), lever]]
    if random.random() < 0.7:
        duality = random.choice([0.0, _log(random, -4, -1)])
        differences.insert(1, [1.0 - duality, random.choice([-1.0, 1.0])])
    return _against(random, differences, [1, 10, 400], [1, 10], _until(random))


def _lever(random):
    """A small error of the slow pair is a large one of a pair that has to fade."""
    dual = _log(random, -4, -1)
    lever = _log(random, 2, 6) * random.choice([-1.0, 1.0])
    differences = [[1.0, 0.0], [1.0 - dual, 1.0], [1.0 + _log(random, -2, 1), lever]]
    until = _log(random, 0.8, 3.0)
    return _against(random, differences, [1, 10], [1, 10, 400], until)


def _three_bags(random):
    """Three tokens in three bags, long and lopsided."""
    bags = [[(0, 1000), (1, 1)], [(0, 1), (2, 500)], [(1, 1000), (2, 1)]]
    bags = [[(t, max(1, int(c * random.random()))) for t, c in bag] for bag in bags]
    start = random.normal(size=3) * random.choice([1.0, 10.0])
    labels = random.choice([-1, 1], 3)
    return problem(np.eye(3), start, random.normal(size=3), bags, labels, 20.0)


def _gauge(random):
    """p_0 moved far along what no softmax sees: components, or an axis without tokens."""
    makers = _plain, _separable, _three_bags, _three_bags, _return, _wrong_sign
    makers += _margin_above_one, _margin_above_one, _near_tie, _lever, _saddle
    made = makers[random.integers(len(makers))](random)
    until = made.until_log_time if random.random() < 0.3 else random.uniform(5, 60)
    made = replace(made, until_log_time=float(until), until_norm=np.inf)
    tokens, dim = made.embeddings.shape
    far = _log(random, 2, 6) * random.choice([-1.0, 1.0])
    if np.array_equal(made.embeddings, np.eye(tokens)):
        group = np.arange(tokens)
        for bag in made.bags:
            for token, _ in bag:
                group[group == group[token]] = group[bag[0][0]]
        shift = far * random.normal(size=tokens)[group]
        return replace(made, cls=made.cls + shift)
    if dim == DIM:
        return made
    rows = np.pad(made.embeddings, [(0, 0), (0, 1)])
    head = np.append(made.head, random.normal())
    return replace(made, embeddings=rows, head=head, cls=np.append(made.cls, far))


def _nearly_cancelling(random):
    """The same bag with both labels, and values that hardly differ."""
    tokens = random.integers(2, 5)
    small = _log(random, -10, -3)
    values = random.normal(size=tokens)
    values[1] = values[0] + small * random.choice([-1.0, 1.0])
    bags, labels = [], []
    for _ in range(random.integers(1, 4)):
        bag = _bag(random, random.permutation(tokens)[: random.integers(2, tokens + 1)])
        bags += [bag, [(t, c + random.integers(0, 2)) for t, c in bag]]
        labels += [1, -1]
    bags.append([(0, 1), (1, 1)])
    labels.append(random.choice([-1, 1]))
    start = random.normal(size=tokens) * random.choice([0.3, 3.0, 10.0])
    return problem(np.eye(tokens), start, values, bags, labels, _until(random))


def saddle(near, beyond, ahead, norm=1e4):
    """An active pair of the wrong sign, as minimum and saddle of Φ nearly merge.

    E = I, bags {i, j}, i ∈ {0, 1}, j ∈ {2, 3, 4}. Duals λ_ij = c_ij e^{−(ρ_i − ρ_j)} with
    row sums 0.6 and column sums 0.4 have one free number, ξ = −λ_02, and a critical
    point of Φ is a ξ with ξ(0.1 − ξ/2)/((0.3 + ξ/2)(0.4 + ξ)) = κ: a minimum, then a
    saddle, which merge at the largest κ.

    Args:
        near: 1 − κ over that largest κ.
        beyond: distance of p_0 from the saddle, in ξ.
        ahead: p_0 is on the line of its ξ where log t is this; p waits till then.
        norm: ‖p‖ to stop at.
    """

    def ratio(xi):
        return xi * (0.1 - xi / 2) / ((0.3 + xi / 2) * (0.4 + xi))

    middle = minimize_scalar(
        lambda xi: -ratio(xi), bounds=(0.0, 0.2), method="bounded", options={"xatol": 0}
    ).x
    wanted = (1 - near) * ratio(middle)
    xi = middle
    if near > 0:
        xi = brentq(lambda xi: ratio(xi) - wanted, middle, 0.2, xtol=1e-15)
    xi = min(max(xi + beyond, 1e-6), 0.2 - 1e-6)
    values = np.array([1.0, 2.0, 1.0 + wanted / (2 + wanted), 0.0, 0.0])
    strength = (values[1] - values[2:]) / (1 + np.exp(values[1])) / 9
    duals = np.array([0.4 + xi, 0.1 - xi / 2, 0.1 - xi / 2])
    first = 1 / (1 + np.exp(values[0])) / 9 / (0.3 + xi / 2)
    losers = np.log(duals / strength)
    winners = np.array([np.log(first) + losers[1], 0.0])
    start = ahead * np.array([0.6, 0.6, -0.4, -0.4, -0.4])
    start = start + np.concatenate([winners, losers])
    bags = [[(i, 1), (j, 1)] for i in (0, 1) for j in (2, 3, 4)] + [[2], [3], [4]]
    labels = [1] * 6 + [-1] * 3
    return problem(np.eye(5), start, values, bags, labels, 1e15, norm)


def _saddle(random):
    near = random.choice([-1.0, 1.0, 1.0, 1.0]) * _log(random, -9, -1)
    apart = max(np.sqrt(abs(near)), 1e-3) * random.choice([0.1, 0.3])
    made = saddle(near, apart * random.uniform(-2, 1), random.choice([10.0, 20.0, 40.0]))
    if random.random() < 0.5:
        until = random.choice([100.0, 1e3, 1e4])
        made = replace(made, until_log_time=until, until_norm=np.inf)
    return made


def _wrong_sign(random):
    """Crossed bags of winners and losers, where some active pair pulls its loser."""
    winners = random.integers(1, 3)
    tokens = winners + random.integers(2, 4)
    losers = np.arange(winners, tokens)
    values = np.concatenate(
        [random.uniform(0.5, 2, winners), random.uniform(-1, 1, len(losers))]
    )
    values[winners] = values[0] + _log(random, -4, 0)
    bags = [_bag(random, [i, j], 400) for i in range(winners) for j in losers]
    start = np.where(np.arange(tokens) < winners, 1.0, -1.0)
    start = start * random.choice([1.0, 5.0, 20.0]) + random.normal(size=tokens)
    labels = np.ones(len(bags))
    return problem(np.eye(tokens), start, values, bags, labels, _until(random))


def _long_p0(random):
    made = random.choice([_plain, _separable])(random)
    length = _log(random, 1, 6)
    start = made.cls / max(np.linalg.norm(made.cls), 1e-300)
    until = random.choice([1.0, 3.0]) * max(length, 30.0)
    return replace(made, cls=start * length, until_log_time=until, until_norm=np.inf)


def _twins(random):
    made = _plain(random)
    count = min(len(made.bags), 3)
    bags = [made.bags[i % count] for i in range(2 * count)]
    bags = [
        tuple((t, int(c) + (i >= count) * int(random.integers(0, 3))) for t, c in bag)
        for i, bag in enumerate(bags)
    ]
    return replace(made, bags=tuple(bags), labels=(1,) * count + (-1,) * count)


def _return(random):
    """Mathematics 7d: a token far behind comes back at log t = 2 gap + log ⅔ and later."""
    gap = random.uniform(3, 60)
    tokens = random.integers(3, 6)
    rows = np.eye(tokens)
    if random.random() < 0.5:
        rows = rows + 0.2 * random.normal(size=(tokens, tokens))
    head = np.zeros(tokens)
    head[:3] = [0.0, 1.0, -_log(random, -1, 0.5)]
    start = random.normal(size=tokens)
    start[1] -= gap
    bags = [_bag(random, [0, 1], 400), _bag(random, [0, 2], 400)]
    if tokens > 3:
        bags.append(_bag(random, [random.integers(0, 3), 3]))
    if tokens > 4:
        bags.append(_bag(random, [3, 4]))
    until = gap * random.uniform(0.5, 3)
    return problem(rows, start, head, bags, [1] * len(bags), until)


def _on_a_line(random):
    """p_0 beside the max-margin line of some selection, deserved or not."""
    made = random.choice([_plain, _separable, _wrong_sign])(random)
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
    return replace(made, cls=start, until_log_time=until, until_norm=np.inf)


def _sure(random):
    """Values so long that residuals are e^{−γ}: pulls start at any size."""
    made = _separable(random)
    long = _log(random, 1, 2.8)
    return replace(made, head=made.head * long)


def _far(random):
    """Norms at which the rounding of p is no small part of a lead."""
    made = random.choice([_plain, _separable, _wrong_sign, _near_tie])(random)
    norm = 10.0 ** random.integers(6, 12)
    return replace(made, until_log_time=1e15, until_norm=norm)


KINDS = {
    "plain": _plain,
    "near_tie": _near_tie,
    "zero_dual": _zero_dual,
    "margin_above_one": _margin_above_one,
    "lever": _lever,
    "gauge": _gauge,
    "nearly_cancelling": _nearly_cancelling,
    "saddle": _saddle,
    "wrong_sign": _wrong_sign,
    "long_p0": _long_p0,
    "twins": _twins,
    "return": _return,
    "on_a_line": _on_a_line,
    "sure": _sure,
    "far": _far,
}
ATTACKS = [kind for kind in KINDS if kind != "plain"]
