"""The tutorial, executed as a notebook: the planted cause is named, and its repair is measured."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from stepscope.store import open_run

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("anywidget", reason="anywidget is not installed")

pytestmark = [pytest.mark.quiet, pytest.mark.extended("a kernel and two jobs; docs name the calls")]

TUTORIAL = Path(__file__).parents[2] / "examples" / "notebook" / "tutorial.ipynb"
WIDGET = "application/vnd.jupyter.widget-view+json"


def output_of(cells: list[Any], source: str) -> dict[str, Any]:
    """Return the data that the cell with a source, or its start, has displayed."""
    (cell,) = (cell for cell in cells if cell.source.startswith(source))
    return {kind: text for output in cell.outputs for kind, text in output.get("data", {}).items()}


def test_the_tutorial(tmp_path: Path) -> None:
    notebook = nbformat.read(TUTORIAL, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "outputs are not committed"
    shutil.copy(TUTORIAL, tmp_path)
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=300, resources=resources).execute()
    cells = notebook.cells
    assert "data pipeline" in output_of(cells, "run = ")["text/html"]
    assert "data_pipeline" in output_of(cells, "verdict = ")["text/plain"]
    assert WIDGET in output_of(cells, "chart = ")
    listed = next(cell for cell in cells if cell.source.startswith("steps = ")).outputs
    assert " ms\n" in listed[0]["text"]
    (slow, fast) = (
        open_run(tmp_path / "stepscope-runs" / name).document("verdict")
        for name in ("slow", "fast")
    )
    assert slow["suspect"] == "data_pipeline"
    assert slow["step_count"] == fast["step_count"]
    compared = next(cell for cell in cells if " compare " in cell.source).outputs
    assert "step" in "".join(output.get("text", "") for output in compared)
