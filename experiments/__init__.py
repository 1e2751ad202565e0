"""Programs, one per study; each has --help. `python -m experiments` lists them.

Settings that must precede the import of NumPy and JAX are made here.
"""

import ast
import atexit
import gc
import os
from pathlib import Path

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

STUDIES = (
    "run",
    "sweep",
    "figures",
    "compare",
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
    "theory.rates",
    "theory.step_size",
    "theory.influence",
    "theory.discrete",
    "theory.joint",
    "theory.embedding_steps",
    "theory.lists",
    "theory.optimizers",
    "theory.phases",
    "theory.peers",
    "theory.purity",
    "theory.selection",
    "theory.tolerance",
    "theory.watch",
    "reviews",
    "text.lr_search",
    "text.training",
    "text.joint",
    "text.deviations",
    "text.flow",
    "text.assumption_violation",
    "text.explain",
    "networks",
    "networks.sweep",
    "benchmarks.table",
    "benchmarks.flow",
    "benchmarks.max_margin",
    "benchmarks.text",
    "benchmarks.networks",
    "benchmarks.compile",
)
"""Every program, the first one first."""


def about(name: str) -> str:
    """The first line of a study's docstring, read without running it."""
    path = Path(__file__).parent / name.replace(".", "/")
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    text = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0]
