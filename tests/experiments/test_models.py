"""The study of four kinds of attention: what judges it, and whether it can fail."""

import dataclasses
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import quadprog

from experiments.beyond import models
from experiments.common.claims import Verdict
from experiments.common.results import Finished
from jaxselect.data.loss import LOGISTIC, NEXT_TOKEN
from jaxselect.model.attention import attend_bags, functional_margin

SMOKE = models.PRESETS["smoke"]


@pytest.mark.parametrize("name", models.MODELS)
def test_the_field_is_the_gradient_of_the_risk(name):
    """By the derivative of what the library attends to, at a random θ."""
    drawn = models.MODELS[name](np.random.default_rng(3))
    loss = NEXT_TOKEN if name == "next_token" else LOGISTIC
    labels = drawn.labels.astype(float)
    theta = 0.1 * np.random.default_rng(4).normal(size=len(drawn.start))

    def risk(theta):
        weights = jax.nn.softmax(drawn.keys @ theta, axis=1)
        margins = labels * (weights * drawn.values).sum(axis=1)
        return loss.value(margins).mean()

    wanted = -np.exp(2.0) * jax.grad(risk)(jnp.asarray(theta))
    np.testing.assert_allclose(models.field(2.0, theta, drawn), wanted, atol=1e-12)
    problem = drawn.problem
    logits = problem.logits(problem.scores(problem.coordinates(jnp.asarray(theta))))
    output = attend_bags(logits, problem.values, problem.corpus).output
    margins = functional_margin(problem.corpus.labels, output).value
    np.testing.assert_allclose(loss.value(margins).mean(), risk(theta), rtol=1e-12)


def test_least_squares_find_the_vector_of_a_quadratic_program():
    rng = np.random.default_rng(5)
    for _ in range(5):
        rows = rng.normal(size=(6, 9))
        least = np.r_[np.zeros(2), np.ones(4)]
        wanted = quadprog.solve_qp(np.eye(9), np.zeros(9), rows.T, least, 2)[0]
        np.testing.assert_allclose(models.shortest(rows[2:], rows[:2]), wanted)


def test_weights_of_a_component_are_those_of_a_choice():
    """Targets 1, 1, 2 of one context; 3 and 4 beat each other in unlike contexts."""
    contexts = np.array([[1, 2, 3, 0]] * 3 + [[3, 4, 1, 5], [4, 3, 2, 5]])
    given = models.Sentences(contexts, np.array([1, 1, 2, 3, 4]), np.eye(6))
    bags = np.sort(contexts, axis=1)
    keys = np.einsum("itd,ie->itde", np.eye(6)[bags], np.eye(6)[contexts[:, -1]])
    drawn = models.following(np.random.default_rng(0))
    drawn = drawn._replace(keys=keys.reshape(5, 4, -1))
    weights, direction = models.decomposed(drawn, given)
    first, second = [0, 2 / 3, 1 / 3, 0], [0, 0.5, 0.5, 0]
    np.testing.assert_allclose(weights, [first] * 3 + [second] * 2, atol=1e-8)
    scores = direction.reshape(6, 6)
    assert scores[1, 0] == pytest.approx(scores[2, 0])
    assert scores[1, 0] - max(scores[0, 0], scores[3, 0]) == pytest.approx(1)


def finished(results):
    return Finished({}, results, {}, {})


def verdicts(results):
    return [claim.measure(finished(results)).verdict for claim in models.CLAIMS]


GOOD = {
    "rows": [{"statuses": {"SELECTED": 3, "TIED": 1}, "directions": [1e-9, 1e-8]}],
    "matrices": [
        {"flow": 1.01, "flow_exponent": -0.99}
        | {"descent": 0.99, "descent_exponent": -1.02}
    ],
    "one_query": [1e-9],
    "next_tokens": [{"weights": 1e-9, "direction": 1e-9, "tied": 1}],
}
WORSE = {
    "an end without certificate": (0, "rows", "statuses", {"UNRESOLVED": 1}),
    "another direction": (1, "rows", "directions", [1e-5]),
    "another constant": (2, "matrices", "flow", 1.03),
    "no number": (2, "matrices", "flow", float("nan")),
    "another exponent": (2, "matrices", "flow_exponent", -0.9),
    "other odds": (4, "next_tokens", "weights", 1e-3),
    "another matrix": (4, "next_tokens", "direction", 1e-3),
    "slower descent": (5, "matrices", "descent_exponent", -0.75),
}


@pytest.mark.parametrize("case", WORSE)
def test_each_number_can_contradict_its_claim_alone(case):
    good = [Verdict.CERTIFIED] + [Verdict.REPRODUCED] * 5
    assert verdicts(GOOD) == good
    place, name, key, value = WORSE[case]
    found = verdicts(GOOD | {name: [{**GOOD[name][0], key: value}]})
    assert found.pop(place) is Verdict.NOT_REPRODUCED
    good.pop(place)
    assert found == good
    assert verdicts(GOOD | {"one_query": [1e-3]})[3] is Verdict.NOT_REPRODUCED
    nothing = {name: [] for name in GOOD}
    assert set(verdicts(nothing)) == {Verdict.NOT_RUN}


def test_other_targets_than_the_definition_has_contradict_the_claims(monkeypatch):
    """`solve` gets the targets of one sequence less, and SciPy all of them."""
    settings = dataclasses.replace(SMOKE, problems=1)
    monkeypatch.setattr(models, "MODELS", {"next_token": models.following})
    results = {}
    arrays = models.run(settings, results)
    assert Counter(results["rows"][0]["statuses"]) == {"TIED": 1}
    found = verdicts(results)
    assert (found[0], found[1], found[4]) == (
        Verdict.CERTIFIED,
        *[Verdict.REPRODUCED] * 2,
    )
    np.testing.assert_allclose(arrays["predicted"], arrays["certified"], atol=1e-6)

    def planted(contexts, targets, rows):
        other = next(one for one in contexts[0] if one != targets[0])
        return made(contexts, np.r_[other, targets[1:]], rows)

    made = models.next_token
    monkeypatch.setattr(models, "next_token", planted)
    models.run(settings, results)
    assert verdicts(results)[4] is Verdict.NOT_REPRODUCED
