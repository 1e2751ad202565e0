"""When a sweep and a study of the theory draw the same tokens."""

from collections.abc import Mapping
from typing import Any

SIZES = ("sequences", "length", "relevant", "irrelevant")
ASSUMPTION_ONE = {
    "family": "exact",
    "embed": "embedding_step",
    "per_sequence": [1],
    "purity": [1.0],
    "irrelevant_share": [0.0],
}
"""Settings of a sweep under which its tokens fulfil Assumption 1."""


def same_tokens(grid: Mapping[str, Any], problem: Mapping[str, Any]) -> bool:
    """Whether every run of a sweep has the corpus of a problem, up to seeds.

    Args:
        grid: of a sweep, as its settings have it.
        problem: of a study, as its settings have it.

    Returns:
        False where any size is another, or where tokens are drawn otherwise.

    Example:
        >>> sizes = {"sequences": 20, "length": 4, "relevant": 2, "irrelevant": 8}
        >>> grid = {name: [size] for name, size in sizes.items()} | ASSUMPTION_ONE
        >>> same_tokens(grid, sizes), same_tokens(grid | {"purity": [0.5]}, sizes)
        (True, False)
    """
    return all(grid.get(name) == [problem[name]] for name in SIZES) and all(
        grid.get(name, value) == value for name, value in ASSUMPTION_ONE.items()
    )
