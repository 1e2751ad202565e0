"""Draw the figures of a finished sweep; one module for each other study."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import style

style.use(Path(__file__).with_name("paper.mplstyle"))
