"""The exponential loss e^{−m} in place of the logistic one."""

from dataclasses import replace

from jaxselect import EXPONENTIAL, Grid, assumption_one

SIZES = {"sequences": 8, "length": 3, "relevant": 2, "irrelevant": 4}


def exponential(key):
    return replace(assumption_one(key, **SIZES), loss=EXPONENTIAL)


GRID = Grid(exponential, dim=(100.0, 1e4), step_size=(30.0, 100.0))
