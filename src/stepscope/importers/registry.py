"""Registry of importers: built-in ones and those of installed packages.

A package offers an importer by an entry point of the group `stepscope.importers` that names a
class with the methods of `Importer`. Built-in importers are entry points as well: both kinds are
loaded only when an import needs them.

A file belongs to the first importer of the list that recognises it. What none recognises goes to
Kineto, whose error says why a file is no trace.
"""

from __future__ import annotations

import os
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from stepscope import errors, store
from stepscope.entry_points import BuiltIn, entry_points
from stepscope.importers import documents
from stepscope.importers.content import (
    Copied,
    CopyForm,
    Format,
    Imported,
    ProgressCallback,
    Refused,
    Result,
    TraceImporter,
    ignore_progress,
    read_head,
)
from stepscope.importers.documents import Document
from stepscope.importers.forms import find_foreign_form
from stepscope.quantities import count_of

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "stepscope.importers"
BUILT_IN = tuple(
    BuiltIn(name, f"stepscope.importers.{value}")
    for name, value in (
        ("smdebug", "smdebug:SMDebugImporter"),
        ("smdebug_tensors", "event_files:DebuggerTensorImporter"),
        ("tensorboard", "event_files:TensorBoardImporter"),
        ("memory_timeline", "memory_timeline:MemoryTimelineImporter"),
        ("memory_snapshot", "memory_snapshot:MemorySnapshotImporter"),
        ("flight_recorder", "flight_recorder.importer:FlightRecorderImporter"),
        ("perfetto", "perfetto:PerfettoImporter"),
        ("xplane", "xplane:XPlaneImporter"),
        ("nsys", "nsys:NsysImporter"),
        ("nccl_inspector", "nccl_inspector:NcclInspectorImporter"),
        ("rocprof", "rocprof:RocprofImporter"),
        ("gpu_samples", "gpu_samples:GpuSamplesImporter"),
        ("torch_trace", "torch_trace:TorchTraceImporter"),
        ("stage_operations", "stage_operations:StageOperationsImporter"),
        ("kineto", "kineto:KinetoImporter"),
    )
)
"""In the order in which they are asked; those of installed packages come after the first one."""
MAX_REASONS = 3
"""Refused files of an import that its quality names."""
_XPROF_MARK = b'"highres-ticks"'
"""Key at the start of a JSON file of XProf (https://github.com/openxla/xprof)."""


class Importer(Protocol):
    """Reader of one file format."""

    formats: Sequence[Format]
    """What it reads."""

    def recognise(self, head: bytes, path: Path) -> bool:
        """Return True for a file of this format, judged by its content.

        Args:
            head: first 4 KiB of the content, decompressed; fewer of a smaller file.
            path: the file, for formats that lie deeper or are told by names of directories.
        """

    def import_files(
        self, files: Sequence[Path], run: Path, node: str, progress: ProgressCallback
    ) -> Sequence[Result | Sequence[Result]]:
        """Import files into an existing run.

        Args:
            files: all files of one import that this importer can read.
            run: directory of the run.
            node: node name of rows whose file names no machine.
            progress: called with the index of a file in `files` and the share that is done.

        Returns:
            One result per file, in the order of the files; for a file of several traces, a list.

        Raises:
            OSError: the run cannot be written.
        """


def installed_importers() -> list[Importer]:
    """Load all importers, in the order in which they are asked for a file."""
    offers: list[BuiltIn | EntryPoint] = [BUILT_IN[0], *entry_points(GROUP), *BUILT_IN[1:]]
    return [importer for offer in offers if (importer := _load(offer)) is not None]


def list_formats() -> list[Format]:
    """List the formats of all importers."""
    formats = (item for importer in installed_importers() for item in importer.formats)
    return list(dict.fromkeys(formats))


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
    files: Sequence[Path],
    run: Path,
    node: str,
    progress: ProgressCallback = ignore_progress,
    step_range: str | None = None,
) -> list[Result]:
    """Import files into an existing run, each document by the first importer that can read it.

    Args:
        files, run, node, progress: see `Importer.import_files`.
        step_range: name of the ranges of traces that are steps.

    Returns:
        The results of each document, in the order of the files; see `documents`.

    Raises:
        OSError: the run cannot be written, or a worker process was killed.
    """
    with documents.Unpacker(run) as unpacker:
        return _Import(run, node, unpacker, progress, step_range).import_all(files)


class _Import:
    """Import of the documents of files."""

    def __init__(
        self,
        run: Path,
        node: str,
        unpacker: documents.Unpacker,
        progress: ProgressCallback,
        step_range: str | None,
    ) -> None:
        self._run = run
        self._node = node
        self._unpacker = unpacker
        self._progress = progress
        self._importers = installed_importers()
        for importer in self._importers:
            if isinstance(importer, TraceImporter):
                importer.step_range = step_range
        self._traces: list[Document] = []
        """Documents with a trace that counts."""
        self._numbers: dict[Document, int] = {}
        self._copies: dict[Document, list[Copied]] = {}
        self._results: dict[Document, list[Result]] = {}

    def import_all(self, files: Sequence[Path]) -> list[Result]:
        """Import files; see `import_files`."""
        items = self._unpacker.expand(files)
        imported = self._import([item for item in items if isinstance(item, Document)])
        self._note_copies()
        results = [
            result
            for item in items
            for result in ([item] if isinstance(item, Refused) else imported[item])
        ]
        stray = [isinstance(result, Refused) and _is_stray(result.path) for result in results]
        results = [self._unpacker.rename(result) for result in results]
        self._note_refused([r for r, is_stray in zip(results, stray, strict=True) if not is_stray])
        return results

    def _import(self, items: Sequence[Document]) -> dict[Document, list[Result]]:
        """Import documents, and those that turn out to be in them."""
        positions = {item: self._find_importer(item.path) for item in items}
        copies = self._find_copies(positions)
        groups: dict[int, list[Document]] = {}
        for item in items:
            if item not in copies:
                groups.setdefault(positions[item], []).append(item)
        shares = _Shares(items, self._progress)
        results: dict[Document, list[Result]] = {}
        # Last importer first: Kineto's may fork, and forked processes must not inherit a DuckDB.
        for position in sorted(groups, reverse=True):
            group = groups[position]
            imported = self._importers[position].import_files(
                [item.path for item in group], self._run, self._node, shares.of(group)
            )
            results |= {
                item: list(result) if isinstance(result, Sequence) else [result]
                for item, result in zip(group, imported, strict=True)
            }
        self._numbers |= {
            item: result.trace
            for item, (result, *_) in results.items()
            if isinstance(result, Imported)
        }
        self._results |= results
        for item in [item for item in results if _find_starts(results[item])]:
            parts = self._unpacker.split(item, _find_starts(results[item]))
            of_parts = self._import([part for part in parts if isinstance(part, Document)])
            results[item] = [
                result
                for part in parts
                for result in ([part] if isinstance(part, Refused) else of_parts[part])
            ]
        self._results |= results
        for item, (original, form) in copies.items():
            if not all(isinstance(result, Refused) for result in self._results[original]):
                copied = Copied(item.name, original.name, form)
                self._copies.setdefault(original, []).append(copied)
                results[item] = [copied]
            elif form == "copy":
                reason = f"{item.name} has the same content as {original.name}."
                results[item] = [Refused(item.path, reason)]
            else:
                results |= self._import([item])
        self._results |= results
        return results

    def _find_importer(self, path: Path) -> int:
        """Return the position of the importer of a file; the last one, Kineto's, has the rest."""
        head = read_head(path)
        recognised = (n for n, item in enumerate(self._importers) if item.recognise(head, path))
        return next(recognised, len(self._importers) - 1)

    def _find_copies(
        self, positions: Mapping[Document, int]
    ) -> dict[Document, tuple[Document, CopyForm]]:
        """Find documents with a trace that another document holds, too, with that document."""
        new = [
            item
            for item, position in positions.items()
            if isinstance(self._importers[position], TraceImporter)
        ]
        # Both sets, because an import may have ten thousand files.
        is_new, before = set(new), set(self._traces)
        candidates = [*self._traces, *(item for item in new if item not in before)]
        same_text = documents.find_copies([item.path for item in candidates])
        copies: dict[Document, tuple[Document, CopyForm]] = {
            candidates[copy]: (candidates[original], "copy")
            for copy, original in same_text.items()
            if candidates[copy] in is_new
        }
        self._traces += [item for item in new if item not in copies and item not in before]
        kineto = len(self._importers) - 1
        planes = [item for item in new if positions[item] != kineto and item not in copies]
        texts = [item for item in new if positions[item] == kineto and item not in copies]
        for text, original in _find_same_recordings(planes, texts).items():
            copies[text] = (original, "other format")
        # The other formats come first: what copies of them are copies of must be imported.
        return dict(sorted(copies.items(), key=lambda entry: entry[1][1] == "copy"))

    def _note_copies(self) -> None:
        """Record the copies of each trace in its quality."""
        self._note(
            "copy",
            [
                (self._numbers[item], len(copies), None, ", ".join(c.name for c in copies) + ".")
                for item, copies in self._copies.items()
                if item in self._numbers
            ],
        )

    def _note_refused(self, results: Sequence[Result]) -> None:
        """Record the files that were refused, in the quality of the first trace of the import."""
        reasons = [result.reason for result in results if isinstance(result, Refused)]
        if reasons and self._numbers:
            more = [f"{count_of(len(reasons) - MAX_REASONS, 'more file')}."]
            more = more if len(reasons) > MAX_REASONS else []
            detail = " ".join([*reasons[:MAX_REASONS], *more])
            self._note(
                "refused", [(min(self._numbers.values()), len(reasons), len(results), detail)]
            )

    def _note(self, check: str, rows: Sequence[tuple[int, int, int | None, str]]) -> None:
        """Record rows of trace, count, total and detail in the quality of traces."""
        if not rows:
            return
        traces, counts, totals, details = zip(*rows, strict=True)
        columns: dict[str, Any] = {
            "trace": np.array(traces, np.int64),
            "kind": store.DictColumn.constant(check, len(rows)),
            "count": np.array(counts, np.int64),
            "of_count": np.ma.MaskedArray(
                [total or 0 for total in totals], [total is None for total in totals], np.int64
            ),
            "worst_ns": np.ma.MaskedArray(np.zeros(len(rows), np.int64), mask=True),
            "detail": store.DictColumn.encode(details),
        }
        with store.RunWriter(self._run, self._node) as writer:
            writer.append("quality", columns)


def _find_same_recordings(
    planes: Sequence[Document], texts: Sequence[Document]
) -> dict[Document, Document]:
    """Find the JSON files that XProf wrote of recordings whose XPlane files lie beside them.

    JAX names them alike; of the only host it also writes a file for Perfetto.
    """
    by_directory: dict[Path, dict[str, Document]] = {}
    for item in planes:
        name = item.path.name.removesuffix(".gz").removesuffix(".xplane.pb")
        by_directory.setdefault(item.path.parent, {})[name] = item
    same: dict[Document, Document] = {}
    for item in texts:
        recordings = by_directory.get(item.path.parent, {})
        name = item.path.name.removesuffix(".gz").removesuffix(".trace.json")
        if name == "perfetto_trace.json" and len(recordings) == 1:
            (name,) = recordings
        if name in recordings and _XPROF_MARK in read_head(item.path):
            same[item] = recordings[name]
    return same


def _find_starts(results: Sequence[Result]) -> Sequence[int]:
    """Return the positions of several traces in the text of a document that was refused."""
    starts = [result.trace_starts for result in results if isinstance(result, Refused)]
    return starts[0] if starts else ()


def _is_stray(path: Path) -> bool:
    """Return True for a file that nothing takes for a trace, such as a text or a picture beside
    traces: neither JSON nor of a form of profilers or archives, nor empty."""
    try:
        head = read_head(path).lstrip()
        return bool(head) and head[:1] not in b"{[" and find_foreign_form(path) is None
    except OSError:
        return False  # a part of an archive


class _Shares:
    """Shares of the files of the import that are done, from those of their documents."""

    def __init__(self, items: Sequence[Document], progress: ProgressCallback) -> None:
        self._progress = progress
        self._counts = Counter(item.source for item in items)
        self._shares: dict[Document, float] = {}
        self._sums: defaultdict[int, float] = defaultdict(float)

    def of(self, group: Sequence[Document]) -> ProgressCallback:
        """Return the callback of an importer of some documents."""

        def update(position: int, share: float) -> None:
            item = group[position]
            self._sums[item.source] += share - self._shares.get(item, 0.0)
            self._shares[item] = share
            self._progress(item.source, self._sums[item.source] / self._counts[item.source])

        return update


def trace_decoder() -> tuple[bool, str]:
    """Return True if traces are decoded by compiled code, and a sentence about it."""
    from stepscope.importers.kineto import scanner_state

    return scanner_state()


def _load(offer: BuiltIn | EntryPoint) -> Importer | None:
    """Load an importer; a broken package costs a warning, not the import."""
    try:
        importer: Importer = offer.load()()
        missing = [name for name in ("formats", "recognise") if not hasattr(importer, name)]
        if missing:
            raise TypeError(f"{offer.value} has no {' and no '.join(missing)}")
    except Exception as error:  # noqa: BLE001 - the code of another package
        warnings.warn(f"The importer {offer.name} cannot be loaded: {error}", stacklevel=2)
        return None
    return importer


def _walk(directory: Path) -> Iterator[Path]:
    for parent, directories, names in os.walk(directory):
        directories[:] = [name for name in directories if not name.startswith(".")]
        yield from (Path(parent, name) for name in names if not name.startswith("."))
