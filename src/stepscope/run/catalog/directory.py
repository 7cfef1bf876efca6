"""Runs, trace files and event files below a directory, by a walk that never leaves it."""

from __future__ import annotations

import functools
import os
import re
import stat
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
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
        self._scans: dict[str, Directory] = {}
        self._watches: dict[str, store.RunWatch] = {}

    def list_runs(self) -> base.RunListing:
        """List all current runs. A directory is read again once it has changed."""
        notes: list[str] = []
        runs: list[base.CatalogRun] = []
        traces: list[base.CatalogTrace] = []
        scans: dict[str, Directory] = {}
        for directory in walk_directories(self.root, notes, self._scans):
            scans[directory.path] = directory
            if directory.created_ns is None:
                traces += self._describe_traces(directory.path)
                continue
            run_id = _below(directory.path, self.root)
            if not run_id.isascii() and not _is_text(run_id):
                notes.append("A run was left out: its name is not valid text.")
                continue
            if len(runs) == base.MAX_RUNS:
                notes.append(f"There are more than {base.MAX_RUNS} runs; the others were left out.")
                break
            runs.append(base.CatalogRun(run_id, directory.path, directory.created_ns))
        self._scans = scans
        self._former_ids.update([run.id for run in runs])
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
        revisions, watches, scans = {}, {}, self._scans
        now_ns = time.time_ns()
        for run in runs:
            watch = self._watches.get(run.location) or store.RunWatch(run.location)
            try:
                revisions[run.id] = watch.read(
                    run.created_ns, scans[run.location].changed_ns, now_ns
                )
            except (KeyError, OSError, errors.StepscopeError):
                continue
            watches[run.location] = watch
        self._watches = watches
        return revisions

    def _describe_traces(self, directory: str) -> Iterator[base.CatalogTrace]:
        for path in list_traces(directory):
            try:
                trace_id = _below(str(path), self.root)
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


SETTLED_NS = 2_000_000_000
"""Age of a change from which another one has another time on every file system."""


class Directory(NamedTuple):
    """Directory below a root."""

    path: str
    created_ns: int | None
    """Creation time of the run that it is; None if it is no run."""
    children: frozenset[str] = frozenset()
    """Directories in it, of one that is no run."""
    changed_ns: int = 0
    """Time of its change (ctime) before it was read."""
    is_settled: bool = False
    """True if it has to be read again only after a change."""


def walk_directories(
    root: Path, notes: list[str], former: Mapping[str, Directory] = MappingProxyType({})
) -> Iterator[Directory]:
    """Yield the directories at or below a root, but none below runs. Links that lead out of the
    root are not followed.

    Args:
        root: the directory, without links in its path.
        notes: receives a sentence if directories are left out or cannot be read.
        former: directories of an earlier walk by path, which are not read again without a change.
    """
    pending, visited, unreadable = [(str(root), 0)], {str(root)}, list[str]()
    now_ns = time.time_ns()
    while pending:
        path, depth = pending.pop()
        try:
            changed_ns = os.stat(path).st_ctime_ns  # noqa: PTH116 - a Path takes longer than this
            directory = former.get(path)
            if directory is None or directory.changed_ns != changed_ns or not directory.is_settled:
                directory = _read_directory(path, root, changed_ns, now_ns)
        except PermissionError:
            unreadable.append(path)
            directory = Directory(path, None)
        except OSError:  # removed
            continue
        yield directory
        if directory.created_ns is None and depth < base.MAX_DEPTH:
            children = directory.children - visited
            visited |= children
            pending += [(child, depth + 1) for child in children]
        if len(visited) > MAX_DIRECTORIES:
            notes.append(
                f"There are more than {MAX_DIRECTORIES} directories; the others were not searched."
            )
            break
    if unreadable:
        name = min(unreadable).rpartition("/")[2]
        count = quantities.count_of(len(unreadable), "directory", "directories")
        notes.append(f"No permission to read {count}, e.g. {name}; runs in there are not listed.")


def _read_directory(path: str, root: Path, changed_ns: int, now_ns: int) -> Directory:
    """Read a directory.

    Raises:
        PermissionError: it cannot be read.
    """
    is_settled = now_ns - changed_ns > SETTLED_NS
    created_ns = created_ns_of(path)
    if created_ns is not None:
        return Directory(path, created_ns, frozenset(), changed_ns, is_settled)
    try:
        with os.scandir(path) as scan:
            entries = [entry for entry in scan if not entry.name.startswith(".")]
    except PermissionError:
        raise
    except OSError:  # removed
        entries = []
    has_links = any(entry.is_symlink() for entry in entries)  # their targets may change
    children = frozenset(_list_children(entries, root))
    return Directory(path, None, children, changed_ns, is_settled and not has_links)


def created_ns_of(directory: str | Path) -> int | None:
    """Return the creation time of the run in a directory; None if there is no run."""
    manifest = f"{directory}/{store.RUN_KEY}"
    try:
        status = os.lstat(manifest)
        if stat.S_ISLNK(status.st_mode):
            store.check_link(Path(manifest))
            status = os.stat(manifest)  # noqa: PTH116
    except (OSError, errors.UsageError):
        return None
    return status.st_mtime_ns if stat.S_ISREG(status.st_mode) else None


def _list_children(entries: Iterable[os.DirEntry[str]], root: Path) -> Iterator[str]:
    for entry in entries:
        if entry.is_symlink():
            try:
                path = Path(entry.path).resolve(strict=True)
            except (OSError, RuntimeError):  # a broken link, or a loop
                continue
            if path.is_relative_to(root) and path.is_dir():
                yield str(path)
        elif entry.is_dir(follow_symlinks=False):
            yield entry.path


def _below(path: str, root: Path) -> str:
    """Return the part of a path below a root, "." for the root itself."""
    return path[len(str(root)) :].lstrip("/") or base.ROOT_ID


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


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
    for directory in walk_directories(root, []):
        if directory.created_ns is None:
            traces += list_traces(directory.path)
        if len(traces) >= MAX_TRACES:
            break
    return sorted(traces)


def find_event_files(root: Path) -> list[Path]:
    """List the event files at or below a directory, by path, and the JSON files of SageMaker
    Debugger that describe them, without those in runs. Hidden files are left out."""
    files: list[Path] = []
    for directory in walk_directories(root, []):
        if directory.created_ns is None:
            files += filter(_is_event_file, _list_directory(Path(directory.path)))
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


def list_traces(directory: str | Path) -> Iterator[Path]:
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
