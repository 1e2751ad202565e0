"""The plan of a study of joint training: its lanes, and their theory."""

import dataclasses
from typing import Annotated, Any

import numpy as np

from experiments.common.study import Bound, Count, Positive, Several, Study
from experiments.theory._joint_lanes import Cell
from experiments.theory.problem import Problem
from jaxselect.theory.joint import ReducedProblem, reduced_problem
from jaxselect.theory.two_classes import Real


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan(Study):
    """The lanes that are asked for, and the theory of the same problem.

    Attributes:
        problem: n, T, R and I of the laws; of the plane of (d, η₀), too.
        dims: values of d.
        alignment: γ, the value of important tokens after the one step on E.
        alignments: likewise, of the part on selection.
        etas: rates of E in the crossover.
        selection_etas: rates of E in the part on selection.
        classes: R₊ and R₋ in the part on selection.
        step_sizes: η₀ in the plane of (d, η₀).
        until_log_time: log(1+t) at the end of a joint flow; later than 10⁸ the exponent
            log t − y f of a sequence has no digit left.
        points: of a path.
        seeds: number of draws of each kind.
    """

    problem: Problem = Problem(64, 4, 2, 4)
    dims: tuple[Positive, ...] = (1e2, 1e4, 1e6)
    alignment: Positive = 1.0
    alignments: tuple[float, ...] = (0.0, 1.0, 5.0)
    etas: tuple[Positive, ...] = tuple(10.0 ** (0.5 * power) for power in range(-8, 9))
    selection_etas: tuple[Positive, ...] = (1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0, 1e3)
    classes: tuple[tuple[Count, Count], ...] = ((4, 4), (3, 5), (2, 6), (1, 7), (1, 4))
    step_sizes: tuple[float, ...] = (1.0,)
    until_log_time: Annotated[float, Bound(1e3, 1e8, "10³ … 10⁸")] = 1e6
    points: Annotated[int, Bound(4, 10**9, "4 or more")] = 26
    seeds: Several = 8

    @property
    def marks(self) -> np.ndarray:
        """Values of log(1+t) at which lanes are measured."""
        return np.geomspace(10.0, self.until_log_time, self.points)

    @property
    def draws(self) -> range:
        """Seeds of the draws."""
        return range(self.seed, self.seed + self.seeds)

    def cell(self, seed: int, dim: float, **kinds: Any) -> Cell:
        """A cell of the problem's own numbers, after the step of alignment γ."""
        own = self.problem.relevant
        kinds = {"positive": own, "negative": own} | kinds
        kinds.setdefault("irrelevant", self.problem.irrelevant)
        number = kinds["positive"] + kinds["negative"]
        alignment = kinds.pop("alignment", self.alignment)
        # Lemma 4.1 with α = 1/(T N).
        step_size = 2 * alignment * self.problem.length * number
        return Cell(seed, dim, kinds.pop("step_size", step_size), **kinds)

    def theory(self, rates: tuple[Real, Real, Real]) -> ReducedProblem:
        """The two variables of the problem."""
        return reduced_problem(
            relevant=self.problem.relevant,
            irrelevant=self.problem.irrelevant,
            length=self.problem.length,
            rates=rates,
            alignment=self.alignment,
        )
