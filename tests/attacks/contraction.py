"""Attacks on contracted ties: python -m tests.attacks.contraction --number 1000.

Small problems in which tokens of both classes share bags, made so that contraction goes
wrong where it may: classes that are not closed, ties that are held weakly, twins,
losers that come back to a tied bag. What is called TIED is followed from p_0 by SciPy,
on the literal model: all of it while rounding allows, then with its ties solved for.
"""

import argparse
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
from scipy.integrate import solve_ivp

from jaxselect.data.corpus import Corpus
from jaxselect.margin.certificate import TrialStatus
from jaxselect.model.parameters import Parameters
from jaxselect.trial import beginning, certify_stage, flow_to_end

from .literal_ties import Literal

TOKENS, DIM, BAGS, WIDTH = 6, 6, 6, 4
NORM = 1e4
# Log-time until which all of p is integrated; a rounding of a pull is 10⁻⁷ there.
EARLY = 20.0
# Distance from the claimed line, in scores: the flow errs by 3e-5 in a step.
OFF = 5e-3
KINDS = ("plain", "weak", "twins", "chain", "return")


def draw(kind, seed):
    """E, p_0, v, bags of distinct tokens with counts, and labels."""
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


@jax.jit
def claimed(rows, start, head, tokens, counts, labels):
    """The library's run to its end, and its certificate."""
    corpus = Corpus(tokens=tokens, counts=counts, labels=labels, vocabulary=TOKENS)
    model = Parameters(rows, start, head)
    stage = flow_to_end(model, corpus, beginning(model), until_norm=NORM)
    return model, corpus, stage, certify_stage(model, corpus, stage)


def judged(given):
    """Status of a problem, and what the literal model says of a TIED one."""
    arrays = (jnp.asarray(x) for x in given)
    model, corpus, stage, found = claimed(*arrays)
    status = TrialStatus(found.status.item()).name
    if status != "TIED":
        return status, None
    truth = Literal(model, corpus, stage.ties)
    options = {"method": "BDF", "rtol": 1e-9, "atol": 1e-9}
    first = solve_ivp(truth.early, (0.0, EARLY), np.asarray(model.query), **options)
    if not first.success:
        return status, "unknown: integration"
    p = first.y[:, -1]
    free = p - (p @ truth.axes.T) @ truth.axes
    with np.errstate(all="ignore"):
        try:
            there = truth.whole(free)
        except np.linalg.LinAlgError:
            return status, "unknown: no rest"
        if not np.abs(truth.e @ (there - p)).max() < 0.1:
            return status, "unknown: not settled early"
        end = 1.5 * stage.flow.log_time.item()

        def back(tau, free):
            return truth.log_shares(truth.whole(free)).max() - np.log(1e-2)

        back.terminal, back.direction = True, 1.0
        late = solve_ivp(truth.field, (EARLY, end), free, events=back, **options)
    if late.status == 1:
        return status, f"refuted: a token returns at {late.t[-1]:.4g}"
    if not late.success:
        return status, "unknown: integration"
    line = np.asarray(found.ending.late.query_at(end))
    off = np.ptp(truth.e @ (truth.whole(late.y[:, -1]) - line))
    return status, "confirmed" if off < OFF else f"refuted: {off:.2g} off its line"


def attack(number, seed=0):
    """Verdicts by kind."""
    table = Counter()
    for each in range(number):
        kind = KINDS[each % len(KINDS)]
        status, verdict = judged(draw(kind, seed + each))
        table[kind, status, verdict and verdict.split(":")[0]] += 1
        if verdict and verdict.startswith("refuted"):
            print(kind, seed + each, verdict, flush=True)
    return table


def main():
    """Run the attack; a table of kinds, statuses and verdicts."""
    jax.config.update("jax_enable_x64", True)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--number", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    flags = parser.parse_args()
    for key, number in sorted(attack(flags.number, flags.seed).items(), key=str):
        print(*key, number)


if __name__ == "__main__":
    main()
