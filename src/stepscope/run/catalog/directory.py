"""Runs, trace files and event files below a directory, by a walk that never leaves it."""

from __future__ import annotations

import functools
import os
import re
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from stepscope import errors, event_records, quantities, schema, store
from stepscope.run.catalog import base


class DirectoryCatalog:
    """Runs below a directory.

    Args:
        root: the directory, without links in its path.
    """

    revision_ttl_s = 0.25

    def __init__(self, root: Path) -> None:
        self.root = root
        self._former_ids: set[str] = set()

    def list_runs(self) -> base.RunListing:
        """List all current runs."""
        notes: list[str] = []
        runs: list[base.CatalogRun] = []
        traces: list[base.CatalogTrace] = []
        for directory, created_ns in walk_directories(self.root, notes):
            if created_ns is None:
                traces += self._describe_traces(directory)
                continue
            try:
                run_id = str(directory.relative_to(self.root))
                run_id.encode()
            except UnicodeEncodeError:
                notes.append("A run was left out: its name is not valid text.")
                continue
            if len(runs) == base.MAX_RUNS:
                notes.append(f"There are more than {base.MAX_RUNS} runs; the others were left out.")
                break
            runs.append(base.CatalogRun(run_id, str(directory), created_ns))
        self._former_ids.update(run.id for run in runs)
        if len(traces) > MAX_TRACES:
            notes.append(f"There are more than {MAX_TRACES} traces; the others were left out.")
        return base.RunListing(runs, sorted(set(notes)), traces[:MAX_TRACES])

    def locate(self, run_id: str) -> str:
        """See `Catalog.locate`."""
        directory = self._resolve(run_id)
        if directory is not None and created_ns_of(directory) is not None:
            self._former_ids.add(run_id)
            return str(directory)
        raise base.missing_run_error(run_id, existed=run_id in self._former_ids)

    def locate_trace(self, trace_id: str) -> Path:
        """See `Catalog.locate_trace`."""
        directory, _, name = trace_id.rpartition("/")
        parent = self._resolve(directory or base.ROOT_ID)
        if (
            parent is not None
            and not store.is_hidden(trace_id)
            and parent / name in list_traces(parent)
        ):
            return parent / name
        raise base.missing_trace_error(trace_id)

    def revision(self, location: str) -> int:
        """See `Catalog.revision`."""
        return store.revision_of(location)

    def revisions(self, runs: list[base.CatalogRun]) -> dict[str, int]:
        """See `Catalog.revisions`."""
        revisions = {}
        for run in runs:
            try:
                revisions[run.id] = store.revision_of(run.location)
            except (OSError, errors.StepscopeError):
                continue
        return revisions

    def _describe_traces(self, directory: Path) -> Iterator[base.CatalogTrace]:
        for path in list_traces(directory):
            try:
                trace_id = str(path.relative_to(self.root))
                trace_id.encode()
                yield base.CatalogTrace(trace_id, store.describe_source(path))
            except (UnicodeEncodeError, OSError):  # not text, or removed
                continue

    def _resolve(self, run_id: str) -> Path | None:
        """Resolve a name to a directory; None if that is not below the root."""
        if run_id == base.ROOT_ID:
            return self.root
        if any(part in {"", ".", ".."} for part in run_id.split("/")):
            return None
        try:
            directory = (self.root / run_id).resolve(strict=True)
        except (OSError, RuntimeError, ValueError):  # no such file, a loop of links, no valid name
            return None
        return directory if directory.is_relative_to(self.root) else None


MAX_DIRECTORIES = 100_000


class Directory(NamedTuple):
    """Directory below a root."""

    path: Path
    created_ns: int | None
    """Creation time of the run that it is; None if it is no run."""


def walk_directories(root: Path, notes: list[str]) -> Iterator[Directory]:
    """Yield the directories at or below a root, but none below runs. Links that lead out of the
    root are not followed.

    Args:
        root: the directory, without links in its path.
        notes: receives a sentence if directories are left out or cannot be read.
    """
    pending, visited, unreadable = [(root, 0)], {root}, list[Path]()
    while pending:
        path, depth = pending.pop()
        directory = Directory(path, created_ns_of(path))
        yield directory
        if directory.created_ns is None and depth < base.MAX_DEPTH:
            try:
                children = set(_children(path, root)) - visited
            except PermissionError:
                unreadable.append(path)
                continue
            visited |= children
            pending += [(child, depth + 1) for child in children]
        if len(visited) > MAX_DIRECTORIES:
            notes.append(
                f"There are more than {MAX_DIRECTORIES} directories; the others were not searched."
            )
            break
    if unreadable:
        name = min(unreadable).name
        count = quantities.count_of(len(unreadable), "directory", "directories")
        notes.append(f"No permission to read {count}, e.g. {name}; runs in there are not listed.")


def created_ns_of(directory: Path) -> int | None:
    """Return the creation time of the run in a directory; None if there is no run."""
    manifest = directory / store.RUN_KEY
    try:
        if manifest.is_symlink():
            store.check_link(manifest)
        status = manifest.stat()
    except (OSError, errors.UsageError):
        return None
    return status.st_mtime_ns if stat.S_ISREG(status.st_mode) else None


def _children(directory: Path, root: Path) -> Iterator[Path]:
    try:
        with os.scandir(directory) as scan:
            entries = [entry for entry in scan if not entry.name.startswith(".")]
    except PermissionError:
        raise
    except OSError:  # removed
        return
    for entry in entries:
        path = Path(entry.path)
        if entry.is_symlink():
            try:
                path = path.resolve(strict=True)
            except (OSError, RuntimeError):  # a broken link, or a loop
                continue
            if path.is_relative_to(root) and path.is_dir():
                yield path
        elif entry.is_dir(follow_symlinks=False):
            yield path


_HEAD_BYTES = 1 << 16
_GZIP = 16 + zlib.MAX_WBITS
"""Argument of zlib for data with the header of gzip."""
_KEYS = (b'"traceEvents"', b'"deviceProperties"', b'"distributedInfo"')
"""Keys at the beginning of a trace; Kineto describes devices and process groups first."""
_DEBUGGER_JSON = re.compile(r"(index|collections)/\d{9}/[^/]+\.json")
"""Files that SageMaker Debugger writes beside its event files."""
MAX_TRACES = 10_000


def find_traces(root: Path) -> list[Path]:
    """List the trace files at or below a directory, by path, without those in runs."""
    traces: list[Path] = []
    for directory, is_run in walk_directories(root, []):
        if not is_run:
            traces += list_traces(directory)
        if len(traces) >= MAX_TRACES:
            break
    return sorted(traces)


def find_event_files(root: Path) -> list[Path]:
    """List the event files at or below a directory, by path, and the JSON files of SageMaker
    Debugger that describe them, without those in runs. Hidden files are left out."""
    files: list[Path] = []
    for directory, is_run in walk_directories(root, []):
        if not is_run:
            files += filter(_is_event_file, _list_directory(directory))
    return sorted(files)


def _is_event_file(path: Path) -> bool:
    if schema.is_event_file_name(path.name):
        return event_records.begins_with_record(path)
    return _DEBUGGER_JSON.fullmatch("/".join(path.parts[-3:])) is not None


def _list_directory(directory: Path) -> list[Path]:
    try:
        return [
            path
            for path in directory.iterdir()
            if not path.name.startswith(".") and path.is_file() and not path.is_symlink()
        ]
    except OSError:  # not readable, or removed
        return []


def list_traces(directory: Path) -> Iterator[Path]:
    """Yield the trace files directly in a directory. Hidden files and links are left out."""
    try:
        with os.scandir(directory) as scan:
            entries = list(scan)
    except OSError:  # not readable, or removed
        return
    for entry in entries:
        if entry.name.startswith(".") or not entry.name.endswith(schema.TRACE_SUFFIXES):
            continue
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:
            continue
        if stat.S_ISREG(status.st_mode) and _is_trace(
            entry.path, status.st_size, status.st_mtime_ns
        ):
            yield Path(entry.path)


@functools.lru_cache(maxsize=4 * MAX_TRACES)
def _is_trace(path: str, _size_bytes: int, _changed_ns: int) -> bool:
    """Check a file; the result is cached for this size and modification time."""
    if path.endswith((*schema.PROFILER_SUFFIXES, schema.XPLANE_SUFFIX)):
        return True
    try:
        with Path(path).open("rb") as file:
            head = file.read(_HEAD_BYTES)
        if path.endswith(".gz"):
            head = zlib.decompressobj(_GZIP).decompress(head, _HEAD_BYTES)
    except (OSError, zlib.error):
        return False
    is_array = head.lstrip().startswith(b"[") and b'"ph"' in head
    return is_array or any(key in head for key in _KEYS)
