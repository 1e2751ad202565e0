"""Results on disk: whole or not there, never mixed, opened as labelled arrays."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

from jaxselect import BadInput, Trial
from jaxselect.sweep import store
from jaxselect.sweep.grid import NUMBERS
from jaxselect.sweep.labels import LABELS, SCORES, load
from jaxselect.sweep.run import ONWARD

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


def other_settings(folder):
    """The same chunk of a folder whose axes have other values."""
    beside = folder / "beside"
    axes = DESCRIPTION["axes"] | {"seed": [5, 6]}
    store.prepare(beside, DESCRIPTION | {"axes": axes})
    store.write_chunk(beside, 1, rows(1))
    return (beside / "chunks" / "00001.npy").read_bytes()


def with_sum(folder):
    """Other rows, with a sum of their own."""
    body = (folder / "chunks" / "00000.npy").read_bytes()[: -store.DIGEST]
    return body + hashlib.sha256(body).digest()


DAMAGE = {
    "cut short": lambda data, folder: data[:-9],
    "one bit": lambda data, folder: data[:40] + bytes([data[40] ^ 1]) + data[41:],
    "empty": lambda data, folder: b"",
    "of another number": lambda data, folder: folder.joinpath(
        "chunks", "00002.npy"
    ).read_bytes(),
    "of other settings": lambda data, folder: other_settings(folder),
    "a sum of its own": lambda data, folder: with_sum(folder),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_is_no_chunk_is_set_aside_and_run_again(folder, damage, caplog):
    for index in range(3):
        store.write_chunk(folder, index, rows(index))
    path = folder / "chunks" / "00001.npy"
    whole = path.read_bytes()
    damaged = DAMAGE[damage](whole, folder)
    path.write_bytes(damaged)
    with pytest.raises(store.DamagedChunk, match=r"00001\.npy is damaged"):
        store.load_all(folder)
    assert store.finished(folder) == {0, 2}
    (aside,) = (folder / "chunks").glob("*.aside")
    assert aside.read_bytes() == damaged and aside.name in caplog.text
    store.write_chunk(folder, 1, rows(1))
    assert store.finished(folder) == {0, 1, 2} and path.read_bytes() == whole


def test_names_that_are_no_chunks_are_left(folder, caplog):
    """Copies of a synchronised folder, links that lead nowhere, folders."""
    store.write_chunk(folder, 0, rows(0, 1))
    chunks = folder / "chunks"
    names = ("00000 (1).npy", "0.npy", "00000.npy~", "٠٠٠٠٢.npy", "notes.txt")
    for name in names:
        (chunks / name).write_bytes((chunks / "00000.npy").read_bytes())
    (chunks / "00001.npy").symlink_to("nowhere")
    (chunks / "00002.npy").mkdir()
    (chunks / "00002.npy" / "kept").touch()
    before = len([*chunks.iterdir()])
    assert store.finished(folder) == {0}
    assert all((chunks / name).exists() for name in names)
    assert len([*chunks.iterdir()]) == before
    assert [*chunks.glob("00002.npy.*/kept")] and "00002.npy is no" in caplog.text
    for index in (1, 2):
        store.write_chunk(folder, index, rows(1 + index))
    assert store.finished(folder) == {0, 1, 2}
    assert (store.load_all(folder).status == store.MISSING).sum() == 2


def test_chunks_without_settings_are_of_nobody(folder):
    """They are neither taken for what is asked now, nor run over."""
    store.write_chunk(folder, 0, rows(0, 1))
    (folder / "settings.json").unlink()
    for description in (DESCRIPTION, DESCRIPTION | {"statuses": {}}):
        with pytest.raises(BadInput, match="that says what they are"):
            store.prepare(folder, description)
    store.clear(folder)
    store.prepare(folder, DESCRIPTION)
    assert store.finished(folder) == set()


def test_a_kill_while_a_folder_is_cleared_leaves_the_settings(folder, monkeypatch):
    for index in range(3):
        store.write_chunk(folder, index, rows(index))
    unlink, removed = Path.unlink, []

    def killed(path, missing_ok=False):
        if len(removed) == 2:
            raise KeyboardInterrupt
        removed.append(path)
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", killed)
    with pytest.raises(KeyboardInterrupt):
        store.clear(folder)
    assert len(store.finished(folder)) == 1


@pytest.mark.parametrize("text", ['{"axes"', "[1]"])
def test_a_damaged_description_is_an_error_that_says_how_to_go_on(folder, text):
    (folder / "settings.json").write_text(text)
    for act in (store.read_description, lambda at: store.prepare(at, DESCRIPTION)):
        with pytest.raises(BadInput, match="begin again with --no-resume"):
            act(folder)
    with pytest.raises(ValueError, match="is damaged"):
        store.load_all(folder)


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


def test_a_person_opens_few_axes_with_names_and_labels(tmp_path):
    """Axes of length one become scalars, but for d, η₀ and seeds; the rest is kept."""
    axes = {"length": [4], "purity": [0.5, 1.0], "dim": [8.0], "step_size": [1.0]}
    axes |= {"seed": [7]}
    codes = {"statuses": {"AT_REST": 0, "LOST": 3}, "reasons": {"NONE": 0, "LINE": 4}}
    store.prepare(tmp_path, {"axes": axes, **codes})
    fields = [("lane", int), ("status", int), ("cls_norm", float)]
    fields += [("path_norms", float, 2), ("reason", np.int32)]
    store.write_chunk(tmp_path, 0, np.array([(1, 3, 2.5, (1.0, 2.0), 4)], fields))
    found = load(tmp_path)
    assert found.status.dims == ("purity", "dim", "step_size", "seed")
    assert found.length.item() == 4
    assert found.outcome.values.ravel().tolist() == ["", "lost"]
    assert not found.certified.any()
    # As in the conventions for climate data: what a code is called, and means.
    for name, called in (("status", "LOST"), ("reason", "LINE")):
        about, code = found[name].attrs, found[name].sel(purity=1.0).item()
        slot = about["flag_values"].tolist().index(code)
        assert about["flag_meanings"].split()[slot] == called
        assert about["flag_values"].dtype == found[name].dtype
    assert "LINE" in found.reason.comment and "late flow" in found.reason.comment
    assert found.cls_norm.attrs == {"long_name": "‖p‖", "units": "1"}
    assert found.path_norms.dims[-1] == "point" and found.point.attrs["long_name"]
    assert found.cls_norm.sel(purity=1.0).item() == 2.5
    assert np.isnan(found.cls_norm.sel(purity=0.5).item())
    whole = store.load_all(tmp_path)
    assert set(whole.status.dims) == set(axes) and "outcome" not in whole


def test_every_number_of_a_run_is_described():
    """A field of a trial without a label, or a label of no field."""
    more = {*NUMBERS, "outcome", "certified", "point", "file"}
    assert {*LABELS} == {*Trial.__dataclass_fields__} - {*ONWARD} | more
    assert {*SCORES} < {*LABELS}
