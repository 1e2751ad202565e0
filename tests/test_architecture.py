"""The floors of the house: which module may import which."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# A module imports only from floors above its own, that is from earlier lines.
FLOORS = [
    {
        "corpus",
        "design",
        "pair_graph",
        "parameters",
        "rosenbrock",
        "span",
        "step_control",
    }
    | {"self_attention", "store", "text"},
    {
        "attention",
        "invented",
        "multi_class",
        "interior_point",
    }
    | {"pair_strength", "selection", "sparse", "strata"}
    | {"synthetic", "tables", "words"},
    {"grid", "nearest_point", "networks", "objective"},
    {"embedding_step", "gradient_flow", "polish", "sparse_objective"},
    {"max_margin"},
    {"descent", "joint_flow", "limit", "network_step", "progress"},
    {"crossing", "network_training", "verdict"},
    {"settled", "trial"},
    {"rates", "sweep"},
]
LEVEL = {name: level for level, floor in enumerate(FLOORS) for name in floor}
MODULES = sorted(p.stem for p in (ROOT / "jaxselect").glob("[a-z]*.py"))


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


def internal(path: Path) -> set[str]:
    return {
        name.split(".")[1] for name in imports(path) if name.startswith("jaxselect.")
    }


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_up(module):
    assert module in LEVEL, f"give {module}.py its floor"
    path = ROOT / "jaxselect" / f"{module}.py"
    for other in internal(path):
        assert LEVEL[other] < LEVEL[module], f"{module} imports {other}"
    assert not any(name.startswith(("experiments", "tests")) for name in imports(path))


@pytest.mark.parametrize("package", ["tensorflow_datasets", "pyarrow"])
def test_one_importer_per_text_library(package):
    users = {
        path.stem
        for path in (ROOT / "jaxselect").glob("*.py")
        if any(name.split(".")[0] == package for name in imports(path))
    }
    assert users <= {"text"}


def test_figures_only_read():
    for path in (ROOT / "experiments" / "figures").glob("*.py"):
        assert internal(path) <= {"store"}, path.name
        assert not any(name.split(".")[0] == "jax" for name in imports(path))


def test_importing_changes_no_setting():
    """Every module imports without touching JAX's configuration or a device."""
    code = f"""
import jax
from jax._src import xla_bridge
before = dict(jax.config.values)
for name in {MODULES}:
    __import__(f"jaxselect.{{name}}")
after = dict(jax.config.values)
assert before == after, set(before.items()) ^ set(after.items())
assert not xla_bridge.backends_are_initialized()
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
