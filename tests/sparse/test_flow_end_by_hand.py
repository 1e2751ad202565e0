"""Ends of flows on a few orthonormal words, each flow written out by hand.

Source: mathematics, section 7d.
"""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxselect.data import sparse
from jaxselect.data.corpus import from_sequences
from jaxselect.flow.cls import Flow, FlowStatus
from jaxselect.margin.max_margin import MaxMarginStatus
from jaxselect.model.parameters import Parameters
from jaxselect.sparse.end import CertificateStatus, End, flow_end
from jaxselect.sparse.flow import sparse_flow, trajectory
from tests.tolerances import assert_close

LATE = 30.0


def by_hand(query, earlier, log_time=LATE, status=FlowStatus.REACHED):
    """A flow that was said to go from `earlier` to `query` in two log-times."""
    nothing = jnp.zeros(0)
    return Flow(
        jnp.asarray(query, float),
        jnp.asarray(log_time),
        jnp.asarray(status, jnp.int32),
        jnp.asarray(1),
        None,
        nothing,
        jnp.zeros((0, len(query))),
        jnp.asarray(log_time - 2.0),
        jnp.asarray(earlier, float),
    )


def straight(direction, rho=0.0, log_time=LATE):
    """p = direction · log t + ρ."""
    query = np.asarray(direction, float) * log_time + rho
    return by_hand(query, query - 2 * np.asarray(direction, float), log_time)


def words(sequences, labels, values):
    """Orthonormal words of given values, p_0 = 0: scores are coordinates of p."""
    corpus = from_sequences(sequences, labels, vocabulary=len(values))
    model = Parameters(
        jnp.eye(len(values)), jnp.zeros(len(values)), jnp.asarray(values, float)
    )
    return model, sparse.from_corpus(corpus)


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
    assert_close(found.rest.point, [0.0])
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
        by_hand(line.query, line.earlier_query, status=FlowStatus.FAILED),
        by_hand(line.query, line.earlier_query, status=FlowStatus.OUT_OF_STEPS),
        by_hand(line.query, np.full(4, np.inf)),
        by_hand(line.query, np.full(4, np.inf), status=FlowStatus.OUT_OF_STEPS),
        by_hand(line.query, line.query - 2 * MM, log_time=0.0),
    ):
        assert flow_end(model, corpus, wrong).status is End.UNPROVED


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
    """0 with 1 and 1 with 2 at finite odds: then 0 with 2, whatever its score is."""
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


def test_words_are_at_rest_within_the_basin_of_their_minimum():
    """Both labels hold the words even, and p stands still near that or beyond."""
    model, corpus = words([[0, 1], [0, 1]], [1, -1], [1.0, -1.0])
    even = flow_end(model, corpus, by_hand([0.0, 0.0], [0.0, 0.0]))
    for part, status in ((0.9, End.AT_REST), (1.1, End.UNPROVED)):
        place = part * even.rest.basin * np.array([1.0, -1.0]) / np.sqrt(2)
        found = flow_end(model, corpus, by_hand(place, place))
        assert_close(found.distance, part * even.rest.basin)
        assert found.status is status


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
        jnp.asarray(np.eye(3)[[0, 0, 2]]), model.query, jnp.array([1.0, 0.0, -1.0])
    )
    found = flow_end(twins, corpus, sparse_flow(twins, corpus))
    assert found.status is End.TIED
    assert found.tied.tolist() == [0, 1] and found.axes.shape == (3, 0)
    assert_close(found.margin.direction, [0.5, 0.0, -0.5])


@pytest.mark.parametrize("beside", [(), ([0, 3], [2, 3])], ids=["alone", "driven"])
def test_ties_on_a_manifold_are_left_soon(beside):
    """Twins fix f alone: Newton's method would ask rounding to contract, in a short
    step each, and pairs that move p along f = 0 prove no strict minimum."""
    bags, labels = [[0, 1, 2]] * 2 + [*beside], [1, -1] + [1] * len(beside)
    corpus = sparse.from_corpus(from_sequences(bags, labels, vocabulary=4))
    head, start = jnp.array([1.0, -1.0, 0.0, -1.0]), jnp.array([0.3, 0.0, -0.4, 0.0])
    found = trajectory(Parameters(jnp.eye(4), start, head), corpus)
    assert found.ending.status == End.UNPROVED
    assert found.ending.tied.tolist() == [0, 1, 2] and not found.ending.rest.proved
    assert len(found.stages) == 2 and found.stages[-1].num_steps <= 300
    share = np.exp(found.query[:3]) @ np.array([1.0, -1.0, 0.0])
    assert abs(share) < 1e-6 * np.exp(found.query[:3]).sum()  # f = 0
