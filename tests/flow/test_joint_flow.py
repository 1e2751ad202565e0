"""Training v as well, or W in front of p: the flows, and that p's bias is unchanged."""

from functools import partial

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np

from jaxselect.flow.cls_flow import FlowSettings, FlowStatus, velocity
from jaxselect.flow.joint_flow import cls_head_flow
from jaxselect.flow.key_query_flow import key_query_flow
from jaxselect.flow.progress import direction_error
from jaxselect.margin.max_margin import max_margin
from jaxselect.model.embedding_step import embedding_step
from jaxselect.model.objective import empirical_risk
from jaxselect.model.parameters import Parameters, gaussian, gaussian_reduced
from jaxselect.model.selection import (
    competing_pairs,
    important_selected,
    selected_tokens,
)
from jaxselect.model.synthetic import assumption_one

DRAW = partial(assumption_one, sequences=12, length=4, relevant=2, irrelevant=4)
TIGHT = FlowSettings(rtol=1e-9, atol=1e-9)


@jax.jit
def problem():
    corpus_key, key = jax.random.split(jax.random.key(0))
    corpus = DRAW(corpus_key)
    start = gaussian_reduced(key, vocabulary=corpus.vocabulary, dim=64.0)
    return embedding_step(start, corpus, 20.0), corpus


run = jax.jit(cls_head_flow, static_argnames="settings")


@partial(jax.jit, static_argnums=0)
def plain_time(descend, start, end):
    return dfx.diffeqsolve(
        dfx.ODETerm(lambda t, y, args: jax.tree.map(jnp.negative, descend(y))),
        dfx.Dopri8(),
        0.0,
        end,
        0.01,
        start,
        stepsize_controller=dfx.PIDController(1e-11, 1e-11),
        max_steps=10**6,
    ).ys


def test_head_and_cls_follow_the_gradient_in_plain_time():
    _, corpus = problem()
    # d far beyond |S|: most of p and of v never moves.
    start = gaussian(jax.random.key(1), vocabulary=corpus.vocabulary, dim=64)
    parameters = jax.jit(embedding_step)(start, corpus, 20.0)

    def risk(pair):
        return empirical_risk(Parameters(parameters.embeddings, *pair), corpus)

    cls, head = plain_time(
        jax.grad(risk), (parameters.cls, parameters.head), jnp.expm1(4.0)
    )
    flow = run(parameters, corpus, until_log_time=4.0, settings=TIGHT)
    np.testing.assert_allclose(flow.cls, cls[0], atol=1e-7)
    np.testing.assert_allclose(flow.head, head[0], atol=1e-7)
    assert flow.status == FlowStatus.REACHED


def test_training_the_head_leaves_the_bias_of_p_unchanged():
    """p = p_mm τ + ρ in the time τ = log(½ log² t): dp/dτ is p_mm.

    ‖p‖ grows like log log t: from t = e^10² to e^10⁸ it gets a few times longer and
    its direction error, a constant over ‖p‖, falls by as much.
    """
    parameters, corpus = problem()
    marks = jnp.array([1e2, 1e4, 1e6, 1e8])
    flow = run(parameters, corpus, until_log_time=marks[-1], path_log_times=marks)
    assert flow.status == FlowStatus.REACHED

    @jax.jit
    def judged(cls):
        selected = selected_tokens(parameters.embeddings @ cls, corpus)
        margin = max_margin(parameters.embeddings, competing_pairs(selected, corpus))
        return important_selected(selected, corpus), margin

    shares, margin = judged(flow.cls)
    assert [share.item() for share in shares] == [1, 1]
    off, errors = [], []
    for mark, cls, head in zip(marks, flow.path_cls, flow.path_head, strict=True):
        here = Parameters(parameters.embeddings, cls, head)
        heading = jax.jit(velocity)(here, corpus, mark, cls) * mark / 2
        off.append(float(jnp.linalg.norm(heading - margin.direction) / margin.norm))
        errors.append(float(direction_error(cls, margin.direction)))
    assert (np.diff(off) < 0).all() and off[-1] < 1e-4
    assert (np.diff(errors) < 0).all()
    lengths = jnp.linalg.norm(flow.path_cls, axis=1)
    # Between the last marks τ grows by 2 log 100; ρ's part across p_mm bends ‖p‖.
    grown = lengths[-1] - lengths[-2]
    np.testing.assert_allclose(grown, margin.norm * 2 * np.log(100), rtol=0.01)
    constants = np.array(errors) * lengths
    np.testing.assert_allclose(constants[2], constants[3], rtol=0.01)


def test_the_path_of_both_is_where_shorter_flows_end():
    parameters, corpus = problem()
    marks = jnp.array([1.0, 4.0, 9.0])
    tight = partial(run, parameters, corpus, settings=TIGHT)
    flow = tight(until_log_time=9.0, path_log_times=marks)
    for number, mark in enumerate(marks):
        short = tight(until_log_time=float(mark))
        np.testing.assert_allclose(flow.path_cls[number], short.cls, atol=1e-6)
        np.testing.assert_allclose(flow.path_head[number], short.head, atol=1e-6)


def test_a_flow_of_both_that_breaks_off_says_so():
    parameters, corpus = problem()
    slow = FlowSettings(max_steps=5)
    flow = run(parameters, corpus, until_log_time=1e4, settings=slow)
    assert flow.status == FlowStatus.OUT_OF_STEPS
    broken = Parameters(
        parameters.embeddings, parameters.cls, parameters.head.at[0].set(jnp.nan)
    )
    flow = run(broken, corpus, until_log_time=1e4, settings=slow)
    assert flow.status != FlowStatus.REACHED


def test_a_key_query_matrix_follows_the_gradient_in_plain_time():
    parameters, corpus = problem()
    start = jax.random.normal(jax.random.key(3), (len(parameters.cls),) * 2) / 4

    def risk(matrix):
        query = matrix @ parameters.cls
        return empirical_risk(
            Parameters(parameters.embeddings, query, parameters.head), corpus
        )

    scaled = float(jnp.expm1(4.0))
    time = scaled / float(parameters.cls @ parameters.cls)
    direct = plain_time(jax.grad(risk), start, time)
    follow = jax.jit(key_query_flow, static_argnames="settings")
    matrix, flow = follow(parameters, start, corpus, until_log_time=4.0, settings=TIGHT)
    np.testing.assert_allclose(matrix, direct[0], atol=1e-7)
    np.testing.assert_allclose(matrix @ parameters.cls, flow.cls, atol=1e-10)
