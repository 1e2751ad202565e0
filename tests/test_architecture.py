"""The floors of the house: which module may import which."""

import ast
import pydoc
import re
from pathlib import Path
from types import ModuleType

import experiments
import jaxselect
from tests.processes import printed

ROOT = Path(__file__).parents[1]
LIBRARY = ROOT / "jaxselect"

# An import from one wing into another goes down a floor: no sideways, no circle.
BELOW = ("checks", "compilation", "files", "status")
FLOOR = dict.fromkeys(BELOW, -1) | {"data": 0, "model": 1}
FLOOR |= {"problem": 2, "flow": 3, "margin": 4, "ties": 5, "stages": 6, "trial": 7}
FLOOR |= {"report": 5, "picture": 7, "convergence": 7}
FLOOR |= {"sweep": 8, "__init__": 9}
MODULES = sorted((ROOT / "jaxselect").rglob("*.py"))
EXPERIMENTS = sorted((ROOT / "experiments").rglob("*.py"))


def imports(path: Path) -> set[str]:
    """Dotted names a file imports, the project's own relative ones made absolute."""
    package = path.relative_to(ROOT).parent.parts
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            origin = ".".join([*base, *filter(None, [node.module])])
            found |= {f"{origin}.{alias.name}" for alias in node.names}
    return found


def wings(path: Path) -> set[str]:
    """Wings of the library that a file imports from."""
    return {
        name.split(".")[1] for name in imports(path) if name.startswith("jaxselect.")
    }


def test_imports_go_down_a_floor():
    for path in MODULES:
        wing = path.relative_to(ROOT / "jaxselect").parts[0].removesuffix(".py")
        for other in wings(path) - {wing, "__version__"}:
            assert FLOOR[other] < FLOOR[wing] or other in BELOW, f"{path}: {other}"
        assert not any(
            name.startswith(("experiments", "tests")) for name in imports(path)
        )
    for path in EXPERIMENTS:
        assert not any(name.startswith("tests") for name in imports(path)), path


def dotted(path: Path) -> str:
    """Name of a module, or of the package of an `__init__` or `__main__`."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(part for part in parts if part not in ("__init__", "__main__"))


def test_every_program_is_listed_once():
    listed = [f"experiments.{name}" for name in experiments.STUDIES]
    assert len(set(listed)) == len(listed)
    runs = {
        dotted(path)
        for path in EXPERIMENTS
        if '\nif __name__ == "__main__"' in path.read_text()
    }
    assert set(listed) == runs - {"experiments"}


def test_importing_loads_what_is_used_changes_no_setting_and_starts_no_device():
    """A sweep loads no integrator or optimiser of SciPy.

    The library leaves JAX's configuration; figures are drawn without pyplot.
    """
    library = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts) for path in MODULES
    ]
    studies = sorted({dotted(path) for path in EXPERIMENTS} - {"experiments"})
    printed(f"""
import sys
import jax
from jax._src import xla_bridge
before = dict(jax.config.values)
import jaxselect.sweep.run
loaded = set(sys.modules)
assert not loaded & set(("scipy.integrate", "scipy.optimize"))
for name in {library}:
    __import__(name)
after = dict(jax.config.values)
assert before == after, set(before.items()) ^ set(after.items())
for name in {studies}:
    __import__(name)
assert "matplotlib.pyplot" not in sys.modules
assert not xla_bridge.backends_are_initialized()
""")


def test_the_package_lists_every_name_and_hides_no_module():
    public = {
        name
        for name, value in vars(jaxselect).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert public >= {"cls_flow", "load", "certify", "plot"}
    text = pydoc.plain(pydoc.render_doc(jaxselect))
    assert len(text) <= 20_000
    listed = set(re.findall(r"`(\w+)`", jaxselect.__doc__))
    packages = {path.parent.name for path in MODULES}
    assert listed - packages - {"help"} == public
    assert not public & {path.stem for path in MODULES if path.parent == LIBRARY}


def test_help_of_what_is_solved_fits_one_screen():
    """Lines with text: Python 3.13 gives each argument of a signature its own line."""
    text = pydoc.plain(pydoc.render_doc(jaxselect.Solved))
    own = text.split("Data and other attributes defined here")[0].splitlines()
    assert len([line for line in own if line.strip(" |-")]) <= 70
