"""Attacks on contracted ties.

Small problems in which tokens of both classes share bags, made so that contraction goes
wrong where it may: classes that are not closed, ties that are held weakly, twins,
losers that come back to a tied bag, or whose value is nearly that of the ties. What is
called TIED is followed from p_0 on the literal model, along its curve: all of it until
its ties have settled, and whenever a token comes back to them; else with the ties
solved for.

    python -m experiments.falsify.contraction --number 1000 --stepper bdf
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.integrate import Radau
from scipy.optimize import brentq

from experiments.common.console import Difference, command, say
from experiments.common.devices import configure
from experiments.common.study import check, presets
from jaxselect.data.corpus import Corpus
from jaxselect.flow.control import FlowSettings
from jaxselect.margin.certificate import Certificate, TrialStatus
from jaxselect.model.parameters import Parameters
from jaxselect.problem import attention
from jaxselect.stages import STAGES, Next, Stage, certify_stage, flow_to_end

from .forces import Lanes, lane, scaled, stacked
from .literal_ties import Literal, NoRest
from .settings import Attack
from .truth import Outcome, begin, cancelling, follow

TOKENS, DIM, BAGS, WIDTH = 6, 6, 6, 4
NORM = 1e4
# Single pulls over their sum: from here on ties may be solved for, where that moves no
# score by more.
OPPOSED, SETTLED = 1e7, 1e-4
# Weight of a loser that comes back to a tied bag, and that it is to lose again.
BACK, GONE = 1e-2, 5e-3
# A claim is followed to its log-time and half of that again; both times p is compared
# with its line.
BEYOND = 1.5
# Distance from the claimed line, in scores: the flow errs by 3e-5 in a step.
OFF = 5e-3
# Tolerance of both integrators, in scores; bounds on the times that ties are left, and
# on evaluations with ties solved for.
TOLERANCE, ROUNDS, EVALUATIONS = 1e-8, 12, 20_000
# Problems that are integrated in step.
LANES = 100
KINDS = ("plain", "weak", "twins", "chain", "return", "even")
# Ties of short tokens, which the long tokens of other bags push, or which are still on
# their way to rest when their forces cancel.
SHORT = ("pushed", "on their way")

Drawn: TypeAlias = tuple[np.ndarray, ...]
Claimed: TypeAlias = tuple[Parameters, Corpus, Stage, Certificate]


def draw(kind: str, seed: int) -> Drawn:
    """E, p_0, v, bags of distinct tokens with counts, labels; weights, unless equal."""
    if kind == "even":
        return draw_even(seed)
    return draw_short(kind, seed) if kind in SHORT else draw_any(kind, seed)


def draw_short(kind: str, seed: int) -> Drawn:
    """Tokens 0 and 1 tie; 2 and 4 push them, alone with a token or beside the ties.

    Tied rows are 10⁻³ to 10⁻⁶ long, others 10 to 10⁵; values are of order one. Where
    the ties are pushed, they are so short that a long token feels it when the forces of
    the ties cancel, at log t = 33.
    """
    random = np.random.default_rng([*kind.encode(), seed])
    weights = np.zeros(BAGS)
    short, size = 10 ** random.uniform([-6, 1], [-3, 5])
    rows, head = np.zeros((TOKENS, DIM)), np.zeros(DIM)
    labels = np.array([1, -1, 1, 1, 1, 1])
    if kind == "pushed":
        short = np.sqrt(size * 10 ** random.uniform(-13, -11))
    long = 1 / short
    if kind == "pushed":
        rows[2, :2] = 1, 2 * short - 2
        rows[4, :2] = size, 2 * short - 2 * size
        head[:2] = long, long / 2
        bags, weights[:4] = [[0, 1], [0, 1], [2, 3], [4, 3]], [0.35, 0.35, 0.2, 0.1]
        if random.random() < 0.5:
            bags[random.integers(2)].append(2)
    else:
        rows[2, :3] = -1, 2, (long - 1.5) / long**2 / 5
        rows[4, :3] = size, 10, (1 - size * long) / long**2 / 5
        rows[5, 2] = -0.1 / long**2
        head[[0, 2]] = long, 5 * long**2
        bags, weights[:3] = [[0, 1, 2], [0, 1], [4, 5]], [0.425, 0.425, 0.15]
    rows[:2, 0] = short, -short
    return rows, np.zeros(DIM), head, *_padded(bags), labels, weights


def draw_even(seed: int) -> Drawn:
    """Tokens 0 and 1 rest at f = log 2, and the value of token 2 is nearly that.

    Whether it returns is decided by its share of weight, which moves f, as long as that
    is not far below the difference of values. Other bags share no token with these.
    """
    random = np.random.default_rng([*b"even", seed])
    less = random.choice([-1, 1]) * 10 ** random.uniform(-12, -2)
    size, lead = random.uniform(1, 4), random.uniform(6, 20)
    head = np.array([size, -size, np.log(2) - less, *random.normal(size=3)])
    start = lead * np.array([1 / 3, 1 / 3, -2 / 3, 0, 0, 0])
    bags = [[0, 1], [0, 1], [0, 1], [3, 4], [4, 5], [3, 5]]
    labels = np.array([1, 1, -1, *random.choice([-1, 1], 3)])
    bags[random.integers(3)].append(2)
    return np.eye(TOKENS), start, head, *_padded(bags), labels


def _padded(bags: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Tokens and counts of bags, padded; those that are left have one token."""
    tokens, counts = np.zeros((BAGS, WIDTH), np.int32), np.zeros((BAGS, WIDTH))
    counts[:, 0] = 1.0
    for place, bag in enumerate(bags):
        tokens[place, : len(bag)], counts[place, : len(bag)] = bag, 1.0
    return tokens, counts


def draw_any(kind: str, seed: int) -> Drawn:
    """Random tokens, in bags that go wrong where the kind says."""
    random = np.random.default_rng([*kind.encode(), seed])
    rows = random.normal(size=(TOKENS, DIM)) * random.choice([0.5, 1.0, 3.0])
    start = random.normal(size=DIM) * random.choice([0.1, 1.0])
    head = random.normal(size=DIM)
    tokens = np.array([random.permutation(TOKENS)[:WIDTH] for _ in range(BAGS)])
    counts = random.integers(1, 4, (BAGS, WIDTH)).astype(float)
    counts[random.random((BAGS, WIDTH)) < 0.3] = 0.0
    counts[:, 0] = np.maximum(counts[:, 0], 1.0)
    labels = random.choice([-1, 1], BAGS)
    if kind == "weak":
        head *= random.choice([3.0, 10.0])
    if kind == "twins":
        tokens[1], counts[1], labels[1] = tokens[0], counts[0], -labels[0]
    if kind == "chain":
        for bag in range(BAGS):
            tokens[bag, :2] = (bag // 2) % 3, (bag // 2 + 1) % 3
            rest = [t for t in random.permutation(TOKENS) if t not in tokens[bag, :2]]
            tokens[bag, 2:] = rest[:2]
        labels = np.array([1, -1] * (BAGS // 2))
        counts[:, :2] = np.maximum(counts[:, :2], 1.0)
    if kind == "return":
        start *= 30.0
    return rows, start, head, tokens.astype(np.int32), counts, labels


def claimed(
    *given: np.ndarray, norm: float = NORM, stages: int = STAGES, stepper: str = "rodas"
) -> Claimed:
    """The library's run to its end, and its certificate; one program."""
    arrays = map(jnp.asarray, given)
    found: Claimed = _claimed(*arrays, norm=norm, stages=stages, stepper=stepper)
    return found


@partial(jax.jit, static_argnames="stepper")
def _claimed(
    rows: Array,
    start: Array,
    head: Array,
    tokens: Array,
    counts: Array,
    labels: Array,
    weights: Array | None = None,
    *,
    norm: float,
    stages: int,
    stepper: str,
) -> Claimed:
    corpus = Corpus(tokens, counts, labels, TOKENS, weights)
    model = Parameters(rows, start, head)
    problem = attention(model, corpus)
    settings = FlowSettings(stepper=stepper)
    stage = flow_to_end(problem, until_norm=norm, stages=stages, settings=settings)
    return model, corpus, stage, certify_stage(problem, stage)


@dataclass
class Claim:
    """A TIED run, and what the literal model says of it.

    Attributes:
        lanes: the problem, for `truth`.
        start: p_0.
        log_time: from which on the line is claimed.
        line: p of a log-time, claimed.
        ties: the literal model, with the ties of each stage solved for, those of most
            tokens first.
        at: τ and p that have been come to.
        compared: how often p has been compared with the line.
        rest: those of `ties` that rest there.
        verdict: empty until there is one.
    """

    lanes: Lanes
    start: np.ndarray
    log_time: float
    line: Callable[[float], Any]
    ties: list[Literal]
    at: tuple[float, np.ndarray]
    compared: int = 0
    rest: Literal | None = None
    verdict: str = ""

    @property
    def until(self) -> float:
        """The log-time at which p is compared with the line next."""
        return (1.0, BEYOND)[self.compared] * self.log_time


def claim_of(
    given: Drawn, norm: float = NORM, stepper: str = "rodas"
) -> tuple[str, Claim | None]:
    """The status of a drawn problem, and the claim that is made of one that is TIED."""
    run = partial(claimed, *given, norm=norm, stepper=stepper)
    model, corpus, stage, found = run()
    status = TrialStatus(found.status.item()).name
    if status != "TIED":
        return status, None
    ties, number = [stage.ties], 1
    while stage.point.clock_start > 0:
        *_, before, _ = run(stages=number)
        if before.point.next == Next.NOTHING:
            break
        ties[:0] = [before.ties] * bool(before.contracted)
        number += 1
    rows, start, head, tokens, counts, labels, *weights = given
    bags = [
        [(t, c) for t, c in zip(*bag, strict=True) if c > 0]
        for bag in zip(tokens, counts, strict=True)
    ]
    return status, Claim(
        lanes=lane(rows, start, head, bags, labels, (BAGS, WIDTH, DIM), *weights),
        start=start,
        log_time=stage.flow.log_time.item(),
        line=found.ending.late.query_at,
        ties=sorted(
            (Literal(model, corpus, each) for each in ties),
            key=lambda truth: -len(truth.axes),
        ),
        at=(0.0, start),
    )


def settled(claim: Claim, p: np.ndarray) -> bool:
    """Whether ties of a stage rest at p; which is noted, they are solved for there."""
    for truth in claim.ties:
        truth.place = truth.axes @ p
        try:
            there, at, _ = truth.solved(p - truth.place @ truth.axes)
        except NoRest:
            continue
        near = np.ptp(truth.e @ (there - p)) < SETTLED
        if near and truth.log_shares(at).max() < np.log(GONE):
            claim.rest = truth
            return True
    return False


def follow_whole(claims: Sequence[Claim]) -> None:
    """All of p until the ties of each claim have settled, or it is compared."""
    for claim in claims:
        claim.rest = None
    lanes = stacked([claim.lanes for claim in claims])
    starts = np.array([claim.start for claim in claims])
    late, p = map(np.array, zip(*(claim.at for claim in claims), strict=True))
    course = begin(lanes, late, p - starts)
    tried = np.full(len(claims), OPPOSED)

    def rest(index: np.ndarray, y: np.ndarray, growth: np.ndarray) -> np.ndarray:
        ratio = cancelling(scaled(course.lanes.of(index), y))
        stops = np.zeros(len(index), bool)
        for place in np.flatnonzero(ratio > tried[index]):
            number = index[place]
            tried[number] = 2 * ratio[place]
            p = starts[number] + y[place, :-1] + growth[place] * y[place, -1]
            stops[place] = settled(claims[number], p)
        return stops

    ends = np.array([claim.until for claim in claims])
    follow(course, ends, callback=rest, tolerance=TOLERANCE, rest=False)
    for claim, p, late, outcome in zip(
        claims, starts + course.moved, course.y[:, -1], course.outcome, strict=True
    ):
        claim.at = late, p
        if outcome == Outcome.REACHED:
            compare(claim)
        elif outcome != Outcome.STOPPED and not settled(claim, p):
            claim.verdict = f"unknown: {Outcome(outcome).name}"


def follow_ties(claim: Claim, truth: Literal) -> None:
    """What the ties leave, to the end of a claim or until a token is back at them."""
    late, p = claim.at
    solver = Radau(
        lambda _, y: truth.curve_or_nan(y)[0],
        0.0,
        np.append(p - (truth.axes @ p) @ truth.axes, late),
        np.inf,
        jac=lambda _, y: truth.curve(y)[1],
        first_step=1e-3,
        rtol=TOLERANCE,
        atol=TOLERANCE,
    )
    tried = OPPOSED
    try:
        while solver.status == "running" and solver.nfev < EVALUATIONS:
            solver.step()
            while solver.y[-1] > claim.until:
                late = claim.until
                claim.at = late, truth.whole(passing(solver, late)[:-1])
                compare(claim)
                if claim.verdict:
                    return
            p, at, _ = truth.solved(solver.y[:-1])
            claim.at = solver.y[-1], p
            if truth.log_shares(at).max() > np.log(BACK):
                break
            if truth.cancelling(solver.y[-1], at) > 2 * tried:
                tried = truth.cancelling(solver.y[-1], at)
                if settled(claim, p) and claim.rest is not truth:
                    return
    except NoRest:
        pass
    if solver.nfev >= EVALUATIONS:
        claim.verdict = "unknown: too long"
    elif claim.at[0] > claim.log_time:
        claim.verdict = f"refuted: ties are left at {claim.at[0]:.6g}"


def passing(solver: Radau, late: float) -> np.ndarray:
    """The state of a solver where its last step passed a log-time."""
    path = solver.dense_output()
    length = brentq(lambda length: path(length)[-1] - late, solver.t_old, solver.t)
    return path(length)


def compare(claim: Claim) -> None:
    """Compare p with the line where it begins, and at the end of the claim."""
    late, p = claim.at
    off = np.ptp(claim.ties[0].e @ (p - np.asarray(claim.line(late))))
    claim.compared += 1
    if not off < OFF:
        claim.verdict = f"refuted: {off:.2g} off its line"
    elif claim.compared == 2:
        claim.verdict = "confirmed"


def judge(claims: Sequence[Claim]) -> None:
    """Follow claims until each has a verdict."""
    for _ in range(ROUNDS):
        left = [claim for claim in claims if not claim.verdict]
        if not left:
            return
        with np.errstate(all="ignore"):
            follow_whole(left)
            for claim in left:
                if not claim.verdict and claim.rest:
                    follow_ties(claim, claim.rest)
    for claim in claims:
        claim.verdict = claim.verdict or "unknown: too many returns"


def attack(number: int, seed: int = 0, stepper: str = "rodas") -> Counter:
    """Verdicts by kind and status; those that are no confirmation are printed."""
    table: Counter = Counter()
    for first in range(seed, seed + number, LANES):
        begun, tied = time.monotonic(), []
        for each in range(first, min(first + LANES, seed + number)):
            kind = KINDS[each % len(KINDS)]
            status, claim = claim_of(draw(kind, each), stepper=stepper)
            if claim:
                tied.append((kind, each, claim))
            else:
                table[kind, status, ""] += 1
        judge([claim for *_, claim in tied])
        for kind, each, claim in tied:
            table[kind, "TIED", claim.verdict.split(":")[0]] += 1
            if claim.verdict != "confirmed":
                say(f"{kind} {each}: {claim.verdict}")
        say(f"from {first} on: {time.monotonic() - begun:.0f} s")
    return table


def run(settings: Attack) -> dict:
    """Run the attack; a table of kinds, statuses and verdicts."""
    check(settings)
    configure("float64")
    table = attack(settings.number, settings.seed, settings.stepper)
    lines = {" ".join(key).strip(): number for key, number in sorted(table.items())}
    for line, number in lines.items():
        say(f"{line:40} {number}")
    refuted = any(verdict == "refuted" for *_, verdict in table)
    return Difference(lines) if refuted else lines


PRESETS = presets(default=Attack(number=1000), smoke=Attack(number=20))


if __name__ == "__main__":
    command(run, PRESETS)
