"""Draw a finished `experiments.text_lemma`: error against dimension.

python -m experiments.figures.text_lemma results/text-lemma
"""

import json
import sys
from pathlib import Path

import numpy as np
from matplotlib import pyplot

from experiments.figures.reviews import command, save


def draw(folder: Path) -> Path:
    """Both errors on logarithmic axes, beside d^{−1/2}.

    Args:
        folder: of results.

    Returns:
        The figure's file.

    Raises:
        FileNotFoundError: no results in the folder.
    """
    results = json.loads((folder / "results.json").read_text())["results"]
    dims = np.array(results["dims"])
    figure, axes = pyplot.subplots(figsize=(5, 4), layout="constrained")
    axes.loglog(dims, results["errors"], "o-", label="against α")
    axes.loglog(dims, results["errors_plain_counts"], "s-", label="plain counts")
    reference = results["errors"][0] * (dims / dims[0]) ** -0.5
    axes.loglog(dims, reference, "k--", label="d^(−1/2)")
    axes.set(xlabel="dimension d", ylabel="relative error of one step")
    axes.legend()
    return save(figure, folder / "text_lemma.png")


if __name__ == "__main__":
    sys.exit(command(draw, sys.argv[1:], __doc__ or ""))
