"""Catalog protocol: the runs below a directory or URL, and the locations of their names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from stepscope import errors, schema

MAX_DEPTH = 6
"""Maximum number of directories between the root and a run."""
MAX_RUNS = 10_000
ROOT_ID = "."
"""Id of a run that is the root itself."""


class CatalogRun(NamedTuple):
    """Run in a catalog."""

    id: str
    """Name in the API: the path below the root."""
    location: str
    created_ns: int
    """Time of creation, according to the file system or the bucket."""


class RunRemovedError(errors.NotARunError):
    """Run that existed before and has been removed.

    Choose another one from the list of runs.
    """


class CatalogTrace(NamedTuple):
    """Trace file in a catalog, imported or not."""

    id: str
    """Name in the API: the path below the root."""
    source: schema.SourceFile


class RunListing(NamedTuple):
    """Runs and traces in no particular order, and notes on those that were left out."""

    runs: list[CatalogRun]
    notes: list[str]
    traces: Sequence[CatalogTrace] = ()


class Catalog(Protocol):
    """Runs below one directory or URL. Nothing outside of it is ever named or opened."""

    revision_ttl_s: float
    """Time for which a revision may be cached: a page requests several views at once."""

    def list_runs(self) -> RunListing:
        """List all current runs."""
        ...

    def locate(self, run_id: str) -> str:
        """Find the location of a run.

        Raises:
            RunRemovedError: the run existed before.
            NotARunError: there never was a run of this name.
        """
        ...

    def locate_trace(self, trace_id: str) -> Path:
        """Find a trace file.

        Raises:
            UsageError: there is no trace of this name.
        """
        ...

    def revision(self, location: str) -> int:
        """See `stepscope.store.revision_of`."""
        ...

    def revisions(self, runs: list[CatalogRun]) -> dict[str, int]:
        """Return revisions by run id, without runs that cannot be served."""
        ...


def missing_run_error(run_id: str, *, existed: bool) -> errors.NotARunError:
    """Create the error for a name that leads to no run."""
    if existed:
        return RunRemovedError(f"The run {quote_id(run_id)} has been removed.")
    return errors.NotARunError(f"There is no run {quote_id(run_id)}.")


def missing_trace_error(trace_id: str) -> errors.UsageError:
    """Create the error for a name that leads to no trace."""
    return errors.UsageError(f"There is no trace {quote_id(trace_id)}.")


def quote_id(run_id: str) -> str:
    """Quote a name for a sentence, shortened to 200 characters."""
    return repr(run_id if len(run_id) <= 200 else run_id[:200] + "…")
