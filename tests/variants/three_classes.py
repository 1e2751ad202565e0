"""Three classes, each with tokens that occur with it alone; cross-entropy."""

from jaxselect import Grid, multi_class

SIZES = {"sequences": (9,), "length": (3,), "relevant": (2,), "irrelevant": (4,)}
GRID = Grid(
    draw=multi_class,
    axes={**SIZES, "classes": (3,)},
    dim=(100.0, 1e4),
    step_size=(30.0, 100.0),
    seed=(0, 1),
)
