"""The max-margin problem of bags: against the dense solver, and by brute force.

Source: mathematics, section 7c.
"""

import numpy as np
import pytest
from scipy.sparse import csr_array

from jaxselect.margin.max_margin import MaxMarginStatus
from jaxselect.sparse import end as module
from jaxselect.sparse.end import competing_pairs, least_distance, sparse_max_margin
from tests.margin.pair_problems import separable, solve_each
from tests.tolerances import assert_close

WORDS, DIM, BAGS = 8, 6, 6


def corpus(seed, planted=True):
    """Bags of two to five words; of each the best one under some p, or any."""
    rng = np.random.default_rng(seed)
    embeddings = rng.normal(size=(WORDS, DIM))
    scores = embeddings @ rng.normal(size=DIM)
    counts = np.zeros((BAGS, WORDS))
    for bag in counts:
        words = rng.choice(WORDS, rng.integers(2, 6), replace=False)
        bag[words] = rng.integers(1, 4, len(words))
    sparse = csr_array(counts)
    rank = scores if planted else rng.normal(size=(BAGS, WORDS))
    rank = np.where(counts > 0, np.broadcast_to(rank, counts.shape), -np.inf)
    chosen = rank == rank.max(axis=1, keepdims=True)
    row = np.repeat(np.arange(BAGS), np.diff(sparse.indptr))
    return embeddings, sparse, chosen[row, sparse.indices]


def by_hand(counts, selected):
    """Pairs of one bag after the other."""
    found, place = set(), 0
    for row in range(counts.shape[0]):
        words = counts.indices[counts.indptr[row] : counts.indptr[row + 1]].tolist()
        own = selected[place : place + len(words)]
        place += len(words)
        first = min(word for word, is_in in zip(words, own, strict=True) if is_in)
        found |= {
            (first, word) for word, is_in in zip(words, own, strict=True) if not is_in
        }
    return found


SEEDS = range(24)
PLANTED = [corpus(seed) for seed in SEEDS]
ANY = [corpus(100 + seed, planted=False) for seed in SEEDS]


@pytest.fixture(scope="module")
def dense():
    """The same problems for the dense solver."""
    masks = np.zeros((len(PLANTED), WORDS, WORDS), bool)
    for mask, (_, counts, selected) in zip(masks, PLANTED, strict=True):
        for winner, loser in by_hand(counts, selected):
            mask[winner, loser] = True
    embeddings = np.stack([problem[0] for problem in PLANTED])
    return solve_each(embeddings, masks)


def solved(problem, guess=None):
    embeddings, counts, selected = problem
    guess = np.ones(embeddings.shape[1]) if guess is None else guess
    return sparse_max_margin(embeddings, counts, selected, guess)


@pytest.mark.parametrize("seed", SEEDS)
def test_pairs_are_those_of_one_bag_after_the_other(seed):
    _, counts, selected = ANY[seed]
    winners, losers, _ = competing_pairs(counts, selected)
    found = list(zip(winners.tolist(), losers.tolist(), strict=True))
    assert len(found) == len(set(found)) and set(found) == by_hand(counts, selected)


@pytest.mark.parametrize("seed", SEEDS)
def test_is_the_dense_solution(dense, seed):
    found = solved(PLANTED[seed])
    assert dense.status[seed] == MaxMarginStatus.SOLVED
    assert found.status is MaxMarginStatus.SOLVED
    # Some digits of p_mm are lost with the angle between pairs: ‖p_mm‖ is up to 10.
    assert_close(found.direction, dense.direction[seed], worse=100)
    assert found.gap <= 1e-10 and found.infeasibility <= 1e-10
    active = dense.active[seed]
    assert active[found.winners, found.losers].all()
    # Where pairs are no more than their rank, p has one set of duals.
    rows = PLANTED[seed][0][:, None] - PLANTED[seed][0][None, :]
    if np.linalg.matrix_rank(rows[active]) == active.sum():
        duals = np.zeros((WORDS, WORDS))
        duals[found.winners, found.losers] = found.duals
        assert_close(duals, dense.duals[seed], worse=1000)


@pytest.mark.parametrize("seed", [0, 5, 11])
def test_the_guess_decides_nothing(seed, monkeypatch):
    """Even with one pair more a round, so that the order of pairs is the guess's."""
    wanted = solved(PLANTED[seed])
    monkeypatch.setattr(module, "ADDED", 1)
    rng = np.random.default_rng(seed)
    for guess in (
        np.zeros(DIM),
        -wanted.direction,
        1e6 * wanted.direction,
        1e-6 * wanted.direction,
        rng.normal(size=DIM),
    ):
        found = solved(PLANTED[seed], guess)
        assert found.status is MaxMarginStatus.SOLVED
        assert_close(found.direction, wanted.direction, worse=100)


def test_infeasible_is_what_a_linear_program_calls_so():
    statuses = []
    for problem in ANY:
        embeddings, counts, selected = problem
        winners, losers = np.array(sorted(by_hand(counts, selected))).T
        possible = separable(embeddings[winners] - embeddings[losers])
        found = solved(problem)
        wanted = MaxMarginStatus.SOLVED if possible else MaxMarginStatus.INFEASIBLE
        assert found.status is wanted
        statuses.append(wanted)
        if not possible:
            assert not found.direction.any()
    assert len(set(statuses)) == 2


CONTRADICTIONS = {
    "both ways": ([[1, 1], [1, 1]], [1, 0, 0, 1], [[1.0, 0.0], [0.0, 1.0]]),
    "a circle": (
        [[1, 1, 0], [0, 1, 1], [1, 0, 1]],
        [1, 0, 1, 0, 0, 1],
        [[1.0, 0.0], [0.0, 1.0], [3.0, 1.0]],
    ),
    "the same word twice": ([[1, 1]], [1, 0], [[1.0, 2.0], [1.0, 2.0]]),
    "between two": ([[1, 1, 1]], [0, 1, 0], [[-1.0, 2.0], [0.0, 2.0], [3.0, 2.0]]),
}


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
@pytest.mark.parametrize(
    ("counts", "selected", "embeddings"), CONTRADICTIONS.values(), ids=CONTRADICTIONS
)
def test_contradictions_are_infeasible_at_any_scale(
    counts, selected, embeddings, scale
):
    counts, selected = csr_array(np.array(counts, float)), np.array(selected, bool)
    embeddings = np.array(embeddings)
    found = sparse_max_margin(scale * embeddings, counts, selected, np.ones(2))
    assert found.status is MaxMarginStatus.INFEASIBLE
    assert not found.direction.any()


@pytest.mark.parametrize("scale", [1e-9, 1e-3, 1e9])
def test_longer_words_make_p_shorter_and_nothing_else(scale):
    """E → cE gives p_mm/c and λ/c²."""
    for embeddings, counts, selected in PLANTED[:6]:
        wanted = solved((embeddings, counts, selected))
        found = solved((scale * embeddings, counts, selected))
        assert found.status is MaxMarginStatus.SOLVED
        assert_close(found.direction * scale, wanted.direction, worse=100)
        assert found.duals.sum() * scale**2 == pytest.approx(wanted.duals.sum())


def test_without_a_loser_there_is_nothing_to_solve():
    embeddings, counts, selected = PLANTED[0]
    found = solved((embeddings, counts, np.ones_like(selected)))
    assert found.status is MaxMarginStatus.NO_PAIRS
    assert found.pairs == 0 and not found.direction.any() and not found.duals.size


def test_rounds_that_do_not_suffice_are_told(monkeypatch):
    """With the margins that are missing beside it."""
    monkeypatch.setattr(module, "ROUNDS", 1)
    monkeypatch.setattr(module, "ADDED", 1)
    found = [solved(problem) for problem in PLANTED]
    short = [margin for margin in found if margin.infeasibility > 1e-3]
    assert len(short) > len(SEEDS) / 2
    for margin in short:
        assert margin.status is MaxMarginStatus.NOT_CONVERGED
        assert margin.direction.any()


def test_a_longer_p_than_need_be_is_not_solved(monkeypatch):
    """It has every margin: only the gap, here 2 %, shows it."""

    def longer(rows):
        return tuple(1.01 * part for part in least_distance(rows))

    monkeypatch.setattr(module, "least_distance", longer)
    found = solved(PLANTED[0])
    assert found.infeasibility == 0
    assert found.gap == pytest.approx(1 - (2.02 - 1.01**2) / 1.01**2)
    assert found.status is MaxMarginStatus.NOT_CONVERGED


@pytest.mark.parametrize("narrow", [1e-1, 1e-3, 1e-5])
def test_a_narrow_margin_is_no_contradiction(narrow):
    """Two pairs nearly opposite, (± 1, ε): p = (0, 1/ε), its digits those of ε²."""
    rows = np.array([[1.0, narrow], [-1.0, narrow]])
    p, duals = least_distance(rows)
    assert p[1] * narrow == pytest.approx(1, rel=1e-15 / narrow**2)
    assert abs(p[0]) <= 1e-15 / narrow**2 * p[1]
    assert duals.sum() == pytest.approx(p @ p, rel=1e-15 / narrow**2)
