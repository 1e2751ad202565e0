"""Bin means, intervals, exponents, and ours beside the published in one measure."""

from typing import Any, NamedTuple

import numpy as np
import scipy

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


def binned(across: np.ndarray, upward: np.ndarray, edges: np.ndarray = EDGES) -> Bins:
    """Mean and standard deviation of one quantity in bins of another.

    Args:
        across: what the bins are of; NaN belongs to none.
        upward: what is averaged.
        edges: of the bins, ascending; the last bin holds its upper edge.

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


def exponent(across: Any, upward: Any) -> float:
    """Exponent of a power law, by least squares of logarithms; NaN for one point.

    Example:
        >>> round(exponent([1, 2, 4], [3.0, 12.0, 48.0]), 3)
        2.0
    """
    if len(across) < 2:
        return float("nan")
    return float(np.polyfit(np.log(across), np.log(upward), 1)[0])


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

    def exponents(*points: np.ndarray, axis: int = -1) -> np.ndarray:
        means = np.stack([seeds.mean(axis=axis) for seeds in points])
        lines = np.polyfit(np.log(across), np.log(means).reshape(len(means), -1), 1)
        return lines[0].reshape(means.shape[1:])

    middle = float(exponents(*upward))
    if upward.shape[1] < 2:
        return middle, np.nan, np.nan
    found = scipy.stats.bootstrap(
        tuple(upward),
        exponents,
        n_resamples=500,
        paired=True,
        vectorized=True,
        method="percentile",
        rng=np.random.default_rng(0),
    )
    low, high = found.confidence_interval
    return middle, float(low), float(high)


def compare_bins(ours: np.ndarray, published: np.ndarray) -> dict[str, float]:
    """Our bin means beside published ones, in the one measure of this project.

    Args:
        ours: bin means; NaN where a bin is empty, which counts for nothing.
        published: of the same bins.

    Returns:
        `rank_correlation`, and `ratio` of the standard deviations over the bins, ours
        over theirs.

    Example:
        >>> ours, theirs = np.array([-2.0, np.nan, 4.0]), np.array([-1.0, 0.0, 2.0])
        >>> compare_bins(ours, theirs)["ratio"]
        2.0
    """
    full = ~np.isnan(ours)
    here, there = ours[full], np.asarray(published)[full]
    return {
        "rank_correlation": float(scipy.stats.spearmanr(here, there).statistic),
        "ratio": float(here.std() / there.std()),
    }
