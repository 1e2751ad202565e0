"""Figure of `experiments.text.lemma`: error against dimension."""

import numpy as np
from matplotlib import pyplot
from matplotlib.figure import Figure

from experiments.common.results import Finished


def draw(finished: Finished) -> Figure:
    """Both errors on logarithmic axes, beside d^{−1/2}."""
    results = finished.results
    dims = np.array(results["dims"])
    figure, axes = pyplot.subplots(figsize=(5, 4))
    axes.loglog(dims, results["errors"], "o-", label="against α")
    axes.loglog(dims, results["errors_plain_counts"], "s-", label="plain counts")
    reference = results["errors"][0] * (dims / dims[0]) ** -0.5
    axes.loglog(dims, reference, "k--", label="d^(−1/2)")
    axes.set(xlabel="dimension d", ylabel="relative error of one step")
    axes.legend()
    return figure
