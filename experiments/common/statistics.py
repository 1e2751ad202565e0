"""Bin means, intervals, exponents, and ours beside the published in one measure."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy

from experiments.common.palette import STATUS
from jaxselect.errors import BadInput
from jaxselect.outcome import trial_status
from jaxselect.outcome.trial_status import TrialStatus

if TYPE_CHECKING:
    import xarray as xr

CERTIFIED = tuple(TrialStatus(code).name for code in trial_status.CERTIFIED)
"""Statuses of trials that lie on the predicted late flow of their selection."""

SELECTING = tuple(name for name in CERTIFIED if name != "NOTHING_TO_SELECT")
"""Statuses of certified trials that had important tokens to select."""

PROVED = (*CERTIFIED, "SELECTED", "TIED", "AT_REST")
"""Those, and the ends that a second pass proves, of `by_end`."""

EDGES = np.linspace(-1, 1, 21)
"""Bins of the posterior difference."""


def mean(values: Any) -> float | None:
    """The mean of some numbers; None without one."""
    return float(np.mean(values)) if len(values) else None


def largest(values: Any) -> float | None:
    """The largest of some numbers; None without one."""
    return float(np.max(values)) if len(values) else None


class Share(NamedTuple):
    """How many of a sample have a property.

    Attributes:
        number: that have it.
        of: size of the sample.
        share: number over size; NaN for no sample.
        low: lower end of the interval for the share of the population.
        high: upper end.
    """

    number: int
    of: int
    share: float
    low: float
    high: float


class Bins(NamedTuple):
    """One quantity in bins of another.

    Attributes:
        positions: mean of the points of a bin, across: where its mean is drawn.
        mean: NaN where a bin is empty.
        spread: standard deviation, likewise.
        number: of points.
    """

    positions: np.ndarray
    mean: np.ndarray
    spread: np.ndarray
    number: np.ndarray


def by_history(results: "xr.Dataset") -> dict[str, "xr.DataArray"]:
    """Runs whose constant needs no p, and runs with a part of ρ that is read from p.

    Args:
        results: of `store.load`.

    Returns:
        Two masks, `predicted` and `with_path`.

    Example:
        >>> import xarray as xr
        >>> runs = xr.Dataset({"history_dim": ("seed", [0, 5, 0])})
        >>> by_history(runs)["predicted"].values.tolist()
        [True, False, True]
    """
    predicted = results.history_dim == 0
    return {"predicted": predicted, "with_path": ~predicted}


def binned(across: np.ndarray, upward: np.ndarray, edges: np.ndarray = EDGES) -> Bins:
    """Mean and standard deviation of one quantity in bins of another.

    Args:
        across: what the bins are of; NaN belongs to none.
        upward: what is averaged.
        edges: of the bins, ascending; the last bin holds its upper edge.

    Returns:
        One entry per bin.

    Example:
        >>> x, y = np.array([-1.0, 0.2, 1.0]), np.array([1.0, 2.0, 4.0])
        >>> binned(x, y, np.array([-1, 0, 1])).mean.tolist()
        [1.0, 3.0]
    """
    kept = ~np.isnan(across)
    positions, mean, spread, number = (
        scipy.stats.binned_statistic(across[kept], values[kept], what, edges).statistic
        for values, what in (
            (across, "mean"),
            (upward, "mean"),
            (upward, "std"),
            (upward, "count"),
        )
    )
    return Bins(positions, mean, spread, number.astype(int))


def bootstrap(values: np.ndarray, level: float = 0.95) -> tuple[float, float]:
    """Interval for a mean, from resampling with replacement (percentiles).

    Args:
        values: the sample.
        level: of confidence.

    Returns:
        Lower and upper end; NaN for a single value, which says nothing of its error.

    Example:
        >>> bootstrap(np.array([1.0, 1.0, 1.0]))
        (1.0, 1.0)
    """
    if len(values) < 2:
        return np.nan, np.nan
    found = scipy.stats.bootstrap(
        (values,),
        np.mean,
        n_resamples=2000,
        confidence_level=level,
        method="percentile",
        rng=np.random.default_rng(0),
    )
    low, high = found.confidence_interval
    return float(low), float(high)


def binomial(mask: np.ndarray, level: float = 0.95) -> Share:
    """Share of a sample with a property, with its exact (Clopper–Pearson) interval.

    Args:
        mask: true where a draw has the property.
        level: of confidence.

    Returns:
        The share; its interval is [0, 1] for no sample.

    Example:
        >>> found = binomial(np.zeros(59, bool))
        >>> found.number, found.low, round(found.high, 3)
        (0, 0.0, 0.061)
    """
    number, of = int(np.sum(mask)), len(mask)
    if not of:
        return Share(0, 0, np.nan, 0.0, 1.0)
    found = scipy.stats.binomtest(number, of).proportion_ci(level, method="exact")
    return Share(number, of, number / of, float(found.low), float(found.high))


def fitted_exponent(
    across: np.ndarray, upward: np.ndarray
) -> tuple[float, float, float]:
    """Exponent of a power law, fitted to means over seeds, with its 95 % interval.

    Args:
        across: the variable, shape (points,).
        upward: the quantity, shape (points, seeds); whole seeds are resampled.

    Returns:
        Exponent, lower and upper end; the ends are NaN for a single seed.

    Example:
        >>> x = np.array([1.0, 10.0, 100.0])
        >>> [round(e, 6) for e in fitted_exponent(x, np.stack([x**-0.5] * 2, axis=1))]
        [-0.5, -0.5, -0.5]
    """

    def exponent(*points: np.ndarray, axis: int = -1) -> np.ndarray:
        means = np.stack([seeds.mean(axis=axis) for seeds in points])
        lines = np.polyfit(np.log(across), np.log(means).reshape(len(means), -1), 1)
        return lines[0].reshape(means.shape[1:])

    middle = float(exponent(*upward))
    if upward.shape[1] < 2:
        return middle, np.nan, np.nan
    found = scipy.stats.bootstrap(
        tuple(upward),
        exponent,
        n_resamples=500,
        paired=True,
        vectorized=True,
        method="percentile",
        rng=np.random.default_rng(0),
    )
    low, high = found.confidence_interval
    return middle, float(low), float(high)


class LemmaFit(NamedTuple):
    """The power law of the relative error of Lemma 4.1 in d.

    Attributes:
        dims: those that are fitted: the larger half, since in small ones the next
            order, 1/d, shows.
        exponent: of the law.
        low: lower end of its 95 % interval, NaN for a single run.
        high: upper end.
        runs: per d, of which none is missing.
    """

    dims: np.ndarray
    exponent: float
    low: float
    high: float
    runs: int

    def __str__(self) -> str:
        """The exponent and the range of d that it holds for."""
        half = (self.high - self.low) / 2
        spread = "" if np.isnan(half) else f" ± {half:.3f}"
        range_of_d = f"d from {self.dims[0]:,.0f} to {self.dims[-1]:,.0f}"
        return f"{self.exponent:.3f}{spread} for {range_of_d}"


def lemma_fit(results: "xr.Dataset") -> LemmaFit | None:
    """The law of the relative error of Lemma 4.1, fitted to a sweep.

    Args:
        results: of `store.load`.

    Returns:
        The fit; none where fewer than two d, or no run, are left.
    """
    # The error does not depend on η₀: the first one holds it all.
    error = results.alignment_error.isel(step_size=0).transpose("dim", ...).values
    error = error.reshape(len(error), -1)
    error = error[:, np.isfinite(error).all(axis=0)]
    late = np.arange(len(error)) >= len(error) // 2
    if late.sum() < 2 or not error.size:
        return None
    dims = results.dim.values[late]
    return LemmaFit(dims, *fitted_exponent(dims, error[late]), error.shape[1])


def require_known_statuses(results: "xr.Dataset") -> None:
    """Refuse a sweep with a status that has no look, or a code that has no name.

    Args:
        results: of `store.load`.

    Raises:
        BadInput: which statuses they are.

    Example:
        >>> import xarray as xr
        >>> runs = xr.Dataset(attrs={"statuses": {"LOST": 0}})
        >>> require_known_statuses(runs)
        Traceback (most recent call last):
        jaxselect.errors.BadInput: ... statuses that are not known here: LOST
    """
    unknown = set(results.attrs["statuses"]) - STATUS.keys()
    codes = {-1, *results.attrs["statuses"].values()}
    if unknown or not set(np.unique(results.get("status", -1)).tolist()) <= codes:
        named = ", ".join(sorted(unknown)) or "without a name"
        raise BadInput(f"of another version: statuses that are not known here: {named}")


def with_status(results: "xr.Dataset", *names: str) -> "xr.DataArray":
    """Mask of the trials that ended with one of some statuses.

    Args:
        results: of `store.load`.
        names: of `TrialStatus`.

    Returns:
        True where the status is one of these; nowhere for a status that was unknown
        when the trials ran.
    """
    known = results.attrs["statuses"]
    codes = [known[name] for name in names if name in known]
    return results.status.isin(codes)


def by_end(results: "xr.Dataset") -> "xr.Dataset":
    """Results whose uncertified statuses are replaced by proved ends.

    Args:
        results: of `store.load`; runs of a sweep without ends keep their statuses.

    Returns:
        `status`, with names in `attrs` for the ends SELECTED, TIED and AT_REST too.
    """
    ends = results.attrs.get("ends", {})
    proved = {name: ends[name] for name in ("SELECTED", "TIED", "AT_REST") if ends}
    if not proved or "end" not in results:
        return results
    known = results.attrs["statuses"]
    first = 1 + max(known.values())
    open_ = (results.status >= 0) & ~with_status(results, *CERTIFIED)
    again = open_ & results.end.isin(list(proved.values()))
    found = results.assign(status=results.status.where(~again, first + results.end))
    names = known | {name: first + code for name, code in proved.items()}
    return found.assign_attrs(results.attrs | {"statuses": names})


def beside(
    ours: np.ndarray, published: np.ndarray, level: bool = False
) -> dict[str, float]:
    """Our bin means beside published ones, in the one measure of this project.

    Args:
        ours: bin means; NaN where a bin is empty, which counts for nothing.
        published: of the same bins.
        level: subtract the mean over bins first, as of scores, whose level attention
            cannot see.

    Returns:
        `rank_correlation`; `same_sign`, the share of bins; and `ratio` of the standard
        deviations over the bins, ours over theirs.

    Example:
        >>> beside(np.array([-2.0, np.nan, 4.0]), np.array([-1.0, 0.0, 2.0]))["ratio"]
        2.0
    """
    full = ~np.isnan(ours)
    here, there = ours[full], np.asarray(published)[full]
    zero = (here.mean(), there.mean()) if level else (0.0, 0.0)
    return {
        "rank_correlation": float(scipy.stats.spearmanr(here, there).statistic),
        "same_sign": float(np.mean((here > zero[0]) == (there > zero[1]))),
        "ratio": float(here.std() / there.std()),
    }
