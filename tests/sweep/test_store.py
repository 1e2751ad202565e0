"""Results on disk: whole or not there, never mixed, opened as labelled arrays."""

import numpy as np
import pytest

from jaxselect.checks import BadInput
from jaxselect.sweep import store
from jaxselect.sweep.labels import load

pytestmark = pytest.mark.bounds

FIELDS = [("lane", np.int64), ("status", np.int32), ("x", float), ("path", float, (2,))]
DESCRIPTION = {
    # Not in alphabetical order, and of different lengths: neither may matter.
    "axes": {"seed": [3, 4], "dim": [10.0, 20.0, 30.0]},
    "statuses": {"FINE": 0},
}


def rows(*lanes):
    table = np.zeros(len(lanes), FIELDS)
    table["lane"] = lanes
    table["x"] = np.array(lanes) + 0.5
    table["path"] = np.array(lanes)[:, None]
    return table


@pytest.fixture
def folder(tmp_path):
    store.prepare(tmp_path, DESCRIPTION)
    return tmp_path


def test_lanes_come_back_at_their_place(folder):
    store.write_chunk(folder, 1, rows(4, 0))
    store.write_chunk(folder, 0, rows(5, 1, 2))
    results = store.load_all(folder)
    assert results.x.dims == ("seed", "dim")
    assert results.x.sel(seed=4, dim=20.0) == 4.5
    assert results.x.sel(seed=3, dim=30.0) == 2.5
    assert results.path.sel(seed=4, dim=30.0).values.tolist() == [5, 5]
    assert results.file.sel(seed=3, dim=10.0) == 1


def test_missing_lanes_say_so(folder):
    store.write_chunk(folder, 0, rows(0))
    results = store.load_all(folder)
    assert (results.status == store.MISSING).sum() == 5
    assert np.isnan(results.x).sum() == 5


@pytest.mark.parametrize("damage", ["cut short", "one bit", "empty"])
def test_damaged_chunks_are_found_and_removed(folder, damage):
    for index in range(3):
        store.write_chunk(folder, index, rows(index))
    path = folder / "chunks" / "00001.npy"
    data = bytearray(path.read_bytes())
    if damage == "one bit":
        data[-20] ^= 1
    path.write_bytes({"cut short": data[:-9], "empty": b""}.get(damage, data))
    with pytest.raises(store.DamagedChunk, match=r"00001\.npy is damaged"):
        store.load_all(folder)
    assert store.finished(folder) == ({0, 2}, [1])
    assert store.finished(folder) == ({0, 2}, [])


def test_a_chunk_with_other_lanes_than_planned_is_damaged(folder):
    """Contents of another chunk, a part of its own contents, or a chunk too many."""
    planned = [np.array([0, 3]), np.array([1, 4]), np.array([5])]
    for index, lanes in enumerate([[0, 3], [0, 3], [5], [2]]):
        store.write_chunk(folder, index, rows(*lanes))
    assert store.finished(folder) == ({0, 1, 2, 3}, [])
    assert store.finished(folder, planned) == ({0, 2}, [1, 3])
    store.write_chunk(folder, 1, rows(1))
    assert store.finished(folder, planned) == ({0, 2}, [1])


def test_lanes_of_no_grid_or_of_two_chunks_are_refused(folder):
    """The grid has six, from 0."""
    store.write_chunk(folder, 0, rows(0, 5))
    store.write_chunk(folder, 1, rows(6))
    with pytest.raises(store.DamagedChunk, match="runs that its settings"):
        store.load_all(folder)
    store.write_chunk(folder, 1, rows(3, 5))
    with pytest.raises(store.DamagedChunk, match=r"00001\.npy holds runs that another"):
        store.load_all(folder)


@pytest.mark.parametrize("text", ['{"axes"', "[1]"])
def test_a_damaged_description_is_an_error_that_says_how_to_go_on(folder, text):
    (folder / "settings.json").write_text(text)
    for act in (store.read_description, lambda at: store.prepare(at, DESCRIPTION)):
        with pytest.raises(BadInput, match="begin again with --no-resume"):
            act(folder)


def test_results_of_other_settings_are_not_mixed(folder):
    store.prepare(folder, DESCRIPTION)
    other = DESCRIPTION | {"axes": {"seed": [3], "dim": [10.0, 20.0, 30.0]}}
    with pytest.raises(ValueError, match=r"axes.seed: \[3, 4\], now \[3\]"):
        store.prepare(folder, other)
    # Lanes are counted along the axes in their order.
    turned = dict(reversed(DESCRIPTION["axes"].items()))
    with pytest.raises(ValueError, match=r"order of axes: \['seed', 'dim'\], now"):
        store.prepare(folder, DESCRIPTION | {"axes": turned})


def test_a_folder_without_results_is_named(tmp_path):
    with pytest.raises(ValueError, match="holds no results"):
        store.load_all(tmp_path)
    (tmp_path / "settings.json").write_text('{"axes"')
    with pytest.raises(ValueError, match="is damaged"):
        store.load_all(tmp_path)


def test_a_person_opens_few_axes_with_names_and_labels(tmp_path):
    """Axes of length one become scalars, but for d, η₀ and seeds; the rest is kept."""
    axes = {"length": [4], "purity": [0.5, 1.0], "dim": [8.0], "step_size": [1.0]}
    axes |= {"seed": [7]}
    store.prepare(tmp_path, {"axes": axes, "statuses": {"AT_REST": 0, "LOST": 3}})
    fields = [("lane", int), ("status", int), ("cls_norm", float)]
    store.write_chunk(tmp_path, 0, np.array([(1, 3, 2.5)], fields))
    found = load(tmp_path)
    assert found.status.dims == ("purity", "dim", "step_size", "seed")
    assert found.length.item() == 4
    assert found.outcome.values.ravel().tolist() == ["", "lost"]
    assert not found.certified.any()
    assert found.cls_norm.attrs["long_name"] == "‖p‖"
    assert found.cls_norm.sel(purity=1.0).item() == 2.5
    assert np.isnan(found.cls_norm.sel(purity=0.5).item())
    whole = store.load_all(tmp_path)
    assert set(whole.status.dims) == set(axes) and "outcome" not in whole


def test_differences_name_every_place():
    here = {"a": 1, "b": {"c": [1], "d": 2}}
    there = {"a": 1, "b": {"c": [2]}, "e": 0}
    assert store.differences(here, there) == [
        "b.c: [1], now [2]",
        "b.d: 2, now None",
        "e: None, now 0",
    ]
