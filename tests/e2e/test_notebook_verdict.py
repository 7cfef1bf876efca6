"""A job in the cells of a notebook: a real kernel records it and shows the verdict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.under_stepscope import command_json

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")

START = "import stepscope\nstepscope.start_profiling(windows=False)"
TRAIN = """
for batch in stepscope.steps(range(30)):
    sum(range(20_000))
"""
STOP = "stepscope.stop_profiling()\nstopped = True"
AGAIN = "stepscope.stop_profiling()"


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[list[dict[str, Any]]]]:
    """Execute the notebook; returns its directory and the outputs of its cells."""
    directory = tmp_path_factory.mktemp("notebook")
    cells = [nbformat.v4.new_code_cell(code) for code in (START, TRAIN, STOP, AGAIN)]
    notebook = nbformat.v4.new_notebook(cells=cells)
    resources = {"metadata": {"path": str(directory)}}
    nbclient.NotebookClient(notebook, timeout=240, resources=resources).execute()
    return directory, [cell.outputs for cell in notebook.cells]


def test_the_verdict_is_under_the_cell_that_stops(
    outputs: tuple[Path, list[list[dict[str, Any]]]],
) -> None:
    directory, (started, trained, stopped, again) = outputs
    assert [started, trained, again] == [[], [], []], json.dumps([started, trained, again])
    (run,) = (directory / "stepscope-runs").iterdir()
    headline = command_json("diagnose", run=run)["headline"]
    (output,) = stopped
    assert output["output_type"] == "display_data"
    plain, html = output["data"]["text/plain"], output["data"]["text/html"]
    assert plain.startswith(f"{headline}\n")
    assert f"stepscope diagnose {run}" in plain
    assert f"<strong>{headline}</strong>" in html


def test_the_run_is_named_after_the_notebook(
    outputs: tuple[Path, list[list[dict[str, Any]]]],
) -> None:
    directory, _ = outputs
    (run,) = (directory / "stepscope-runs").iterdir()
    assert run.name.endswith("-notebook")
