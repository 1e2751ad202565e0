"""Results depend on any setting and on any source file that they need."""

import dataclasses
from pathlib import Path

import pytest

from jaxselect import Grid, assumption_one, embedding_steps
from jaxselect.sweep.description import description, fingerprint, sources
from jaxselect.sweep.store import differences
from tests.processes import printed

ROOT = Path(__file__).parents[2]
DEFAULT = Grid()
SIZES = ("sequences", "length", "relevant", "irrelevant")
OTHER = {
    "draw": assumption_one,
    "embed": embedding_steps(2),
    "until_norm": 7.0,
    "path_points": 3,
    "precision": "float32",
    "purity": (0.5,),
    "dim": (4.0,),
    "step_size": (4.0,),
}
NAMES = [field.name for field in dataclasses.fields(Grid) if field.name != "axes"]


def described(grid=DEFAULT, chunk_size=8, vmapped=False):
    return description(grid, chunk_size, vmapped, "cpu")


@pytest.fixture(scope="module")
def usual():
    return described()


@pytest.mark.parametrize("name", [*NAMES, *DEFAULT.axes])
def test_every_setting_of_a_grid_makes_other_results(name, usual):
    value = OTHER.get(name, (4,))
    changes = {name: value} if name in NAMES else {"axes": {name: value}}
    if name == "draw":
        changes["axes"] = {size: DEFAULT.axes[size] for size in SIZES}
    other = described(dataclasses.replace(DEFAULT, **changes))
    name = "family" if name == "draw" else name
    assert any(name in line for line in differences(usual, other))


def test_every_module_that_a_sweep_loads_is_in_its_digest():
    # The package alone, without what its front door shows.
    code = (
        "import sys, types; package = types.ModuleType('jaxselect'); "
        "package.__path__ = ['jaxselect']; sys.modules['jaxselect'] = package; "
        "import jaxselect.sweep.run; "
        "print(*(n for n in sys.modules if n.startswith('jaxselect.')))"
    )
    known = sources("jaxselect.sweep.run")
    packages = {path.name for path in (ROOT / "jaxselect").iterdir() if path.is_dir()}
    loaded = set(printed(code).split()) - {f"jaxselect.{name}" for name in packages}
    assert {"jaxselect.margin.certificate", "jaxselect.margin.qp"} <= loaded
    assert loaded <= known.keys()


def test_a_change_of_any_of_them_is_seen():
    known = sources("jaxselect.sweep.run")
    digests = {fingerprint(known)}
    for name in known:
        digests.add(fingerprint(known | {name: known[name] + "\n"}))
    assert len(digests) == 1 + len(known)
