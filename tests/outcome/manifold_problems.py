"""Problems whose ties rest on a manifold, their ends and what follows these."""

import functools

import jax.numpy as jnp
import numpy as np
from scipy.integrate import solve_ivp

from jaxselect.corpora.corpus import from_sequences
from jaxselect.corpora.sparse import from_corpus
from jaxselect.flow.manifold_flow import manifold_flow, on_manifold
from jaxselect.flow.result import FlowStatus
from jaxselect.margin import manifold_equilibrium as balance
from jaxselect.model.parameters import Parameters
from jaxselect.model.ragged_bags import RaggedBags
from jaxselect.outcome.manifold_end import _late_flow
from jaxselect.outcome.trajectory import trajectory
from jaxselect.pairs.pair_forces import pair_forces
from jaxselect.pairs.ragged_pairs import contract_ties

TWINS = ([[0, 1, 2], [0, 1, 2]], [1, -1])
# Words 0 and 2 each beat word 3, with values 1, −1, 0 and −1 of words 0 to 3.
CLOSED = ([*TWINS[0], [0, 3], [2, 3]], [1, -1, 1, 1])
HEAD = np.array([1.0, -1.0, 0.0, -1.0])
DRAWN = (33, 34, 82)
# Where a tied token falls from its content without any force on it.
CARRIED = (18, 37, 139)
SETTLED = 2000.0


def drawn(seed):
    """A few twins of three words among random bags."""
    rng = np.random.default_rng(seed)
    sequences, labels = [], []
    for _ in range(rng.integers(1, 3)):
        bag, number = rng.choice(4, 3, replace=False).tolist(), int(rng.integers(1, 3))
        sequences += [bag] * (number + 1)
        labels += [1] * number + [-1]
    for _ in range(rng.integers(3, 7)):
        length = int(rng.integers(2, 4))
        sequences.append(rng.choice(7, length, replace=False).tolist())
        labels.append(int(rng.choice([-1, 1])))
    embeddings, head = rng.normal(size=(7, 9)) / 3, rng.normal(size=9) * 1.5
    return sequences, labels, embeddings, head, rng.normal(size=9)


def parts(sequences, labels, embeddings, head, start):
    vocabulary = len(embeddings)
    corpus = from_corpus(from_sequences(sequences, labels, vocabulary=vocabulary))
    return Parameters(*map(jnp.asarray, (embeddings, start, head))), corpus


def late_flow(problem, cls, ending):
    """The flow on the manifold, from the end of a trajectory."""
    model, corpus = parts(*problem)
    bags = RaggedBags.of_corpus(model, corpus)
    counts, selected = contract_ties(bags.counts, ending.selected)
    late = _late_flow(bags, ending.selected, cls, ending.margin)
    ties = None if late is None else late.ties
    return ties, pair_forces(bags, counts, selected, cls).response


def moved(ties, cls, log_time, until):
    """The p to which the flow on the manifold comes."""
    flow = manifold_flow(ties, cls, log_time, until)
    assert flow.status == FlowStatus.REACHED
    return on_manifold(ties, np.asarray(flow.cls))


@functools.cache
def ended(seed):
    """A problem, and its trajectory to a proved end."""
    problem = drawn(seed)
    return problem, trajectory(*parts(*problem), until_log_time=SETTLED)


@functools.cache
def balanced(seed):
    """The late flow of a proved end, its balance, p and s."""
    problem, found = ended(seed)
    ties, response = late_flow(problem, found.cls, found.ending)
    rest = balance.stationary(ties, found.cls, found.log_time)
    return ties, rest, found.cls, found.log_time, response


def potential(ties, rest, log_time, cls):
    """Φ and f − target at p, from scores: shares of no other function."""
    scores = ties.embeddings @ cls
    top = np.where(ties.counts > 0, scores[ties.words], -np.inf).max(axis=1)
    held = ties.counts * np.exp(np.minimum(scores[ties.words] - top[:, None], 0.0))
    lead = np.log(held.sum(axis=1)) + top
    exponent = log_time - lead[ties.content] + scores[ties.loser]
    on = ties.excess == 0
    phi = float(np.sum((ties.strength * np.exp(exponent))[on]))
    # p − p_mm s: seen from the balance, so that no digits are lost.
    phi += float(ties.growth @ (cls - rest.cls))
    output = (held @ ties.values[ties.words] / held.sum(axis=1))[ties.twins]
    strict = ties.strict
    return phi, np.append(output - ties.target, strict.axes.T @ cls - strict.cls)


def ending_rows(problem, ending):
    """Differences of selected and losing words, orthogonal to the ties."""
    _, corpus = parts(*problem)
    counts = corpus.by_sequence.to_csr().toarray()
    free = problem[2] - (problem[2] @ ending.axes) @ ending.axes.T
    csr = corpus.by_sequence.to_csr()
    chosen = np.zeros(counts.shape, bool)
    row = np.repeat(np.arange(len(counts)), np.diff(csr.indptr))
    chosen[row, csr.indices] = ending.selected
    return np.array(
        [
            free[np.argmax(keep)] - free[lost]
            for keep, bag in zip(chosen, counts, strict=True)
            for lost in np.flatnonzero((bag > 0) & ~keep)
        ]
    )


def followed_further(problem, found, until=2000.0):
    """SciPy's Radau bag by bag, twins at f = target: how far z moves, lost shares."""
    sequences, labels, embeddings, head, _ = problem
    values, selected = embeddings @ head, iter(found.ending.selected)
    bags = []
    for words, label in zip(sequences, labels, strict=True):
        words = np.unique(words)
        kept = np.array([next(selected) for _ in words])
        bags.append((words[kept], words[~kept], label))
    number, common = {}, {}
    for kept, lost, label in bags:
        number.setdefault(tuple(kept), []).append(label)
        common.setdefault(tuple(kept), set(lost)).intersection_update(lost)
    # A token of all twins of a content has a share, and no force.
    bags = [
        (np.array([*kept, *common[tuple(kept)]], int), {*lost} - common[tuple(kept)], y)
        if len(kept) > 1
        else (kept, lost, y)
        for kept, lost, y in bags
    ]
    labels_of = {
        tuple([*kept, *common[kept]] if len(kept) > 1 else kept): found
        for kept, found in number.items()
    }
    twins = [list(kept) for kept in labels_of if len(kept) > 1]
    growth = found.ending.margin.direction

    def field(s, z):
        score = embeddings @ (z + growth * s)
        total = -growth
        for kept, lost, label in bags:
            top = score[kept].max()
            held = np.exp(score[kept] - top)
            output = held @ values[kept] / held.sum()
            if len(kept) > 1:
                label_of = np.array(labels_of[tuple(kept)])
                output = np.log((label_of > 0).sum() / (label_of < 0).sum())
            mean = held @ embeddings[kept] / held.sum()
            for r in lost:
                size = np.exp(s + score[r] - top - np.log(held.sum()))
                size *= label * (output - values[r]) / (1 + np.exp(label * output))
                total = total + size / len(bags) * (mean - embeddings[r])
        rows = []
        for kept in twins:
            held = np.exp(score[kept] - score[kept].max())
            held /= held.sum()
            rows.append(
                (held * (values[kept] - held @ values[kept])) @ embeddings[kept]
            )
        normal = np.linalg.qr(np.array(rows).T)[0]
        return total - normal @ (normal.T @ (total + growth))

    s = found.log_time
    begin = found.cls - growth * s
    done = solve_ivp(field, (s, until), begin, "Radau", rtol=1e-8, atol=1e-8)
    score = embeddings @ (done.y + growth[:, None] * done.t)
    shares = [
        np.exp(score[list(lost)] - score[kept].max(axis=0)).max(initial=0.0)
        for kept, lost, _ in bags
    ]
    return done.success, np.ptp(embeddings @ (done.y[:, -1] - begin)), max(shares)
