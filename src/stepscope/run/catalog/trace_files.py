"""Trace and event files below a directory, told by their names and first bytes."""

from __future__ import annotations

import functools
import os
import re
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path

from stepscope.event_records import begins_with_record
from stepscope.run.catalog.walk import walk_directories
from stepscope.schema import (
    PROFILER_SUFFIXES,
    TRACE_SUFFIXES,
    XPLANE_SUFFIX,
    is_event_file_name,
)

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
    if is_event_file_name(path.name):
        return begins_with_record(path)
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
        if entry.name.startswith(".") or not entry.name.endswith(TRACE_SUFFIXES):
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
    if path.endswith((*PROFILER_SUFFIXES, XPLANE_SUFFIX)):
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
