"""Tokens that had lost and return, and ends written out by hand, by `solve`.

Source: mathematics, sections 3g and 7d.
"""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxselect import Parameters, attention, from_sequences, solve
from jaxselect.margin.certificate import CERTIFIED, TrialStatus
from tests.tolerances import assert_close

# Token 0 is in both sequences. Their labels agree with 1 and 0, but p_0 prefers 0.
BAGS = from_sequences([[0, 1], [0, 2]], [1, 1], vocabulary=3)
# Two prefer token 1 and one does not: 2 σ(−f) = σ(f) where f, its share, is log 2.
TWO_AGAINST_ONE = from_sequences([[0, 1]] * 3 + [[0, 2]], [1, 1, -1, 1], vocabulary=3)


def preferring(gap, bags=BAGS):
    """E = I, v = (0, 1, −1), and p_0 with token 1 a gap behind the two others."""
    start = gap * jnp.array([1 / 3, -2 / 3, 1 / 3])
    return attention(Parameters(jnp.eye(3), start, jnp.array([0.0, 1.0, -1.0])), bags)


def returns_at(gap):
    """log t at which token 1 is level with token 0.

    With X = e^{p_0 − p_2} and H = e^{p_0 − p_1} the flow is 4 Ẋ = 2 − X/H and
    4 Ḣ = H/X − 2 as long as both are large, X = c r/(1+r)³ with r = H/X, and
    t = ∫ 4X/(1+r) dr = ⅔ e^{2 gap}, up to e^{−gap}: mathematics, section 7d.
    """
    return 2 * gap + np.log(2 / 3)


@pytest.mark.parametrize("gap", [20.0, 40.0, 150.0])
def test_a_token_returns_when_mathematics_says(gap):
    """It is t itself that decides, so a tenth of log t is a tenth of t."""
    when = returns_at(gap) + np.array([-0.1, 0.1])
    solved = solve(preferring(gap), at=when)
    before, after = np.asarray(solved.path.trained)
    assert before[1] < before[0] - 1 and after[1] > after[0] + 1
    assert solved.status in CERTIFIED and solved.selected == [[1], [0]]
    # p_mm of both sequences: p_1 > p_0 > p_2 by one each.
    assert_close(solved.direction, np.array([0.0, 1.0, -1.0]))


def test_a_path_holds_the_closed_form_across_the_stages():
    """At late log-times, where the forces of one stage cancel below rounding."""
    gap = 40.0
    ratio = np.exp(np.linspace(gap, 2.0, 12))
    scale = 1 / (ratio[0] / (1 + ratio[0]) ** 3)
    beyond = (1 + 3 * ratio) / (6 * (1 + ratio) ** 3)
    times = np.log1p(4 * scale * (beyond - beyond[0]))
    assert (times > 34).sum() >= 3
    path = solve(preferring(gap), at=times).path
    np.testing.assert_array_equal(path.log_times, times)
    lead = path.trained @ np.array([1.0, -1.0, 0.0])
    wanted = np.log(scale * ratio**2 / (1 + ratio) ** 3)
    np.testing.assert_allclose(lead, wanted, atol=0.3)


def test_a_token_returns_beside_ties_that_stay_contracted():
    """In less time than the last digit of log t: clock after clock starts there."""
    tied, gap = [[3, 4]] * 3, 200.0
    bags = from_sequences([[0, 1], [0, 2], *tied], [1, 1, 1, -1, 1], vocabulary=5)
    start = gap * jnp.array([1 / 3, -2 / 3, 1 / 3, 0.0, 0.0])
    values = jnp.array([0.0, 1.0, -1.0, 1.0, -1.0])
    # A bag has the weight of a fifth in the place of a half.
    when = returns_at(gap) + np.log(5 / 2) + np.array([-0.1, 0.1])
    solved = solve(attention(Parameters(jnp.eye(5), start, values), bags), at=when)
    before, after = np.asarray(solved.path.trained)
    assert before[1] < before[0] - 1 and after[1] > after[0] + 1
    assert solved.status is TrialStatus.TIED
    assert solved.selected == [[1], [0], *tied]


def test_a_token_may_return_to_finite_odds():
    solved = solve(preferring(40.0, TWO_AGAINST_ONE))
    assert solved.status is TrialStatus.TIED
    assert solved.selected == [[0, 1]] * 3 + [[0]]
    odds = solved.trained[1] - solved.trained[0]
    assert_close(odds, np.log(np.log(2) / (1 - np.log(2))), worse=1e6)


def words(sequences, labels, values, start=(0.0, 0.0, 0.0, 0.0)):
    """Four orthonormal words of given values: scores are coordinates of p."""
    bags = from_sequences(sequences, labels, vocabulary=4)
    return attention(Parameters(jnp.eye(4), *map(jnp.array, (start, values))), bags)


def test_a_tie_in_closed_form_to_the_last_number():
    """Words 0 and 1 at ± 1 in bags of both classes, 2 over 3, both over 3: (x, x, w, r)
    with x − r ≥ 1 and w − r ≥ 1 at least length, 2x² + w² + r²."""
    bags = [0, 1, 3], [0, 1], [2, 3]
    solved = solve(words(bags, [1, -1, 1], [1.0, -1.0, 1.5, -1.5]))
    assert solved.status is TrialStatus.TIED
    assert solved.selected == [[0, 1], [0, 1], [2]]
    assert_close(solved.direction, [0.25, 0.25, 0.25, -0.75])
    rest = solved.stage.ties.rest
    # p_0 = p_1 in the limit; 3 has lost by then. L″ = f′²/4 as a mean over three bags,
    # f = tanh(p/√2), in two of them.
    assert_close(solved.stage.ties.point, np.zeros(4))
    assert rest.stiffness == pytest.approx(2 / 3 * 0.25 / 2)


@pytest.mark.parametrize("beside", [(), ([0, 3], [2, 3])], ids=["alone", "driven"])
def test_ties_on_a_manifold_are_left_soon(beside):
    """Twins fix f alone: pairs that move p along f = 0 prove no strict minimum."""
    bags, labels = [[0, 1, 2]] * 2 + [*beside], [1, -1] + [1] * len(beside)
    start = 0.3, 0.0, -0.4, 0.0
    solved = solve(words(bags, labels, [1.0, -1.0, 0.0, -1.0], start))
    assert solved.status not in CERTIFIED and solved.flow.num_steps <= 600
    share = np.exp(solved.trained[:3]) @ np.array([1.0, -1.0, 0.0])
    assert abs(share) < 1e-6 * np.exp(solved.trained[:3]).sum()  # f = 0
