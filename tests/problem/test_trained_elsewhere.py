"""What other programs trained: by which theorem its end is certified, and which end.

The laws are those of mathematics, sections 3e and 3n.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxselect import certify_at, key_query, solve
from jaxselect.stages import Arrival, Proof
from jaxselect.status import Reason
from tests.problem.independent import Model, field, flow, logistic

SEQUENCES, WIDTH, DIM, OTHER = 4, 3, 5, 4
SEED = 2
# From here the flow selects otherwise than from zero, and not as it does here.
FAR = 4 * np.random.default_rng(0).normal(size=(DIM, OTHER))


def draws(seed):
    random = np.random.default_rng(seed)
    features = random.normal(size=(SEQUENCES, WIDTH, DIM))
    queries = random.normal(size=(SEQUENCES, OTHER))
    values = random.normal(size=(SEQUENCES, WIDTH))
    return features, queries, values, random.choice([-1, 1], SEQUENCES)


def model_of(features, queries, values, labels):
    keys = np.einsum("itd,ie->itde", features, queries)
    keys = keys.reshape(*values.shape, -1)
    return Model(keys, values, labels, np.ones(values.shape, bool), logistic)


def descended(model, start, steps, step_size):
    """W of gradient descent by NumPy alone."""
    theta = start
    for _ in range(steps):
        theta = theta + step_size * field(0.0, theta, model)
    return theta.reshape(-1, OTHER)


def chosen_by(model, theta):
    return (model.keys @ np.ravel(theta)).argmax(axis=1)


def test_descent_by_numpy_is_certified_by_its_risk_without_a_time():
    given = draws(SEED)
    model, problem = model_of(*given), key_query(*given)
    trained = descended(model, np.zeros(DIM * OTHER), 2000, 1.0)
    found = certify_at(problem, trained)
    assert found.status.name == "SELECTED" and found.proof == Proof.RISK
    assert found.certificate.reason != Reason.NONE
    assert not found.arrival.others.any() and found.arrival.outside < 1e-12
    assert "By the risk alone" in str(found) and "log(1+t)" not in str(found)
    assert "As trained, every sequence has its largest weight" in str(found)
    assert "outside" not in str(found)
    end = flow(model, 30.0, trained.ravel())
    kept = np.asarray(found.selected_mask)[np.arange(SEQUENCES), chosen_by(model, end)]
    assert kept.all()
    # The flow gives the same direction, at a time at which its line is certified.
    late = solve(problem)
    np.testing.assert_allclose(found.direction, late.direction, atol=1e-9)
    # A constant that depends on the path is not read from what was trained.
    assert np.isnan([found.error_constant, found.limit.error_constant]).all()
    assert found.limit.history_dim > 0 and np.isfinite(late.error_constant)
    before = late.problem.lift(late.flow.earlier_query)
    again = certify_at(problem, late.trained, late.flow.log_time, earlier=before)
    assert late.proof == again.proof == Proof.LATE_FLOW
    within = jax.jit(lambda *end, earlier: certify_at(problem, *end, earlier=earlier))
    inside = within(late.trained, late.flow.log_time, earlier=before)
    assert inside.proof == Proof.LATE_FLOW
    np.testing.assert_allclose(inside.direction, late.direction, rtol=1e-9)
    assert "By its late flow" in str(again)


def test_adam_by_optax_is_certified_and_is_off_the_span_of_descent():
    given = draws(SEED)
    model, problem = model_of(*given), key_query(*given)
    rule = optax.adam(0.05)

    def once(state, _):
        trained, memory = state
        step, memory = rule.update(jax.grad(problem.risk)(trained), memory)
        return (optax.apply_updates(trained, step), memory), None

    start = jnp.zeros((DIM, OTHER))
    run = jax.jit(lambda state: jax.lax.scan(once, state, length=500)[0])
    with jax.numpy_dtype_promotion("standard"):
        trained, _ = run((start, rule.init(start)))
    found = certify_at(problem, np.asarray(trained))
    assert found.proof == Proof.RISK and not found.arrival.others.any()
    assert found.arrival.outside > 0.01
    assert "is outside the span of row differences" in str(found)
    assert np.asarray(found.selected_mask)[
        np.arange(SEQUENCES), chosen_by(model, flow(model, 30.0, np.ravel(trained)))
    ].all()


def test_where_nothing_certifies_yet_the_flow_goes_on_from_what_was_trained():
    """From zero the flow has another end than from here."""
    given = draws(SEED)
    model, problem = model_of(*given), key_query(*given)
    trained = FAR
    found, other = certify_at(problem, trained), solve(problem)
    assert found.proof == Proof.CONTINUED and other.proof == Proof.LATE_FLOW
    assert (found.selected_mask != other.selected_mask).any()
    end = chosen_by(model, flow(model, 60.0, trained.ravel()))
    assert (np.asarray(found.selected_mask).argmax(axis=1) == end).all()
    now = chosen_by(model, trained)
    others = np.flatnonzero(now != end).tolist()
    assert others and np.flatnonzero(found.arrival.others).tolist() == others
    assert "every sequence but 0 has its largest weight on what" in str(found)
    assert "By the gradient flow from what was trained" in str(found)


def test_a_few_of_the_sequences_that_differ_are_named():
    for others, said in (
        ([], "every sequence has"),
        ([2], "every sequence but 2 has"),
        ([0, 2, 3], "every sequence but 0, 2 and 3 has"),
        ([0, 2, 3, 5, 6], "every sequence but 0, 2, 3 and 2 more has"),
    ):
        mask = jnp.zeros(7, bool).at[jnp.array(others, int)].set(True)
        assert said in str(Arrival(mask, jnp.zeros(()), jnp.zeros(())))


def test_a_square_matrix_given_transposed_is_noticed():
    """Where descent cannot have led to it, but to its transpose."""
    features, queries, values, labels = draws(SEED)
    square = features[:, :, :OTHER]
    start = np.random.default_rng(1).normal(size=(OTHER, OTHER))
    problem = key_query(square, queries, values, labels, start=start)
    model = model_of(square, queries, values, labels)
    trained = descended(model, start.ravel(), 300, 1.0).reshape(OTHER, OTHER)
    within = jax.jit(lambda trained: certify_at(problem, trained).arrival)
    right, turned = within(trained), within(trained.T)
    assert right.outside < 1e-12 < 0.1 < turned.outside
    assert turned.outside_turned == right.outside
    assert "transpose" in str(turned) and "transpose" not in str(right)
    # Neither way it is the end of a descent.
    assert "transpose" not in str(within(trained + FAR[:OTHER]))
    wide = key_query(*draws(SEED))
    assert jnp.isnan(jax.jit(lambda w: certify_at(wide, w))(FAR).arrival.outside_turned)


def test_within_another_program_nothing_is_continued():
    given = draws(SEED)
    model, problem = model_of(*given), key_query(*given)
    late = descended(model, np.zeros(DIM * OTHER), 2000, 1.0)
    program = jax.jit(lambda trained: certify_at(problem, trained))
    assert program(late).proof == Proof.RISK
    assert program(FAR).proof == Proof.NONE
    assert program(FAR).arrival.others.any()


def test_a_flow_of_a_small_norm_is_certified_by_its_risk():
    """All of these have another certificate later, with the same direction."""
    by_risk = 0
    for seed in range(6):
        problem = key_query(*draws(seed))
        early, late = solve(problem, until_norm=12.0), solve(problem)
        if early.proof == Proof.NONE:
            continue
        assert early.certificate.reason != Reason.NONE
        assert early.status == late.status
        np.testing.assert_allclose(early.direction, late.direction, atol=1e-9)
        np.testing.assert_array_equal(early.selected, late.selected)
        by_risk += 1
    assert by_risk >= 3
