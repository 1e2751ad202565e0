"""Words over their posterior difference, a dot each, and what they do on average."""

from typing import Any

import numpy as np

from experiments.common.statistics import binned
from experiments.report.charts import Chart, axis, chart, series
from experiments.report.numbers import short

POSTERIOR = "posterior difference P(+1|s) − P(−1|s)"


def cloud(name: str, title: str, across: Any, upward: Any, words: Any) -> Chart:
    """A dot per word, and mean ± one standard deviation of each bin."""
    across, upward = np.asarray(across, float), np.asarray(upward, float)
    positions, mean, spread, number = binned(across, upward)
    low, high = np.nanquantile(upward, [0.002, 0.998])
    room = 0.1 * (high - low or 1.0)
    return chart(
        name,
        title,
        "A dot for each word; the line joins the means of the words in each of 20 "
        "bins, its bars are one standard deviation.",
        axis(POSTERIOR, range=[-1.05, 1.05]),
        axis(title, range=short([low - room, high + room])),
        [
            series("words", across, upward, kind="dots", colour=6, text=words),
            series(
                "bin mean",
                positions[number > 0],
                mean[number > 0],
                kind="points",
                colour=0,
                spread=spread[number > 0],
            ),
        ],
    )
