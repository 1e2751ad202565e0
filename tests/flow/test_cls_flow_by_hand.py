"""The flow of p on three tokens: flat risks, sudden changes, ties in closed form.

Source: mathematics, section 3g.
"""

import jax
import jax.numpy as jnp
import numpy as np

from jaxselect import FlowSettings, Parameters, Reason, from_bags, from_sequences
from tests.flow.cls_runs import PATH, by_every_stepper, risk_of_query, run


def pairs(labels):
    """Three times tokens 0 and 1 of three: one shape for all problems made by hand."""
    return from_sequences(3 * [[0, 1]], labels, vocabulary=3)


@by_every_stepper
def test_a_flow_that_cannot_grow_says_so(stepper):
    """With E v = 0 the risk is flat; opposite labels on one bag give it a minimum."""
    corpus = pairs([1, 1, -1])
    tokens = jnp.diag(jnp.array([1.0, 1.0, 0.0]))
    parameters = Parameters(tokens, jnp.ones(3), jnp.array([0.0, 0.0, 1.0]))
    flow = run(parameters, corpus, until_norm=1e3, stepper=stepper)
    assert flow.status == Reason.NORM_NOT_REACHED
    np.testing.assert_allclose(flow.query, parameters.query, rtol=1e-12)
    tokens = jnp.diag(jnp.array([3.0, -1.0, 0.0]))
    parameters = Parameters(tokens, jnp.ones(3), jnp.array([1.0, 1.0, 0.0]))
    flow = run(parameters, corpus, until_norm=1e3, stepper=stepper)
    assert flow.status == Reason.FORCES_CANCEL
    # Sooner, forces of order one that cancel leave half of the digits of their sum.
    assert flow.log_time > 20
    risk = risk_of_query(parameters, corpus)
    # How far the minimum is, by Newton's step, against the tolerance of the flow.
    slope, curvature = jax.jit(lambda p: (jax.grad(risk)(p), jax.hessian(risk)(p)))(
        flow.query
    )
    step = np.linalg.pinv(curvature) @ slope
    np.testing.assert_allclose(step, 0.0, atol=FlowSettings().atol)


@by_every_stepper
def test_a_change_too_sudden_to_follow_is_not_a_balance(stepper):
    """From 45 behind, a token overtakes within e^−45 of a log-time near 45.

    The longer the embeddings, the sooner, and the weaker the pulls that do it.
    """
    corpus = pairs([1, 1, 1])
    head = jnp.array([1.0, 0.0, 0.0])
    for length in (1.0, 30.0, 1e4):
        for behind, wanted in ((15.0, "NONE"), (45.0, "TIME_UNRESOLVED")):
            query = jnp.array([0.0, behind / length, 0.0])
            tokens = length * jnp.diag(jnp.array([1.0, 1.0, 0.0]))
            start = Parameters(tokens, query, head / length)
            flow = run(start, corpus, until_norm=1e3, stepper=stepper)
            assert Reason(flow.status.item()).name == wanted
            # The weaker token pulls itself up at a rate of the length squared.
            near = behind - 2 * np.log(length)
            assert wanted == "NONE" or abs(flow.log_time - near) < 1
            assert flow.num_steps < {"rodas": 300, "bdf": 900}[stepper]


# Sequences that hold all three tokens at finite odds, but not before log t = 20.5.
NEARLY_TIED = from_bags(
    [[0, 1], [0, 2], [1, 2]], [[1000, 1], [1, 500], [1000, 1]], [1, 1, -1], vocabulary=3
)


def nearly_tied(shift):
    """A start far from the ties, shifted by what no softmax sees."""
    query = jnp.array([12.3765, 0.0243, -12.4008]) + shift / jnp.sqrt(3.0)
    return Parameters(jnp.eye(3), query, jnp.array([0.0, -1.0, 1.0]))


@by_every_stepper
def test_a_shift_that_no_softmax_sees_moves_no_score_difference(stepper):
    """p − p_0 is integrated: what is orthogonal to all differences stays p_0's."""
    for end in (20.0, 30.0):
        flow, far = (
            run(nearly_tied(shift), NEARLY_TIED, until_log_time=end, stepper=stepper)
            for shift in (0.0, 1e6)
        )
        moved = np.asarray(far.query - nearly_tied(1e6).query)
        wanted = np.asarray(flow.query - nearly_tied(0.0).query)
        np.testing.assert_allclose(moved, wanted, rtol=0, atol=FlowSettings().atol)
        # Along the shift p stays p_0, up to a few roundings of 10⁶.
        assert abs(moved.sum()) < 1e-8


def test_an_exact_tie_grows_like_log_s_to_any_log_time():
    """D = (1, 0), (1, 1), both c alike: late dp_2/ds = λ_2, λ_1 + λ_2 = 1.

    With x = e^{−p_2}: λ_2 = x/(1 + x), so p_2 + e^{p_2} = s + const.
    """
    tokens = -jnp.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [1.0, 1.0, 0.0]])
    bags = from_bags(
        [[0, 1], [0, 2], [0, 1]], [[1, 1], [1, 1], [1, 0]], [1, 1, 1], vocabulary=3
    )
    start = Parameters(tokens, jnp.zeros(3), jnp.eye(3)[0])
    at = np.geomspace(1e6, 1e8, len(PATH))
    flow = run(start, bags, until_log_time=1e8, path=at)
    drift = flow.path_query[:, 1]
    # Thirty tolerances of a step.
    np.testing.assert_allclose(drift, np.log(at), atol=1e-3)
