"""The Colab notebook runs as it stands, but for installing what is installed."""

from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]


def test_the_notebook_runs_at_smoke_size(monkeypatch, tmp_path):
    notebook = nbformat.read(ROOT / "experiments" / "colab.ipynb", as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert code[0].source.startswith("%pip install")
    notebook.cells.remove(code[0])
    for cell in notebook.cells:
        # Its results go elsewhere, and its programs are those of this interpreter.
        cell.source = cell.source.replace("results/colab-", f"{tmp_path}/")
        cell.source = cell.source.replace("../" + str(tmp_path), str(tmp_path))
        cell.source = cell.source.replace(" python -m", " {PYTHON} -m")
    notebook.cells.insert(
        0, nbformat.v4.new_code_cell("import sys; PYTHON = sys.executable")
    )
    monkeypatch.chdir(ROOT / "experiments")
    NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    pictures = [
        output
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if "image/png" in output.get("data", {})
    ]
    assert len(pictures) == 4
