"""The README's promises hold; its program runs as a doctest."""

import operator
import re
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace

import jaxselect
from experiments.common import console
from experiments.sweep.grids import of_family
from experiments.sweep.settings import PRESETS

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()


def test_pictures_and_files_are_there():
    for target in re.findall(r"\]\(([^)#:]+)\)", TEXT):
        assert (ROOT / target).exists(), target


def test_targets_of_make_are_there():
    for target in re.findall(r"`make ([a-z-]+)", TEXT):
        assert f"\n{target}:" in MAKEFILE


def test_names_of_the_library_mean_something():
    for name in re.findall(r"\bjaxselect(?:\.\w+)+", TEXT):
        operator.attrgetter(name.removeprefix("jaxselect."))(jaxselect)


def test_the_family_that_varies_the_model_fits_the_grid_beside_it(monkeypatch):
    (program,) = re.findall(r"```python\n(from .*?)```", TEXT, re.DOTALL)
    names = {"jaxselect": jaxselect, "__name__": "mine"}
    exec(program, names)
    (grid,) = re.findall(r"run_grid\((.*), \"", TEXT)
    names["mine"] = SimpleNamespace(mine=names["mine"])
    found = eval(grid, names)
    found.check()
    assert found.size == 4 and "noise" in found.traced
    # The command beside it runs the same grid.
    monkeypatch.setitem(sys.modules, "mine", names["mine"])
    (flags,) = re.findall(r"python -m experiments.sweep (--family mine.*?)`", TEXT)
    presets = of_family(PRESETS, shlex.split(flags))
    settings = console.parse(lambda settings: {}, presets, shlex.split(flags))
    assert settings.grid == found
