"""Ends of the flow on sparse counts: each status with its proof, and no other one."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import ortho_group

from jaxselect.flow.bdf import BdfSettings
from jaxselect.flow.result import Flow, FlowStatus
from jaxselect.flow.sparse_flow import sparse_flow
from jaxselect.margin.limit_certificate import CertificateStatus
from jaxselect.margin.max_margin import MaxMarginStatus
from jaxselect.model import sparse
from jaxselect.model.corpus import from_sequences
from jaxselect.model.parameters import Parameters
from jaxselect.model.ragged_bags import RaggedBags
from jaxselect.model.ragged_objective import descent
from jaxselect.outcome.ending import ending
from jaxselect.outcome.flow_end import flow_end
from jaxselect.outcome.trial_status import End
from tests.sparse_problems import AT_REST, SELECTED, TIED, VOCABULARY, followed, problem
from tests.tolerances import assert_close

LATE = 30.0


def end_of(seed, dim=6):
    model, _, corpus = problem(seed, dim)
    return flow_end(model, corpus, followed(seed, dim))


def by_hand(cls, earlier, log_time=LATE, status=FlowStatus.REACHED):
    """A flow that was said to go from `earlier` to `cls` in two log-times."""
    nothing = jnp.zeros(0)
    return Flow(
        jnp.asarray(cls, float),
        jnp.asarray(log_time),
        jnp.asarray(status, jnp.int32),
        jnp.asarray(1),
        None,
        nothing,
        jnp.zeros((0, len(cls))),
        jnp.asarray(log_time - 2.0),
        jnp.asarray(earlier, float),
    )


def straight(direction, rho=0.0, log_time=LATE):
    """p = direction · log t + ρ."""
    cls = np.asarray(direction, float) * log_time + rho
    return by_hand(cls, cls - 2 * np.asarray(direction, float), log_time)


def words(sequences, labels, values):
    """Orthonormal words of given values, p_0 = 0: scores are coordinates of p."""
    corpus = from_sequences(sequences, labels, vocabulary=len(values))
    model = Parameters(
        jnp.eye(len(values)), jnp.zeros(len(values)), jnp.asarray(values, float)
    )
    return model, sparse.from_corpus(corpus)


def across(axes, vectors):
    """The part of vectors that is orthogonal to the axes."""
    return vectors - vectors @ axes @ axes.T


def rows_of(counts):
    return np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))


@pytest.fixture(scope="module")
def dense_ending():
    return jax.jit(ending)


@pytest.mark.parametrize("seed", SELECTED)
def test_selected_agrees_with_the_padded_ending(dense_ending, seed):
    model, dense, corpus = problem(seed)
    flow, found = followed(seed), end_of(seed)
    assert found.status is End.SELECTED
    wanted = dense_ending(model, dense, flow.cls, flow.log_time)
    table = np.zeros((len(dense.labels), VOCABULARY), bool)
    rows = np.arange(len(dense.labels))[:, None]
    np.logical_or.at(table, (rows, np.asarray(dense.tokens)), wanted.selected)
    counts = corpus.by_sequence.to_csr()
    np.testing.assert_array_equal(
        found.selected, table[rows_of(counts), counts.indices]
    )
    assert_close(found.margin.direction, wanted.margin.direction, worse=100)
    assert found.rest is None and not found.tied.size and found.axes.shape == (6, 0)
    # The certificate is right: the flow's pace is that of p_mm.
    speed = (flow.cls - flow.earlier_cls) / 2
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
    along = axes.T @ np.asarray(flow.cls)
    assert found.distance == pytest.approx(np.linalg.norm(found.rest.cls - along))
    assert np.linalg.norm(flow.cls) > 50
    # Late the whole risk pulls along the axes as little as that of the tied bags.
    bags = RaggedBags.of_corpus(model, corpus)
    pull, _ = descent(
        bags,
        np.asarray(flow.cls) + axes @ (found.rest.cls - along),
    )
    assert np.linalg.norm(axes.T @ pull) < 1e-9


@pytest.mark.parametrize("seed", AT_REST)
def test_everything_tied_is_at_rest(seed):
    """In two dimensions there is no direction in which all bags could be decided."""
    model, _, corpus = problem(seed, 2)
    found = end_of(seed, 2)
    assert found.status is End.AT_REST
    assert found.selected.all() and found.axes.shape == (2, 2)
    assert found.margin.status is MaxMarginStatus.NO_PAIRS
    pull, _ = descent(RaggedBags.of_corpus(model, corpus), found.axes @ found.rest.cls)
    assert np.linalg.norm(pull) < 1e-14


def tie():
    """Words 0 and 1 at ± 1 held by bags of both classes, 2 over 3, both over 3."""
    return words([[0, 1, 3], [0, 1], [2, 3]], [1, -1, 1], [1.0, -1.0, 1.5, -1.5])


def test_a_tie_in_closed_form_to_the_last_number():
    """(x, x, w, r): x − r ≥ 1 and w − r ≥ 1 at least length, 2x² + w² + r²."""
    model, corpus = tie()
    found = flow_end(model, corpus, sparse_flow(model, corpus))
    assert found.status is End.TIED
    assert found.tied.tolist() == [0, 1]
    assert_close(np.abs(found.axes[:, 0]), np.array([1, 1, 0, 0]) / np.sqrt(2))
    assert found.axes[0, 0] == pytest.approx(-found.axes[1, 0])
    # p_0 = p_1 in the limit; 3 has lost by e⁻³⁰.
    assert_close(found.rest.cls, [0.0])
    # L″ = f′²/4 as a mean over three bags, f = tanh(p/√2), in two of them.
    assert found.rest.stiffness == pytest.approx(2 / 3 * 0.25 / 2)
    assert_close(found.margin.direction, [0.25, 0.25, 0.25, -0.75])
    bags = [True, True, False], [True, True], [True, False]
    assert found.selected.tolist() == [word for bag in bags for word in bag]


MM = np.array([0.25, 0.25, 0.25, -0.75])


def test_a_flow_on_its_line_is_certified_and_off_it_is_not():
    """The line of the tie above by hand: what is changed is all that is wrong."""
    model, corpus = tie()
    along = np.array([1.0, -1.0, 0.0, 0.0])
    line = straight(MM)
    assert flow_end(model, corpus, line).status is End.TIED
    basin = flow_end(model, corpus, line).rest.basin
    inside = straight(MM, 0.9 * basin / np.sqrt(2) * along)
    assert flow_end(model, corpus, inside).status is End.TIED
    out = straight(MM, 1.1 * basin / np.sqrt(2) * along)
    assert flow_end(model, corpus, out).status is End.UNPROVED
    # One that broke off, one without a past, one at no time.
    for wrong in (
        by_hand(line.cls, line.earlier_cls, status=FlowStatus.FAILED),
        by_hand(line.cls, line.earlier_cls, status=FlowStatus.OUT_OF_STEPS),
        by_hand(line.cls, np.full(4, np.inf)),
        by_hand(line.cls, np.full(4, np.inf), status=FlowStatus.OUT_OF_STEPS),
        by_hand(line.cls, line.cls - 2 * MM, log_time=0.0),
    ):
        assert flow_end(model, corpus, wrong).status is End.UNPROVED


def test_a_way_to_rest_is_no_part_of_the_pace():
    """Two log-times ago the tied words were at other odds."""
    model, corpus = tie()
    line = straight(MM)
    other = line.earlier_cls + 0.4 * jnp.array([1.0, -1.0, 0.0, 0.0])
    found = flow_end(model, corpus, by_hand(line.cls, other))
    assert found.status is End.TIED and found.pace < 1e-12


def test_a_pace_is_measured_and_proves_nothing():
    """Where all forces are positive no start leads elsewhere."""
    model, corpus = tie()
    found = flow_end(model, corpus, straight(MM * 1.3))
    assert found.pace == pytest.approx(0.3)
    assert found.status is End.TIED
    assert found.limit.status is CertificateStatus.OFFSET and not found.limit.wrong_sign


@pytest.mark.parametrize(("label", "status"), [(1, "SELECTED"), (-1, "UNPROVED")])
def test_a_pace_against_the_forces_is_no_end(label, status):
    """p keeps pace with p_mm of word 0 selected, which one label only wants."""
    model, corpus = words([[0, 1]], [label], [1.0, -1.0])
    found = flow_end(model, corpus, straight([0.5, -0.5]))
    assert found.pace < 1e-12 and found.margin.status is MaxMarginStatus.SOLVED
    assert found.status.name == status
    assert found.limit.wrong_sign == found.limit.active_wrong_sign == (label < 0)


def test_bags_that_share_a_pair_pull_together():
    """One bag of three pulls the wrong way: all three together do not."""
    model, corpus = words([[0, 1]] * 3, [1, 1, -1], [1.0, -1.0])
    # σ(−1) twice against σ(1): turned round they pull the loser.
    right, wrong = ([0.5, -0.5], [-0.5, 0.5])
    assert np.exp(1.0) > 2
    found = [flow_end(model, corpus, straight(way)) for way in (right, wrong)]
    assert [one.status.name for one in found] == ["UNPROVED", "UNPROVED"]
    model, corpus = words([[0, 1]] * 3, [1, 1, -1], [0.1, -0.1])
    found = [flow_end(model, corpus, straight(way)) for way in (right, wrong)]
    assert [one.status.name for one in found] == ["SELECTED", "UNPROVED"]
    assert found[0].limit.wrong_sign == 0


def test_ties_reach_where_a_bag_shows_none():
    """0 with 1 and 1 with 2 at finite odds: then 0 with 2, whatever the score of 2 is."""
    model, corpus = words(
        [[0, 1], [1, 2], [0, 2], [3, 4]], [1, -1, 1, 1], [1.0, 0.0, -1.0, 1.0, -1.0]
    )
    ahead, pace = 0.4 * LATE, np.array([0.0, 0.0, 0.0, 0.5, -0.5])
    found = flow_end(
        model, corpus, straight(pace, ahead * np.array([2.0, 1.0, 0.0, 0.0, 0.0]))
    )
    assert found.selected.tolist() == [True] * 6 + [True, False]
    assert found.tied.tolist() == [0, 1, 2] and found.axes.shape == (5, 2)
    assert found.status is End.UNPROVED


def test_what_falls_behind_has_lost_however_near_it_is():
    """A pair that was decided late is near still, but parts at a pace of one."""
    model, corpus = words([[0, 1]], [1], [1.0, -1.0])
    for pace, one in (([0.5, -0.5], True), ([0.1, -0.1], False)):
        late = by_hand([2.0, -2.0], np.array([2.0, -2.0]) - 2 * np.array(pace))
        found = flow_end(model, corpus, late)
        assert found.selected.tolist() == [True, not one]


@pytest.mark.parametrize(("gap", "tied"), [(11.0, False), (13.0, True)])
def test_a_narrower_look_leaves_fewer_words_near_and_certifies_nothing(gap, tied):
    model, corpus = words([[0, 1], [2, 3]], [1, 1], [1.0, -1.0, 1.0, -1.0])
    still = straight([0.0, 0.0, 0.5, -0.5], np.array([6.0, -6.0, 0.0, 0.0]))
    found = flow_end(model, corpus, still, selection_gap=gap)
    assert found.selected.tolist() == [True, tied, True, False]
    on = straight([0.5, -0.5, 0.5, -0.5])
    assert flow_end(model, corpus, on).status is End.SELECTED
    found = flow_end(model, corpus, on, selection_gap=gap)
    assert found.pace < 1e-12 and found.status is End.UNPROVED


@pytest.mark.parametrize("share", [0.45, 0.55])
def test_what_lost_long_ago_is_half_a_log_time_behind(share):
    """0 over 1, though no more than before; another pair is on its way. Beyond half a
    log-time the selection is read as final, and with positive forces it is."""
    model, corpus = words([[0, 1], [2, 3]], [1, 1], [1.0, -1.0, 1.0, -1.0])
    apart = share * LATE / 2 * np.array([1.0, -1.0, 0.0, 0.0])
    found = flow_end(model, corpus, straight([0.0, 0.0, 0.5, -0.5], apart))
    assert found.selected.tolist() == [True, share < 0.5, True, False]
    wanted = End.UNPROVED if share < 0.5 else End.SELECTED
    assert found.status is wanted
    if share > 0.5:
        # ρ of both pairs: c e^{−2x} = λ = 1/2 with c = σ(−1) at means over two bags.
        gap = LATE + np.log(2 / (1 + np.e)) - share * LATE
        other = np.log(2 / (1 + np.e))
        assert found.limit.distance == pytest.approx(np.hypot(gap, other) / np.sqrt(2))


def test_what_stands_still_has_no_loser_however_far_behind():
    """p does not move: then word 1 rests at odds of e²⁰, and nothing else is proved."""
    model, corpus = words([[0, 1]], [1], [1.0, -1.0])
    still = by_hand([10.0, -10.0], [10.0, -10.0])
    found = flow_end(model, corpus, still)
    assert found.selected.all() and found.tied.tolist() == [0, 1]
    assert found.status is End.UNPROVED
    moving = by_hand([10.0, -10.0], [9.0, -9.0])
    assert flow_end(model, corpus, moving).selected.tolist() == [True, False]


def test_standing_still_on_a_plain_is_no_rest():
    """Words of one value: no pull at all, p where Newton leaves it, no proof."""
    model, corpus = words([[0, 1]], [1], [0.5, 0.5])
    found = flow_end(model, corpus, by_hand([0.0, 0.0], [0.0, 0.0]))
    assert found.distance == 0 and not found.rest.proved
    assert found.status is End.UNPROVED


def test_nothing_but_single_words_is_decided():
    model, corpus = words([[0], [1]], [1, -1], [1.0, -1.0])
    found = flow_end(model, corpus, sparse_flow(model, corpus))
    assert found.status is End.SELECTED and found.selected.all()
    assert found.margin.status is MaxMarginStatus.NO_PAIRS


def test_words_at_one_place_are_tied_without_an_axis():
    """Nothing can part them, nothing need be proved, and the others go on."""
    model, corpus = words([[0, 1, 2]], [1], [1.0, -1.0, -3.0])
    twins = Parameters(
        jnp.asarray(np.eye(3)[[0, 0, 2]]), model.cls, jnp.array([1.0, 0.0, -1.0])
    )
    found = flow_end(twins, corpus, sparse_flow(twins, corpus))
    assert found.status is End.TIED
    assert found.tied.tolist() == [0, 1] and found.axes.shape == (3, 0)
    assert_close(found.margin.direction, [0.5, 0.0, -0.5])


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


@pytest.mark.parametrize("seed", [SELECTED[0], TIED[0]])
def test_p_that_broke_off_or_has_left_its_ties_is_not_yet(seed):
    model, _, corpus = problem(seed)
    flow, found = followed(seed), end_of(seed)
    # On its line, and at its pace, but it is said to have broken off there.
    broken = jnp.int32(FlowStatus.OUT_OF_STEPS)
    wrong = eqx.tree_at(lambda flow: flow.status, flow, broken)
    assert flow_end(model, corpus, wrong).status is End.UNPROVED
    if found.axes.size:
        aside = 2 * found.rest.basin * found.axes[:, 0]
        wrong = eqx.tree_at(lambda flow: flow.cls, flow, flow.cls + aside)
        assert flow_end(model, corpus, wrong).status is End.UNPROVED


def test_scores_thousands_apart_are_certified_as_others_are():
    """Two dimensions leave these bags little room: ‖p_mm‖ is fifty."""
    model, _, _ = problem(3, 2)
    assert np.ptp(model.embeddings @ followed(3, 2).cls) > 2000
    assert end_of(3, 2).status is End.SELECTED


CASES = [(SELECTED[0], 6), (TIED[1], 6), (AT_REST[0], 2)]


def turned(seed, dim, flow, rotation):
    """The same problem and flow in other coordinates."""
    model, _, _ = problem(seed, dim)
    there = jnp.asarray(rotation)
    moved = Parameters(model.embeddings @ there, model.cls @ there, model.head @ there)
    flow = eqx.tree_at(
        lambda flow: (flow.cls, flow.earlier_cls),
        flow,
        (flow.cls @ there, flow.earlier_cls @ there),
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
            found.axes @ found.rest.cls,
            rotation.T @ wanted.axes @ wanted.rest.cls,
            worse=1e3,  # Newton's method ends where rounding stops it: over μ, 5e-3.
        )
        assert found.rest.stiffness == pytest.approx(wanted.rest.stiffness, rel=1e-6)


@pytest.mark.parametrize(("seed", "dim"), CASES)
def test_classes_exchanged_leave_everything_as_it_is(seed, dim):
    """(y, v) → (−y, −v) is the same risk, to the last bit."""
    model, _, corpus = problem(seed, dim)
    other = Parameters(model.embeddings, model.cls, -model.head)
    swapped = sparse.SparseCorpus(corpus.by_sequence, corpus.by_token, -corpus.labels)
    found, wanted = flow_end(other, swapped, followed(seed, dim)), end_of(seed, dim)
    np.testing.assert_array_equal(found.shared.labels, -wanted.shared.labels)
    found, wanted = (tuple(end._replace(shared=None)) for end in (found, wanted))
    jax.tree.map(np.testing.assert_array_equal, found, wanted)


@pytest.mark.parametrize(("seed", "dim"), CASES)
def test_words_renamed_carry_their_part_along(seed, dim):
    model, _, corpus = problem(seed, dim)
    order = np.roll(np.arange(VOCABULARY), 3)
    counts = corpus.by_sequence.to_csr().toarray()
    renamed = sparse.from_csr(sparse.csr_array(counts[:, order]), corpus.labels)
    moved = Parameters(model.embeddings[order], model.cls, model.head)
    found = flow_end(moved, renamed, followed(seed, dim))
    wanted = end_of(seed, dim)
    assert found.status is wanted.status
    assert sorted(order[found.tied].tolist()) == wanted.tied.tolist()
    assert found.selected.sum() == wanted.selected.sum()
    assert_close(found.margin.direction, wanted.margin.direction, worse=100)
