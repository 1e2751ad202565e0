"""Two flows of other authors as corners of the joint flow: literal, and by law.

One sequence with f = βᵀVσ(a), V and a trained: A. Varre, M. Rofin and N. Flammarion,
arXiv 2603.06248. A key and a query matrix trained together: H. Sheen, S. Chen, T. Wang
and H. H. Zhou, arXiv 2403.08699.

Source: mathematics, sections 3h and 3i.
"""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.theory.joint import exact_family, exact_family_flow, late_law
from experiments.theory.joint_flow import LearningRates, joint_flow
from jaxselect import Parameters, compile_options, from_sequences
from jaxselect.data.loss import LOGISTIC, POLYNOMIAL
from jaxselect.flow.cls import FlowSettings
from jaxselect.status import Reason

TOKENS = 5
BETA = np.array([1.2, -0.9])
# V and a at the start; V's rows are coordinates of R².
VALUES = np.random.default_rng(3).normal(size=(2, TOKENS)) / 4
SCORES = np.random.default_rng(4).normal(size=TOKENS) / 2


@partial(jax.jit, static_argnames="loss", compiler_options=compile_options(fast=True))
def one_sequence(loss, until_log_time):
    """The end with E = [a, Vᵀ], p and v fixed on different axes."""
    start = Parameters(
        jnp.column_stack([SCORES, VALUES.T]), jnp.eye(3)[0], jnp.append(0.0, BETA)
    )
    return joint_flow(
        start,
        from_sequences([range(TOKENS)], [1], vocabulary=TOKENS, loss=loss),
        rates=LearningRates(1.0, 0.0, 0.0),
        until_log_time=until_log_time,
        settings=FlowSettings(rtol=1e-9, atol=1e-9),
    )


def softmax(scores):
    share = np.exp(scores - scores.max())
    return share / share.sum()


@pytest.mark.parametrize(
    ("loss", "late", "near"), [(LOGISTIC, 1e6, 1e-4), (POLYNOMIAL, 20.0, 5e-3)]
)
def test_softmax_is_polarised_by_one_law_for_every_loss(loss, late, near):
    """(1 − q) δ² → 2 |β|² (T − 1)/T, δ ~ log t; with a polynomial tail δ ~ t^{1/3}."""
    end = one_sequence(loss, jnp.asarray(late))
    assert end.status == Reason.NONE
    scores, values = np.asarray(end.embeddings @ end.query), end.embeddings @ end.head
    top = scores.argmax()
    off = np.delete(softmax(scores), top).sum()
    lead = values[top] - np.delete(values, top).mean()
    constant = 2 * (BETA @ BETA) * (TOKENS - 1) / TOKENS
    np.testing.assert_allclose(off * lead**2, constant, rtol=near)
    growth = 3 * np.log(lead) if loss is POLYNOMIAL else lead
    np.testing.assert_allclose(growth / late, 1.0, rtol=0.2)


RELEVANT, IRRELEVANT, LENGTH = 1, 6, 3
ALIGNMENT, QUERY = 1.5, 0.8


@jax.jit
def two_matrices(times):
    """By two variables: b fixed, K's rows E K in the place of E, Qᵀp in that of p."""
    problem = exact_family(
        relevant=RELEVANT,
        irrelevant=IRRELEVANT,
        length=LENGTH,
        rates=(1.0, QUERY**2, 0.0),
        alignment=ALIGNMENT,
        cls_square=QUERY**2,
    )
    problem = eqx.tree_at(lambda it: it.values.start_speed, problem, jnp.zeros(()))
    return exact_family_flow(problem, times), late_law(problem, times)


def test_a_key_and_a_query_matrix_select_sooner_than_one_by_a_logarithm():
    """1 − q = (1 + e^γ)/(2 γ √κ₀ |p| t log t); with W alone (1 + e^γ)/(γ κ₀ |p|² t)."""
    times = jnp.array([1e5, 1e7])
    flow, law = two_matrices(times)
    mixed = 1 / (2 * RELEVANT) + 1 / IRRELEVANT
    constant = (1 + np.exp(ALIGNMENT)) / (ALIGNMENT * 2 * np.sqrt(mixed) * QUERY)
    for one in (flow, law):
        scaled = np.exp(one.log_weight + times) * times
        np.testing.assert_allclose(scaled, constant, rtol=1e-3)
