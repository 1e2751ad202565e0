"""Grids of trials that sweeps run, and studies sample, by the name of the preset."""

import numpy as np

from jaxselect.sweep.grid import Grid


def _decades(first: float, last: float, per_decade: int) -> tuple[float, ...]:
    number = round((last - first) * per_decade) + 1
    return tuple(float(f"{x:.4g}") for x in np.logspace(first, last, number))


def _whole(values: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(float(round(value)) for value in values)


GRIDS = {
    "default": Grid(
        dim=_whole((32, *_decades(2, 6, 2))),
        step_size=_decades(-1, 5, 2),
        seed=tuple(range(8)),
        path_points=60,
    ),
    "smoke": Grid(
        sequences=(20,),
        length=(4,),
        relevant=(2,),
        irrelevant=(8,),
        dim=(64.0, 1e4, 1e6),
        step_size=(1.0, 100.0),
        seed=tuple(range(4)),
        until_norm=1e3,
        path_points=30,
    ),
    "paper": Grid(
        sequences=(200, 1000),
        length=(8, 32),
        dim=_whole((128, 2048, *_decades(4, 6, 1))),
        step_size=_decades(-1, 5, 1),
        seed=tuple(range(16)),
        path_points=60,
    ),
    "phase": Grid(
        dim=_whole((16, *_decades(1.5, 9, 4))),
        step_size=_decades(-1, 5, 8),
        seed=tuple(range(64)),
    ),
    "tpu": Grid(
        dim=_whole((16, *_decades(1.5, 9, 4))),
        step_size=_decades(-1, 5, 2),
        seed=tuple(range(64)),
        until_norm=1e4,
        precision="float32",
    ),
}
