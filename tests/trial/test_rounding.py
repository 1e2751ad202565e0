"""No result follows rounding: inputs times 1 ± a few roundings end the same."""

from functools import partial

import jax
import numpy as np
import pytest

from jaxselect.data.synthetic import several_relevant
from jaxselect.margin.certificate import TrialStatus
from jaxselect.model.step import embedding_step
from jaxselect.sweep.grid import FAMILIES
from jaxselect.trial import run_trial

# A few roundings of float64; and what they may change, relatively.
ROUNDINGS, CHANGE = 1e-15, 1e-9
CONSTANTS = ("alignment", "error_constant", "max_margin_norm", "log_time")
# What they may change of a part of ρ that only the path decides: the path is known to
# the tolerance of its steps alone, 3e-5 in scores. A quarter of it moves the error
# constants of the tied runs below by 1.4e-6 and 2.7e-7, and rounding of the inputs, or
# other instructions of the processor, by 2e-7.
PATH_CHANGE = 1e-6


def rounded(tree, key, size=ROUNDINGS):
    """Every number times 1 ± `size`, signs at random."""
    leaves, structure = jax.tree.flatten(tree)
    keys = jax.random.split(key, len(leaves))
    signs = (
        jax.random.rademacher(key, leaf.shape, leaf.dtype)
        for key, leaf in zip(keys, leaves, strict=True)
    )
    moved = [leaf * (1 + size * sign) for leaf, sign in zip(leaves, signs, strict=True)]
    return jax.tree.unflatten(structure, moved)


@jax.jit
def trial(seed, dim, step_size, size, signs):
    """A run of the default sweep, (E⁰, p_0, v) times 1 ± `size`."""
    _, axes = FAMILIES["exact"]
    draw = partial(several_relevant, **{name: value for name, (value,) in axes.items()})

    def embed(before, corpus, step_size):
        moved = rounded(before, jax.random.key(signs), size)
        return embedding_step(moved, corpus, step_size)

    return run_trial(
        jax.random.key(seed), draw, dim, step_size, until_norm=1e6, embed=embed
    )


@pytest.mark.parametrize(
    ("seed", "dim", "step_size", "ends"),
    [
        (0, 100.0, 316.2, TrialStatus.CAPTURED_NEGATIVE),
        (1, 100.0, 31.62, TrialStatus.PARTIAL),
        (1, 1e3, 31.62, TrialStatus.SELECTED_ALL),
        (1, 1e4, 3.162, TrialStatus.PARTIAL),
        (1, 1e4, 316.2, TrialStatus.CAPTURED_NEGATIVE),
        (0, 1e5, 1e5, TrialStatus.SELECTED_ALL),
        (1, 1e6, 1e3, TrialStatus.SELECTED_ALL),
    ],
)
def test_a_trial_does_not_follow_rounding(seed, dim, step_size, ends):
    agree(seed, dim, step_size, ends, dict.fromkeys(CONSTANTS, CHANGE))


@pytest.mark.parametrize(("seed", "dim", "step_size"), [(6, 100.0, 1.0), (0, 1e4, 0.1)])
def test_nor_does_a_tied_one(seed, dim, step_size):
    changes = dict.fromkeys(CONSTANTS, CHANGE) | {"error_constant": PATH_CHANGE}
    agree(seed, dim, step_size, TrialStatus.TIED, changes)


def agree(seed, dim, step_size, ends, changes):
    """Three runs of rounded inputs end as the exact one, up to relative changes."""
    exact = trial(seed, dim, step_size, 0.0, 0)
    assert exact.status == ends
    for signs in range(3):
        found = trial(seed, dim, step_size, ROUNDINGS, signs)
        assert found.status == ends
        for name, change in changes.items():
            np.testing.assert_allclose(
                getattr(found, name), getattr(exact, name), rtol=change, err_msg=name
            )
