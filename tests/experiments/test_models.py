"""The study of four kinds of attention: what judges it, and whether it can fail."""

import dataclasses
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest

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
    margins = functional_margin(problem.corpus.labels, output, loss).value
    np.testing.assert_allclose(loss.value(margins).mean(), risk(theta), rtol=1e-12)


def verdicts(results):
    found = Finished({}, results, {}, {})
    return [claim.measure(found).verdict for claim in models.CLAIMS]


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
