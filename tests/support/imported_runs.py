"""Recordings of other tools, brought into runs."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

from stepscope.cli import root
from stepscope.importers.kineto import importer
from stepscope.run import Run
from stepscope.store import open_run

REAL_TRACES = Path(__file__).parents[2].parent / "shared" / "traces"
"""Files of other tools; see its README. They are never copied into the project."""


def import_into(run: Path, *files: Path) -> Run:
    """Bring files into a run as a user does, but on one core: without worker processes."""
    with mock.patch.object(importer, "available_processes", return_value=1):
        root.main(["import", *map(str, files), "-o", str(run)], standalone_mode=False)
    return Run(open_run(run))
