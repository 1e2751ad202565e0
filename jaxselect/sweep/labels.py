"""A sweep as a person opens it: few axes, names of statuses, a label on every column.

Programs read what is on disk with `store.load`, where every axis of the grid stays.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .store import MISSING
from .store import load as load_all

if TYPE_CHECKING:
    import xarray

KEPT = ("dim", "step_size", "seed")
"""Axes that stay, however long they are."""
LABELS = {
    "dim": "embedding dimension d",
    "step_size": "step size η₀",
    "seed": "seed",
    "status": "code of the status",
    "status_name": "name of the status",
    "alignment_error": "relative error of Lemma 4.1",
    "alignment": "mean |E_s·v| over important tokens",
    "important_selected": "share of sequences that end on important tokens",
    "positive_selected": "the same, of positive sequences",
    "negative_selected": "the same, of negative sequences",
    "cls_norm": "‖p‖",
    "log_time": "log(1 + t)",
    "direction_error": "‖p/‖p‖ − p_mm/‖p_mm‖‖",
    "error_constant": "predicted limit of direction error · ‖p‖",
    "max_margin_norm": "‖p_mm‖",
    "duality_gap": "relative duality gap of p_mm",
    "num_steps": "steps of the integration",
    "path_log_times": "log(1 + t) along the path",
    "path_norms": "‖p‖ along the path",
    "path_errors": "direction error along the path",
}
"""Attribute `long_name`, which xarray writes beside an axis of a plot."""


def load(folder: str | Path) -> "xarray.Dataset":
    """Open a results folder as few, labelled axes.

    Args:
        folder: that a sweep wrote, finished or not.

    Returns:
        One variable per field over d, η₀, seeds and every other axis with more than one
        value, those with one as scalar coordinates; `status_name` beside `status`; a
        `long_name` where a column has one. Numbers are NaN, and names empty, where a
        run is missing.

    Raises:
        BadInput: the folder holds no results, or damaged ones.

    Example:
        >>> import tempfile
        >>> from jaxselect.sweep.store import prepare, write_chunk
        >>> folder = Path(tempfile.mkdtemp())
        >>> axes = {"length": [4], "dim": [8.0, 9.0]}
        >>> prepare(folder, {"axes": axes, "statuses": {"FINE": 0}})
        >>> fields = [("lane", int), ("status", int)]
        >>> write_chunk(folder, 0, np.array([(1, 0)], fields))
        >>> found = load(folder)
        >>> found.status_name.dims, found.status_name.values.tolist()
        (('dim',), ['', 'FINE'])
    """
    found = load_all(folder)
    names = {code: name for name, code in found.attrs.get("statuses", {}).items()}
    if "status" in found:
        codes = found["status"]
        named = [names.get(code, "") for code in codes.values.ravel().tolist()]
        found["status_name"] = (codes.dims, np.reshape(named, codes.shape))
        found["status"].attrs["missing"] = MISSING
    single = [
        axis for axis, size in found.sizes.items() if size == 1 and axis not in KEPT
    ]
    found = found.squeeze([axis for axis in single if axis in found.coords])
    for name, label in LABELS.items():
        if name in found.variables:
            found[name].attrs["long_name"] = label
    return found
