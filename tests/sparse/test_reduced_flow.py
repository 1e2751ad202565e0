"""A selection that looks final: words that had lost and come back, by closed forms.

Source: mathematics, section 7d.
"""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxselect.data.corpus import from_sequences
from jaxselect.data.sparse import from_corpus
from jaxselect.flow.cls import FlowStatus
from jaxselect.margin.certificate import TOLERANCE
from jaxselect.model.parameters import Parameters
from jaxselect.sparse.end import CertificateStatus, End, flow_end
from jaxselect.sparse.flow import (
    SEEN,
    BdfSettings,
    Pairs,
    max_step,
    reduced_flow,
    sparse_flow,
    ties_rest,
    trajectory,
)
from tests.sparse.problems import SELECTED, TIED, followed, problem
from tests.tolerances import assert_close

# Word 0 is in both sequences. The first wants 1 and the second 0, but p_0 prefers 0.
BAGS = from_corpus(from_sequences([[0, 1], [0, 2]], [1, 1], vocabulary=3))
# Two want word 1 and one does not: 2 σ(−f) = σ(f) where f, its share, is log 2.
KEPT = from_sequences([[0, 1]] * 3 + [[0, 2]], [1, 1, -1, 1], vocabulary=3)
TWO_AGAINST_ONE = from_corpus(KEPT)


def preferring(gap, embeddings=None, head=(0.0, 1.0, -1.0)):
    """E, v, and the shortest p_0 with word 1 a gap behind the two others."""
    embeddings = np.eye(3) if embeddings is None else np.array(embeddings)
    ahead = embeddings[0] - embeddings[1:]
    behind = np.zeros(len(ahead))
    behind[0] = gap
    start = np.linalg.lstsq(ahead, behind, rcond=None)[0]
    return Parameters(*map(jnp.asarray, (embeddings, start, np.array(head))))


def returns_at(gap):
    """log t at which word 1 is level with word 0.

    With X = e^{p_0 − p_2} and H = e^{p_0 − p_1} the flow is 4 Ẋ = 2 − X/H and
    4 Ḣ = H/X − 2 as long as both are large, X = c r/(1+r)³ with r = H/X, and
    t = ∫ 4X/(1+r) dr = ⅔ e^{2 gap}, up to e^{−gap}: mathematics, section 7d.
    """
    return 2 * gap + np.log(2 / 3)


@pytest.mark.parametrize("gap", [20.0, 40.0, 150.0])
def test_a_course_sees_it_however_late(gap):
    """From gap 20 on the return is behind where rounding ends the plain flow."""
    course = trajectory(preferring(gap), BAGS)
    assert course.returns == pytest.approx((returns_at(gap),), rel=1e-3)
    assert FlowStatus.TIES_DISTURBED in [int(flow.status) for flow in course.stages]
    assert course.ending.status is End.SELECTED
    assert course.ending.selected.tolist() == [False, True, True, False]
    # p_mm of both sequences: p_1 > p_0 > p_2 by one each.
    assert_close(course.ending.margin.direction, np.array([0.0, 1.0, -1.0]))


@pytest.mark.parametrize(("gap", "differ"), [(17.5, -23.0), (19.7, -26.6)])
def test_what_lost_before_a_return_is_behind_after_it(gap, differ):
    """Words 3 and 4 hardly differ: at the return their scores differ by a dozen, as
    those of tied ones may after its stage. But the difference grows like log t of the
    whole flow. A word with a share of a thousandth at 34, as in the second case, has
    not returned."""
    corpus = from_sequences([[0, 1], [0, 2], [3, 4]], [1, 1, 1], vocabulary=5)
    head = (0.0, 1.0, -1.0, np.exp(differ), 0.0)
    model = preferring(gap, np.eye(5), head)
    course = trajectory(model, from_corpus(corpus))
    # A mean over three sequences is slower by a half.
    wanted = returns_at(gap) + np.log(3 / 2)
    assert course.returns == pytest.approx((wanted,), rel=1e-3)
    ending = course.ending
    assert ending.status is End.SELECTED
    assert ending.selected.tolist() == [False, True, True, False, True, False]
    # x = p_3 − p_4 goes like ẋ = e^differ/3 e^{−x}, as long as e^x is large.
    wanted = course.log_time + differ - np.log(3)
    assert course.query[3] - course.query[4] == pytest.approx(wanted, abs=1e-2)


def test_a_step_is_half_of_what_an_unseen_pull_takes_to_be_seen():
    """Words 1 and 2 hold the line, p_mm = (1, 0); word 3, with a margin of ½, gains
    e^{1/2} a unit of s, and there are √2 units of length in one."""
    words = np.vstack([np.zeros(2), -np.array([[1.0, 1.0], [1.0, -1.0], [0.5, 0.3]])])
    losers, log_pull = np.arange(1, 4), np.log([0.5, 0.5, 1e-30])
    sign = np.array([1, 1, -1])
    pairs = Pairs(words, 0 * losers, losers, sign, log_pull, log_pull)
    bound = np.log(SEEN / (1e-30 * pairs.longest)) / 0.5 * np.sqrt(2)
    assert max_step(pairs, np.zeros(3)) == pytest.approx(bound / 2)


@pytest.mark.parametrize("bags", [BAGS, TWO_AGAINST_ONE])
def test_an_end_that_cuts_through_an_overtaking_is_carried_on(bags, monkeypatch):
    """Words 0 and 1 are level there: neither is ahead, and they do not rest."""
    model = preferring(10.0)

    low, high = returns_at(10.0) - 1, returns_at(10.0) + 1
    while high - low > 1e-12:
        times = np.linspace(low, high, 1000)
        path = sparse_flow(
            model, bags, until_log_time=high + 1, path_log_times=jnp.asarray(times)
        ).path_query
        passed = np.argmax(path[:, 0] < path[:, 1])
        low, high = times[passed - 1], times[passed]
    level = (low + high) / 2
    query = sparse_flow(model, bags, until_log_time=level).query
    assert abs(query[0] - query[1]) < 0.5
    whole = trajectory(model, bags)
    monkeypatch.setattr("jaxselect.sparse.flow.WHOLE_FIELD_UNTIL", level)
    cut = trajectory(model, bags)
    assert cut.ending.status == whole.ending.status != End.UNPROVED
    np.testing.assert_array_equal(cut.ending.selected, whole.ending.selected)
    assert_close(cut.ending.margin.direction, whole.ending.margin.direction)


def test_a_word_may_return_to_finite_odds():
    """Nothing moves then until word 2 falls behind again."""
    course = trajectory(preferring(40.0), TWO_AGAINST_ONE)
    ending = course.ending
    assert len(course.returns) == 1 and 70 < course.returns[0] < 100
    assert ending.status is End.TIED and ending.tied.tolist() == [0, 1]
    odds = course.query[1] - course.query[0]
    assert_close(odds, np.log(np.log(2) / (1 - np.log(2))), worse=1e6)


def test_a_word_that_will_return_is_refused_while_it_falls_behind():
    """Margins under the flow are 1 and 0.7: p moves nearly like p_mm, its pulls the
    wrong way are small, and it is not the end: they grow like e^{0.3 s}."""
    model = preferring(20.0, [[0.0, 0.0], [-0.7, -2.0], [-1.0, 0.0]], (1.0, -0.85))
    flow = sparse_flow(model, BAGS)
    found = flow_end(model, BAGS, flow)
    assert found.selected.tolist() == [True, False, True, False]
    assert found.pace < 0.2 and found.status is End.UNPROVED
    # It has a margin of one in p_mm, a force of the other sign, and no dual.
    assert found.limit.status is CertificateStatus.NO_EQUILIBRIUM
    assert found.limit.active_wrong_sign == 1
    course = trajectory(model, BAGS)
    # Where p goes like log t/4 alone: u^0.3 = 0.3 e^20/‖D‖², u = 1 + t/4.
    alone = (20 + np.log(0.3 / 4.49)) / 0.3 + np.log(4)
    assert course.returns == pytest.approx((alone,), abs=1.0)
    assert course.ending.status is End.SELECTED


def test_a_pull_that_fades_slowly_is_waited_for():
    """Half a hundredth of the pace, but with a margin of 1.01: fading like e^{−s/100},
    it may push scores by half a unit of s."""
    model, _, corpus = problem(4)
    found = flow_end(model, corpus, followed(4))
    assert found.pace < 0.2 and found.status is End.UNPROVED
    assert found.limit.status is CertificateStatus.OUT_OF_REACH
    assert found.limit.wrong_sign and not found.limit.active_wrong_sign
    course = trajectory(model, corpus)
    assert course.ending.status is End.TIED and course.log_time > 200


@pytest.mark.parametrize("seed", [SELECTED[0], TIED[0]])
def test_is_the_plain_flow_orthogonal_to_the_ties_and_goes_on_like_p_mm(seed):
    model, _, corpus = problem(seed)
    closely = BdfSettings(tolerance=1e-5)
    flow = sparse_flow(model, corpus, until_log_time=26.0, settings=closely)
    ending = flow_end(model, corpus, flow)
    there = Parameters(model.embeddings, flow.query, model.head)
    plain = sparse_flow(there, corpus, until_log_time=30.0, settings=closely)
    times = {"from_log_time": 0.0, "until_log_time": 30.0}
    end = reduced_flow(there, corpus, ending, **times, settings=closely)
    assert_close(end.query, plain.query, worse=1e8)
    times = {"from_log_time": 26.0, "until_log_time": 600.0}
    far = reduced_flow(there, corpus, ending, **times)
    assert FlowStatus(int(far.status)) is FlowStatus.REACHED
    wanted = ending.margin.direction
    pace = (far.query - far.earlier_query) / 2
    assert np.linalg.norm(pace - wanted) < 1e-3 * np.linalg.norm(wanted)


@pytest.mark.parametrize("seed", [SELECTED[1], TIED[0]])
def test_a_line_is_few_steps_however_long_p_is(seed):
    """Margins are known to roundings of p; a step that shall err by less has no end."""
    model, _, corpus = problem(seed)
    shrunk = Parameters(model.embeddings / 10, 10 * model.query, 10 * model.head)
    flow = sparse_flow(shrunk, corpus)
    there = Parameters(shrunk.embeddings, flow.query, shrunk.head)
    ending = flow_end(shrunk, corpus, flow)
    begun = {"from_log_time": 34.0, "until_log_time": 1e5}
    few = BdfSettings(tolerance=1e-7, max_steps=400)
    far = reduced_flow(there, corpus, ending, **begun, settings=few)
    assert FlowStatus(int(far.status)) is FlowStatus.REACHED
    wanted = flow.query + (1e5 - 34) * ending.margin.direction
    # Forces of the ties, and the approach to the line, still move p a little.
    assert np.abs(shrunk.embeddings @ (far.query - wanted)).max() < 0.1


def test_a_path_is_saved_across_the_stages():
    """At times of the closed form, of which the last are behind the plain flow."""
    gap = 40.0
    ratio = np.exp(np.linspace(gap, -2.0, 12))
    scale = 1 / (ratio[0] / (1 + ratio[0]) ** 3)
    beyond = (1 + 3 * ratio) / (6 * (1 + ratio) ** 3)
    times = np.log1p(4 * scale * (beyond - beyond[0]))
    times = np.append(times[:-2], times[-1] + 200)
    model = preferring(gap)
    course = trajectory(model, BAGS, path_log_times=times)
    assert (course.path_log_times > 34).sum() >= 3
    np.testing.assert_array_equal(course.path_log_times, times[:-1])
    lead = course.path_query @ np.array([1.0, -1.0, 0.0])
    wanted = np.log(scale * ratio**2 / (1 + ratio) ** 3)
    np.testing.assert_allclose(lead, wanted[: len(lead)], atol=0.3)


def test_words_rest_only_where_no_score_is_off_by_the_tolerance():
    seed = TIED[0]
    model, _, corpus = problem(seed)
    ending = flow_end(model, corpus, followed(seed))
    scores = np.asarray(model.embeddings) @ ending.axes
    way = ending.axes[:, 0] / np.ptp(scores[:, 0])
    start = ending.axes @ ending.rest.point

    def rest(off, ending=ending):
        moved = Parameters(model.embeddings, jnp.asarray(start + off * way), model.head)
        return ties_rest(moved, ending)

    assert rest(0.9 * TOLERANCE) and not rest(1.1 * TOLERANCE)
    assert not rest(0.0, ending._replace(distance=1.1 * ending.rest.basin))
    unproved = ending.rest._replace(stiffness=0.0)
    assert not rest(0.0, ending._replace(rest=unproved))
    assert rest(1.0, ending._replace(rest=None))
