"""Claims of the theory held against a sweep: Lemma 4.1 to Theorem 4.3."""

import numpy as np
import xarray as xr

from experiments.common.claims import Claim, Measured, Verdict, of_interval, of_runs
from experiments.common.numbers import counted, finite, num, percent
from experiments.common.runs import (
    GROWING,
    lemma_fit,
    with_status,
)

EXPONENT = 0.01
"""Largest distance of a fitted exponent from its prediction."""
CLOSE, NEAR = 0.01, 0.05
"""Largest relative deviations that count as agreement: of the direction, whose next
order falls like 1/‖p‖²; of the norm, where ρ/log t still shows."""
GAP = 1e-9
"""Largest duality gap of a solution that counts as exact."""
BAND = 2
"""Neighbouring values of an axis from which a region counts as one: no single cell."""


def lemma(results: xr.Dataset) -> Measured:
    """The error of the step falls like d^(−1/2)."""
    fit = lemma_fit(results)
    if fit is None:
        return Measured(Verdict.NOT_RUN, "too few dimensions")
    ends = f"{fit.low:.4f} … {fit.high:.4f}".replace("-", "−")
    interval = f", {ends}," if fit.runs > 1 else ""
    return Measured(
        of_interval(fit.low, fit.high, -0.5, EXPONENT),
        f"exponent {fit}",
        f"{counted(fit.runs, 'seed')}, {len(fit.dims)} d",
        "–",
        f"the 95 % interval of the exponent{interval} within {EXPONENT:g} of −½",
    )


def without_bound(results: xr.Dataset) -> Measured:
    """‖p‖ has no bound: all runs are certified to stay on their line."""
    runs = results.status.size
    endless = int(with_status(results, *GROWING, "SELECTED").sum())
    at_rest = int(with_status(results, "AT_REST").sum())
    return Measured(
        of_runs(endless, at_rest, runs),
        f"‖p‖ is certified to grow without bound in {endless:,} of {runs:,} runs, p to "
        f"converge in {at_rest:,}; {runs - endless - at_rest:,} are not certified",
        _sample(results),
        "–",
        "p on the line p_mm log t + ρ of a solved max-margin problem",
    )


def all_selected(results: xr.Dataset) -> Measured:
    """In the corner of large d and η₀ every important token is selected."""
    hit = _cells(results, with_status(results, "SELECTED_ALL"))
    runs = _cells(results, xr.ones_like(results.status))
    corner = _corner(hit, runs)
    if corner is None:
        complete = bool((results.status >= 0).all())
        verdict = Verdict.NOT_REPRODUCED if complete else Verdict.NOT_RUN
        return Measured(verdict, "no such corner", _sample(results))
    row, column = corner
    dim, step = results.dim.values[column], results.step_size.values[row]
    return Measured(
        Verdict.CERTIFIED,
        f"all {runs[row:, column:].sum():,} runs with d ≥ {num(dim)} and "
        f"η₀ ≥ {num(step)} select them",
        f"{hit.sum():,} of all {counted(runs.sum(), 'run')} do",
        "–",
        "each run at the max-margin direction of that selection",
    )


def direction(results: xr.Dataset) -> Measured:
    """‖p/‖p‖ − p_mm/‖p_mm‖‖ · ‖p‖ tends to the constant predicted for it."""
    constant = results.direction_error * results.cls_norm / results.error_constant
    off = abs(constant - 1)
    return _deviations(
        results, off, CLOSE, "‖p‖ · (direction error)", "its predicted limit"
    )


def growth(results: xr.Dataset) -> Measured:
    """‖p‖ grows as ‖p_mm‖ log t."""
    ratio = results.cls_norm / (results.max_margin_norm * results.log_time)
    return _deviations(results, abs(ratio - 1), NEAR, "‖p‖ at the end", "‖p_mm‖ log t")


def exact_margin(results: xr.Dataset) -> Measured:
    """The max-margin solution is exact."""
    gap = results.duality_gap.values[_selecting(results).values]
    known = finite(gap)
    if not known.size:
        return Measured(Verdict.NOT_RUN, "no certified run of which it is known")
    return Measured(
        _bounded(results, gap, GAP),
        f"relative gap {num(np.median(known))} (median), {num(known.max())} at most",
        _sample(results, gap.size),
        percent(int((~(gap <= GAP)).sum()), gap.size),
        "the gap itself: weak duality, measured on the tokens",
    )


def captured(results: xr.Dataset) -> Measured:
    """A band of step sizes is captured along ± v."""
    hit = with_status(results, "CAPTURED_POSITIVE", "CAPTURED_NEGATIVE")
    number = int(hit.sum())
    if not number:
        return Measured(Verdict.NOT_RUN, "none in this sweep", _sample(results))
    everyone = _cells(results, hit) == _cells(results, xr.ones_like(results.status))
    column, rows = _longest_true_run(everyone)
    wide = len(rows) >= BAND
    ends = " … ".join(map(num, _ends(results.step_size.values[rows]))) if wide else ""
    band = f"; every run at d = {num(results.dim.values[column])}, η₀ = {ends}"
    return Measured(
        Verdict.CERTIFIED if wide else Verdict.IN_PART,
        counted(number, "run") + (band if wide else ", no band of them"),
        _sample(results),
        "–",
        "each at the max-margin direction of the selection of one class",
    )


def tied(results: xr.Dataset) -> Measured:
    """Sequences of both classes may keep tokens at finite odds."""
    certified = with_status(results, "TIED", "AT_REST")
    hit = certified | with_status(results, "TIES_UNPROVED")
    if not hit.any():
        return Measured(Verdict.NOT_RUN, "none in this sweep", _sample(results))
    proved, number = int(certified.sum()), int(hit.sum())
    return Measured(
        Verdict.REPRODUCED,
        f"{counted(number, 'run')}, {proved:,} of them certified",
        _sample(results),
        "–",
        "certified from the computed p: the odds are at a minimum of the risk, and the "
        "max-margin direction is orthogonal to them",
    )


def _deviations(
    results: xr.Dataset, off: xr.DataArray, bound: float, quantity: str, what: str
) -> Measured:
    """A quantity of all certified runs that selected, beside its prediction."""
    values = off.values[_selecting(results).values]
    known = finite(values)
    if not known.size:
        return Measured(Verdict.NOT_RUN, "no certified run of which it is known")
    return Measured(
        _bounded(results, values, bound),
        f"{quantity} differs from {what} by a relative {num(np.median(known), 2)} "
        f"(median), and by less than {num(np.quantile(known, 0.99), 2)} in 99 % of the "
        "runs",
        _sample(results, values.size),
        percent(int((~(values <= bound)).sum()), values.size),
        f"within {percent(bound, 1)} in every certified run in which ‖p‖ grows",
    )


def _bounded(results: xr.Dataset, values: np.ndarray, bound: float) -> Verdict:
    """The verdict on values of all certified runs, of which NaN is not known."""
    hits, misses = int((values <= bound).sum()), int((values > bound).sum())
    verdict = of_runs(hits, misses, values.size)
    whole = bool((results.status >= 0).all())
    return verdict if whole or verdict is not Verdict.CERTIFIED else Verdict.REPRODUCED


def _sample(results: xr.Dataset, certified: int | None = None) -> str:
    """Runs that are there, those of the grid that are missing, and certified ones."""
    there, runs = int((results.status >= 0).sum()), results.status.size
    missing = f", {runs - there:,} of {runs:,} are missing" if there < runs else ""
    if certified is None:
        return counted(there, "run") + missing
    return counted(certified, "certified run") + missing


def _corner(hit: np.ndarray, runs: np.ndarray) -> tuple[int, int] | None:
    """First row and column of the largest corner in which all runs are hit.

    A corner has two η₀ and two d at least, as far as the grid has; of equal ones it is
    the one with the smaller η₀.
    """
    clean = hit == runs
    tall, wide = clean.shape
    best, most = None, 0
    for row in range(max(1, tall - BAND + 1)):
        for column in range(max(1, wide - BAND + 1)):
            size = int(runs[row:, column:].sum())
            if clean[row:, column:].all() and size > most:
                best, most = (row, column), size
    return best


def _longest_true_run(full: np.ndarray) -> tuple[int, list[int]]:
    """Column and neighbouring rows of the longest run of true entries in a column."""
    best: tuple[int, list[int]] = 0, []
    for column in range(full.shape[1]):
        rows: list[int] = []
        for row in range(len(full)):
            rows = [*rows, row] if full[row, column] else []
            if len(rows) > len(best[1]):
                best = column, rows
    return best


def _cells(results: xr.Dataset, mask: xr.DataArray) -> np.ndarray:
    """Number of runs under a mask, by η₀ and d."""
    over = [name for name in results.status.dims if name not in ("dim", "step_size")]
    return mask.sum(over).transpose("step_size", "dim").values


def _selecting(results: xr.Dataset) -> xr.DataArray:
    """Mask of the certified runs that select and grow."""
    return with_status(results, *GROWING)


def _ends(values: np.ndarray) -> list[float]:
    """The smallest and the largest, once if they are one."""
    return sorted({float(values.min()), float(values.max())})


CLAIMS = (
    Claim(
        "One gradient step on E moves every token along v by its importance, "
        "E_s ≈ E_s⁰ + (η₀/2) α_s v, up to an error that falls like d^(−1/2).",
        lemma,
        "Lemma 4.1",
    ),
    Claim("Trained alone, p grows without bound.", without_bound, "Lemma 4.2"),
    Claim(
        "With d and η₀ large enough, attention ends on every important token of every "
        "sequence.",
        all_selected,
        "Lemmas 4.4 and 4.5",
    ),
    Claim(
        "The direction of p tends to that of the max-margin solution p_mm of its own "
        "selection, with an error that decays like a predicted constant over ‖p‖.",
        direction,
        "Theorem 4.3; the constant is ours",
    ),
    Claim("‖p‖ grows like ‖p_mm‖ log t.", growth),
    Claim(
        "That max-margin solution is exact, not an approximation of one.", exact_margin
    ),
    Claim(
        "For a range of step sizes p converges to ± v in direction, and selects the "
        "important tokens of one class only.",
        captured,
    ),
    Claim(
        "With a small step on E sequences of both classes may keep several tokens at "
        "finite odds.",
        tied,
    ),
)
