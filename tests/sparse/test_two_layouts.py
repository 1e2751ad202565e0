"""Padded and ragged bags say the same: selection, ties, p_mm, ρ and how a flow ends.

Two layouts, two solvers of the max-margin problem and two proofs of ρ: whatever both
certify has to agree, on corpora drawn without regard to either.

Source: mathematics, sections 3g and 7c.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxselect.data.corpus import Corpus, from_sequences
from jaxselect.data.sparse import from_corpus
from jaxselect.flow.cls import FlowSettings, FlowStatus, cls_flow
from jaxselect.margin.certificate import CERTIFIED, TrialStatus, certify
from jaxselect.model.parameters import Parameters, span_axes
from jaxselect.model.selection import competing_pairs as padded_pairs
from jaxselect.model.selection import selected_tokens
from jaxselect.problem import attention
from jaxselect.sparse.bags import RaggedBags
from jaxselect.sparse.end import (
    FREE,
    End,
    LateFlow,
    flow_end,
    pair_forces,
)
from jaxselect.sparse.flow import BdfSettings, trajectory

NUMBER, TOKENS, BAGS, LENGTH, DIM = 120, 6, 6, 3, 6
UNTIL_NORM, BOUNDED = 1e3, FlowSettings(max_steps=512)
# p_mm relative to its length; ρ in units of the attention scores.
CLOSE = OFFSET = 1e-9
TIED = 10


@functools.cache
def problem(seed):
    """Gaussian tokens and a head; sequences with repeated tokens, random labels.

    Every eighth problem is made of three sequences, each of which stands there twice.
    """
    rng = np.random.default_rng(seed)
    drawn = [rng.integers(0, TOKENS, LENGTH) for _ in range(BAGS)]
    labels = rng.choice([-1, 1], BAGS)
    if seed % 8 == 0:
        drawn, labels = 2 * drawn[: BAGS // 2], np.tile(labels[: BAGS // 2], 2)
    bags = from_sequences(drawn, labels, vocabulary=TOKENS)
    width = ((0, 0), (0, LENGTH - bags.tokens.shape[1]))
    bags = Corpus(
        jnp.pad(bags.tokens, width), jnp.pad(bags.counts, width), bags.labels, TOKENS
    )
    start = rng.normal(size=DIM) * rng.choice([0.0, 1.0, 3.0])
    head = rng.normal(size=DIM) * rng.uniform(0.3, 2.0)
    return Parameters(
        *map(jnp.asarray, (rng.normal(size=(TOKENS, DIM)), start, head))
    ), bags


@jax.jit
@jax.vmap
def padded(model, bags):
    """A flow, what it selects, and the certificate of the padded layout."""
    problem = attention(model, bags)
    flow = cls_flow(problem, until_norm=UNTIL_NORM, settings=BOUNDED)
    scores = model.embeddings @ flow.query
    selected = selected_tokens(scores, bags, flow.log_time)
    return flow, selected, certify(problem, flow)


@functools.cache
def seen():
    """Every problem with its padded run."""
    problems = [problem(seed) for seed in range(NUMBER)]
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *problems)
    leaves, kind = jax.tree.flatten(jax.tree.map(np.asarray, padded(*stacked)))
    runs = [kind.unflatten(lane) for lane in zip(*leaves, strict=True)]
    return list(zip(problems, runs, strict=True))


def ragged_offset(model, corpus, flow, end):
    """Axes of the span of the active pairs, and ρ there, by the forces at p."""
    bags, query = RaggedBags.of_corpus(model, corpus), np.asarray(flow.query)
    found = pair_forces(bags, bags.counts, end.selected, query)
    longest = float(2 * np.linalg.norm(bags.embeddings, axis=1).max())
    late = LateFlow.at(
        found, bags.embeddings, end.margin, float(flow.log_time), longest, FREE
    )
    _, along, _ = late.equilibrium()
    on = late.excess == 0
    rows = bags.embeddings[found.winners[on]] - bags.embeddings[found.losers[on]]
    rho = query + along - end.margin.direction * float(flow.log_time)
    return span_axes(rows), rho


def without_copies(bags, selected):
    """A corpus and its selection; sequences that all stand there twice, once each."""
    leaves, half = (bags.tokens, bags.counts, bags.labels, selected), BAGS // 2
    if all((leaf[:half] == leaf[half:]).all() for leaf in leaves):
        leaves = [leaf[:half] for leaf in leaves]
    *parts, selected = leaves
    return Corpus(*parts, TOKENS), selected


def by_entry(mask, bags):
    """A mask in bag layout, as one over the entries of a count matrix."""
    row, slot = np.nonzero(np.asarray(bags.counts))
    order = np.lexsort((np.asarray(bags.tokens)[row, slot], row))
    return np.asarray(mask)[row, slot][order]


def disagreement(problem, found):
    """How the ragged layout contradicts a padded run; "" where both certify the same,
    None where one of them does not certify."""
    (model, bags), (flow, selected, claim) = problem, found
    bags, selected = without_copies(bags, selected)
    corpus = from_corpus(bags)
    end = flow_end(model, corpus, flow)
    if TrialStatus(int(claim.status)) not in CERTIFIED or not end.status.is_proved:
        return None
    if end.status is not End.SELECTED or end.tied.size:
        return "ties"
    if not (by_entry(selected, bags) == end.selected).all():
        return "selection"
    margin, late = claim.ending.margin, claim.ending.late
    off = np.linalg.norm(margin.direction - end.margin.direction)
    if not off <= CLOSE * margin.norm:
        return f"p_mm by {off / margin.norm:.1e}"
    axes, offset = ragged_offset(model, corpus, flow, end)
    scores = np.asarray(model.embeddings) @ axes @ axes.T @ (offset - late.offset)
    return "" if np.ptp(scores) <= OFFSET else f"ρ by {np.ptp(scores):.1e}"


def test_what_both_layouts_certify_is_the_same():
    said = [disagreement(*one) for one in seen()]
    assert not {seed: what for seed, what in enumerate(said) if what}
    assert said.count("") >= NUMBER / 2
    # The ragged layout proves whatever the padded one certifies.
    certified = [
        TrialStatus(int(claim.status)) in CERTIFIED for _, (_, _, claim) in seen()
    ]
    assert sum(certified) == said.count("")


def test_ties_are_those_of_the_padded_layout():
    """Proved ties keep their weight in the padded flow, too; p_mm orthogonal to them
    is optimal for the pairs of the padded selection, by its duals."""
    held = [one for one in seen() if one[1][0].status == FlowStatus.FORCES_CANCEL]
    proved = 0
    for (model, bags), (_, selected, _) in held[:TIED]:
        found = trajectory(
            model, from_corpus(bags), settings=BdfSettings(max_steps=1000)
        )
        end = found.ending
        if end.status is not End.TIED or found.returns:
            continue
        proved += 1
        assert (by_entry(selected, bags) == end.selected).all()
        pairs = np.asarray(padded_pairs(jnp.asarray(selected), bags))
        direction = end.margin.direction
        assert np.linalg.norm(direction @ end.axes) <= CLOSE * np.linalg.norm(direction)
        scores = np.asarray(model.embeddings) @ direction
        ahead = scores[:, None] - scores[None]
        assert ahead[pairs].min(initial=np.inf) >= 1 - CLOSE
        assert end.margin.duals.sum() == pytest.approx(direction @ direction, rel=CLOSE)
    assert proved >= TIED / 2
