"""A grid of trials: which values stand on which axis, and what a cell's corpus is.

Whole numbers that fix shapes are looped over, everything else is a traced number, so
that one compiled program serves all seeds, d and η₀ of a shape.
"""

import itertools
import math
import numbers
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Key, Scalar

from ..arguments import fields_as_annotated
from ..errors import BadInput
from ..model import checks
from ..model.corpus import Corpus
from ..model.synthetic import independent_tokens, several_relevant


class Shape(NamedTuple):
    """The axes that decide shapes: one compiled program for each combination.

    Attributes:
        sequences: n.
        length: tokens per sequence T.
        relevant: relevant tokens per class.
        irrelevant: irrelevant tokens.
        per_sequence: relevant tokens per sequence.
    """

    sequences: int
    length: int
    relevant: int
    irrelevant: int
    per_sequence: int


NUMBERS = ("purity", "irrelevant_share", "dim", "step_size", "seed")
"""Axes of traced numbers: lanes of one program."""


@dataclass(frozen=True)
class Grid:
    """A grid of trials: every combination of the values on its axes.

    Attributes:
        family: `exact` fulfils Assumption 1 where each sequence has one pure relevant
            token; `independent` draws tokens independently given the label.
        sequences: n, even.
        length: tokens per sequence T.
        relevant: relevant tokens per class.
        irrelevant: irrelevant tokens.
        per_sequence: relevant tokens per sequence (exact).
        purity: of a relevant token, in (0, 1] (exact).
        irrelevant_share: δ̃ (independent).
        dim: embedding dimensions d.
        step_size: step sizes η₀ of the one step on E.
        seed: seeds.
        until_norm: the flow stops where ‖p‖ is this.
        path_points: points saved along each flow.
        precision: of the whole sweep.
    """

    family: Literal["exact", "independent"] = "exact"
    sequences: tuple[int, ...] = (200,)
    length: tuple[int, ...] = (8,)
    relevant: tuple[int, ...] = (8,)
    irrelevant: tuple[int, ...] = (48,)
    per_sequence: tuple[int, ...] = (1,)
    purity: tuple[float, ...] = (1.0,)
    irrelevant_share: tuple[float, ...] = (0.0,)
    dim: tuple[float, ...] = (1024.0,)
    step_size: tuple[float, ...] = (100.0,)
    seed: tuple[int, ...] = (0,)
    until_norm: float = 1e6
    path_points: int = 0
    precision: Literal["float64", "float32"] = "float64"

    def __post_init__(self) -> None:
        """Refuse what no axis can hold; programs are kept by their grid's values."""
        fields_as_annotated(self, "take a tuple")
        for name, values in self.axes.items():
            if not all(isinstance(value, numbers.Real) for value in values):
                raise BadInput(f"{name} {values}: wanted numbers")

    @property
    def axes(self) -> dict[str, list]:
        """Values by name, the slowest axis first."""
        return {name: list(getattr(self, name)) for name in (*Shape._fields, *NUMBERS)}

    @property
    def size(self) -> int:
        """Number of trials."""
        return math.prod(len(values) for values in self.axes.values())

    def check(self) -> None:
        """Refuse a grid that no trial can be made of, before anything is traced.

        Raises:
            BadInput: what arrived, what was wanted.
        """
        for name, values in self.axes.items():
            if not values or len(set(values)) < len(values):
                raise BadInput(f"{name} {values}: wanted one or more, all different")
        for dim in self.dim:
            if not (dim >= 1 and dim % 1 == 0):
                raise BadInput(f"dim {dim}: wanted whole numbers ≥ 1")
        for name in ("step_size", "until_norm"):
            for value in np.atleast_1d(getattr(self, name)):
                if not 0 < value < math.inf:
                    raise BadInput(f"{name} {value}: wanted a finite number > 0")
        for seed in self.seed:
            checks.whole("seed", seed, least=0, most=2**31 - 1)
        checks.whole("path_points", self.path_points, least=0)
        for name, known in (
            ("family", ("exact", "independent")),
            ("precision", ("float64", "float32")),
        ):
            if getattr(self, name) not in known:
                raise BadInput(f"{name} {getattr(self, name)!r}: wanted one of {known}")
        if self.family == "exact" and self.irrelevant_share != (0.0,):
            raise BadInput("irrelevant_share belongs to the family `independent`")
        if self.family == "independent" and (
            self.per_sequence != (1,) or self.purity != (1.0,)
        ):
            raise BadInput("per_sequence and purity belong to the family `exact`")
        for shape in self.shapes():
            for purity in self.purity:
                for share in self.irrelevant_share:
                    # Traced only: no device is touched before a launcher chooses.
                    draw = self.draw(shape, purity, share)
                    jax.eval_shape(lambda seed, f=draw: f(jax.random.key(seed)), 0)

    def shapes(self) -> list[Shape]:
        """Every combination on the axes that decide shapes."""
        values = (self.axes[name] for name in Shape._fields)
        return [Shape(*row) for row in itertools.product(*values)]

    def draw(
        self,
        shape: Shape,
        purity: Float[Scalar, ""] | float,
        share: Float[Scalar, ""] | float,
    ) -> Callable[[Key[Array, ""]], Corpus]:
        """The corpus of a cell, as a function of its key."""
        settings: dict[str, Any] = shape._asdict()
        if self.family == "exact":
            return partial(several_relevant, **settings, purity=purity)
        del settings["per_sequence"]
        return partial(independent_tokens, **settings, irrelevant_share=share)


def lane_values(grid: Grid, lanes: np.ndarray) -> dict[str, np.ndarray]:
    """Values of the traced axes at some lanes.

    Args:
        grid: of trials.
        lanes: flat indices.

    Returns:
        One array per name in `NUMBERS`.

    Example:
        >>> lane_values(Grid(seed=(5, 6)), np.array([1]))["seed"].tolist()
        [6]
    """
    axes = list(grid.axes.values())
    places = np.unravel_index(lanes, [len(values) for values in axes])
    found = [np.asarray(v)[place] for v, place in zip(axes, places, strict=True)]
    return dict(zip(NUMBERS, found[len(Shape._fields) :], strict=True))
