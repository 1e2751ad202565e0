"""Every predicted edge over η₀, by the name that studies and figures know it by."""

import jax

from jaxselect.theory.phases import breaking_edges, capture_edges, selection_edge
from jaxselect.theory.two_classes import Ensemble


def every_edge(ensemble: Ensemble, dim: jax.Array) -> dict[str, jax.Array]:
    """η₀ of each edge at one d, from selection upwards."""
    breaking, captured = breaking_edges(ensemble, dim), capture_edges(ensemble, dim)
    return {
        "selection": selection_edge(ensemble, dim),
        "breaking_lower": breaking.lower,
        "breaking_upper": breaking.upper,
        "capture_lower": captured.lower,
        "capture_upper": captured.upper,
    }
