"""The edges over a map are those of the theory, for each shape that it covers."""

import numpy as np

from experiments.common import edges

over = edges.over
GRID = {
    "family": "exact",
    "embed": "embedding_step",
    "sequences": [200, 1000],
    "length": [8],
    "relevant": [8],
    "irrelevant": [48],
    "dim": [1e4, 1e6],
}


def test_every_shape_of_a_sweep_has_its_own_edges_over_the_whole_map(monkeypatch):
    """Edges invented from n; those that are nowhere are no number."""
    asked = []

    def invented(shape, dims):
        asked.append(dims)
        found = np.full((5, len(dims)), float(shape[0]))
        found[1], found[2:] = np.inf, 0.0
        return found, found == 200

    monkeypatch.setattr(edges, "over", invented)
    found, note = edges.predicted(GRID | {"purity": [1.0]})
    assert [one.name for one in found] == [*edges.NAMES] * 2
    assert np.all(found[0].step_sizes == 200) and np.all(found[5].step_sizes == 1000)
    assert all(np.isnan(one.step_sizes).all() for one in found[1:5])
    assert np.all(found[0].within == 200) and np.all(found[5].within == 1000)
    assert note == ""
    monkeypatch.setattr(edges, "over", lambda *_: (np.ones((5, 13)), np.eye(5, 13) > 0))
    found, note = edges.predicted(GRID)
    assert [np.isfinite(one.within).sum() for one in found[:5]] == [13, 1, 1, 1, 1]
    assert note.startswith("pale lines")
    np.testing.assert_allclose([asked[0][0], asked[0][-1]], [1e3, 1e7])


def test_a_family_beyond_the_theory_has_none():
    beyond = {
        "family": "classes",
        "per_sequence": [2],
        "purity": [0.9],
        "embed": "my:e",
    }
    for other in ({name: value} for name, value in beyond.items()):
        found, note = edges.predicted(GRID | other)
        assert found == [] and note.startswith("no predicted lines")
