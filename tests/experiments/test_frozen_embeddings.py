"""The part of the joint study with E fixed, against closed forms.

Source: mathematics, section 3h.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.beyond import _trained_head
from experiments.beyond._trained_head import Heading, classify, relaxed
from experiments.beyond.problem import Problem
from jaxselect import Parameters, embedding_step, from_sequences, max_margin
from jaxselect.model.selection import important_tokens
from tests.tolerances import assert_close

MARKS = np.geomspace(10.0, 1e6, 6)


def two_bags(embeddings, query=0.0, loser=2):
    """Token 0 makes a sequence positive, token 1 negative, token 2 says nothing."""
    bags = from_sequences([[0, 2], [1, loser]], [1, -1], vocabulary=3)
    head = jnp.array([1.0, -1.0, 0.0])
    return Parameters(jnp.asarray(embeddings), jnp.full(3, query), head), bags


follow = jax.jit(_trained_head.follow)


def columns(after, bags, marks=MARKS):
    found = follow(after, bags, marks)
    return {name: np.asarray(value)[None] for name, value in found.items()}


def test_relaxed_problem_in_closed_form():
    """p = (1, h) is the shortest with p_1 ≥ 1 and p_2 ≥ h; a contradiction has none."""
    axes = np.eye(2)
    assert_close(relaxed(axes, np.array([1.0, 1.0])), [1, 1])
    assert_close(relaxed(axes, np.array([1.0, 0.0])), [1, 0])
    slanted = np.array([[1.0, 0.0], [-1.0, 2.0]])
    assert_close(relaxed(slanted, np.array([1.0, 0.0])), [1, 0.5])
    opposite = np.array([[1.0, 0.0], [-1.0, 0.0]])
    assert np.isnan(relaxed(opposite, np.array([1.0, 1.0]))).all()


def test_a_trained_head_on_two_sequences_in_closed_form():
    """E = I: p_mm = (1/3, 1/3, −2/3)·…, and dp/dτ is p_mm at both paces.

    By symmetry p = (x, x, −2x) with D_kᵀp = 3x for both pairs, so p_mm has x = 1/3; v
    needs both sequences.
    """
    found = columns(*two_bags(np.eye(3)))
    found |= classify(found, 0.01)
    assert_close(found["directions"][0], np.array([[1.0, 1.0, -2.0]] * 2) / 3)
    assert found["status"].tolist() == [Heading.UNCHANGED]
    assert found["supports"].all() and found["same_selection"].all()
    assert found["off"][0, _trained_head.ALONE, -1] < 1e-9
    assert (np.diff(found["off"][0, _trained_head.BESIDE]) < 0).all()
    assert found["off"][0, _trained_head.BESIDE, -1] < 1e-4
    # p = p_mm τ + ρ has no direction error here at all: p_0 = 0.
    assert_close(found["errors"], np.zeros((1, 2, len(MARKS))), worse=1e4)
    # ‖p‖ = ‖p_mm‖ (τ + const): τ grows by 2 log 10 from mark to mark beside v.
    grown = np.diff(found["norms"][0, _trained_head.BESIDE])[-1]
    norm = np.sqrt(6) / 3
    np.testing.assert_allclose(grown, norm * 2 * np.log(10.0), rtol=1e-3)


def test_a_sequence_that_v_does_not_need_is_relaxed():
    """Token 1 is twice as long: v_mm fits its sequence with room to spare.

    y E_{s*} = (1, 0, 0) and (2, −½, 0): v_mm = (1, 0, 0) fits the second with 2. That
    token 0, which v needs, is in it, too, where it loses, changes nothing.
    """
    rows = np.array([[1.0, 0.0, 0.0], [-2.0, 0.5, 0.0], [0.0, 0.0, 1.0]])
    found = columns(*two_bags(rows, loser=0))
    found |= classify(found, 0.05)
    assert found["supports"].tolist() == [[True, False]]
    assert found["status"].tolist() == [Heading.RELAXED]
    assert found["check"][0] > 0.1


@pytest.mark.parametrize(("share", "needed"), [(0.9, True), (1.1, False)])
def test_v_needs_every_sequence_up_to_the_step_size_foretold(share, needed):
    """At d → ∞ y E_{s*} = y E⁰ + ½ η₀ |α| v with orthonormal E⁰ have duals of v_mm
    1 − g (Σ g)/(1 + Σ g²), g = ½ η₀ |α|: all are positive up to
    η₀ = 2/√(max|α| Σ|α| − Σα²).
    """
    before, bags = jax.jit(Problem(20, 6, 3, 12).draw)(0, 1e12)
    counts = np.array([4, 3, 3] * 2) / (20 * 6)
    largest = 2 / np.sqrt(counts.max() * counts.sum() - (counts**2).sum())
    after = embedding_step(before, bags, share * largest)
    chosen = np.asarray(important_tokens(bags))[bags.tokens] & (bags.counts > 0)
    tokens = np.pad(after.embeddings, ((0, 1), (0, 0)))
    pairs = jax.jit(_trained_head.head_pairs)(chosen, bags)
    solution = jax.jit(max_margin)(tokens, pairs)
    active = np.asarray(solution.active)
    active = active[:-1, -1] | active[-1, :-1]
    assert bool(active[:6].all()) is needed
