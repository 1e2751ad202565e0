"""Claims about rates, derivatives and capture, held against their studies."""

import itertools
from typing import Any

import numpy as np

from experiments.common.results import Finished
from experiments.report.measured import Claim, Measured
from experiments.report.numbers import counted, finite, num, percent
from experiments.report.verdicts import (
    Verdict,
    at_least,
    at_most,
    of_cases,
    of_runs,
    of_status,
)

EXPONENT = 0.02
"""Largest distance of a fitted exponent from its prediction, for a few seeds."""
CLOSE = 1e-2
"""Largest relative deviation of a constant from its prediction."""
LAW = 0.05
"""Largest relative deviation from an asymptotic law at the end of a flow."""
RANK = 0.9
"""Rank correlation from which two tables count as one tendency."""
OPEN = Verdict.OPEN
HEADINGS = {"UNCHANGED": Verdict.HOLDS, "RELAXED": Verdict.FAILS} | dict.fromkeys(
    ("NOT_CERTIFIED", "NO_MAX_MARGIN", "NOT_REACHED"), OPEN
)
"""Where p heads beside a trained head."""
FLOWS = {"REACHED": Verdict.HOLDS} | dict.fromkeys(
    (
        "NORM_NOT_REACHED",
        "TIES_UNPROVED",
        "OUT_OF_STEPS",
        "FAILED",
        "TIME_UNRESOLVED",
        "SELECTION_CHANGED",
    ),
    OPEN,
)
"""How a flow of p ended: what a flow that was not followed shows is open."""
LASTING = 0.5
"""Share of a flow's log-time up to which a capture counts as one that passed."""


def exponents(found: Finished) -> Measured:
    """The direction error falls like 1/‖p‖, with a predicted constant."""
    results = found.results
    off, predicted = results["constant_largest_deviation"], results["predicted"]
    exponent = results["exponent_norm"]
    near = {at_most(abs(exponent + 1), EXPONENT), at_most(off, CLOSE)}
    good = near == {Verdict.AGREES}
    verdict = Verdict.FAILS if Verdict.FAILS in near else Verdict.OPEN
    if good:
        verdict = of_cases(predicted, results["seeds"], Verdict.HOLDS)
    return Measured(
        verdict,
        f"exponent {num(exponent, 6)}; the constant is off by {num(off)} at most",
        f"{predicted} of {results['seeds']} draws predicted",
        percent(0 if good else predicted, predicted),
        "exact local exponents; the constant is predicted without integrating",
    )


def descent(found: Finished) -> Measured:
    """Gradient descent on η₀ finds a step size as good as a fine grid does."""
    results = found.results
    cells = len(results["optima"])
    good = as_good_as_grid(results["optima"])
    best = ", ".join(
        f"{num(cell['step_size_descent'])} at d = {num(cell['dim'])}"
        for cell in results["optima"][:3]
    )
    return Measured(
        of_cases(good, cells),
        f"best η₀ {best}; {percent(results['cost_share'], 1)} of the grid's cost",
        f"{cells} dimensions",
        percent(cells - good, cells),
        "the time it reaches, beside the best of the grid",
    )


def influence(found: Finished) -> Measured:
    """Derivatives foresee what taking a tenth of a token away does."""
    row = found.results["token_0.1"]
    rank = row["rank_correlation"]
    return Measured(
        at_least(rank, RANK),
        f"rank correlation {num(rank)}, relative error {num(row['relative_error'])}",
        f"{len(found.arrays['token_turn'])} tokens",
        "–",
        "solved again without the tenth",
    )


def discrete(found: Finished) -> Measured:
    """Gradient descent follows the flow below the step size at which 2/h is curved."""
    row = found.results["descent"]
    off = row["deviation_at_a_tenth"]
    return Measured(
        at_most(off, CLOSE),
        f"off the flow by {num(off)} ‖p‖ at a tenth of the limit, "
        f"{num(row['deviation_at_the_limit'])} at the limit",
        f"{len(row['stable_limit'])} draws",
        "–",
        "distance to the flow's own curve",
    )


def beside_head(found: Finished) -> Measured:
    """With v trained besides, the direction of p stays as it is."""
    parts = [found.results[x] for x in ("equal", "unequal") if x in found.results]
    if not parts:
        return Measured(OPEN, "not a part of this study", counted(0, "draw"))
    counts = {verdict: 0 for verdict in HEADINGS.values()}
    for part in parts:
        for status, number in part["status"].items():
            counts[of_status(status, HEADINGS)] += number
    held, failed = counts[Verdict.HOLDS], counts[Verdict.FAILS]
    total = sum(part["draws"] for part in parts)
    return Measured(
        of_runs(held, failed, total),
        f"{held} draws keep it; {failed} turn to another, relaxed problem's",
        f"{total} draws",
        percent(failed, held + failed),
        "dp/dτ beside both max-margin problems",
    )


def behind_matrix(found: Finished) -> Measured:
    """A key-query matrix before p has the dynamics of p."""
    if "matrix" not in found.results:
        return Measured(OPEN, "not a part of this study", counted(0, "draw"))
    results = found.results["matrix"]
    good, draws = results["identity_holds"], results["draws"]
    return Measured(
        of_cases(good, draws),
        f"off by {num(results['identity_largest'])} at most",
        f"{draws} draws",
        percent(draws - good, draws),
        "W integrated on its own, by another method",
    )


def nothing_frozen(found: Finished) -> Measured:
    """With E, p and v trained 1 − q is on its law, which falls like 1/log t."""
    rows = [
        row
        for row in found.results.get("laws", [])
        if row["trained"].startswith("E, p, v")
    ]
    off = np.abs(finite(row["off"]["mean"] for row in rows) - 1)
    if not len(off):
        return Measured(OPEN, "not a part of this study", counted(0, "cell"))
    good = int((off <= LAW).sum())
    return Measured(
        of_cases(good, len(off)),
        f"1 − q off its law by {percent(off.max(), 1)} at most, for every d and η",
        counted(len(off), "cell"),
        percent(len(off) - good, len(off)),
        "the flow of all parameters, by a law that knows neither draws nor d",
    )


def as_good_as_grid(optima: list[dict[str, float]]) -> int:
    """Number of dimensions in which descent is no later than the best of the grid.

    Example:
        >>> as_good_as_grid([{"log_time_descent": 2.0, "log_time_grid": 2.0}])
        1
    """
    return sum(cell["log_time_descent"] <= cell["log_time_grid"] for cell in optima)


def lasts(cell: dict[str, Any]) -> bool:
    """Whether the capture of a cell was there in the later part of its flow.

    Example:
        >>> lasts({"capture": {"first": 2.0, "last": 5.0}, "log_time": 10.0})
        True
    """
    return cell["capture"]["last"] >= LASTING * cell["log_time"]


def passing_capture(found: Finished) -> Measured:
    """In large dimensions a captured class comes back."""
    cells = found.results["cells"]
    ended = [cell for cell in cells if of_status(cell["status"], FLOWS) is not OPEN]
    held = [cell for cell in ended if cell["capture"]]
    passed = [cell for cell in held if not lasts(cell)]
    if not passed:
        return Measured(OPEN, "no cell shows it", counted(len(cells), "run"))
    largest = max(cell["dim"] for cell in held)
    there = [cell for cell in held if cell["dim"] == largest]
    cell = max(passed, key=lambda cell: (cell["dim"], cell["step_size"]))
    during = cell["capture"]
    return Measured(
        of_cases(sum(cell in passed for cell in there), len(there)),
        f"at d = {num(cell['dim'])}, η₀ = {num(cell['step_size'])} the "
        f"{during['class']} class holds all from log t = {num(during['first'])} to "
        f"{num(during['last'])}, then both do",
        f"{counted(len(cells), 'run')}, {len(held) - len(passed)} captured to the end",
        "–",
        f"weights along one flow, integrated to ‖p‖ = {num(cell['cls_norm'])}",
    )


def foretold(found: Finished) -> Measured:
    """Every edge of the phase diagram is where theory puts it."""
    parts = found.results["summary"]
    total = sum(part["edges"] for part in parts.values())
    within = sum(
        round(part["edges"] * part["within"])
        for part in parts.values()
        if part["edges"]
    )
    least = min(finite(part["least"] for part in parts.values()), default=float("nan"))
    most = max(finite(part["most"] for part in parts.values()), default=float("nan"))
    return Measured(
        of_cases(within, total),
        f"measured over predicted from {num(least)} to {num(most)}",
        f"{total} edges on shapes the theory never saw",
        percent(total - within, total),
        "each edge bisected over η₀, draw by draw; bounds fixed beforehand",
    )


def _claims(*rows: Any) -> tuple[Claim, ...]:
    return tuple(itertools.starmap(Claim, rows))


CLAIMS = _claims(
    (
        "In large dimensions a capture passes: the class that lost comes back at a "
        "finite log t.",
        "",
        "theory.watch",
        "make report",
        passing_capture,
    ),
    (
        "The edges of the phase diagram follow from the sizes of the problem alone.",
        "",
        "theory.phases",
        "python -m experiments.theory.phases",
        foretold,
    ),
    (
        "The direction error falls like 1/‖p‖, its constant known beforehand.",
        "",
        "theory.rates",
        "python -m experiments.theory.rates",
        exponents,
    ),
    (
        "Descent through the flow finds the step size η₀ that selects soonest.",
        "",
        "theory.step_size",
        "python -m experiments.theory.step_size",
        descent,
    ),
    (
        "Derivatives of p_mm foresee what becomes of it when a token fades.",
        "",
        "theory.influence",
        "python -m experiments.theory.influence",
        influence,
    ),
    (
        "Gradient descent on p follows the flow while its step stays below 2/λ.",
        "",
        "theory.discrete",
        "python -m experiments.theory.discrete",
        discrete,
    ),
    (
        "Training v besides leaves the direction of p as it is.",
        "Discussion of the paper",
        "theory.joint",
        "python -m experiments.theory.joint",
        beside_head,
    ),
    (
        "Hard selection is a property of frozen embeddings: with E, p and v trained "
        "the weight off the important token falls like 1/(log t log log t).",
        "",
        "theory.joint",
        "python -m experiments.theory.joint",
        nothing_frozen,
    ),
    (
        "A key-query matrix before p has the dynamics of p.",
        "Discussion of the paper",
        "theory.joint",
        "python -m experiments.theory.joint",
        behind_matrix,
    ),
)
