"""Runs below a directory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from stepscope.errors import StepscopeError
from stepscope.run.catalog.base import (
    MAX_RUNS,
    ROOT_ID,
    CatalogRun,
    CatalogTrace,
    RunListing,
    missing_run_error,
    missing_trace_error,
)
from stepscope.run.catalog.trace_files import MAX_TRACES, list_traces
from stepscope.run.catalog.walk import created_ns_of, walk_directories
from stepscope.store import describe_source, is_hidden, revision_of


class DirectoryCatalog:
    """Runs below a directory.

    Args:
        root: the directory, without links in its path.
    """

    revision_ttl_s = 0.25

    def __init__(self, root: Path) -> None:
        self.root = root
        self._former_ids: set[str] = set()

    def list_runs(self) -> RunListing:
        """List all current runs."""
        notes: list[str] = []
        runs: list[CatalogRun] = []
        traces: list[CatalogTrace] = []
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
            if len(runs) == MAX_RUNS:
                notes.append(f"There are more than {MAX_RUNS} runs; the others were left out.")
                break
            runs.append(CatalogRun(run_id, str(directory), created_ns))
        self._former_ids.update(run.id for run in runs)
        if len(traces) > MAX_TRACES:
            notes.append(f"There are more than {MAX_TRACES} traces; the others were left out.")
        return RunListing(runs, sorted(set(notes)), traces[:MAX_TRACES])

    def locate(self, run_id: str) -> str:
        """See `Catalog.locate`."""
        directory = self._resolve(run_id)
        if directory is not None and created_ns_of(directory) is not None:
            self._former_ids.add(run_id)
            return str(directory)
        raise missing_run_error(run_id, existed=run_id in self._former_ids)

    def locate_trace(self, trace_id: str) -> Path:
        """See `Catalog.locate_trace`."""
        directory, _, name = trace_id.rpartition("/")
        parent = self._resolve(directory or ROOT_ID)
        if parent is not None and not is_hidden(trace_id) and parent / name in list_traces(parent):
            return parent / name
        raise missing_trace_error(trace_id)

    def revision(self, location: str) -> int:
        """See `Catalog.revision`."""
        return revision_of(location)

    def revisions(self, runs: list[CatalogRun]) -> dict[str, int]:
        """See `Catalog.revisions`."""
        revisions = {}
        for run in runs:
            try:
                revisions[run.id] = revision_of(run.location)
            except (OSError, StepscopeError):
                continue
        return revisions

    def _describe_traces(self, directory: Path) -> Iterator[CatalogTrace]:
        for path in list_traces(directory):
            try:
                trace_id = str(path.relative_to(self.root))
                trace_id.encode()
                yield CatalogTrace(trace_id, describe_source(path))
            except (UnicodeEncodeError, OSError):  # not text, or removed
                continue

    def _resolve(self, run_id: str) -> Path | None:
        """Resolve a name to a directory; None if that is not below the root."""
        if run_id == ROOT_ID:
            return self.root
        if any(part in {"", ".", ".."} for part in run_id.split("/")):
            return None
        try:
            directory = (self.root / run_id).resolve(strict=True)
        except (OSError, RuntimeError, ValueError):  # no such file, a loop of links, no valid name
            return None
        return directory if directory.is_relative_to(self.root) else None
