"""The study of predicted edges writes what the functions of the library say."""

import dataclasses

import numpy as np
import pytest

from experiments.common.results import read
from experiments.theory import edges
from jaxselect.errors import BadInput
from jaxselect.theory.phases import capture_edges, selection_edge
from jaxselect.theory.two_classes import Ensemble


def test_edges_are_those_of_the_library(tmp_path):
    settings = edges.PRESETS["smoke"]
    edges.main(dataclasses.replace(settings, largest=1e4, out=tmp_path))
    kept = read(tmp_path)
    found = kept.results
    assert found["dims"] == pytest.approx([16.0, 1e4])
    ensemble = Ensemble(20, 4, 2, 8)
    for place, dim in enumerate(found["dims"]):
        wanted = selection_edge(ensemble, dim).item()
        assert found["selection"][place] == pytest.approx(wanted)
    captured = capture_edges(ensemble, 1e4)
    names = "capture_lower", "capture_upper"
    both = [kept.arrays[name][1] for name in names]
    np.testing.assert_allclose(both, captured, rtol=1e-9)
    # Where nothing is captured there is no edge, and none within the domain.
    assert both == [np.inf, 0.0]
    assert not any(kept.arrays[f"{name}_in_domain"][1] for name in names)


@pytest.mark.parametrize(
    "changed", [{"smallest": 0.5}, {"largest": 16.0}, {"points": 1}]
)
def test_settings_out_of_range_are_refused(changed):
    with pytest.raises(BadInput):
        dataclasses.replace(edges.PRESETS["smoke"], **changed).check()
