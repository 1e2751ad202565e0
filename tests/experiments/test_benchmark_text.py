"""The text benchmark at a small size: everybody computes the same gradient."""

import os

import pytest

from experiments.benchmarks import text
from experiments.benchmarks._bags import corpus
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


def test_invented_counts_have_the_shape_asked_for():
    counts, labels = corpus(600, TINY.vocabulary, TINY.distinct)
    assert counts.nnz / 600 == pytest.approx(20, rel=0.1)
    assert set(labels.tolist()) == {-1, 1}


def test_more_threads_than_cores_are_refused():
    with pytest.raises(ValueError, match="--threads is 4096"):
        text.main(text.dataclasses.replace(TINY, threads=4096))
