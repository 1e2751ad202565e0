"""The flow of p and v: against an independent integrator, and late in its own time."""

import functools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from jaxselect.compilation import fast_compile_options
from jaxselect.flow.cls_flow import FlowSettings, FlowStatus, velocity
from jaxselect.flow.cls_head_flow import cls_head_flow
from jaxselect.flow.progress import direction_error
from jaxselect.margin.max_margin import max_margin
from jaxselect.model.embedding_step import embedding_step
from jaxselect.model.parameters import Parameters, gaussian_reduced
from jaxselect.model.selection import (
    competing_pairs,
    important_selected,
    selected_tokens,
)
from jaxselect.model.synthetic import assumption_one
from tests.flow import literal_joint

TIGHT = FlowSettings(rtol=1e-9, atol=1e-9)

DRAW = partial(assumption_one, sequences=12, length=4, relevant=2, irrelevant=4)


@jax.jit
def problem():
    corpus_key, key = jax.random.split(jax.random.key(0))
    corpus = DRAW(corpus_key)
    start = gaussian_reduced(key, vocabulary=corpus.vocabulary, dim=64.0)
    return embedding_step(start, corpus, 20.0), corpus


run = jax.jit(
    cls_head_flow,
    static_argnames="settings",
    compiler_options=fast_compile_options(),
)


HEAD_PATH = jnp.array([4.0, 1e2, 1e4, 1e6, 1e8])


@functools.cache
def headed(until_log_time=1e8):
    """p and v trained, all by one program."""
    return run(
        *problem(),
        until_log_time=until_log_time,
        path_log_times=HEAD_PATH,
        settings=TIGHT,
    )


def test_head_and_cls_follow_the_gradient():
    wanted = literal_joint.integrate(*problem(), (0.0, 1.0, 1.0), 4.0)
    flow = headed()
    np.testing.assert_allclose(flow.path_cls[0], wanted[-2], atol=1e-7)
    np.testing.assert_allclose(flow.path_head[0], wanted[-1], atol=1e-7)
    assert flow.status == FlowStatus.REACHED


def test_training_the_head_leaves_the_bias_of_p_unchanged():
    """p = p_mm τ + ρ in the time τ = log(½ log² t): dp/dτ is p_mm.

    ‖p‖ grows like log log t: from t = e^10² to e^10⁸ it gets a few times longer and
    its direction error, a constant over ‖p‖, falls by as much.
    """
    parameters, corpus = problem()
    flow, marks = headed(), HEAD_PATH[1:]
    assert flow.status == FlowStatus.REACHED

    @jax.jit
    def judged(cls):
        selected = selected_tokens(parameters.embeddings @ cls, corpus)
        margin = max_margin(parameters.embeddings, competing_pairs(selected, corpus))
        return important_selected(selected, corpus), margin

    shares, margin = judged(flow.cls)
    assert [share.item() for share in shares] == [1, 1]
    off, errors = [], []
    for mark, cls, head in zip(
        marks, flow.path_cls[1:], flow.path_head[1:], strict=True
    ):
        here = Parameters(parameters.embeddings, cls, head)
        heading = jax.jit(velocity)(here, corpus, mark, cls) * mark / 2
        off.append(float(jnp.linalg.norm(heading - margin.direction) / margin.norm))
        errors.append(float(direction_error(cls, margin.direction)))
    assert (np.diff(off) < 0).all() and off[-1] < 1e-4
    assert (np.diff(errors) < 0).all()
    lengths = jnp.linalg.norm(flow.path_cls[1:], axis=1)
    # Between the last marks τ grows by 2 log 100; ρ's part across p_mm bends ‖p‖.
    grown = lengths[-1] - lengths[-2]
    np.testing.assert_allclose(grown, margin.norm * 2 * np.log(100), rtol=0.01)
    constants = np.array(errors) * lengths
    np.testing.assert_allclose(constants[2], constants[3], rtol=0.01)


def test_the_path_of_both_is_where_shorter_flows_end():
    flow = headed()
    for number in (0, 2):
        short = headed(float(HEAD_PATH[number]))
        np.testing.assert_allclose(flow.path_cls[number], short.cls, atol=1e-6)
        # v grows like log t.
        np.testing.assert_allclose(flow.path_head[number], short.head, rtol=1e-6)
        assert (short.path_cls[number + 1 :] == jnp.inf).all()


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
