"""Certificates in ball arithmetic.

The hypotheses of the theorems, evaluated from the stored E, p_0, v, p, log t, p_mm, λ,
ρ and z*, which are taken as exact, in balls of 256 bits (Arb, by python-flint). p_mm is
solved for once more on the active pairs; nothing else is iterated. What a certificate
says in double precision holds, or fails, without an allowance for rounding; but μ and Ω
of ties hold to 2⁻³⁰ of them, since the rounding of H where its parts cancel is not in
the stored ones (one μ of the first 26 is too large by a share of 2·10⁻¹⁴).

Logistic loss, equal weights, labels ±1.

    python -m experiments.falsify.intervals --number 300 --stepper bdf
"""

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

import jax
import numpy as np
from flint import arb, arb_mat, ctx
from numpy.typing import ArrayLike

from experiments.common.console import Difference, command, say
from experiments.common.devices import configure
from experiments.common.study import check, presets
from jaxselect.data.corpus import Corpus
from jaxselect.margin.certificate import CERTIFIED, TOLERANCE, Certificate, TrialStatus
from jaxselect.model.parameters import Parameters
from jaxselect.stages import Stage
from jaxselect.ties import Ties

from .contraction import KINDS, Drawn, claimed, draw
from .settings import Attack

PRECISION = 256
EPS = float(np.finfo(float).eps)
ZERO, ONE = arb(0), arb(1)
# Of μ and Ω, for the rounding of the stored ones.
SHARE = arb(2) ** -30

Pair: TypeAlias = tuple[int, int]


def vector(numbers: ArrayLike) -> arb_mat:
    """A column of exact numbers."""
    return arb_mat([[arb(float(x))] for x in np.asarray(numbers)])


def dot(one: arb_mat, other: arb_mat) -> arb:
    """The product of two columns."""
    return (one.transpose() * other)[0, 0]


def size(column: arb_mat) -> arb:
    """Euclidean norm."""
    return root(dot(column, column))


def root(square: arb) -> arb:
    """Square root of what is no less than zero, whatever its ball reaches."""
    if square > 0:
        return square.sqrt()
    half = square.abs_upper().sqrt() / 2
    return arb(half.mid(), half.upper())


def positive(form: arb_mat) -> bool:
    """Whether a symmetric matrix is positive definite, by its pivots."""
    left = [[form[i, j] for j in range(form.ncols())] for i in range(form.nrows())]
    for k, row in enumerate(left):
        if not row[k] > 0:
            return False
        for i in range(k + 1, len(left)):
            share = left[i][k] / row[k]
            for j in range(k + 1, len(left)):
                left[i][j] -= share * row[j]
    return True


def columns(listed: Sequence[arb_mat]) -> arb_mat:
    """Columns side by side."""
    return arb_mat([[x[i, 0] for x in listed] for i in range(listed[0].nrows())])


def independent(rows: Sequence[arb_mat]) -> list[int]:
    """Places of vectors that span what all of them do, first come first.

    One whose distance to the span of those before may be zero is left out.
    """
    kept: list[arb_mat] = []
    places = []
    for place, row in enumerate(rows):
        rest = row
        for _ in range(2):
            for axis in kept:
                rest = rest - axis * dot(axis, rest)
        if size(rest) > arb(2) ** -150:
            kept.append(rest * (1 / size(rest)))
            places.append(place)
    return places


class Entry(NamedTuple):
    """A token of a bag: id, logit at p = 0, value."""

    token: int
    logit: arb
    value: arb


class Bag(NamedTuple):
    """Label, entries, and which entry is selected; −1 until that is known."""

    label: int
    entries: list[Entry]
    slot: int


class Verdict(NamedTuple):
    """What holds in balls.

    Attributes:
        holds: by hypothesis.
        values: of the numbers that decide, in double precision.
    """

    holds: dict
    values: dict

    @property
    def confirmed(self) -> bool:
        """Whether every hypothesis holds."""
        return all(self.holds.values())

    @property
    def failed(self) -> list[str]:
        """Those that do not."""
        return [name for name, held in self.holds.items() if not held]


def softmax(entries: Sequence[Entry], scores: Sequence[arb]) -> tuple[list[arb], arb]:
    """Shares, and the mean of the values under them."""
    pulls = [(e.logit + s).exp() for e, s in zip(entries, scores, strict=True)]
    total = sum(pulls, ZERO)
    shares = [pull / total for pull in pulls]
    mean = sum((q * e.value for q, e in zip(shares, entries, strict=True)), ZERO)
    return shares, mean


def slope(margin: arb) -> arb:
    """−ℓ′(m) = σ(−m)."""
    return 1 / (1 + margin.exp())


def spread(entries: Sequence[Entry]) -> arb:
    """Range of the values."""
    values = [entry.value for entry in entries]
    pairs = [abs(a - b) for a in values for b in values]
    return max_of(pairs)


def max_of(balls: Iterable[arb]) -> arb:
    """The largest."""
    found = ZERO
    for ball in balls:
        found = arb.max(found, ball)
    return found


def max_margin(
    rows: Sequence[arb_mat],
    pairs: Sequence[Pair],
    active: Sequence[Pair],
    direction: ArrayLike,
    duals: dict[Pair, arb],
) -> tuple[Verdict, arb_mat, dict[Pair, arb_mat], arb_mat]:
    """Definition 3c.3 on the stored numbers, and p_mm on the pairs that are active.

    Args:
        rows: E_s as columns.
        pairs: (s, r).
        active: of these, those of margin one.
        direction: p as stored.
        duals: λ as stored, by pair.

    Returns:
        What holds, p_mm of the active pairs, their D_k and the span's basis.
    """
    apart = {pair: rows[pair[0]] - rows[pair[1]] for pair in pairs}
    p = vector(direction)
    margins = {pair: dot(d, p) for pair, d in apart.items()}
    pulled = sum(
        (d * duals[k] for k, d in apart.items()), vector(np.zeros(len(p.entries())))
    )
    total = sum((duals[k] for k in pairs), ZERO)
    length = dot(p, p)
    gap = abs(1 - (2 * total - dot(pulled, pulled)) / length)
    short = max_of([1 - m for m in margins.values()])
    gross = sum((duals[k] * size(d) for k, d in apart.items()), ZERO) / root(length)
    allowed = max(4096 * EPS, min(12 * EPS * float(gross.upper()), EPS**0.6))

    listed = [apart[k] for k in active]
    chosen = independent(listed)
    basis = columns([listed[i] for i in chosen])
    gram = basis.transpose() * basis
    ones = vector(np.ones(len(chosen)))
    exact = basis * gram.solve(ones)
    others = [k for i, k in enumerate(active) if i not in chosen]
    rest = exact - sum((apart[k] * duals[k] for k in others), exact * 0)
    solved = gram.solve(basis.transpose() * rest)
    rounding = 1000 * EPS * max_of([size(row) * size(exact) for row in rows])
    holds = {
        "gap": gap <= allowed,
        "feasible": short <= 4096 * EPS,
        "duals of p_mm": all(solved[i, 0] > 0 for i in range(len(chosen))),
        "active margins": all(
            abs(dot(apart[k], exact) - 1) <= rounding for k in active
        ),
        "other margins": all(
            dot(apart[k], exact) > 1 for k in pairs if k not in active
        ),
    }
    values = {
        "gap": float(gap),
        "infeasibility": float(short),
        "KKT residual": float(size(pulled - p) / root(length)),
        "error of p_mm": float(size(p - exact) / size(exact)),
        "least dual": min(float(solved[i, 0]) for i in range(len(chosen))),
    }
    return Verdict(holds, values), exact, apart, basis


class Contracted(NamedTuple):
    """What ties at rest add: Λ of every bag, ‖Πp − z*‖ when contracted, μ, basin."""

    widths: list
    moved: arb
    stiffness: arb
    basin: arb


def late_flow(
    rows: Sequence[arb_mat],
    bags: Sequence[Bag],
    pairs: Sequence[Pair],
    active: Sequence[Pair],
    margin: tuple[Verdict, arb_mat, dict[Pair, arb_mat], arb_mat],
    query: ArrayLike,
    log_time: float,
    offset: ArrayLike,
    ties: Contracted | None = None,
) -> Verdict:
    """Theorems 3e.2 and 3e.4 of one selection, from stored p, log t and ρ."""
    found, exact, apart, basis = margin
    holds, values = dict(found.holds), dict(found.values)
    tau, p, rho = arb(log_time), vector(query), vector(offset)
    weight = ONE / len(bags)
    strength = dict.fromkeys(pairs, ZERO)
    for bag in bags:
        best = bag.entries[bag.slot]
        push = weight * slope(bag.label * best.value) * bag.label
        for entry in bag.entries:
            key = best.token, entry.token
            if key in strength:
                ratio = (entry.logit - best.logit).exp()
                strength[key] += push * ratio * (best.value - entry.value)

    # Φ at ρ in the coordinates of the basis: products with its vectors.
    inside = {k: basis.transpose() * apart[k] for k in active}
    duals = {k: strength[k] * (-dot(apart[k], rho)).exp() for k in active}
    hessian = arb_mat(basis.ncols(), basis.ncols())
    slopes = basis.transpose() * exact
    for k in active:
        hessian += inside[k] * inside[k].transpose() * duals[k]
        slopes -= inside[k] * duals[k]
    gram = basis.transpose() * basis
    holds["H > 0"] = positive(hessian)
    if not holds["H > 0"]:
        return Verdict(holds, values)
    inverse = hessian.inv()

    def squared(column: arb_mat) -> arb:
        return dot(column, inverse * column)

    # Pairs of no strength have no force.
    used = [k for k in active if not duals[k].is_zero()]
    decrement = root(squared(slopes))
    reach = root(max_of([squared(inside[k]) for k in used]))
    negative = [k for k in used if not duals[k] > 0]
    beta = 1 + 2 * sum((abs(duals[k]) * squared(inside[k]) for k in negative), ZERO)
    kantorovich = ONE.exp() * beta * reach * decrement
    product = inverse * gram
    trace = sum((product[i, i] for i in range(product.nrows())), ZERO)
    error = 2 * decrement * root(trace)
    widest = max_of([size(apart[k]) for k in used])
    basin = (1 + 1 / beta).log() / widest - error if negative else None
    holds["Newton–Kantorovich"] = kantorovich <= arb(1) / 8

    away = p - exact * tau - rho
    seen = basis.transpose() * away
    distance = root(dot(seen, gram.solve(seen))) + error
    residual = max_of(
        [abs(dot(apart[k], away)) + size(apart[k]) * error for k in active]
    )
    scores = [dot(row, p) for row in rows]
    slack = 256 * EPS * float(max_of([abs(a) for a in scores]).upper())
    holds["on the line"] = residual <= TOLERANCE + slack

    longest = max_of([size(d) for d in apart.values()])
    spent = ZERO
    for k in pairs:
        if k in active:
            continue
        d, excess = size(apart[k]), dot(apart[k], exact) - 1
        exponent = tau - dot(apart[k], p) + 2 * distance * d + TOLERANCE
        spent += abs(strength[k]) * exponent.exp() * d / excess
    unselected, omitted, push = ZERO, ZERO, ZERO
    for number, bag in enumerate(bags):
        own = [scores[entry.token] for entry in bag.entries]
        shares, mean = softmax(bag.entries, own)
        lost = sum((q for i, q in enumerate(shares) if i != bag.slot), ZERO)
        wide = spread(bag.entries)
        gross = weight * slope(bag.label * mean) * tau.exp() * lost * wide
        unselected = arb.max(unselected, lost * (1 + wide))
        omitted += 4 * lost * (1 + wide) * gross
        if ties is not None:
            push += gross * (4 + wide * 13 / 10) * ties.widths[number]
    grown = (2 * (2 * distance * longest + TOLERANCE)).exp()
    ways = spent + longest * omitted * grown
    if ties is not None:
        push *= grown * 3 / 2
        held = 2 * push / ties.stiffness / tau.exp()
        off = ties.moved + held
        holds["displacement"] = max_of(ties.widths) * off <= TOLERANCE
        holds["within the basin of the ties"] = off <= ties.basin
        soft = (1 + 2 / (ties.stiffness * tau.exp())).log()
        ways += longest * push * (ties.moved * soft + held)
        values["displacement"] = float(max_of(ties.widths) * off)
    bound = longest * ways
    holds["ε (1 + Δ) ≤ ⅛"] = unselected <= arb(1) / 8
    holds["B ≤ tol"] = bound <= TOLERANCE
    holds["within the basin"] = basin is None or distance + bound / longest <= basin
    values |= {
        "h": float(kantorovich),
        "error of ρ": float(error),
        "residual": float(residual),
        "B": float(bound),
    }
    return Verdict(holds, values)


def rest(
    rows: Sequence[arb_mat], bags: Corpus, ties: Ties, head: arb_mat
) -> tuple[Verdict, arb_mat, arb_mat, arb]:
    """Theorem 7b.1 with lemma 7b.2 of tied bags, at the stored z*.

    Returns:
        What holds, the basis of U, z* on it, and the distance of the minimum.
    """
    chosen = [np.flatnonzero(bag) for bag in ties.selected]
    tied = [i for i, bag in enumerate(chosen) if len(bag) > 1]
    tokens = [np.asarray(bags.tokens)[i][own] for i, own in enumerate(chosen)]
    differences = [rows[t] - rows[tokens[i][0]] for i in tied for t in tokens[i][1:]]
    basis = columns([differences[i] for i in independent(differences)])
    gram = basis.transpose() * basis
    place = basis * gram.solve(basis.transpose() * vector(ties.point))
    weight = ONE / len(chosen)
    soft = float(ties.rest.stiffness) ** 0.5
    ball = arb(float(ties.rest.reach) / soft)
    hessian = arb_mat(basis.ncols(), basis.ncols())
    change, slopes = hessian * 0, arb_mat(basis.ncols(), 1)
    widest = ZERO
    for i in tied:
        label = int(bags.labels[i])
        entries = [
            Entry(t, arb(float(c)).log(), dot(rows[t], head))
            for t, c in zip(tokens[i], bags.counts[i][chosen[i]], strict=True)
        ]
        shares, mean = softmax(entries, [dot(rows[e.token], place) for e in entries])
        seen = [basis.transpose() * rows[e.token] for e in entries]
        middle = sum((x * q for x, q in zip(seen, shares, strict=True)), seen[0] * 0)
        ahead = [x - middle for x in seen]
        off = [e.value - mean for e in entries]
        first, margin = slope(label * mean), label * mean
        pull = sum(
            (x * (q * b) for x, q, b in zip(ahead, shares, off, strict=True)),
            middle * 0,
        )
        second = sum(
            (
                x * x.transpose() * (q * b)
                for x, q, b in zip(ahead, shares, off, strict=True)
            ),
            hessian * 0,
        )
        slopes -= pull * (weight * first * label)
        bend = first * slope(-margin)
        hessian += pull * pull.transpose() * (weight * bend)
        hessian -= second * (weight * first * label)
        mean_off = sum((q * abs(b) for q, b in zip(shares, off, strict=True)), ZERO)
        diameter = max_of(
            [size(rows[a.token] - rows[b.token]) for a in entries for b in entries]
        )
        widest = arb.max(widest, diameter)
        near = first * (mean_off * ((diameter * ball).exp() - 1)).exp()
        bounds = [
            arb.min(ONE, near),
            arb.min(ONE / 4, near),
            arb.min(1 / (6 * arb(3).sqrt()), near),
        ]
        growth = arb(33) / 10 * bounds[0] + arb(72) / 10 * bounds[1] * mean_off
        growth += arb(19) / 10 * bounds[2] * mean_off**2
        for x, q, b in zip(ahead, shares, off, strict=True):
            each = weight * diameter * growth * q * (abs(b) + mean_off)
            change += x * x.transpose() * each
    stiffness = arb(float(ties.rest.stiffness)) * (1 - SHARE)
    omega = arb(float(ties.rest.lipschitz) * soft) * (1 + SHARE)
    holds = {
        "closed": closed(bags, ties),
        "H ≥ μ": positive(hessian - gram * stiffness),
        "H₃ ≤ Ω H": positive(hessian * omega - change),
        "ball": ball * 8 * widest <= 1,
    }
    values = {}
    radius = arb("inf")
    if holds["H ≥ μ"]:
        decrement = root(dot(slopes, hessian.inv() * slopes))
        radius = 2 * decrement / stiffness.sqrt()
        kantorovich = omega * decrement / stiffness.sqrt()
        reach = arb.min(ball, 1 / omega) / 2 - 2 * radius
        holds |= {
            "Ω ν/√μ ≤ ⅛": kantorovich <= arb(1) / 8,
            "2 ν/√μ ≤ R": radius <= ball,
            "within the basin of rest": arb(float(ties.moved)) <= reach,
        }
        values = {"Ω ν/√μ": float(kantorovich), "2 ν/√μ": float(radius)}
    return Verdict(holds, values), basis, place, radius


def closed(bags: Corpus, ties: Ties) -> bool:
    """Whether bags with two tokens of a class select both or neither."""
    for tokens, counts, chosen in zip(
        bags.tokens, bags.counts, ties.selected, strict=True
    ):
        for one in np.unique(ties.classes):
            of_class = (ties.classes[tokens] == one) & (counts > 0)
            if of_class.sum() > 1 and chosen[of_class].any() != chosen[of_class].all():
                return False
    return True


def contracted(
    rows: Sequence[arb_mat],
    bags: Corpus,
    ties: Ties,
    head: arb_mat,
    basis: arb_mat,
    place: arb_mat,
    radius: arb,
) -> tuple[list[arb_mat], list[Bag], list[arb]]:
    """Rows orthogonal to U, and entries with their shifts at the true minimum."""
    gram = basis.transpose() * basis

    def on(row: arb_mat) -> arb_mat:
        return basis * gram.solve(basis.transpose() * row)

    inside = [on(row) for row in rows]
    shifts = [
        dot(part, place) + arb(0, (size(part) * radius).upper()) for part in inside
    ]
    across = [row - part for row, part in zip(rows, inside, strict=True)]
    found = []
    for i, chosen in enumerate(ties.selected):
        entries, slot = [], -1
        there = [
            Entry(int(t), arb(float(c)).log() + shifts[t], dot(rows[t], head))
            for t, c in zip(bags.tokens[i], bags.counts[i], strict=True)
            if c > 0
        ]
        selected = {int(t) for t in bags.tokens[i][chosen]}
        if len(selected) > 1:
            held = [e for e in there if e.token in selected]
            _, value = softmax(held, [ZERO] * len(held))
            total = sum((e.logit.exp() for e in held), ZERO)
            token = int(ties.classes[held[0].token])
            entries, slot = [Entry(token, total.log(), value)], 0
            there = [e for e in there if e.token not in selected]
        entries += [e._replace(token=int(ties.classes[e.token])) for e in there]
        found.append(Bag(int(bags.labels[i]), entries, slot))
    # A class is seen by its first token.
    widths = [
        max_of([size(inside[int(t)] - inside[int(u)]) for t in held for u in held])
        for held in (
            tokens[counts > 0]
            for tokens, counts in zip(bags.tokens, bags.counts, strict=True)
        )
    ]
    return [across[int(ties.classes[t])] for t in range(len(rows))], found, widths


@ctx.workprec(PRECISION)
def judge(
    model: Parameters, corpus: Corpus, stage: Stage, found: Certificate
) -> Verdict:
    """The verdict in balls on a certificate of the library."""
    model, corpus, stage, found = jax.tree.map(
        np.asarray, (model, corpus, stage, found)
    )
    rows = [vector(row) for row in model.embeddings]
    head, ties = vector(model.head), stage.ties
    query, log_time = stage.flow.query, float(stage.flow.log_time)
    tied, at_rest = (ties.selected.sum(axis=1) > 1).any(), None
    holds, values, offset = {}, {}, found.ending.late.offset
    if tied:
        still, basis, place, radius = rest(rows, corpus, ties, head)
        holds, values = dict(still.holds), dict(still.values)
        if not still.confirmed:
            return still
        rows, bags, widths = contracted(rows, corpus, ties, head, basis, place, radius)
        numbers = ties.moved, ties.rest.stiffness, ties.rest.basin
        at_rest = Contracted(widths, *(arb(float(number)) for number in numbers))
    else:
        bags = [
            Bag(
                int(label),
                [
                    Entry(int(t), arb(float(c)).log(), dot(rows[t], head))
                    for t, c in zip(tokens, counts, strict=True)
                    if c > 0
                ],
                -1,
            )
            for tokens, counts, label in zip(
                corpus.tokens, corpus.counts, corpus.labels, strict=True
            )
        ]
    if not found.ending.pairs.held.any():
        # Nothing competes: every bag is one entry.
        holds["no pairs"] = all(len(bag.entries) == 1 for bag in bags)
        return Verdict(holds, values)

    pairs = [(int(s), int(r)) for s, r in np.argwhere(found.ending.pairs.held)]
    active = [k for k in pairs if found.ending.margin.active[k]]
    duals = {k: arb(float(found.ending.margin.duals[k])) for k in pairs}
    bags = [with_slot(bag, i, found, corpus, ties) for i, bag in enumerate(bags)]
    competing = {
        (bag.entries[bag.slot].token, e.token)
        for bag in bags
        for i, e in enumerate(bag.entries)
        if i != bag.slot
    }
    holds["pairs"] = competing == set(pairs)
    margin = max_margin(rows, pairs, active, found.ending.margin.direction, duals)
    arguments = rows, bags, pairs, active, margin, query, log_time, offset
    verdict = late_flow(*arguments, at_rest)
    return Verdict(holds | verdict.holds, values | verdict.values)


def with_slot(
    bag: Bag, number: int, found: Certificate, corpus: Corpus, ties: Ties
) -> Bag:
    """A bag with the entry that the certificate selects."""
    if bag.slot >= 0:
        return bag
    chosen = corpus.tokens[number][found.ending.selected[number]]
    (token,) = {int(ties.classes[t]) for t in chosen}
    (slot,) = (i for i, e in enumerate(bag.entries) if e.token == token)
    return bag._replace(slot=slot)


def resting(seed: int) -> Drawn:
    """A problem whose bags keep two tokens each, pulled by both labels."""
    rows, start, head, tokens, counts, _ = draw("plain", seed)
    tokens = np.array([[0, 1, 2, 3], [0, 1, 2, 3], [0, 1, 2, 3], *[[4, 5, 2, 3]] * 3])
    counts[:, :2], counts[:, 2:] = np.maximum(counts[:, :2], 1.0), 0.0
    labels = np.array([1, 1, -1, -1, -1, 1])
    return rows, start, head, tokens.astype(np.int32), counts, labels


def problem(number: int) -> tuple[str, Drawn]:
    """A problem of a kind that changes with its number."""
    kinds = (*KINDS, "resting")
    kind = kinds[number % len(kinds)]
    return kind, resting(number) if kind == "resting" else draw(kind, number)


def kind_of(status: TrialStatus) -> str:
    """Selected, tied or at rest."""
    return status.name if status >= TrialStatus.TIED else "SELECTED"


def attack(
    number: int, seed: int = 0, stepper: str = "rodas"
) -> tuple[Counter, dict[tuple[str, str], float]]:
    """Verdicts by kind of certificate; those that are not confirmed are printed."""
    table: Counter = Counter()
    largest: dict[tuple[str, str], float] = {}
    for each in range(seed, seed + number):
        kind, given = problem(each)
        run = claimed(*given, stepper=stepper)
        status = TrialStatus(int(run[-1].status))
        if status not in CERTIFIED:
            continue
        verdict = judge(*run)
        table[kind_of(status), verdict.confirmed] += 1
        for name, value in verdict.values.items():
            key = kind_of(status), name
            largest[key] = max(value, largest.get(key, 0.0))
        if not verdict.confirmed:
            say(f"{kind} {each} {status.name}: {verdict.failed} {verdict.values}")
    return table, largest


def run(settings: Attack) -> dict:
    """Counts of confirmed certificates, and the largest of every number."""
    check(settings)
    configure("float64")
    begun = time.monotonic()
    table, largest = attack(settings.number, settings.seed, settings.stepper)
    for (kind, confirmed), number in sorted(table.items()):
        say(f"{kind:10} {'confirmed' if confirmed else 'not confirmed':14} {number}")
    for (kind, name), value in sorted(largest.items()):
        say(f"{kind:10} {name:16} {value:.3g}")
    say(f"{time.monotonic() - begun:.0f} s")
    failed = sum(n for (_, confirmed), n in table.items() if not confirmed)
    results = {"certified": table.total(), "not confirmed": failed}
    return Difference(results) if failed else results


PRESETS = presets(default=Attack(number=300), smoke=Attack(number=18))


if __name__ == "__main__":
    command(run, PRESETS)
