"""Laws of the joint flow on draws: their lanes, and the deviations."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.common.statistics import bootstrap
from experiments.theory._joint_lanes import Cell
from experiments.theory._joint_plan import Plan
from jaxselect.flow.cls import FlowStatus
from jaxselect.theory.joint import ReducedFlow, late_law, reduced_flow

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


def laws_cells(plan: Plan) -> list[Cell]:
    """Every subset, dimension and seed."""
    return [
        plan.cell(seed, dim, eta=eta, cls_rate=p, head_rate=v)
        for eta, p, v in SUBSETS.values()
        for dim in plan.dims
        for seed in plan.draws
    ]


def laws(plan: Plan, rows: np.ndarray) -> tuple[Any, dict[str, np.ndarray]]:
    """Ratios to the law's constants, and the log t of its onset."""
    shape = len(SUBSETS), len(plan.dims), len(plan.draws)
    rows = rows.reshape(shape)
    found, arrays = [], {"off": np.exp(rows["log_off"])}
    laws, flows = predict(plan, list(SUBSETS.values()))
    arrays |= {"law": np.exp(laws.log_weight), "reduced": np.exp(flows.log_weight)}
    for place, (name, rates) in enumerate(SUBSETS.items()):
        law, flow = (
            jax.tree.map(lambda x, i=place: x[i], one) for one in (laws, flows)
        )
        for which, dim in enumerate(plan.dims):
            here = rows[place, which]
            ratios = _ratios(here, law)
            one: dict[str, Any] = {
                "trained": name,
                "dim": dim,
                "reached": int((here["status"] == FlowStatus.REACHED).sum()),
                "form_change": largest(here["form_change"]),
            }
            for quantity, ratio in ratios.items():
                fixed = {"cls_norm": rates[1], "head_norm": rates[2]}.get(quantity, 1.0)
                if fixed:
                    one[quantity] = interval(ratio[:, -1])
                    one[quantity]["begins"] = begins(ratio.mean(axis=0), plan.marks)
            one["off"]["of_two_variables"] = float(
                np.exp(here["log_off"] - flow.log_weight[None])[:, -1].mean()
            )
            found.append(one)
    return found, arrays


def predict(
    plan: Plan, rates: Sequence[tuple[float, float, float]]
) -> tuple[ReducedFlow, ReducedFlow]:
    """Late law and two variables along the marks, for several rates."""

    @jax.jit
    @jax.vmap
    def both(rates: jax.Array) -> tuple[ReducedFlow, ReducedFlow]:
        theory = plan.theory((rates[0], rates[1], rates[2]))
        marks = jnp.asarray(plan.marks)
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


def frequency_cells(plan: Plan) -> list[Cell]:
    """Important tokens in shares ∝ 8 : 4 : 2 : 1 of their class's sequences."""
    return [
        plan.cell(seed, plan.dims[-1], eta=eta, skew=1.0, positive=4, negative=4)
        for eta in FREQUENCY_RATES
        for seed in plan.draws
    ]


def frequency(plan: Plan, rows: np.ndarray) -> tuple[Any, dict[str, np.ndarray]]:
    """The b_s − b_r against log(π_s/π_r): the slope over tokens, along log t."""
    rows = rows.reshape(len(FREQUENCY_RATES), len(plan.draws))
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
            "begins": begins(slopes[place].mean(axis=0), plan.marks),
            "ratio": interval((values.min(-1) / values.max(-1))[place, :, -1]),
        }
        for place, eta in enumerate(FREQUENCY_RATES)
    ]
    return found, {"lead": lead, "wanted": wanted}


def crossover_cells(plan: Plan) -> list[Cell]:
    """All trained, over the rate of E."""
    return [
        plan.cell(seed, plan.dims[-1], eta=eta)
        for eta in plan.etas
        for seed in plan.draws
    ]


def crossover(plan: Plan, rows: np.ndarray) -> tuple[Any, dict[str, np.ndarray]]:
    """1 − q over η, beside two variables and the law, and where the law begins."""
    rows = rows.reshape(len(plan.etas), len(plan.draws))
    rates = [(eta, 1.0, 1.0) for eta in plan.etas]
    law, flow = predict(plan, rates)
    ratio = np.exp(rows["log_off"] - law.log_weight[:, None])
    of_flow = np.exp(rows["log_off"] - flow.log_weight[:, None])
    found = []
    for place, eta in enumerate(plan.etas):
        theory = plan.theory(rates[place])
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
                "begins": begins(ratio[place].mean(axis=0), plan.marks),
                "two_variables_begin": begins(of_flow[place].mean(axis=0), plan.marks),
            }
        )
    arrays = {
        "off": np.exp(rows["log_off"]),
        "law": np.exp(law.log_weight),
        "reduced": np.exp(flow.log_weight),
    }
    return found, arrays


def begins(ratio: np.ndarray, marks: np.ndarray) -> float | None:
    """First mark after which a ratio stays within 5 % of one, or None.

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
