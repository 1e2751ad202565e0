"""Training v as well, or W in front of p: the flows, and that p's bias is unchanged."""

from functools import partial

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np

from jaxselect.flow.cls_flow import FlowSettings, FlowStatus
from jaxselect.flow.joint_flow import cls_head_flow, key_query_flow
from jaxselect.margin.max_margin import max_margin
from jaxselect.model.embedding_step import embedding_step
from jaxselect.model.objective import empirical_risk
from jaxselect.model.parameters import Parameters, gaussian_reduced
from jaxselect.model.selection import (
    competing_pairs,
    important_selected,
    selected_tokens,
)
from jaxselect.model.synthetic import assumption_one

DRAW = partial(assumption_one, sequences=12, length=4, relevant=2, irrelevant=4)
TIGHT = FlowSettings(rtol=1e-9, atol=1e-9)


def problem(seed=0, step_size=20.0, dim=64.0):
    corpus_key, key = jax.random.split(jax.random.key(seed))
    corpus = DRAW(corpus_key)
    return embedding_step(
        gaussian_reduced(key, vocabulary=corpus.vocabulary, dim=dim), corpus, step_size
    ), corpus


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
    parameters, corpus = problem()

    def risk(pair):
        return empirical_risk(Parameters(parameters.embeddings, *pair), corpus)

    cls, head = plain_time(
        jax.grad(risk), (parameters.cls, parameters.head), jnp.expm1(4.0)
    )
    flow = cls_head_flow(parameters, corpus, 4.0, TIGHT)
    np.testing.assert_allclose(flow.cls, cls[0], atol=1e-7)
    np.testing.assert_allclose(flow.head, head[0], atol=1e-7)
    assert flow.status == FlowStatus.REACHED


def test_training_the_head_leaves_the_bias_of_p_unchanged():
    """p approaches the max-margin direction of its own selection, like 1/‖p‖.

    ‖p‖ grows like log log t: from t = e^10² to e^10⁸ it gets a few times longer and
    its direction error, which p alone would have at a fixed constant over ‖p‖, falls
    by as much.
    """
    parameters, corpus = problem()
    margins, lengths, errors = [], [], []
    for log_time in (1e2, 1e4, 1e6, 1e8):
        flow = jax.jit(cls_head_flow)(parameters, corpus, log_time)
        assert flow.status == FlowStatus.REACHED
        selected = selected_tokens(parameters.embeddings @ flow.cls, corpus)
        assert [share.item() for share in important_selected(selected, corpus)] == [
            1,
            1,
        ]
        pairs = competing_pairs(selected, corpus)
        margins.append(max_margin(parameters.embeddings, pairs))
        lengths.append(float(jnp.linalg.norm(flow.cls)))
        away = flow.cls / lengths[-1] - margins[-1].direction / margins[-1].norm
        errors.append(float(jnp.linalg.norm(away)))
    assert (np.diff(errors) < 0).all()
    grown = np.diff(lengths) / np.diff(np.log([1e2, 1e4, 1e6, 1e8]))
    # m ‖p‖ = log of ∫ (log t / t) dt = 2 log log t, and 1/m = ‖p_mm‖.
    np.testing.assert_allclose(grown[1:], 2 * margins[-1].norm, rtol=0.1)
    constants = np.array(errors) * lengths
    np.testing.assert_allclose(constants[1:], constants[-1], rtol=0.35)


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
    matrix, flow = key_query_flow(
        parameters, start, corpus, until_log_time=4.0, settings=TIGHT
    )
    np.testing.assert_allclose(matrix, direct[0], atol=1e-7)
    np.testing.assert_allclose(matrix @ parameters.cls, flow.cls, atol=1e-10)
