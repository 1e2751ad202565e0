"""Results of a sweep as a labelled data set, with outcomes in words.

`store.load_all` returns the raw results instead, with every axis of the grid.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .. import checks
from ..margin.certificate import CERTIFIED, TrialStatus
from ..status import Reason
from .grid import NUMBERS
from .store import MISSING, load_all

if TYPE_CHECKING:
    import xarray

LABELS = {
    "dim": "embedding dimension d",
    "step_size": "step size η₀",
    "seed": "seed",
    "status": "code of the status",
    "reason": "code of the first condition of a certificate that does not hold",
    "outcome": "how the run ends",
    "certified": "certified from the computed p",
    "alignment_error": "relative error of Lemma 4.1",
    "alignment": "mean |E_s·v| over important tokens",
    "important_selected": "share of sequences that end on important tokens",
    "positive_selected": "the same, of positive sequences",
    "negative_selected": "the same, of negative sequences",
    "tied_share": "share of sequences whose tokens keep finite odds",
    "unselected_effect": "max |f − its limit for the selected tokens alone|",
    "cls_norm": "‖p‖",
    "log_time": "log(1 + t)",
    "direction_error": "‖p/‖p‖ − p_mm/‖p_mm‖‖",
    "error_constant": "predicted limit of direction error · ‖p‖",
    "late_flow_residual": "largest difference of a margin from the late flow",
    "perturbation_bound": "bound on the change of a score from here on",
    "history_change": "last change of the part of ρ that the path decides",
    "history_dim": "dimension of the part of ρ that the path decides",
    "max_margin_norm": "‖p_mm‖",
    "duality_gap": "relative duality gap of p_mm",
    "num_steps": "steps of the integration",
    "point": "number of the point along the path",
    "path_log_times": "log(1 + t) along the path",
    "path_norms": "‖p‖ along the path",
    "path_errors": "direction error along the path",
    "file": "chunk that the run was stored in",
}
"""Attribute `long_name`, which xarray writes beside an axis of a plot; that of an axis
of the family is its name."""
SCORES = ("late_flow_residual", "perturbation_bound", "history_change")
"""Variables whose `units` are those of attention scores; all others are numbers."""


def load(folder: str | Path) -> "xarray.Dataset":
    """Open a results folder as a data set with few, labelled axes.

    Args:
        folder: folder that a sweep wrote, finished or not.

    Returns:
        An `xarray.Dataset` with a variable for every stored number of a trial, over d,
        η₀, seed and every other axis with more than one value; an axis with one value
        is a scalar coordinate. `status` is a number, `outcome` its name in words
        ("selected all"), which `help(TrialStatus)` explains, and `certified` whether it
        is certified. The attributes `long_name` and `units` describe a variable, `1`
        for a plain number; of `status` and `reason`, `flag_values` and `flag_meanings`
        name every number, and `comment` says what the names mean. If a run is missing,
        its numbers are NaN, codes −1, and its outcome is empty.

    Raises:
        BadInput: the folder holds no results, or damaged ones.

    Example:
        >>> import tempfile
        >>> from jaxselect.sweep.store import prepare, write_chunk
        >>> folder = Path(tempfile.mkdtemp())
        >>> axes = {"length": [4], "dim": [8.0, 9.0]}
        >>> prepare(folder, {"axes": axes, "statuses": {"TIED": 5}})
        >>> fields = [("lane", int), ("status", int)]
        >>> write_chunk(folder, 0, np.array([(1, 5)], fields))
        >>> found = load(folder)
        >>> found.outcome.values.tolist(), found.certified.values.tolist()
        (['', 'tied'], [False, True])
    """
    checks.folder(folder)
    found = load_all(folder)
    codes = found.attrs.get("statuses", {})
    words = {code: name.replace("_", " ").lower() for name, code in codes.items()}
    if "status" in found:
        status = found["status"]
        named = [words.get(code, "") for code in status.values.ravel().tolist()]
        found["outcome"] = (status.dims, np.reshape(named, status.shape))
        found["certified"] = status.isin([codes.get(one.name) for one in CERTIFIED])
    for coded, every, kind in (
        ("status", "statuses", TrialStatus),
        ("reason", "reasons", Reason),
    ):
        if coded in found and (codes := found.attrs.get(every)):
            found[coded].attrs |= {
                "flag_values": np.array(list(codes.values()), found[coded].dtype),
                "flag_meanings": " ".join(codes),
                "comment": kind.table(),
                "missing": MISSING,
            }
    single = [
        axis for axis, size in found.sizes.items() if size == 1 and axis not in NUMBERS
    ]
    found = found.squeeze([axis for axis in single if axis in found.coords])
    found = found.assign_coords(
        {name: range(size) for name, size in found.sizes.items() if name == "point"}
    )
    for name in found.variables:
        about = found[name].attrs
        about["long_name"] = LABELS.get(str(name), str(name))
        about["units"] = "score" if name in SCORES else "1"
    return found
