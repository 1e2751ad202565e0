"""Programs, one per study; each has --help. `python -m experiments` lists them.

Settings that must precede the import of NumPy and JAX are made here.
"""

import ast
import atexit
import gc
import os
import sys
from pathlib import Path
from types import TracebackType

for _name, _value in {
    # OpenBLAS with many threads makes small factorisations a hundred times
    # slower.
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}.items():
    os.environ.setdefault(_name, _value)

# Imported and traced objects stay: at Python's own pace the search for garbage in it
# takes a seventh of a short program's time.
gc.set_threshold(50_000, 20, 50)
# No search once the program is done: that takes a short one half a second.
atexit.register(gc.freeze)

BRINGS = {
    "text": ("array_record", "pyarrow", "sklearn", "tensorflow_datasets"),
    "networks": ("flax",),
    "benchmark": ("clarabel", "daqp", "piqp", "qpax", "quadprog"),
    "cluster": ("ray",),
    "falsify": ("flint",),
    "experiments": ("jinja2", "matplotlib", "rich", "tyro"),
}
"""Packages by the extra of pyproject.toml, and the target of make, that brings them."""


def lacking(error: BaseException) -> str:
    """What brings a package that is not installed; empty for any other error.

    Example:
        >>> lacking(ModuleNotFoundError("no", name="flax.linen"))
        "flax is not installed: make networks, or pip install 'jaxselect[networks]'"
        >>> lacking(ModuleNotFoundError("no", name="a_typo"))
        ''
    """
    name = (getattr(error, "name", None) or "").partition(".")[0]
    for extra, packages in BRINGS.items():
        if isinstance(error, ModuleNotFoundError) and name in packages:
            wanted = f"make {extra}, or pip install 'jaxselect[{extra}]'"
            return f"{name} is not installed: {wanted}"
    return ""


def _say_what_is_lacking(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Print one line in the place of a traceback where a package is not installed."""
    if line := lacking(error):
        print(f"error: {line}", file=sys.stderr)
    else:
        _before(kind, error, trace)


_before, sys.excepthook = sys.excepthook, _say_what_is_lacking

STUDIES = (
    "run",
    "sweep",
    "figures",
    "report",
    "paper",
    "paper.lemma_4_1",
    "paper.lemma_4_2",
    "paper.theorem_4_3",
    "paper.selection",
    "paper.figure_1",
    "paper.figure_2",
    "paper.figure_3",
    "paper.classes",
    "paper.key_query",
    "paper.mlp",
    "paper.random_embeddings",
    "paper.one_step_spread",
    "paper.dimension",
    "paper.several_relevant",
    "beyond.joint",
    "beyond.lists",
    "beyond.models",
    "beyond.phases",
    "beyond.peers",
    "beyond.purity",
    "beyond.step_size",
    "reviews",
    "text.joint",
    "text.flow",
    "networks.protocol",
    "benchmarks.flow",
    "benchmarks.growth",
    "benchmarks.max_margin",
    "falsify",
    "falsify.contraction",
    "falsify.intervals",
)
"""Every program, the first one first."""


def about(name: str) -> str:
    """The first line of a study's docstring, read without running it."""
    path = Path(__file__).parent / name.replace(".", "/")
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    text = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0]
