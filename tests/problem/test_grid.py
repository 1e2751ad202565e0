"""A sweep whose draws are problems."""

import jax
import numpy as np

from jaxselect import Grid, TrialStatus, cross_attention, load, run_grid, solve
from jaxselect.status import Reason

LABELS = np.array([1, -1, 1, 1])


def noisy(key, *, noise):
    """Four bags of three features; values are a coordinate and noise."""
    one, other = jax.random.split(key)
    x = jax.random.normal(one, (4, 3, 5))
    values = x[..., 0] + noise * jax.random.normal(other, (4, 3))
    return cross_attention(x, values, LABELS)


def test_lanes_are_the_problems_that_are_drawn(tmp_path):
    axes = {"noise": (0.0, 0.5)}
    grid = Grid(
        axes=axes, draw=noisy, seed=(0, 1), dim=(1.0,), step_size=(1.0,), until_norm=1e3
    )
    run_grid(grid, tmp_path)
    found = load(tmp_path)
    for noise in axes["noise"]:
        for seed in grid.seed:
            lane = found.sel(noise=noise, seed=seed).squeeze()
            key = jax.random.split(jax.random.key(seed))[0]
            alone = solve(noisy(key, noise=noise), until_norm=1e3)
            assert TrialStatus(int(lane.status)) == alone.status
            code = found.reason.flag_values.tolist().index(lane.reason.item())
            said = found.reason.flag_meanings.split()[code]
            assert said == Reason(int(alone.certificate.reason)).name
            np.testing.assert_allclose(
                lane.max_margin_norm, alone.margin.norm, rtol=1e-9
            )
            assert np.isnan(lane.alignment)
