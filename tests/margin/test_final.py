"""What is final without a line to be near: theorem 7c.3, and half a score of room.

Source: mathematics, theorems 3e.4, 7c.3 and 7c.4.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxselect import Parameters, Reason, attention, from_sequences
from jaxselect.flow.cls import arrived
from jaxselect.margin.certificate import TrialStatus, certificate_of, predict_end
from jaxselect.margin.final import direction_is_final
from jaxselect.margin.minimum import Minimum
from jaxselect.margin.perturbation import RestingTies
from jaxselect.stages import Proof, solve

# Of token 0 over token 1, E = I, b = (1, 0): c, κ̄ = 1 and w = 1.
STRENGTH = 1 / (1 + np.e)
# λ is negligible, ‖p_mm‖² = ½.
BOUND = 2.0


@jax.jit
def final(log_time, ties=None):
    """Whether the selection of one bag is final, where its pair exerts no force."""
    bags = from_sequences([[0, 1]], [1], vocabulary=2)
    query = jnp.array([100.0, -100.0])
    problem = attention(Parameters(jnp.eye(2), query, jnp.array([1.0, 0.0])), bags)
    flow = arrived(query, jnp.asarray(log_time))
    end = predict_end(problem, query, log_time)
    found = certificate_of(problem, flow, end)
    return direction_is_final(problem, flow, found, ties)


def left_out(log_time):
    """What is left out of a force, relative to it: 4 · 2 F e^{−τ}/c · (1 + w)."""
    return 4 * 2 * BOUND * np.exp(-log_time) / STRENGTH * 2


def test_shares_of_losers_are_bounded_by_all_forces_together():
    """D R ‖p_mm‖ = 2, so that a quarter of the force may be left out."""
    at = np.log(left_out(0.0) * 4)
    assert not final(at - 1e-6) and final(at + 1e-6)


def test_ties_that_losers_push_count():
    """δ = 2x/(½ μ e^τ) with x = 3/2 · 2 F r Λ changes forces by 3/2 r Λ δ."""
    log_time, width = 30.0, 0.1
    reach = width * (4 + 1.3)
    push = 1.5 * 2 * BOUND * reach
    stiffness = 2 * push / np.exp(log_time) / (0.25 / 1.5 / reach)

    def ties(factor, basin=1.0, tied=True, ranges=1.0):
        number = jnp.asarray
        rest = Minimum(
            jnp.zeros(1), *map(number, (0.0, factor * stiffness, 0.0, 1.0, basin))
        )
        both = jnp.array([width]), jnp.array([ranges])
        return RestingTies(number(tied), rest, number(0.0), *both)

    assert final(log_time, ties(1.01))
    assert not final(log_time, ties(0.99))
    assert final(log_time, ties(0.99, tied=False))
    assert not final(log_time, ties(1.01, basin=1e-9))
    # b of a tied token may be off those of its losers.
    assert not final(log_time, ties(1.01, ranges=1.1))


def star(rows, labels, more=()):
    """Token 0 at the origin over −D_k, one bag each, with values −D_k1."""
    tokens = -np.array([[0.0, 0.0], *rows])
    start = Parameters(*map(jnp.asarray, (tokens, [0.3, 0.2], [1.0, 0.0])))
    bags = [[0, token] for token in (*range(1, len(tokens)), *more)]
    return attention(start, from_sequences(bags, labels, vocabulary=len(tokens)))


def test_an_exact_tie_has_a_direction_and_no_constant():
    """One of three bags of a pair does not get its best, so the risk says nothing."""
    found = solve(star([(1, 0), (1, 1)], [1, 1, 1, -1], more=[1, 1]))
    assert found.status == TrialStatus.PARTIAL
    assert found.certificate.reason == found.limit.status == Reason.NO_MINIMISER
    assert found.proof == Proof.FORCES and jnp.isnan(found.error_constant)
    assert f"open: {Reason.NO_MINIMISER.sentence}" in str(found)
    np.testing.assert_allclose(found.direction, [1.0, 0.0], atol=1e-9)


@jax.jit
def at_late(problem, log_time):
    """The certificate at p = (τ + log c_1, 0), c_1 = ½/n, and that of the direction."""
    offset = jnp.log(0.5 / len(problem.corpus.labels))
    late, earlier = (
        jnp.array([time + offset, 0.0]) for time in (log_time, log_time / 2)
    )
    end, flow = predict_end(problem, late, log_time, earlier), arrived(late, log_time)
    found = certificate_of(problem, flow, end)
    return found, direction_is_final(problem, flow, found)


@pytest.mark.parametrize(
    ("label", "log_time", "certified"),
    [(1, 5e3, True), (-1, 5e3, False), (-1, 1e4, True)],
)
def test_a_force_that_fades_slowly_leaves_the_direction(label, log_time, certified):
    """The second margin is 1.001: what its force may still do is e^{−τ/1000} c 1000."""
    found, final = at_late(star([(1, 0), (1.001, 0.5)], [1, label]), log_time)
    assert found.reason == Reason.PERTURBATIONS
    assert found.perturbation_bound > (1e-3 if log_time == 1e4 else 0.5)
    assert bool(final) is certified


def test_slow_forces_of_the_right_sign_need_no_room():
    """Theorem 7c.4: a wrong sign is harmless unless its own force fades slowly."""
    rows = [(1, 0), (1.001, 0.5), (2, 0.3)]
    for labels, certified in (([1, 1, -1], True), ([1, -1, 1], False)):
        found, final = at_late(star(rows, labels), 5e3)
        assert found.reason == Reason.PERTURBATIONS
        assert bool(final) is certified
