"""A selection that depends on the tolerance is refused, and no other is."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.common.tolerances import tolerance_check
from jaxselect import Parameters, TrialStatus, attention, from_sequences
from jaxselect.flow.cls import FlowSettings, cls_flow
from jaxselect.status import Reason
from tests.tolerances import assert_close

SQUARE = 1.69
LOOSE = FlowSettings(atol=1e-2)
# Far from the edge both integrations are right. Next to it the loose one errs, and the
# closer one by less than any of these.
NEAR = np.geomspace(1e-8, 3e-6, 6)
OFFSETS = np.concatenate([NEAR, -NEAR, [1e-3, -1e-3, 1e-1, -1e-1, -1e-1]])
BROKEN = np.arange(len(OFFSETS)) == len(OFFSETS) - 1


@jax.jit
@jax.vmap
def _checks(offset, broken):
    """One bag of three tokens, of which the first two have the same value.

    With E = diag(|E_0|, 1, 1) the scores obey da_0/da_1 = |E_0|² e^{a_0 − a_1}, so that
    e^{−a_0}/|E_0|² − e^{−a_1} is conserved, and its sign says which one attention
    selects: from p_0 = (0, θ, 0) token 0 for θ < log |E_0|², and token 1 above.
    """
    bags = from_sequences([[0, 1, 2]], [1], vocabulary=3)
    length = SQUARE**0.5
    tokens = jnp.diag(jnp.array([length, 1.0, 1.0]))
    start = jnp.zeros(3).at[1].set(jnp.log(SQUARE) + offset)
    after = Parameters(tokens, start, jnp.array([1.0 / length, 1.0, -1.0]))
    until = {"until_norm": 1e3, "settings": LOOSE}
    problem = attention(after, bags)
    flow = cls_flow(problem, path_log_times=jnp.ones(1), **until)
    status = jnp.where(broken, Reason.FAILED, flow.status).astype(jnp.int32)
    flow = eqx.tree_at(lambda flow: flow.status, flow, status)
    scores = tokens @ flow.query
    return tolerance_check(problem, flow, **until), scores[0] > scores[1]


@pytest.fixture(scope="module")
def checks():
    """Checks, and where the loose integration selects the wrong token."""
    check, first = _checks(OFFSETS, BROKEN)
    return check, np.asarray(first) != (OFFSETS < 0)


def test_it_refuses_what_the_loose_integration_gets_wrong_and_nothing_else(checks):
    check, wrong = checks
    assert wrong.any() and not wrong[np.abs(OFFSETS) > 1e-4].any()
    np.testing.assert_array_equal(check.same_selection, ~wrong)
    np.testing.assert_array_equal(check.same, ~wrong & ~BROKEN)


def test_another_selection_has_another_margin(checks):
    """‖p_mm‖² is 2/(2a + 1) where token 0 wins, and (a + 1)/(2a + 1) else, a = |E_0|²:
    both pairs are active either way, so that no part of p is the path's to decide."""
    check, wrong = checks
    ratio = ((SQUARE + 1) / 2) ** 0.5
    change = np.where(OFFSETS < 0, ratio - 1, 1 - 1 / ratio)
    assert_close(check.norm_change, np.where(wrong, change, 0.0))
    assert (np.asarray(check.history_dim) == 0).all()


def test_the_statuses_are_those_of_either_integration(checks):
    """Nothing is certified: tokens of one value do not pull each other apart."""
    check, _ = checks
    wanted = np.where(BROKEN, TrialStatus.FAILED, TrialStatus.UNRESOLVED)
    np.testing.assert_array_equal(check.status, wanted)
    np.testing.assert_array_equal(check.closer_status, TrialStatus.UNRESOLVED)
