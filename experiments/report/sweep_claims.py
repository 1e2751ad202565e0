"""What a sweep says of the theory: Lemma 4.1 to Theorem 4.3, and where they end."""

import numpy as np
import xarray as xr

from experiments.common.statistics import (
    CERTIFIED,
    SELECTING,
    by_history,
    lemma_fit,
    with_status,
)
from experiments.report.folders import Found
from experiments.report.measured import Claim, Measured, Verdict
from experiments.report.numbers import finite, percent, told

EXPONENT = 0.01
"""Largest distance of a fitted exponent from its prediction."""
CLOSE, NEAR = 0.01, 0.05
"""Largest relative deviations that count as agreement: of the direction, whose next
order falls like 1/‖p‖²; of the norm, where ρ/log t still shows."""
GAP = 1e-9
"""Largest duality gap of a solution that counts as exact."""


def lemma(found: Found) -> Measured:
    """The error of the step falls like d^(−1/2)."""
    fit = lemma_fit(_sweep(found))
    if fit is None:
        return Measured(Verdict.OPEN, "too few dimensions")
    close = max(abs(fit.low + 0.5), abs(fit.high + 0.5)) <= EXPONENT
    return Measured(
        Verdict.AGREES
        if close
        else Verdict.FAILS
        if np.isfinite(fit.low)
        else Verdict.OPEN,
        f"exponent {fit}",
        f"{fit.runs} seeds, {len(fit.dims)} d",
        "–",
        f"95 % interval {told(fit.low)} … {told(fit.high)} within {EXPONENT:g} of −½",
    )


def without_bound(found: Found) -> Measured:
    """‖p‖ has no bound: all certified runs go on for ever along their line."""
    results = _sweep(found)
    there = int((results.status >= 0).sum())
    endless = int(with_status(results, *CERTIFIED).sum())
    tied = int(with_status(results, "TIES_UNPROVED").sum())
    return Measured(
        _verdict(endless, 0, there),
        f"{endless:,} certified to grow for ever; {tied:,} with tied tokens are not "
        "followed further",
        f"{there:,} runs",
        percent(there - endless, there) + " not decided",
        "on the line p_mm log t + ρ of a solved max-margin problem",
    )


def all_selected(found: Found) -> Measured:
    """In the corner of large d and η₀ every important token is selected."""
    results = _sweep(found)
    hit = _cells(results, with_status(results, "SELECTED_ALL"))
    there = _cells(results, results.status >= 0)
    corner = _corner(hit, there)
    if corner is None:
        return Measured(Verdict.FAILS, "no such corner", f"{there.sum():,} runs")
    row, column = corner
    runs = there[row:, column:].sum()
    dim, step = results.dim.values[column], results.step_size.values[row]
    return Measured(
        Verdict.HOLDS,
        f"all of them for d ≥ {told(dim)} and η₀ ≥ {told(step)}",
        f"{runs:,} runs there, {there.sum():,} in all",
        f"0 % there; {percent(int(there.sum() - hit.sum()), int(there.sum()))} of all",
        "each run at the max-margin direction of that selection, duality gap below "
        "rounding",
    )


def direction(found: Found) -> Measured:
    """‖p/‖p‖ − p_mm/‖p_mm‖‖ · ‖p‖ tends to the constant predicted for it."""
    results = _sweep(found)
    constant = results.direction_error * results.cls_norm / results.error_constant
    off = abs(constant - 1)
    everywhere = finite(_of(off, results).ravel())
    measured = _deviations(
        everywhere, CLOSE, "error · ‖p‖ at the end", "the predicted constant"
    )
    among = {
        name: finite(_of(off.where(runs), results).ravel())
        for name, runs in by_history(results).items()
    }
    if not all(part.size for part in among.values()):
        return measured
    apart = "; ".join(
        f"{told(np.median(part))} {words}, {part.size:,} runs"
        for part, words in (
            (among["predicted"], "where it is known without p"),
            (among["with_path"], "where some dimensions are read from p"),
        )
    )
    return measured._replace(value=f"{measured.value} ({apart})")


def growth(found: Found) -> Measured:
    """‖p‖ grows as ‖p_mm‖ log t."""
    results = _sweep(found)
    ratio = results.cls_norm / (results.max_margin_norm * results.log_time)
    off = finite(_of(abs(ratio - 1), results).ravel())
    return _deviations(off, NEAR, "‖p‖ at the end", "‖p_mm‖ log t")


def exact_margin(found: Found) -> Measured:
    """The max-margin solution is exact."""
    results = _sweep(found)
    gap = finite(_of(results.duality_gap, results).ravel())
    if not gap.size:
        return Measured(Verdict.OPEN, "no certified run")
    beyond = int((gap > GAP).sum())
    return Measured(
        Verdict.FAILS if beyond else Verdict.HOLDS,
        f"relative gap {told(np.median(gap))} (median), {told(gap.max())} at most",
        f"{gap.size:,} certified runs",
        percent(beyond, gap.size),
        "the gap itself: weak duality, measured on the tokens",
    )


def captured(found: Found) -> Measured:
    """A band of step sizes is captured along ± v."""
    results = _sweep(found)
    there = int((results.status >= 0).sum())
    hit = with_status(results, "CAPTURED_POSITIVE", "CAPTURED_NEGATIVE")
    number = int(hit.sum())
    if not number:
        return Measured(Verdict.OPEN, "none in this sweep", f"{there:,} runs")
    mostly = 2 * _cells(results, hit).sum(axis=1) > _cells(
        results, results.status >= 0
    ).sum(axis=1)
    steps = results.step_size.values[mostly]
    band = (
        f", mostly at η₀ = {' … '.join(map(told, _ends(steps)))}" if steps.size else ""
    )
    return Measured(
        Verdict.HOLDS,
        f"{number:,} runs{band}",
        f"{there:,} runs",
        "–",
        "each at the max-margin direction of the selection of one class",
    )


def tied(found: Found) -> Measured:
    """Sequences of both classes may keep tokens at finite odds."""
    results = _sweep(found)
    there = int((results.status >= 0).sum())
    hit = with_status(results, "TIES_UNPROVED")
    if not hit.any():
        return Measured(Verdict.OPEN, "none in this sweep", f"{there:,} runs")
    norms = results.cls_norm.values[hit.values]
    return Measured(
        Verdict.AGREES,
        f"{int(hit.sum()):,} runs, at ‖p‖ = {told(np.median(norms))} (median)",
        f"{there:,} runs",
        "–",
        "not certified: gradients of both classes cancel to rounding, with positive "
        "curvature along v",
    )


def _deviations(off: np.ndarray, bound: float, quantity: str, what: str) -> Measured:
    if not off.size:
        return Measured(Verdict.OPEN, "no certified run")
    beyond = int((off > bound).sum())
    return Measured(
        _verdict(off.size - beyond, beyond, off.size),
        f"{quantity} is off {what} by {told(np.median(off))} (median), "
        f"{told(np.quantile(off, 0.99))} (99 %)",
        f"{off.size:,} certified runs",
        percent(beyond, off.size),
        f"within {bound:.0%}; active margins on the predicted late flow",
    )


def _verdict(hits: int, misses: int, total: int) -> Verdict:
    """Of a claim about all runs; those that show neither leave it open."""
    if misses:
        return Verdict.IN_PART if hits else Verdict.FAILS
    return Verdict.HOLDS if hits == total and hits else Verdict.OPEN


def _corner(hit: np.ndarray, there: np.ndarray) -> tuple[int, int] | None:
    """First row and column of the largest corner in which all runs that are hit."""
    clean = (hit == there) & (there > 0)
    best, most = None, 0
    for row in range(len(clean)):
        for column in range(clean.shape[1]):
            runs = int(there[row:, column:].sum())
            if clean[row:, column:].all() and runs > most:
                best, most = (row, column), runs
    return best


def _cells(results: xr.Dataset, mask: xr.DataArray) -> np.ndarray:
    """Number of runs under a mask, by η₀ and d."""
    over = [name for name in results.status.dims if name not in ("dim", "step_size")]
    return mask.sum(over).transpose("step_size", "dim").values


def _of(values: xr.DataArray, results: xr.Dataset) -> np.ndarray:
    """Values of the certified runs that had something to select."""
    return values.values[with_status(results, *SELECTING).values]


def _ends(values: np.ndarray) -> list[float]:
    """The smallest and the largest, once if they are one."""
    return sorted({float(values.min()), float(values.max())})


def _sweep(found: Found) -> xr.Dataset:
    assert isinstance(found.content, xr.Dataset)
    return found.content


CLAIMS = tuple(
    Claim(statement, source, "sweep", "make sweep", measure)
    for statement, source, measure in (
        (
            "One gradient step on E moves every token along v by its importance, "
            "E_s ≈ E_s⁰ + (η₀/2) α_s v, up to an error that falls like d^(−1/2).",
            "Lemma 4.1",
            lemma,
        ),
        ("Trained alone, p grows without bound.", "Lemma 4.2", without_bound),
        (
            "With d and η₀ large enough, attention ends on every important token of "
            "every sequence.",
            "Theorem 4.3",
            all_selected,
        ),
        (
            "The direction of p tends to that of the max-margin solution p_mm of its "
            "own selection, with an error that is a predicted constant over ‖p‖.",
            "Theorem 4.3; the constant is ours",
            direction,
        ),
        ("‖p‖ grows as ‖p_mm‖ log t.", "Theorem 4.3", growth),
        (
            "That max-margin solution is exact, not an approximation of one.",
            "",
            exact_margin,
        ),
        (
            "A band of step sizes is captured for good: p runs along ± v, and serves "
            "one class only.",
            "",
            captured,
        ),
        (
            "Without much of a step on E sequences of both classes may keep several "
            "tokens at finite odds.",
            "",
            tied,
        ),
    )
)
