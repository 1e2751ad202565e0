"""Ends of the flow on sparse counts: each status with its proof, and no other one.

Source: mathematics, sections 7c and 7d.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import ortho_group

from jaxselect.data import sparse
from jaxselect.model.parameters import Parameters
from jaxselect.sparse import rest
from jaxselect.sparse.bags import RaggedBags, curvature, descent
from jaxselect.sparse.end import CertificateStatus, End, _shift, flow_end
from jaxselect.sparse.flow import BdfSettings, sparse_flow
from tests.sparse.problems import AT_REST, SELECTED, TIED, followed, problem
from tests.tolerances import assert_close
from tests.trial.test_stages import CHANGE, rounded


def end_of(seed, dim=6):
    model, _, corpus = problem(seed, dim)
    return flow_end(model, corpus, followed(seed, dim))


def across(axes, vectors):
    """The part of vectors that is orthogonal to the axes."""
    return vectors - vectors @ axes @ axes.T


def rows_of(counts):
    return np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))


@pytest.mark.parametrize("seed", SELECTED)
def test_the_pace_of_a_selection_is_that_of_p_mm(seed):
    """Its selection, p_mm and ρ are compared with others in `test_two_layouts`."""
    flow, found = followed(seed), end_of(seed)
    assert found.status is End.SELECTED
    assert found.rest is None and not found.tied.size and found.axes.shape == (6, 0)
    speed = (flow.query - flow.earlier_query) / 2
    off = np.linalg.norm(speed - found.margin.direction)
    assert_close(found.pace, off / np.linalg.norm(found.margin.direction))
    assert found.limit.status is CertificateStatus.OFFSET
    assert not found.limit.active_wrong_sign


@pytest.mark.parametrize("seed", TIED)
def test_tied_words_rest_and_the_others_go_on_across_them(seed):
    model, _, corpus = problem(seed)
    flow, found = followed(seed), end_of(seed)
    assert found.status is End.TIED
    embeddings = np.asarray(model.embeddings)
    # The axes are of the span of differences, p_mm is orthogonal to it.
    axes, tied = found.axes, embeddings[found.tied]
    assert_close(axes.T @ axes, np.eye(axes.shape[1]))
    counts = corpus.by_sequence.to_csr()
    differences = []
    for row in range(counts.shape[0]):
        part = slice(counts.indptr[row], counts.indptr[row + 1])
        kept = counts.indices[part][found.selected[part]]
        assert len(kept) and (len(kept) == 1 or np.isin(kept, found.tied).all())
        differences.extend(embeddings[kept[1:]] - embeddings[kept[0]])
    differences = np.array(differences)
    assert np.linalg.matrix_rank(differences) == axes.shape[1]
    assert_close(differences @ axes @ axes.T, differences)
    assert len(found.tied) <= 2 * axes.shape[1] and len(tied) >= axes.shape[1] + 1
    assert_close(axes.T @ found.margin.direction, np.zeros(axes.shape[1]))
    # p comes to rest along them, and it does go on across.
    assert found.rest.proved and found.distance <= found.rest.basin
    along = axes.T @ np.asarray(flow.query)
    assert found.distance == pytest.approx(np.linalg.norm(found.rest.point - along))
    assert np.linalg.norm(flow.query) > 50
    # Late the whole risk pulls along the axes as little as that of the tied bags.
    bags = RaggedBags.of_corpus(model, corpus)
    pull, _ = descent(
        bags,
        np.asarray(flow.query) + axes @ (found.rest.point - along),
    )
    assert np.linalg.norm(axes.T @ pull) < 1e-9


@pytest.mark.parametrize("seed", TIED)
def test_scores_err_by_what_the_minimum_may_be_off(seed, monkeypatch):
    """An entry against the tokens that its bag selects, along weak and stiff axes."""
    monkeypatch.setattr(rest, "NEWTON_STEPS", 0)
    model, _, corpus = problem(seed)
    bags, found = RaggedBags.of_corpus(model, corpus), end_of(seed)
    rows, chosen = rows_of(bags.counts), np.flatnonzero(found.selected)
    entry, one = np.nonzero(rows[:, None] == rows[chosen])
    for off in 1e-7 * np.linalg.eigh(curvature(found.shared, found.rest.point))[1].T:
        near = rest.certified_minimum(found.shared, found.rest.point + off)
        assert near.proved
        bound = _shift(bags, found.selected, found.axes, found.shared, near)[entry]
        moved = bags.gather(bags.embeddings @ found.axes @ off)
        moved = np.abs(moved[entry] - moved[chosen][one])
        assert (moved <= bound).all() and moved.max() > 0 and bound.max() < 1e-4


@pytest.mark.parametrize(
    ("seed", "dim"), [(SELECTED[0], 6), (TIED[0], 6), *((seed, 2) for seed in AT_REST)]
)
def test_an_end_does_not_follow_rounding(seed, dim):
    """Its steps do not either: at rest the forces are rounding alone."""
    model, _, corpus = problem(seed, dim)
    exact, steps = end_of(seed, dim), followed(seed, dim).num_steps
    scale = np.linalg.norm(exact.margin.direction)
    for signs in range(4):
        moved = rounded(model, jax.random.key(signs))
        flow = sparse_flow(moved, corpus)
        found = flow_end(moved, corpus, flow)
        assert found.status is exact.status and abs(flow.num_steps - steps) <= 2
        off = np.linalg.norm(found.margin.direction - exact.margin.direction)
        assert off <= CHANGE * scale
        if exact.rest is not None:
            along = found.axes @ found.rest.point
            wanted = exact.axes @ exact.rest.point
            np.testing.assert_allclose(along, wanted, rtol=0, atol=CHANGE)


@pytest.mark.parametrize("seed", [SELECTED[0], TIED[0]])
def test_too_early_and_broken_off_is_not_yet(seed):
    model, _, corpus = problem(seed)
    early = sparse_flow(model, corpus, until_log_time=3.0)
    assert flow_end(model, corpus, early).status is End.UNPROVED
    few = BdfSettings(max_steps=60)
    broken = sparse_flow(model, corpus, settings=few)
    assert flow_end(model, corpus, broken).status is End.UNPROVED
    nowhere = sparse_flow(model, corpus, until_log_time=0.0)
    assert flow_end(model, corpus, nowhere).status is End.UNPROVED


CASES = [(SELECTED[0], 6), (TIED[1], 6), (AT_REST[0], 2)]


def turned(seed, dim, flow, rotation):
    """The same problem and flow in other coordinates."""
    model, _, _ = problem(seed, dim)
    there = jnp.asarray(rotation)
    moved = Parameters(
        model.embeddings @ there, model.query @ there, model.head @ there
    )
    flow = eqx.tree_at(
        lambda flow: (flow.query, flow.earlier_query),
        flow,
        (flow.query @ there, flow.earlier_query @ there),
    )
    return moved, flow


@pytest.mark.parametrize(("seed", "dim"), CASES)
def test_a_rotation_turns_the_end_and_changes_nothing_else(seed, dim):
    rotation = ortho_group.rvs(dim, random_state=seed)
    moved, flow = turned(seed, dim, followed(seed, dim), rotation)
    wanted = end_of(seed, dim)
    found = flow_end(moved, problem(seed, dim)[2], flow)
    assert found.status is wanted.status
    np.testing.assert_array_equal(found.selected, wanted.selected)
    np.testing.assert_array_equal(found.tied, wanted.tied)
    assert_close(
        found.margin.direction,
        wanted.margin.direction @ rotation,
        worse=100,
    )
    # Axes are of one span; the place of rest in it is one.
    assert_close(
        found.axes @ found.axes.T,
        rotation.T @ wanted.axes @ wanted.axes.T @ rotation,
    )
    if wanted.rest is not None:
        assert_close(
            found.axes @ found.rest.point,
            rotation.T @ wanted.axes @ wanted.rest.point,
            worse=1e3,  # Newton's method ends where rounding stops it: over μ, 5e-3.
        )
        assert found.rest.stiffness == pytest.approx(wanted.rest.stiffness, rel=1e-6)


@pytest.mark.parametrize(("seed", "dim"), CASES)
def test_classes_exchanged_leave_everything_as_it_is(seed, dim):
    """(y, v) → (−y, −v) is the same risk, to the last bit."""
    model, _, corpus = problem(seed, dim)
    other = Parameters(model.embeddings, model.query, -model.head)
    swapped = sparse.SparseCorpus(corpus.by_sequence, corpus.by_token, -corpus.labels)
    found, wanted = flow_end(other, swapped, followed(seed, dim)), end_of(seed, dim)
    np.testing.assert_array_equal(found.shared.labels, -wanted.shared.labels)
    found, wanted = (tuple(end._replace(shared=None)) for end in (found, wanted))
    jax.tree.map(np.testing.assert_array_equal, found, wanted)
