"""Tied contents of one label, whose f grows like log t long after log t = 34."""

import dataclasses
import functools

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from jaxselect.corpora.corpus import from_sequences
from jaxselect.corpora.sparse import from_corpus
from jaxselect.flow.bdf import BdfSettings
from jaxselect.flow.manifold_flow import manifold_flow, on_manifold
from jaxselect.model.parameters import Parameters
from jaxselect.model.ragged_bags import RaggedBags
from jaxselect.outcome.manifold_end import _late_flow
from jaxselect.outcome.trajectory import trajectory
from jaxselect.outcome.trial_status import End
from jaxselect.pairs.tie_contents import RISEN, tie_contents

LARGE, SMALL = 60.0, -1.0
# Words 0 and 1 in one bag; ties with a strict minimum, and twins that two pairs move.
STRICT = (
    [[0, 1], [2, 3], [2, 3, 3], [4, 5]],
    [1, 1, -1, 1],
    [LARGE, SMALL, 1.0, -1.0, 0.5, -0.5],
)
TWINS = (
    [[0, 1], [2, 3, 4], [2, 3, 4], [2, 5], [4, 5]],
    [1, 1, -1, 1, 1],
    [LARGE, SMALL, 1.0, -1.0, 0.0, -1.0],
)


@functools.cache
def ended(twins, until=1000.0):
    sequences, labels, head = TWINS if twins else STRICT
    size = len(head)
    corpus = from_corpus(from_sequences(sequences, labels, vocabulary=size))
    model = Parameters(jnp.eye(size), jnp.zeros(size), jnp.array(head))
    settings = BdfSettings(max_steps=1000, compiled=False)
    found = trajectory(model, corpus, until_log_time=until, settings=settings)
    return RaggedBags.of_corpus(model, corpus), found


def gap(number, until):
    """x = a₀ − a₁ at a log-time, by SciPy's Radau in τ."""

    def field(s, x):
        share = 1 / (1 + np.exp(-x))
        # As a logarithm: a force of e^τ times next to nothing.
        log_force = s - np.logaddexp(0, SMALL + (LARGE - SMALL) * share)
        log_force += np.log(share) - np.logaddexp(0, x)
        return 2 * (LARGE - SMALL) / number * np.exp(log_force)

    done = solve_ivp(field, (0.0, until), [0.0], "Radau", rtol=1e-9, atol=1e-9)
    assert done.success
    return done.y[0, -1]


@pytest.mark.parametrize("twins", (False, True))
def test_a_content_rises_to_its_proof(twins):
    bags, found = ended(twins)
    assert found.ending.status == End.TIED and found.ending.on_manifold == twins
    assert found.log_time > LARGE and found.returns == ()
    assert not {0, 1} & set(found.ending.tied.tolist())
    wanted = gap(len(bags.labels), found.log_time)
    # Shares below 10⁻³ are left out of forces.
    assert abs(found.cls[0] - found.cls[1] - wanted) < 1e-2
    assert wanted > found.log_time - LARGE


def test_a_content_that_rises_is_where_its_own_loss_moves_it():
    """Nothing is proved on the way."""
    bags, found = ended(True, 50.0)
    assert found.ending.status == End.UNPROVED
    # A stage for what the end may have cut through takes next to no time.
    assert 34.0 <= found.log_time < 34.001
    contents = tie_contents(bags, found.ending.selected, found.cls)
    ties = _late_flow(bags, found.ending.selected, found.cls, found.ending.margin).ties
    assert len(contents.rising) == 1
    flow = manifold_flow(ties, on_manifold(ties, found.cls), found.log_time, 50.0)
    cls = np.asarray(flow.cls)
    # Error of the integrator up to log t = 34; it decays.
    assert abs(cls[0] - cls[1] - gap(len(bags.labels), 50.0)) < 1e-4


def test_only_one_label_and_a_large_f_make_a_content_rise():
    bags, _ = ended(False, 30.0)
    every = np.ones(len(bags.counts.indices), bool)

    def rising(bags, score):
        cls = np.array([score, 0.0, 0.0, 0.0, 0.0, 0.0])
        ties = tie_contents(bags, every, cls)
        return 0 if ties is None else len(ties.rising)

    def risen(f):
        share = (f - SMALL) / (LARGE - SMALL)
        return np.log(share / (1 - share))

    assert rising(bags, risen(RISEN + 0.1)) == 1
    assert rising(bags, risen(RISEN - 0.1)) == 0
    flipped = dataclasses.replace(bags, labels=-bags.labels)
    assert rising(flipped, risen(RISEN + 0.1)) == 0
