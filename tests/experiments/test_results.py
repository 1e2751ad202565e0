"""Results on disk: written whole, read back the same, or refused."""

import dataclasses
import enum
import math
from pathlib import Path

import numpy as np
import pytest

from experiments.common.results import read, write
from experiments.common.study import Experiment, Study
from experiments.figures import __main__ as figures
from jaxselect.checks import BadInput


class Colour(enum.Enum):
    RED = 1


@dataclasses.dataclass(frozen=True)
class Settings:
    where: Path = Path("here")
    rate: float | None = None


ARRAYS = {"scores": np.array([0.1, np.nan, -np.inf]), "words": np.array(["é", "b"])}


@pytest.fixture
def folder(tmp_path):
    write(
        tmp_path / "first",
        settings=Settings(),
        results={"loss": math.nan, "rows": [1, {"high": 0.1 + 0.2}], "kept": None},
        arrays=ARRAYS,
    )
    return tmp_path / "first"


def test_what_is_read_is_what_was_written(folder):
    found = read(folder)
    assert found.settings == {"where": "here", "rate": None}
    assert found.results["rows"] == [1, {"high": 0.1 + 0.2}]
    assert math.isnan(found.results["loss"]) and math.isnan(found.results["kept"])
    assert found.arrays.keys() == ARRAYS.keys()
    for name, column in ARRAYS.items():
        assert found.arrays[name].dtype == column.dtype
        np.testing.assert_array_equal(found.arrays[name], column)
    assert {path.name for path in folder.iterdir()} == {"results.json", "arrays.npz"}


def flipped(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


def of_another_run(path):
    other = path.parent.with_name("other")
    write(other, settings=Settings(), results={}, arrays={"scores": np.zeros(3)})
    path.write_bytes((other / path.name).read_bytes())


DAMAGE = {
    "cut short": lambda path: path.write_bytes(path.read_bytes()[:-20]),
    "empty": lambda path: path.write_bytes(b""),
    "one bit": flipped,
    "of another run": of_another_run,
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", ["results.json", "arrays.npz"])
def test_damaged_results_are_refused_by_every_reader(folder, name, damage, capsys):
    DAMAGE[damage](folder / name)
    with pytest.raises(BadInput, match="is damaged"):
        read(folder)
    assert figures.main([str(folder)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "is damaged" in line


def test_results_stay_where_their_figure_cannot_be_drawn(tmp_path):
    """A fault in drawing is ours, with its traceback, and comes last."""
    study = Experiment(
        lambda settings, results: results.update(x=1), draw=lambda _: 1 / 0
    )
    with pytest.raises(ZeroDivisionError):
        study(Study(out=tmp_path))
    assert read(tmp_path).results == {"x": 1}
