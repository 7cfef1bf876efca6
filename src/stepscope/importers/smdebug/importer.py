"""Importer of SageMaker Debugger's files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from stepscope.importers.results import ProgressCallback, Result
from stepscope.importers.smdebug.forms import detect_form


class SMDebugImporter:
    """Importer of SageMaker Debugger's files; see `registry.Importer`."""

    def can_read(self, path: Path) -> bool:
        """Return True for a file that Debugger wrote."""
        return detect_form(path) is not None

    def import_files(
        self, files: Sequence[Path], run: Path, node: str, progress: ProgressCallback
    ) -> list[Result]:
        """Import the files of one job together; see `registry.Importer.import_files`."""
        from stepscope.importers.smdebug.output import import_output  # only for such files

        forms = [(path, form) for path in files if (form := detect_form(path)) is not None]
        return import_output(forms, run, node, progress)
