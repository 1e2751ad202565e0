"""Temperature: scores ϑ pᵀE_s are those of the parameters (E, ϑp, v), at time ϑ²t."""

from jaxselect import Grid, Parameters, embedding_step


def warm(before, corpus, step_size, *, tau: float = 1.0):
    """One step on E of the model with temperature; its p is returned as ϑp."""
    seen = Parameters(before.embeddings, tau * before.query, before.head)
    return embedding_step(seen, corpus, step_size)


SIZES = {"sequences": (8,), "length": (3,), "relevant": (2,), "irrelevant": (4,)}
GRID = Grid(
    embed=warm,
    axes={**SIZES, "tau": (0.5, 2.0)},
    dim=(100.0, 1e4),
    step_size=(30.0, 100.0),
)
