"""The comparer can say no: to one bit, one NaN, one field, one setting."""

import shutil

import numpy as np
import pytest

from experiments import compare
from jaxselect.sweep import store
from tests.experiments.test_console import ended

FIELDS = [("lane", int), ("status", int), ("x", float), ("y", np.float32)]
GRID = {"dim": [8.0, 64.0], "seed": [0, 1]}


def description(**changes):
    grid = {name: list(values) for name, values in GRID.items()}
    return {
        "grid": grid | {"until_norm": 1e3} | changes,
        "axes": GRID,
        "statuses": {"FINE": 0, "LOST": 1},
        "chunk_size": 2,
    }


def rows(*lanes):
    values = [(lane, 0, 0.1 * (lane + 1), lane) for lane in lanes]
    return np.array(values, FIELDS)


def made(folder, first=None, second=None, described=None):
    """A sweep of two chunks."""
    store.prepare(folder, described or description())
    store.write_chunk(folder, 0, rows(0, 1) if first is None else first)
    if second is not False:
        store.write_chunk(folder, 1, rows(2, 3) if second is None else second)
    return folder


@pytest.fixture
def one(tmp_path):
    return made(tmp_path / "one")


def compared(one, other, *flags):
    return ended(compare.compare, [one, other, *flags], compare.PRESETS)


def test_a_copy_is_equal_however_it_was_cut(one, tmp_path):
    shutil.copytree(one, tmp_path / "copy")
    assert compared(one, tmp_path / "copy") == 0
    other = tmp_path / "cut"
    store.prepare(other, description() | {"chunk_size": 4})
    store.write_chunk(other, 0, rows(0, 1, 2, 3))
    assert compared(one, other) == 0


def one_bit(table):
    table["x"][1] = np.nextafter(table["x"][1], 1)


def one_nan(table):
    table["x"][0] = np.nan


def one_status(table):
    table["status"][0] = 1


def a_sign_of_zero(table):
    table["y"][0] = -0.0


DIFFERENT = {
    "x: 1 of 4 differ, first at dim 8.0, seed 1": one_bit,
    "x: 1 of 4 differ, first at dim 8.0, seed 0": one_nan,
    "status: 1 of 4 differ": one_status,
    "y: 1 of 4 differ": a_sign_of_zero,
}


@pytest.mark.parametrize("difference", DIFFERENT)
def test_one_value_that_differs_is_found_and_named(one, tmp_path, difference, capsys):
    table = rows(0, 1)
    DIFFERENT[difference](table)
    assert compared(one, made(tmp_path / "other", table)) == 1
    assert difference in capsys.readouterr().err


def test_the_same_nan_is_no_difference(tmp_path):
    table = rows(0, 1)
    one_nan(table)
    first, second = (made(tmp_path / name, table) for name in ("a", "b"))
    assert compared(first, second) == 0
    assert compared(first, second, "--tolerance", "0.1") == 0


def test_a_chunk_or_a_field_that_is_missing_and_another_width(one, tmp_path, capsys):
    assert compared(one, made(tmp_path / "half", second=False)) == 1
    assert "status: 2 of 4 differ, first at dim 64.0, seed 0" in capsys.readouterr().err
    fewer = [name for name, _ in FIELDS if name != "y"]
    short = made(tmp_path / "short", rows(0, 1)[fewer], rows(2, 3)[fewer])
    assert compared(one, short) == compared(short, one) == 1
    assert "y: only in one of them" in capsys.readouterr().err
    wide = [(name, kind if name != "y" else float) for name, kind in FIELDS]
    parts = (rows(*lanes).astype(wide) for lanes in ((0, 1), (2, 3)))
    assert compared(one, made(tmp_path / "wide", *parts)) == 1
    assert "y: float32(2, 2), float64(2, 2)" in capsys.readouterr().err


def test_one_setting(one, tmp_path, capsys):
    other = made(tmp_path / "other", described=description(until_norm=1e4))
    assert compared(one, other) == 1
    assert "until_norm: 1000.0, now 10000.0" in capsys.readouterr().err


def test_the_tolerance_is_relative_and_has_two_sides(one, tmp_path):
    table = rows(0, 1)
    table["x"][1] *= 1 + 1e-6
    other = made(tmp_path / "other", table)
    assert compared(one, other, "--tolerance", "2e-6") == 0
    assert compared(one, other, "--tolerance", "5e-7") == 1
    one_nan(table)
    assert compared(one, made(tmp_path / "nan", table), "--tolerance", "1") == 1
    one_status(table := rows(0, 1))
    assert compared(one, made(tmp_path / "status", table), "--tolerance", "1") == 1


@pytest.mark.parametrize("size", [1.0, 1e-9, 1e-30, 1e30])
def test_the_tolerance_is_relative_however_small_the_numbers_are(tmp_path, size):
    """A number of 1e-9 that doubles is as different as one of 1."""
    folders = []
    for factor in (1.0, 1.01, 2.0):
        table = rows(0, 1)
        table["x"] *= size * factor
        folders.append(made(tmp_path / f"{factor}", table, second=False))
    assert compared(*folders[:2], "--tolerance", "0.02") == 0
    assert compared(*folders[:2], "--tolerance", "0.005") == 1
    assert compared(folders[0], folders[2], "--tolerance", "0.02") == 1


@pytest.mark.parametrize("tolerance", ["nan", "-1", "inf", "-inf"])
def test_a_tolerance_that_is_none_is_refused(one, tolerance, capsys):
    assert compared(one, one, f"--tolerance={tolerance}") == 2
    assert "wanted a finite number" in capsys.readouterr().err


def test_no_results_and_damaged_ones_are_no_difference(one, tmp_path, capsys):
    assert compared(one, tmp_path / "nothing") == 2
    assert "holds no results" in capsys.readouterr().err
    other = made(tmp_path / "other")
    chunk = other / "chunks" / "00001.npy"
    chunk.write_bytes((other / "chunks" / "00000.npy").read_bytes()[:-1])
    assert compared(one, other) == 2
    assert "is damaged" in capsys.readouterr().err


def test_a_chunk_with_another_ones_content(one, tmp_path, capsys):
    """Its checksum is right; but its runs are there twice, and others are missing."""
    other = made(tmp_path / "other")
    chunk = other / "chunks" / "00001.npy"
    chunk.write_bytes((other / "chunks" / "00000.npy").read_bytes())
    assert compared(one, other) == 2
    assert "00001.npy holds runs that another chunk" in capsys.readouterr().err
