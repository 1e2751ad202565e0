"""Draw a finished `experiments.theory.joint`: p beside a trained v, and behind W.

python -m experiments.figures.joint results/joint
"""

import numpy as np
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.common.results import Finished
from experiments.figures._page import command

ALONE, BESIDE = "#0072B2", "#D55E00"
"""Colours that the colour-blind tell apart (M. Okabe and K. Ito)."""
UNCHANGED, RELAXED = 0, 1


def draw(finished: Finished) -> Figure:
    """Direction errors of p, where it heads, and the same behind a key-query matrix.

    Args:
        finished: what the study left.

    Returns:
        The figure.
    """
    found = finished.arrays
    figure, axes = pyplot.subplots(2, 2, figsize=(10, 8), layout="constrained")
    _directions(axes[0, 0], found)
    _headings(axes[0, 1], found, "equal")
    _headings(axes[1, 0], found, "unequal")
    _matrix(axes[1, 1], found)
    return figure


def _directions(panel: Axes, found: dict[str, np.ndarray]) -> None:
    """Direction error against ‖p‖: one line of slope −1 for both flows."""
    kept = found["equal_status"] == UNCHANGED
    for which, colour, name in (
        (0, ALONE, "v fixed"),
        (1, BESIDE, "v trained"),
    ):
        across, error = (found[f"equal_{x}"][kept, which] for x in ("norms", "errors"))
        # To rounding: beyond, p alone has no direction error to show.
        shown = np.where(across < 1e7, error, np.nan)
        panel.loglog(across.T, shown.T, color=colour, alpha=0.5, linewidth=1)
        panel.plot([], [], color=colour, label=name)
    ends = np.array([10.0, 1e7])
    panel.loglog(ends, 4 / ends, "k--", linewidth=1, label="exponent −1")
    panel.set(
        xlabel="‖p‖",
        ylabel="direction error ‖p/‖p‖ − p_mm/‖p_mm‖‖",
        title="Equal frequencies: direction of p",
    )
    panel.legend(loc="upper right")


def _headings(panel: Axes, found: dict[str, np.ndarray], kind: str) -> None:
    """‖dp/dτ − p_mm‖/‖p_mm‖ along log t, and of the relaxed problem where p is not."""
    time, status = found["log_times"], found[f"{kind}_status"]
    off, relaxed = found[f"{kind}_off"][:, 1], found[f"{kind}_off_relaxed"]
    certified = (status == UNCHANGED) | (status == RELAXED)
    lines = [(off[certified], BESIDE, "-", "from p_mm of its selection")]
    if (status == RELAXED).any():
        other = relaxed[status == RELAXED]
        lines += [(other, "#009E73", "--", "from the relaxed problem's solution")]
    for values, colour, style, name in lines:
        panel.loglog(time, values.T, style, color=colour, alpha=0.5, linewidth=1)
        panel.plot([], [], style, color=colour, label=name)
    counted = f"{(status == UNCHANGED).sum()} of {len(status)} keep p's bias"
    panel.set(
        xlabel="log t",
        ylabel="relative distance of dp/dτ",
        title=f"{kind.capitalize()} frequencies: {counted}",
    )
    panel.legend(loc="lower left")


def _matrix(panel: Axes, found: dict[str, np.ndarray]) -> None:
    """Direction error of W p over its predicted late form."""
    kept = found["matrix_predicted"] & found["matrix_reached"]
    time, constant = found["matrix_log_times"], found["matrix_constant"][kept, None]
    scaled = found["matrix_errors"][kept] * found["matrix_norms"][kept] / constant
    panel.loglog(time, np.abs(scaled - 1).T, color=ALONE, alpha=0.5, linewidth=1)
    panel.set(
        xlabel="log(‖p‖² t)",
        ylabel="|direction error · ‖W p‖ / predicted − 1|",
        title="W before p: W p is on the predicted late flow",
    )


if __name__ == "__main__":
    command(draw, "joint", __doc__ or "")
