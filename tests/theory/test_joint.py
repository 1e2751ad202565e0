"""The reduced joint flow: against the flow of all parameters, and its late laws.

Source: mathematics, section 3i.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.common.model import attend_corpus, empirical_risk
from experiments.theory.joint import exact_family, exact_family_flow, late_law
from experiments.theory.joint_flow import LearningRates, joint_flow
from jaxselect import FlowSettings, Parameters, Reason, from_sequences

SUBSETS = {
    "E, p, v": (1.0, 1.0, 1.0),
    "E, p": (1.0, 1.0, 0.0),
    "E, v": (1.0, 0.0, 1.0),
    "E": (1.0, 0.0, 0.0),
    "p, v": (0.0, 1.0, 1.0),
    "p": (0.0, 1.0, 0.0),
    "v": (0.0, 0.0, 1.0),
}
RATES = SUBSETS | {"slow E": (0.01, 1.0, 1.0), "fast E": (100.0, 2.0, 0.5)}
# R important tokens per class, I irrelevant ones, in sequences of T.
RELEVANT, IRRELEVANT, LENGTH = 1, 6, 3
N, MIXED = 2 * RELEVANT, 1 / (2 * RELEVANT) + 1 / IRRELEVANT
PATH = jnp.array([1.0, 10.0, 100.0, 1e4, 1e6])
LATE = jnp.array([1e5, 1e7])


@jax.jit
def _reduced(rates, alignment, times):
    problem = exact_family(
        relevant=RELEVANT,
        irrelevant=IRRELEVANT,
        length=LENGTH,
        rates=tuple(rates),
        alignment=alignment,
    )
    return problem, exact_family_flow(problem, times), late_law(problem, times)


def found(rates, alignment=1.0, times=LATE):
    """The reduced problem, its flow and its law, by one program for all times."""
    early = jnp.array([1.0, 10.0, 100.0])[: len(PATH) - len(times)]
    problem, *both = _reduced(jnp.array(rates), alignment, jnp.append(early, times))
    flow, law = jax.tree.map(lambda x: x[len(early) :], both)
    return problem, flow, law


def even_bags():
    """Every important token in as many bags with each irrelevant one, six in a ring."""
    ring = [(2 + i, 2 + (i + 1) % IRRELEVANT) for i in range(IRRELEVANT)]
    bags = [[token, *pair] for token in range(2) for pair in ring]
    return from_sequences(bags, [1] * 6 + [-1] * 6, vocabulary=8)


@jax.jit
def full(parameters, rates):
    corpus = even_bags()
    flow = joint_flow(
        parameters,
        corpus,
        rates=LearningRates(*rates),
        until_log_time=PATH[-1],
        path_log_times=PATH,
        settings=FlowSettings(rtol=1e-9, atol=1e-9),
    )

    def look(embeddings, query, head):
        scores, values = embeddings @ query, embeddings @ head
        attention = attend_corpus(scores, values, corpus)
        rivals = jnp.delete(
            attention.log_weights, 0, axis=1, assume_unique_indices=True
        )
        log_off = jax.nn.logsumexp(rivals[0])
        risk = empirical_risk(Parameters(embeddings, query, head), corpus)
        return (
            values[0],
            scores[0] - scores[2],
            log_off,
            risk,
            query @ query,
            head @ head,
        )

    seen = jax.vmap(look)(flow.path_embeddings, flow.path_query, flow.path_head)
    return flow.status, seen


@pytest.mark.parametrize(
    "name, alignment", [("E, p, v", 0.0), ("p", 0.0), *((name, 1.0) for name in RATES)]
)
def test_two_variables_are_the_flow_of_all_parameters(name, alignment):
    """With E⁰ = I, p_0 and v_0 orthogonal and even bags the reduction is exact."""
    rates = RATES[name]
    signs = jnp.array([1.0, -1.0] + [0.0] * IRRELEVANT)
    embeddings = jnp.eye(8, 10).at[:, 9].set(alignment * signs)
    start = Parameters(embeddings, jnp.eye(10)[8], jnp.eye(10)[9])
    if name == "p" and not alignment:
        # All values are zero: nothing moves.
        alignment = None
    status, seen = full(start, jnp.array(rates))
    value, score, log_off, risk, cls_square, head_square = map(np.asarray, seen)
    if alignment is None:
        assert (value == 0).all() and (score == 0).all()
        return
    assert status == Reason.NONE
    _, wanted, _ = found(rates, alignment, PATH)
    # With v fixed E grows like s, and K = E Eᵀ has a rounding of s² eps.
    kept = 4 if name == "E, p" else 5
    np.testing.assert_allclose(score[-1], wanted.score[-1], rtol=1e-4)

    def near(actual, wanted):
        np.testing.assert_allclose(actual[:kept], wanted[:kept], rtol=1e-6, atol=1e-6)

    near(value, wanted.value)
    near(score, wanted.score)
    near(log_off, wanted.log_weight)
    near(cls_square, wanted.cls_square)
    near(head_square, wanted.head_square)
    # Late the loss is no number any more: its logarithm is.
    near(np.log(risk[:3]), wanted.log_loss[:3])


@pytest.mark.parametrize("name", RATES)
def test_the_exact_family_approaches_its_late_law(name):
    """Closer at 10⁹ than at 10⁵, where 1/u², what the law leaves out, is 0.003.

    β or u grows like τ: a rounding of e^{τ − qβ} would be 10⁻⁷, or steps 16,384.
    """
    _, flow, law = found(RATES[name], times=jnp.array([1e5, 1e9]))
    off = np.stack([flow.log_weight, flow.log_loss]) - [law.log_weight, law.log_loss]
    off = np.abs(off)
    assert (off[:, 1] < 0.03).all() and (off[:, 1] <= off[:, 0] + 1e-6).all()
    for name in ("value", "cls_square", "head_square"):
        ratio = np.asarray(getattr(flow, name) / getattr(law, name))
        np.testing.assert_allclose(ratio[1], 1.0, rtol=2e-3)


def test_the_table_of_the_theorem():
    """1 − q of every subset, written out; u of the flow, β = log t."""
    kappa = np.sqrt(N * MIXED)
    formula = {
        "E, p, v": lambda s, u: 1 / (kappa * s * (u - 1)),
        "E, p": lambda s, u: 1 / (N * np.sqrt(MIXED) * s**2 * (u - 1)),
        "E, v": lambda s, u: 2 / (np.sqrt(N) * MIXED * s),
        "E": lambda s, u: 2 / (N * MIXED * s**2),
        "p, v": lambda s, u: 2 * (1 / N + 1) / (MIXED * s**2),
        "v": lambda s, u: (LENGTH - 1) / LENGTH,
    }
    for name, wanted in formula.items():
        _, flow, law = found(SUBSETS[name])
        for which in (flow, law):
            ratio = np.exp(which.log_weight) / wanted(np.asarray(LATE), which.score)
            np.testing.assert_allclose(ratio, 1.0, rtol=0.01, err_msg=name)
    # p alone: 1 − q = (1 + e^γ)/(γ C t), C = κ₀ |E|² = κ₀.
    _, flow, _ = found(SUBSETS["p"])
    wanted = np.log((1 + np.e) / MIXED) - np.asarray(LATE)
    np.testing.assert_allclose(flow.log_weight, wanted, atol=1e-6)


def late(relevant, irrelevant, length, *rates):
    """The log(1 − q), β, |p|² and |v|² late: of the two variables, and of the law."""
    problem = exact_family(
        relevant=relevant,
        irrelevant=irrelevant,
        length=length,
        rates=rates,
        alignment=1.0,
    )
    each = exact_family_flow(problem, LATE), late_law(problem, LATE)
    return jnp.stack(
        [
            jnp.stack([x.log_weight, x.value, x.cls_square, x.head_square])[:, 1]
            for x in each
        ]
    )


def test_derivatives_in_counts_and_rates_are_those_of_differences():
    """Derivatives of the constants in R, I, T, η, r_p and r_v, and by theory."""
    at, unit = jnp.array([2.0, 4.0, 4.0, 0.7, 1.1, 0.9]), jnp.eye(6)

    def along(direction, step):
        return jax.jvp(lambda h: late(*(at + h * direction)), (step,), (1.0,))

    both = jax.jit(jax.vmap(along, (0, None)))
    (above, _), (value, slopes), (below, _) = (
        both(unit, h) for h in (1e-4, 0.0, -1e-4)
    )
    # β is 10⁷ there, and its difference good to 10⁻⁹ of that over the step.
    seen = [0, 2, 3]
    wanted = (above - below)[..., seen] / 2e-4
    np.testing.assert_allclose(slopes[..., seen], wanted, rtol=1e-3, atol=1e-4)
    # κ = √(N κ₀ r_p/r_v) with N κ₀ = 1 + 2R/I: 1 − q falls like 1/κ, |v|² ∝ √(N r_v/η).
    eta, cls_rate, head_rate = at[3:]
    weight = [-1 / 8, 1 / 16, 0.0, 0.0, -0.5 / cls_rate, 0.5 / head_rate]
    square = [1 / 4, 0.0, 0.0, -0.5 / eta, 0.0, 0.5 / head_rate]
    # Up to the derivative of log u, of order 1/u = 0.05.
    bound = np.array([0.025] * 4 + [0.05] * 2)
    assert (np.abs(slopes[:, 1, 0] - np.array(weight)) < bound).all()
    assert (np.abs(slopes[:, 1, 3] / value[:, 1, 3] - np.array(square)) < bound).all()


def test_a_fixed_p_that_leans_on_v_holds_one_class_back():
    """E alone, p·v = −ε: 1 − q → 2 I ε/((N + 2 I) |p|² s) in the positive class.

    Its value b drives its score down, by ε per unit; the pull of attention makes good.
    """
    lean = 0.01
    signs = jnp.array([1.0, -1.0] + [0.0] * IRRELEVANT)
    embeddings = jnp.eye(8, 10).at[:, 9].set(signs)
    query = jnp.sqrt(1 - lean**2) * jnp.eye(10)[8] - lean * jnp.eye(10)[9]
    start = Parameters(embeddings, query, jnp.eye(10)[9])
    status, seen = full(start, jnp.array(SUBSETS["E"]))
    assert status == Reason.NONE
    constant = 2 * IRRELEVANT * lean / (N + 2 * IRRELEVANT)
    off = np.exp(seen[2]) * np.asarray(PATH)
    np.testing.assert_allclose(off[-2:], constant, rtol=0.03)
