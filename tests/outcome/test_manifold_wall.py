"""The wall of energy around p on a manifold of ties: orders two and three."""

import functools

import numpy as np
import pytest

from jaxselect.margin import manifold_certificate as certificate
from jaxselect.margin import manifold_equilibrium as balance
from jaxselect.pairs.tie_manifold import at_point
from tests.outcome.manifold_problems import (
    CARRIED,
    DRAWN,
    balanced,
    ended,
    followed_further,
    potential,
)


@pytest.mark.parametrize("seed", (*DRAWN, *CARRIED))
def test_the_second_order_is_that_of_the_lagrangian(seed):
    """Central differences of Φ + μᵀ(f − target)."""
    ties, rest, _, log_time, _ = balanced(seed)
    rng, step = np.random.default_rng(seed), 1e-3

    def lagrangian(x):
        phi, off = potential(ties, rest, log_time, rest.cls + ties.axes @ x)
        return phi + rest.multiplier / rest.scale @ off

    for _ in range(5):
        x = rng.normal(size=ties.axes.shape[1]) * step
        middle = lagrangian(0 * x)
        first = (lagrangian(x) - lagrangian(-x)) / 2
        second = lagrangian(x) + lagrangian(-x) - 2 * middle
        size = np.abs(rest.hessian).max() * (x @ x)
        assert abs(first) < 1e-2 * size
        assert abs(second - x @ rest.hessian @ x) < 1e-3 * size  # x⁴, and rounding


@pytest.mark.parametrize("seed", (*DRAWN, *CARRIED))
def test_the_wall_is_higher_than_all_within(seed):
    """Bounds against F itself, at points drawn on the wall of the largest radius."""
    ties, rest, cls, log_time, response = balanced(seed)
    bounds = certificate.bounds(ties, rest, cls, log_time)
    radius = next(
        r for r in certificate.RADII if bounds.holds(r, log_time, response=response)
    )
    rng = np.random.default_rng(seed)
    middle, _ = potential(ties, rest, log_time, rest.cls)
    frame = ties.axes @ bounds.root
    for _ in range(50):
        z = rng.normal(size=frame.shape[1])
        there = rest.cls + frame @ (z * radius / np.linalg.norm(z))
        phi, off = potential(ties, rest, log_time, there)
        lagrangian = phi + rest.multiplier / rest.scale @ off
        apart, lead, _ = bounds.ranges(radius)
        third = bounds.third(apart, lead)
        assert abs(lagrangian - middle - radius**2 / 2) <= third + 1e-9
        bent = bounds.range[ties.twins] * apart[ties.twins] ** 2 / 8
        assert (np.abs(off[: len(bent)]) <= bent + 1e-12).all()
        assert np.abs(off[len(bent) :]).max(initial=0.0) < 1e-9
        exact = at_point(ties, there)
        moved = np.abs(exact.lead - rest.point.lead)
        assert (moved <= lead + apart[ties.content] ** 2 / 8 + 1e-9).all()


@pytest.mark.parametrize("seed", DRAWN)
def test_the_third_order_of_one_pair_is_nearly_its_bound(seed):
    """Along its own gradient e^(−h) leaves a³/6, of which the bound is a few times."""
    ties, rest, cls, log_time, _ = balanced(seed)
    found = certificate.bounds(ties, rest, cls, log_time)
    radius = 0.05
    apart, lead, _ = found.ranges(radius)
    frame = ties.axes @ found.root
    for pair in np.flatnonzero(rest.force):
        alone = found._replace(
            rest=rest._replace(
                force=np.eye(len(rest.force))[pair], multiplier=0 * rest.multiplier
            )
        )
        along = rest.point.towards[pair] @ frame
        along *= radius / np.linalg.norm(along)
        for z in (along, -along):
            moved = at_point(ties, rest.cls + frame @ z)
            first = rest.point.towards[pair] @ frame @ z
            places = ties.embeddings[ties.words] @ frame @ z
            share = rest.point.share[ties.content[pair]]
            variance = share @ places**2 - (share @ places) ** 2
            left = np.exp(rest.point.lead[pair] - moved.lead[pair])
            left -= 1 - first + first**2 / 2 - variance / 2
            assert abs(left) <= alone.third(apart, lead) < 30 * abs(left) + 1e-9


def test_no_wall_without_the_hypotheses():
    """Farther away, earlier, with a weaker pair or none along the manifold."""
    ties, rest, cls, log_time, response = balanced(DRAWN[0])
    trapped = functools.partial(certificate.is_trapped, response=response)
    assert trapped(ties, rest, cls, log_time)
    assert not trapped(ties, rest, cls + 3 * ties.axes @ rest.tangent[:, 0], log_time)
    early = balance.stationary(ties, cls - ties.growth * (log_time - 3), 3.0)
    assert early is None or not trapped(ties, early, early.cls, 3.0)
    reversed_ties = ties._replace(strength=-ties.strength)
    turned = balance.second_order(reversed_ties, rest.cls, log_time)
    assert not trapped(reversed_ties, turned, rest.cls, log_time)
    strong = ties._replace(gross=ties.gross * 1e13)
    assert not trapped(strong, rest, cls, log_time)
    # Inactive pairs with a force of one.
    whole = np.exp(rest.point.lead - log_time)
    pushed = ties._replace(gross=np.where(ties.excess > 0, whole, ties.gross))
    assert not trapped(pushed, rest, cls, log_time)


def test_no_wall_where_a_carried_token_has_a_share_or_does_not_fall():
    ties, rest, cls, log_time, response = balanced(CARRIED[0])
    trapped = functools.partial(certificate.is_trapped, response=response)
    assert trapped(ties, rest, cls, log_time)
    assert 0 < ties.falls[ties.carried].item() < 1
    assert not trapped(ties._replace(falls=-ties.falls), rest, cls, log_time)
    assert not trapped(ties._replace(falls=0 * ties.falls), rest, cls, log_time)
    share = rest.point.share.copy()
    share[ties.carried] = 1e-4
    seen = rest._replace(point=rest.point._replace(share=share))
    assert not trapped(ties, seen, cls, log_time)


@pytest.mark.parametrize("seed", (*DRAWN, *CARRIED))
def test_an_exact_field_never_leaves_a_proved_end(seed):
    done, moved, share = followed_further(*ended(seed))
    assert done and moved < 0.1 and share < 1e-3  # in scores, within the wall
