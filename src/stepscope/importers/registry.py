"""Registry of importers: built-in ones and those of installed packages.

A package offers an importer by an entry point of the group `stepscope.importers` that names a
class with the methods of `Importer`. Built-in importers are listed as entry points too, so both
kinds are loaded by the same code and only when an import needs them.

Importers are asked for each file in the order of the list, and the first one that can read it gets
it. Kineto comes last: it takes every file, and its error says why a file is no trace.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Protocol

from stepscope import errors
from stepscope.entry_points import entry_points
from stepscope.importers.content import ProgressCallback, Result, ignore_progress

GROUP = "stepscope.importers"
_BUILT_IN = {
    "smdebug": "stepscope.importers.smdebug:SMDebugImporter",
    "smdebug_tensors": "stepscope.importers.event_files:DebuggerTensorImporter",
    "tensorboard": "stepscope.importers.event_files:TensorBoardImporter",
    "memory_timeline": "stepscope.importers.memory_timeline:MemoryTimelineImporter",
    "flight_recorder": "stepscope.importers.flight_recorder.importer:FlightRecorderImporter",
    "xplane": "stepscope.importers.xplane:XPlaneImporter",
    "nccl_inspector": "stepscope.importers.nccl_inspector:NcclInspectorImporter",
    "stage_operations": "stepscope.importers.stage_operations:StageOperationsImporter",
    "kineto": "stepscope.importers.kineto:KinetoImporter",
}
"""In the order in which they are asked; those of installed packages come after the first one."""


class Importer(Protocol):
    """Reader of one file format."""

    def can_read(self, path: Path) -> bool:
        """Return True for a file of this format, judged by its content."""

    def import_files(
        self, files: Sequence[Path], run: Path, node: str, progress: ProgressCallback
    ) -> list[Result]:
        """Import files into an existing run.

        Args:
            files: all files of one import that this importer can read.
            run: directory of the run.
            node: node name of rows whose file names no machine.
            progress: called with the index of a file in `files` and the share that is done.

        Returns:
            One result per file, in the order of the files.

        Raises:
            OSError: the run cannot be written.
        """


def installed_importers() -> list[Importer]:
    """Load all importers, in the order in which they are asked for a file."""
    built_in = [EntryPoint(name, value, GROUP) for name, value in _BUILT_IN.items()]
    offers = [built_in[0], *entry_points(GROUP), *built_in[1:]]
    return list(filter(None, map(_load, offers)))


def find_files(sources: Iterable[Path]) -> list[Path]:
    """List the files of sources; a directory stands for all files below it that are not hidden.

    Raises:
        UnreadableTraceError: a source is a pipe or a device, which may have no end.
    """
    files: list[Path] = []
    for source in sources:
        if source.is_dir():
            files += sorted(path for path in _walk(source) if path.is_file())
        elif source.exists() and not source.is_file():
            raise errors.UnreadableTraceError(
                f"{source} is a pipe or a device. Write the trace to a file and import that."
            )
        else:
            files.append(source)
    return files


def import_files(
    files: Sequence[Path], run: Path, node: str, progress: ProgressCallback = ignore_progress
) -> list[Result]:
    """Import files into an existing run, each by the first importer that can read it.

    Returns:
        One result per file, in the order of the files.

    Raises:
        OSError: the run cannot be written, or a worker process was killed.
    """
    importers = installed_importers()
    indices: dict[int, list[int]] = {}
    for index, path in enumerate(files):
        position = next(n for n, importer in enumerate(importers) if importer.can_read(path))
        indices.setdefault(position, []).append(index)
    results: dict[int, Result] = {}
    # Last importer first: Kineto's may fork, and forked processes must not inherit a DuckDB.
    for number in sorted(indices, reverse=True):
        group = indices[number]
        results |= zip(
            group,
            importers[number].import_files(
                [files[index] for index in group], run, node, _progress_of(group, progress)
            ),
            strict=True,
        )
    return [results[index] for index in range(len(files))]


def trace_decoder() -> tuple[bool, str]:
    """Return True if traces are decoded by compiled code, and a sentence about it."""
    from stepscope.importers.kineto import scanner_state

    return scanner_state()


def _load(offer: EntryPoint) -> Importer | None:
    """Load an importer; a broken package costs a warning, not the import."""
    try:
        importer: Importer = offer.load()()
    except Exception as error:  # noqa: BLE001 - the code of another package
        warnings.warn(f"The importer {offer.name} cannot be loaded: {error}", stacklevel=2)
        return None
    return importer


def _progress_of(group: Sequence[int], progress: ProgressCallback) -> ProgressCallback:
    """Translate positions in a group of files into indices in the whole list."""
    return lambda position, share: progress(group[position], share)


def _walk(directory: Path) -> Iterator[Path]:
    for parent, directories, names in os.walk(directory):
        directories[:] = [name for name in directories if not name.startswith(".")]
        yield from (Path(parent, name) for name in names if not name.startswith("."))
