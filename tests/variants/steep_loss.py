"""A loss of one's own: log(1 + e^{−2m})/2, by what the formulas ask of a loss."""

from dataclasses import replace

from jax.nn import log_sigmoid, sigmoid
from jax.numpy import expm1, log1p

from jaxselect import Grid, Loss, assumption_one

STEEP = Loss(
    "steep",
    value=lambda m: -0.5 * log_sigmoid(2 * m),
    slope=lambda m: sigmoid(-2 * m),  # −ℓ′
    log_slope=lambda m: log_sigmoid(-2 * m),
    ratio=lambda m: 2 * sigmoid(2 * m),  # ℓ″/(−ℓ′)
    excess=lambda m, step: 0.5 * log1p(sigmoid(-2 * m) * expm1(2 * step)),
    largest_ratio=2.0,
)


def steep(key):
    bags = assumption_one(key, sequences=8, length=3, relevant=2, irrelevant=4)
    return replace(bags, loss=STEEP)


GRID = Grid(steep, dim=(100.0, 1e4), step_size=(30.0, 100.0))
