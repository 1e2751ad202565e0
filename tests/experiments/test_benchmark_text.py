"""The text benchmark at a small size: everybody computes the same gradient."""

import os

from experiments.benchmarks import text
from tests.experiments.invented_results import check_shown

TINY = text.Settings(
    reviews=60, vocabulary=90, distinct=20, dim=8, repeats=1, gathered=60
)


def test_all_rivals_agree_and_ratios_are_of_their_times(tmp_path, request):
    cores = os.sched_getaffinity(0)
    request.addfinalizer(lambda: os.sched_setaffinity(0, cores))
    settings = text.dataclasses.replace(TINY, precision="float64", out=tmp_path)
    results = text.main(settings)
    # PyTorch is optional; SciPy is not.
    assert {"csr"} <= results["disagreement"].keys()
    assert max(results["disagreement"].values()) < 1e-12
    ratio = results["csr"]["step"] / results["ours"]["step"]
    assert results["csr_over_ours"] == ratio
    assert (tmp_path / "results.json").exists()
    check_shown(tmp_path)
