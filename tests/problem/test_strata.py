"""Bags in groups of similar width: the same forces, Hessian and end as all together.

Source: mathematics, sections 3a and 8.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxselect import LOGISTIC, FlowSettings, cross_attention, solve, stages
from jaxselect.flow.cls import aligned, field, linearise
from jaxselect.flow.control import STEPPERS
from jaxselect.problem import stratified
from tests.tolerances import assert_close

N, WIDTH, DIM = 12, 16, 4


def ragged(seed, *, classes=None, weights=False, separable=False):
    """Bags of one to sixteen entries, most of them short; two fill their groups."""
    random = np.random.default_rng(seed)
    features = random.normal(size=(N, WIDTH, DIM))
    lengths = np.array([WIDTH, 1, 3, 2, 8, 4, 2, 1, 3, 4, 2, 3])
    values = random.normal(size=(N, WIDTH, *([classes] if classes else [])))
    labels = random.choice([-1, 1], N) if classes is None else np.arange(N) % classes
    if separable:
        values = features[..., 0]
        labels = np.ones(N, int)
    return cross_attention(
        features,
        values,
        labels,
        mask=np.arange(WIDTH) < lengths[:, None],
        weights=random.uniform(0.2, 2.0, N) if weights else None,
        loss=LOGISTIC,
    )


@pytest.mark.parametrize("options", [{}, {"weights": True}, {"classes": 3}])
def test_groups_add_up_to_all_bags(options):
    whole = ragged(0, **options)
    cut = stratified(whole)
    assert cut.widths == (16, 8)
    assert sorted(np.concatenate(cut.groups).tolist()) == list(range(N))
    place = jnp.asarray(np.random.default_rng(1).normal(size=DIM))

    @partial(jax.jit, static_argnums=0)
    def forces(function, problem):
        return function(jnp.asarray(2.0), place, aligned(problem, None)[1])

    assert_close(forces(field, cut), forces(field, whole))
    for part, wanted in zip(
        forces(linearise, cut), forces(linearise, whole), strict=True
    ):
        assert_close(part, wanted)


@pytest.mark.parametrize("stepper", STEPPERS)
def test_a_problem_ends_as_it_does_whole_and_by_every_stepper(stepper):
    """Status, p_mm to rounding, and where p is, to what steps may err."""
    for seed in range(3):
        whole = ragged(seed, separable=seed < 2)
        wanted = solve(whole, until_norm=1e3)
        found = solve(stratified(whole), until_norm=1e3, stepper=stepper)
        assert found.status == wanted.status
        assert_close(found.margin.direction, wanted.margin.direction)
        np.testing.assert_allclose(found.trained, wanted.trained, atol=1e-3)


def test_a_stepper_that_is_asked_for_is_taken(monkeypatch):
    """By the argument or by the settings, where the size would choose another."""
    problem = ragged(0, separable=True)

    def steps(**asked):
        return int(solve(problem, until_norm=1e3, **asked).flow.num_steps)

    wanted = {name: steps(stepper=name) for name in STEPPERS}
    assert steps() == wanted["rodas"] != wanted["bdf"]
    monkeypatch.setattr(stages, "_LARGE", 0)
    assert steps() != wanted["rodas"]
    for name in STEPPERS:
        asked = steps(settings=FlowSettings(stepper=name)), steps(stepper=name)
        assert asked[0] == asked[1] and abs(asked[0] / wanted[name] - 1) < 0.3
