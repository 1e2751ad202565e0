"""List the studies, in the order in which to meet them.

python -m experiments
"""

import ast
from pathlib import Path

FOLDER = Path(__file__).parent
STUDIES = (
    "run",
    "sweep",
    "figures",
    "compare",
    "report",
    "theory.rates",
    "theory.step_size",
    "theory.influence",
    "theory.discrete",
    "theory.joint",
    "theory.embedding_steps",
    "theory.lists",
    "theory.optimizers",
    "theory.phases",
    "theory.tolerance",
    "theory.watch",
    "reviews",
    "text.lemma",
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
    path = FOLDER / name.replace(".", "/")
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    text = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0]


def main() -> None:
    """Print one line per study."""
    print("python -m experiments.NAME --help, for NAME one of\n")
    for name in STUDIES:
        print(f"  {name:22}  {about(name)}")


if __name__ == "__main__":
    main()
