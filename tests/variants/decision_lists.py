"""Labels by a decision list: the first present token of + − + − … decides."""

from experiments.theory.lists import decision_list
from jaxselect import Grid

SIZES = {"sequences": (8,), "length": (4,), "depth": (2,), "irrelevant": (3,)}
GRID = Grid(
    draw=decision_list,
    axes={**SIZES, "presence": (0.3, 0.5)},
    dim=(100.0, 1e4),
    step_size=(30.0, 100.0),
    seed=(0, 1),
)
