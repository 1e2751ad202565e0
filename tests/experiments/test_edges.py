"""The study of predicted edges writes what theory says, and where theory holds."""

import dataclasses
from types import SimpleNamespace

import numpy as np

from experiments.common.results import read
from experiments.report.edges import NAMES
from experiments.theory import _edges, edges
from experiments.theory._phase_lanes import EDGES


def test_edges_are_those_of_theory_at_every_dimension(tmp_path, monkeypatch):
    """Edges invented from the sizes and d; those that are there have a domain."""

    def invented(ensemble, dim):
        sizes = ensemble.sequences, ensemble.length, ensemble.relevant
        names = "selection", "breaking_lower", "breaking_upper"
        found = {name: size * dim for name, size in zip(names, sizes, strict=True)}
        captured = {
            "capture_lower": ensemble.irrelevant * dim,
            "capture_upper": 0 * dim,
        }
        return found | captured

    monkeypatch.setattr(edges, "every_edge", invented)
    monkeypatch.setattr(
        edges, "in_domain", lambda ensemble, dim, step: step < 300 * dim
    )
    smoke = edges.PRESETS["smoke"]
    edges.main(dataclasses.replace(smoke, largest=1600.0, out=tmp_path))
    kept = read(tmp_path)
    dims = np.array([16.0, 1600.0])
    np.testing.assert_allclose(kept.results["dims"], dims)
    sizes = dataclasses.astuple(smoke.problem)
    names = "selection", "breaking_lower", "breaking_upper", "capture_lower"
    for name, size in zip(names, sizes, strict=True):
        np.testing.assert_allclose(kept.results[name], size * dims)
        np.testing.assert_array_equal(kept.results[name], kept.arrays[name])
        if name != "selection":
            assert kept.arrays[f"{name}_in_domain"].all()
    assert kept.results["capture_upper"] == [0.0, 0.0]


def test_every_edge_goes_by_its_name(monkeypatch):
    monkeypatch.setattr(_edges, "selection_edge", lambda ensemble, dim: dim)
    for kind, size in (("breaking", 10), ("capture", 30)):
        ends = SimpleNamespace(lower=size, upper=size + 10)
        monkeypatch.setattr(_edges, f"{kind}_edges", lambda ensemble, dim, it=ends: it)
    found = _edges.every_edge(None, 1)
    assert [*found.values()] == [1, 10, 20, 30, 40]
    assert [*found] == [*EDGES][:5] == [*NAMES]
