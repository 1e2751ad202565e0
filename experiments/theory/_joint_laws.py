"""Laws of the joint flow on draws: their lanes, and the deviations."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.common.statistics import bootstrap
from experiments.theory._joint_lanes import Cell
from experiments.theory.problem import Problem
from jaxselect.flow.cls_flow import FlowStatus
from jaxselect.theory.joint import (
    ReducedFlow,
    ReducedProblem,
    late_law,
    reduced_flow,
    reduced_problem,
)

SUBSETS = {
    "p": (0.0, 1.0, 0.0),
    "p, v": (0.0, 1.0, 1.0),
    "E": (1.0, 0.0, 0.0),
    "E, p": (1.0, 1.0, 0.0),
    "E, v": (1.0, 0.0, 1.0),
    "E, p, v": (1.0, 1.0, 1.0),
    "E, p, v; η = 0.01": (0.01, 1.0, 1.0),
    "E, p, v; η = 100": (100.0, 1.0, 1.0),
}
"""Rates (η, r_p, r_v) by what they train; v alone selects nothing."""
WITHIN = 0.05
"""Deviation from a law at which it counts as begun."""
QUANTITIES = ("off", "value", "cls_norm", "head_norm")
"""1 − q, β, |p| and |v|."""
FREQUENCY_RATES = (0.01, 1.0, 100.0)


class Ask(NamedTuple):
    """The parameters of all parts.

    Attributes:
        problem: n, T, R and I of the laws.
        dims: values of d.
        seeds: of the draws.
        marks: log(1+t) at which lanes are measured.
        alignment: γ, the value of an important token after the step on E.
        alignments: likewise, of the part on selection.
        etas: rates of E in the crossover.
        selection_etas: in the part on selection.
        classes: R₊ and R₋ of these.
        step_sizes: η₀ of the phase diagram.
    """

    problem: Problem
    dims: tuple[float, ...]
    seeds: range
    marks: np.ndarray
    alignment: float
    alignments: tuple[float, ...]
    etas: tuple[float, ...]
    selection_etas: tuple[float, ...]
    classes: tuple[tuple[int, int], ...]
    step_sizes: tuple[float, ...]

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

    def theory(self, rates: tuple[float, float, float]) -> ReducedProblem:
        """The two variables of the problem."""
        return reduced_problem(
            relevant=self.problem.relevant,
            irrelevant=self.problem.irrelevant,
            length=self.problem.length,
            rates=rates,
            alignment=self.alignment,
        )


def laws_cells(ask: Ask) -> list[Cell]:
    """Every subset, dimension and seed."""
    return [
        ask.cell(seed, dim, eta=eta, cls_rate=p, head_rate=v)
        for eta, p, v in SUBSETS.values()
        for dim in ask.dims
        for seed in ask.seeds
    ]


def laws(ask: Ask, rows: np.ndarray) -> tuple[Any, dict[str, np.ndarray]]:
    """Constants over those of the law, and from which log t on it holds."""
    shape = len(SUBSETS), len(ask.dims), len(ask.seeds)
    rows = rows.reshape(shape)
    found, arrays = [], {"off": np.exp(rows["log_off"])}
    laws, flows = predict(ask, list(SUBSETS.values()))
    arrays |= {"law": np.exp(laws.log_weight), "reduced": np.exp(flows.log_weight)}
    for place, (name, rates) in enumerate(SUBSETS.items()):
        law, flow = (
            jax.tree.map(lambda x, i=place: x[i], one) for one in (laws, flows)
        )
        for which, dim in enumerate(ask.dims):
            here = rows[place, which]
            ratios = _ratios(here, law)
            one: dict[str, Any] = {
                "trained": name,
                "dim": dim,
                "reached": int((here["status"] == FlowStatus.REACHED).sum()),
                "drift": largest(here["drift"]),
            }
            for quantity, ratio in ratios.items():
                fixed = {"cls_norm": rates[1], "head_norm": rates[2]}.get(quantity, 1.0)
                if fixed:
                    one[quantity] = interval(ratio[:, -1])
                    one[quantity]["begins"] = begins(ratio.mean(axis=0), ask.marks)
            one["off"]["of_two_variables"] = float(
                np.exp(here["log_off"] - flow.log_weight[None])[:, -1].mean()
            )
            found.append(one)
    return found, arrays


def predict(
    ask: Ask, rates: Sequence[tuple[float, float, float]]
) -> tuple[ReducedFlow, ReducedFlow]:
    """The late law and the two variables along the marks, for several rates."""

    @jax.jit
    @jax.vmap
    def both(rates: jax.Array) -> tuple[ReducedFlow, ReducedFlow]:
        theory = ask.theory(tuple(rates))
        marks = jnp.asarray(ask.marks)
        return late_law(theory, marks), reduced_flow(theory, marks)

    return jax.device_get(both(jnp.array(rates)))


def _ratios(here: np.ndarray, law: ReducedFlow) -> dict[str, np.ndarray]:
    """Each quantity over that of the law, by seed and mark."""
    return {
        "off": np.exp(here["log_off"] - law.log_weight),
        "value": here["value"] / law.value,
        "cls_norm": np.sqrt(here["cls_square"] / law.cls_square),
        "head_norm": np.sqrt(here["head_square"] / law.head_square),
    }


def frequency_cells(ask: Ask) -> list[Cell]:
    """Important tokens in shares ∝ 8 : 4 : 2 : 1 of their class's sequences."""
    return [
        ask.cell(seed, ask.dims[-1], eta=eta, skew=1.0, positive=4, negative=4)
        for eta in FREQUENCY_RATES
        for seed in ask.seeds
    ]


def frequency(ask: Ask, rows: np.ndarray) -> tuple[Any, dict[str, np.ndarray]]:
    """The b_s − b_r against log(π_s/π_r): the slope over tokens, along log t."""
    rows = rows.reshape(len(FREQUENCY_RATES), len(ask.seeds))
    shares = rows["frequency"][..., :4]
    wanted = np.log(shares / shares[..., :1])
    values = rows["values"][..., :4]
    lead = values - values[..., :1]
    slopes = (lead * wanted[:, :, None]).sum(-1) / (wanted**2).sum(-1)[..., None]
    found = [
        {
            "eta": eta,
            "slope": interval(slopes[place, :, -1]),
            "largest_difference": float(
                np.abs(lead[place, :, -1] - wanted[place]).max()
            ),
            "begins": begins(slopes[place].mean(axis=0), ask.marks),
            "ratio": interval((values.min(-1) / values.max(-1))[place, :, -1]),
        }
        for place, eta in enumerate(FREQUENCY_RATES)
    ]
    return found, {"lead": lead, "wanted": wanted}


def crossover_cells(ask: Ask) -> list[Cell]:
    """All trained, over the rate of E."""
    return [
        ask.cell(seed, ask.dims[-1], eta=eta) for eta in ask.etas for seed in ask.seeds
    ]


def crossover(ask: Ask, rows: np.ndarray) -> tuple[Any, dict[str, np.ndarray]]:
    """1 − q over η, beside two variables and the law, and where the law begins."""
    rows = rows.reshape(len(ask.etas), len(ask.seeds))
    rates = [(eta, 1.0, 1.0) for eta in ask.etas]
    law, flow = predict(ask, rates)
    ratio = np.exp(rows["log_off"] - law.log_weight[:, None])
    of_flow = np.exp(rows["log_off"] - flow.log_weight[:, None])
    found = []
    for place, eta in enumerate(ask.etas):
        theory = ask.theory(rates[place])
        values, scores = theory.values, theory.scores
        found.append(
            {
                "eta": eta,
                # A_v and A_p double their squares here.
                "value_crossover": float(
                    0.5 * values.start_speed / np.sqrt(values.product)
                ),
                "score_crossover": float(
                    0.5 * scores.start_speed / np.sqrt(scores.product)
                ),
                "off": interval(ratio[place, :, -1]),
                "begins": begins(ratio[place].mean(axis=0), ask.marks),
                "two_variables_begin": begins(of_flow[place].mean(axis=0), ask.marks),
            }
        )
    arrays = {
        "off": np.exp(rows["log_off"]),
        "law": np.exp(law.log_weight),
        "reduced": np.exp(flow.log_weight),
    }
    return found, arrays


def begins(ratio: np.ndarray, marks: np.ndarray) -> float | None:
    """First mark from which on a ratio stays within 5 % of one; None if it never does.

    Example:
        >>> begins(np.array([1.01, 1.2, 1.04, 0.97]), np.array([1.0, 2.0, 3.0, 4.0]))
        3.0
    """
    bad = np.flatnonzero(~(np.abs(ratio - 1) <= WITHIN))
    first = bad[-1] + 1 if len(bad) else 0
    return float(marks[first]) if first < len(marks) else None


def interval(values: np.ndarray) -> dict[str, float]:
    """Mean and its 95 % interval over draws."""
    low, high = bootstrap(values)
    return {"mean": float(values.mean()), "low": low, "high": high}


def largest(values: np.ndarray) -> float | None:
    """The largest of the numbers that are known; None without one."""
    known = values[np.isfinite(values)]
    return float(known.max()) if len(known) else None
