"""Four gradient steps on E before p trains, in place of one."""

from jaxselect import Grid, embedding_steps

GRID = Grid(
    embed=embedding_steps(4),
    axes={"sequences": (8,), "length": (3,), "relevant": (2,), "irrelevant": (4,)},
    dim=(100.0, 1e4),
    step_size=(3.0, 10.0),
)
