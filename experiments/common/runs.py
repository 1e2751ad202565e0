"""Runs of a sweep by how they ended, and the law of the error of its step on E."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from experiments.common.palette import STATUS
from experiments.common.statistics import fitted_exponent
from jaxselect.checks import BadInput
from jaxselect.margin import certificate as trial_status
from jaxselect.margin.certificate import TrialStatus

if TYPE_CHECKING:
    import xarray as xr

CERTIFIED = tuple(TrialStatus(code).name for code in trial_status.CERTIFIED)
"""Statuses of trials that lie on the predicted late flow of their selection."""

SELECTING = tuple(name for name in CERTIFIED if name != "SELECTED")
"""Statuses of certified trials that had important tokens to select."""

GROWING = tuple(name for name in SELECTING if name != "AT_REST")
"""Statuses of those in which p grows without bound."""


def by_history(results: "xr.Dataset") -> dict[str, "xr.DataArray"]:
    """Runs whose constant needs no p, and runs with a part of ρ that is read from p.

    Example:
        >>> import xarray as xr
        >>> runs = xr.Dataset({"history_dim": ("seed", [0, 5, 0])})
        >>> by_history(runs)["predicted"].values.tolist()
        [True, False, True]
    """
    predicted = results.history_dim == 0
    return {"predicted": predicted, "with_path": ~predicted}


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
        return f"{self.exponent:.3f}{spread} for {range_of_d}".replace("-", "−")


def lemma_fit(results: "xr.Dataset") -> LemmaFit | None:
    """The law of the relative error of Lemma 4.1, fitted to a sweep.

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

    Raises:
        BadInput: which statuses they are.

    Example:
        >>> import xarray as xr
        >>> runs = xr.Dataset(attrs={"statuses": {"LOST": 0}})
        >>> require_known_statuses(runs)
        Traceback (most recent call last):
        jaxselect.checks.BadInput: ... statuses that are not known here: LOST
    """
    unknown = set(results.attrs["statuses"]) - STATUS.keys()
    codes = {-1, *results.attrs["statuses"].values()}
    if unknown or not set(np.unique(results.get("status", -1)).tolist()) <= codes:
        named = ", ".join(sorted(unknown)) or "without a name"
        raise BadInput(f"of another version: statuses that are not known here: {named}")


def with_status(results: "xr.Dataset", *names: str) -> "xr.DataArray":
    """Mask of the trials that ended with one of some statuses.

    Returns:
        True where the status is one of these; nowhere for a status that was unknown
        when the trials ran.
    """
    known = results.attrs["statuses"]
    codes = [known[name] for name in names if name in known]
    return results.status.isin(codes)
