"""Origins of the files of one import: a unique name each, and the windows of their workers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from stepscope.importers.kineto.describe import Identity
from stepscope.schema import parse_trace_name

_MAX_NAME_DEPTH = 8


def identify_files(files: Sequence[Path]) -> list[Identity]:
    """Describe the origin of each file as far as their paths tell.

    A file that torch.profiler named is called by its worker, with the time if a worker has several
    files; then those are windows of the worker, numbered by time.
    """
    windows = _number_windows(files)
    return [
        Identity(
            name=name,
            directories=path.parts[-3:-1],
            file_name=parse_trace_name(path.name),
            window=windows.get(path),
        )
        for path, name in zip(files, _name_files(files), strict=True)
    ]


def _number_windows(files: Sequence[Path]) -> dict[Path, int]:
    """Number the files of each worker from 1, by time; empty if no worker has several files."""
    workers: defaultdict[tuple[Path, str], list[tuple[int, Path]]] = defaultdict(list)
    for path in files:
        parts = parse_trace_name(path.name)
        if parts is not None and parts.written_ns is not None:
            workers[path.parent, parts.worker].append((parts.written_ns, path))
    if all(len(spans) == 1 for spans in workers.values()):
        return {}
    ordered = map(sorted, workers.values())
    return {path: number for spans in ordered for number, (_, path) in enumerate(spans, 1)}


def _name_files(files: Sequence[Path]) -> list[str]:
    """Name files by worker, worker and time, or file name, the first that makes names unique, with
    parent directories if none does."""
    parsed = [parse_trace_name(path.name) for path in files]
    workers = [p.worker if p else path.name for p, path in zip(parsed, files, strict=True)]
    dated = [p.dated_worker if p else path.name for p, path in zip(parsed, files, strict=True)]
    for names in (workers, dated, [path.name for path in files]):
        if len(set(names)) == len(names):
            return names
    for depth in range(2, _MAX_NAME_DEPTH):
        names = ["/".join(path.parts[-depth:]) for path in files]
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in files]
