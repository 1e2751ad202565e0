"""Whether a claim of the library is refuted by the true flow."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxselect.data.corpus import Corpus
from jaxselect.flow.cls import FlowSettings, cls_flow
from jaxselect.margin.certificate import TrialStatus, certify
from jaxselect.margin.final import direction_is_final
from jaxselect.model.parameters import Parameters
from jaxselect.problem import attention
from jaxselect.status import Reason

from .forces import Lanes, lane, stacked
from .problem import BAGS, DIM, TOKENS, WIDTH, Problem
from .truth import Course, Outcome, begin, follow

CERTIFIED = {
    TrialStatus.SELECTED_ALL,
    TrialStatus.CAPTURED_POSITIVE,
    TrialStatus.CAPTURED_NEGATIVE,
    TrialStatus.PARTIAL,
    TrialStatus.SELECTED,
}
# How far a lead may be off the line that is certified, in scores, and off it relative
# to its size: what is certified is a thousandth, and the duality gap.
OFF, ROUNDING = 1e-2, 1e-12
# How far an end is followed: to this log-time, or twice its own; at ten times 10¹¹ the
# rounding of p_mm itself would be seen.
FAR, TWICE = 1e6, 2.0
LANES = 128
# Nearly all take a few hundred.
STEPS = 2048


@dataclass
class Finding:
    """How one problem ended.

    Attributes:
        problem: which one.
        status, flow_status: names of what the library says.
        certified: whether the late flow is, or the selection.
        line: whether the late flow is.
        known: whether the truth is, as far as it is needed.
        reasons: what refutes a certified claim; empty where nothing does.
        figures: numbers for a reader.
    """

    problem: Problem
    status: str
    flow_status: str
    certified: bool
    line: bool
    known: bool = True
    reasons: list[str] = field(default_factory=list)
    figures: dict = field(default_factory=dict)

    @property
    def refuted(self) -> bool:
        """Whether anything is against the claim."""
        return bool(self.reasons)


class Shape(NamedTuple):
    """Sizes that problems are padded to."""

    tokens: int = TOKENS
    dim: int = DIM
    bags: int = BAGS
    width: int = WIDTH


COMMON = Shape()


def own_shape(given: Problem) -> Shape:
    """The shape in which nothing of a problem is padded."""
    tokens, dim = given.embeddings.shape
    return Shape(tokens, dim, len(given.bags), max(map(len, given.bags)))


def padded(problems: Sequence[Problem], shape: Shape) -> tuple[np.ndarray, ...]:
    """Parameters, corpora and bounds of problems, stacked in one shape."""
    number = len(problems)
    rows = np.zeros((number, shape.tokens, shape.dim))
    start, head = np.zeros((2, number, shape.dim))
    tokens = np.zeros((number, shape.bags, shape.width), np.int32)
    counts = np.zeros(tokens.shape)
    labels = np.zeros(tokens.shape[:2], np.int32)
    for i, given in enumerate(problems):
        size, dim = given.embeddings.shape
        rows[i, :size, :dim] = given.embeddings
        # Tokens that never occur stand among the others.
        rows[i, size:, :dim] = given.embeddings[0]
        start[i, :dim], head[i, :dim] = given.query, given.head
        for row, bag in enumerate(given.bags):
            for slot, (token, count) in enumerate(bag):
                tokens[i, row, slot], counts[i, row, slot] = token, count
            labels[i, row] = given.labels[row]
    bounds = np.array([(p.until_log_time, p.until_norm) for p in problems])
    return rows, start, head, tokens, counts, labels, *bounds.T


@partial(jax.jit, static_argnames="stepper")
def claims(*problems: Array, stepper: str) -> dict[str, Array]:
    """The library's flow and certificate of stacked problems, one after the other."""
    settings = FlowSettings(max_steps=STEPS, stepper=stepper)
    return jax.lax.map(lambda given: _claim(settings, *given), problems)


def _claim(
    settings: FlowSettings,
    rows: Array,
    start: Array,
    head: Array,
    tokens: Array,
    counts: Array,
    labels: Array,
    until_log_time: Array,
    until_norm: Array,
) -> dict[str, Array]:
    corpus = Corpus(tokens=tokens, counts=counts, labels=labels, vocabulary=len(rows))
    problem = attention(Parameters(rows, start, head), corpus)
    flow = cls_flow(
        problem,
        until_norm=until_norm,
        until_log_time=until_log_time,
        settings=settings,
    )
    found = certify(problem, flow)
    end = found.ending
    return {
        "status": found.status,
        "final": direction_is_final(problem, flow, found),
        "flow_status": flow.status,
        "query": problem.lift(flow.query),
        "log_time": flow.log_time,
        "selected": end.selected,
        "active": end.margin.active,
        "growth": problem.lift_direction(end.late.growth),
        "offset": problem.lift(end.late.offset),
    }


def filled(given: Problem, shape: Shape) -> Problem:
    """The problem with as many bags as the shape has, of the same mean or p_mm.

    Bags are repeated where that comes out even; else one-token bags, which move
    nothing, join them, in the library's problem and in the true one alike.
    """
    number = len(given.bags)
    whole = shape.bags // number if shape.bags % number == 0 else 1
    rest = shape.bags - whole * number
    bags = given.bags * whole + (((given.bags[0][0][0], 1),),) * rest
    labels = given.labels * whole + (given.labels[0],) * rest
    return type(given)(**{**vars(given), "bags": bags, "labels": labels})


def true_lanes(problems: Sequence[Problem], shape: Shape) -> Lanes:
    """The problems as `truth` has them."""
    size = shape.bags, shape.width, shape.dim
    return stacked(
        [lane(p.embeddings, p.query, p.head, p.bags, p.labels, size) for p in problems]
    )


class Watch:
    """How far leads are from the line that is claimed, at every step of the truth."""

    def __init__(self, lanes: Lanes, claim: dict, starts: np.ndarray) -> None:
        """Claims of the library about all lanes, from p_0 = starts."""
        index = np.arange(len(lanes))[:, None, None]
        self.chosen = claim["selected"].argmax(2)
        apart, present = lanes.apart, np.isfinite(lanes.log_counts)
        present &= np.isfinite(lanes.log_share)[..., None]
        top = self.chosen[..., None]
        self.apart = np.take_along_axis(apart, top[..., None], axis=2) - apart
        self.ahead = np.take_along_axis(lanes.ahead, top, axis=2) - lanes.ahead
        self.losers = present & (np.arange(present.shape[2]) != top)
        tokens = claim["tokens"]
        winner = np.take_along_axis(tokens, top, axis=2)
        self.active = claim["active"][index, winner, tokens] & self.losers
        # An error of an active lead moves a lead of a long difference as far.
        length = np.linalg.norm(self.apart, axis=-1)
        shortest = np.where(self.active, length, np.inf).min((1, 2))[:, None, None]
        self.lever = np.where(self.active, 1.0, np.maximum(length / shortest, 1.0))
        self.growth = np.einsum("bxwk,bk->bxw", self.apart, claim["growth"])
        moved = claim["offset"] - starts
        self.offset = np.einsum("bxwk,bk->bxw", self.apart, moved) + self.ahead
        self.worst_active, self.worst = np.zeros((2, len(lanes)))
        self.least = np.full(len(lanes), np.inf)

    def __call__(
        self, index: np.ndarray, y: np.ndarray, growth: np.ndarray
    ) -> np.ndarray:
        """Take in a step of some lanes; which of them are to stop."""
        late, apart = y[:, -1][:, None, None], self.apart[index]
        steeper = np.einsum("bxwk,bk->bxw", apart, growth) - self.growth[index]
        fixed = np.einsum("bxwk,bk->bxw", apart, y[:, :-1])
        off = fixed + self.ahead[index] - self.offset[index] + steeper * late
        line = self.growth[index] * late + self.offset[index]
        lead = line + off
        off = np.abs(off) / (OFF + ROUNDING * (np.abs(line) + np.abs(lead)))
        off = off / self.lever[index]
        worst = np.where(self.losers[index], off, 0.0).max((1, 2))
        active = np.where(self.active[index], off, 0.0).max((1, 2))
        least = np.where(self.losers[index], lead, np.inf).min((1, 2))
        self.worst[index] = np.maximum(self.worst[index], worst)
        self.worst_active[index] = np.maximum(self.worst_active[index], active)
        self.least[index] = np.minimum(self.least[index], least)
        # A selection that changed is refuted, wherever it goes.
        return least < 0


def compare(
    problems: Sequence[Problem],
    tolerance: float = 1e-7,
    *,
    stepper: str = "rodas",
    shape: Shape = COMMON,
    lanes: int = LANES,
) -> list[Finding]:
    """Compare the library's claim about every problem with its true flow.

    One compiled program serves all of a shape.

    Args:
        problems: in any order.
        tolerance: of a step of the true flow.
        stepper: of the library's flow.
        shape: the problems are padded to it.
        lanes: how many are integrated in step.
    """
    problems = [filled(given, shape) for given in problems]
    findings: list[Finding] = []
    # A chunk takes as long as its longest flow, and that is a matter of the kind.
    order = sorted(range(len(problems)), key=lambda i: problems[i].kind)
    for first in range(0, len(problems), lanes):
        some = [problems[i] for i in order[first : first + lanes]]
        full = some + some[:1] * (lanes - len(some))
        inputs = padded(full, shape)
        found = claims(*map(jnp.asarray, inputs), stepper=stepper)
        claim = jax.tree.map(np.asarray, found)
        claim |= {"tokens": inputs[3], "start": inputs[1]}
        findings += _compare(some, claim, tolerance, shape)
    return [findings[i] for i in np.argsort(order, kind="stable")]


def _compare(
    problems: Sequence[Problem], claim: dict, tolerance: float, shape: Shape
) -> list[Finding]:
    number = len(problems)
    names = "status", "flow_status", "log_time", "final"
    findings = []
    for given, *found in zip(problems, *(claim[key] for key in names), strict=False):
        status, flow, log_time, final = found
        line = TrialStatus(int(status)) in CERTIFIED
        findings.append(
            Finding(
                given,
                TrialStatus(int(status)).name,
                Reason(int(flow)).name,
                certified=line or bool(final),
                line=line,
                figures={"log_time": float(log_time)},
            )
        )
    index = np.array([i for i in range(number) if findings[i].certified], int)
    if not len(index):
        return findings
    lanes = true_lanes([problems[i] for i in index], shape)
    mine = {name: array[index] for name, array in claim.items()}
    found = [findings[i] for i in index]
    run = partial(_follow, lanes, mine, found, tolerance)
    run("flow", begin(lanes))
    moved = mine["query"] - mine["start"]
    run("certificate", begin(lanes, mine["log_time"], moved))
    return findings


def _follow(
    lanes: Lanes,
    claim: dict,
    findings: Sequence[Finding],
    tolerance: float,
    what: str,
    course: Course,
) -> None:
    """The truth from p_0, or from the end of the library's flow, against the claim."""
    late = claim["log_time"]
    course = follow(course, late, tolerance=tolerance)
    callback = Watch(lanes, claim, claim["start"])
    callback(np.arange(len(lanes)), course.y, course.lanes.growth)
    there = callback.worst_active.copy(), callback.worst.copy(), callback.least.copy()
    arrived = course.outcome == Outcome.REACHED
    course.outcome[arrived & (callback.least < 0)] = Outcome.STOPPED
    follow(
        course,
        np.maximum(TWICE * late, FAR),
        callback=callback,
        tolerance=tolerance,
    )
    for i, finding in enumerate(findings):
        outcome, here = Outcome(course.outcome[i]), arrived[i]
        active, every, least = (there[part][i] for part in range(3))
        later = callback.worst_active[i], callback.worst[i]
        if not finding.line:
            active, every, later = 0.0, 0.0, (0.0, 0.0)
        when, reason = f"log t = {course.y[i, -1]:.6g}", None
        if outcome == Outcome.RESTS:
            reason = f"p rests from {when} on"
        elif here and least < 0:
            reason = "another selection"
        elif here and active > 1:
            reason = f"active leads are off by {active * OFF:.3g}"
        elif here and every > 1:
            reason = f"other leads are off by {every * OFF:.3g}"
        elif outcome == Outcome.STOPPED:
            reason = f"the selection changes at {when}"
        elif later[0] > 1:
            reason = f"active leads leave by {later[0] * OFF:.3g}"
        elif later[1] > 1:
            reason = f"other leads leave by {later[1] * OFF:.3g}"
        elif outcome == Outcome.UNKNOWN:
            finding.known = False
        if reason:
            finding.reasons.append(f"{what}: {reason}")
        finding.figures[f"{what} steps"] = int(course.steps[i])
