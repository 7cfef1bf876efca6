"""Catalogs: the runs below a directory or URL.

base        protocol of catalogs, and errors
directory   runs below a directory
walk        directories below a directory
trace_files trace files below a directory
bucket      runs below a URL of an object store
opening     the catalog of a directory or URL
"""

from __future__ import annotations

from stepscope.run.catalog.base import (
    Catalog,
    CatalogRun,
    CatalogTrace,
    RunListing,
    RunRemovedError,
    missing_run_error,
)
from stepscope.run.catalog.opening import is_removed, map_runs, open_catalog, resolve_root
from stepscope.run.catalog.trace_files import find_event_files, find_traces
from stepscope.run.catalog.walk import walk_directories

__all__ = [
    "Catalog",
    "CatalogRun",
    "CatalogTrace",
    "RunListing",
    "RunRemovedError",
    "find_event_files",
    "find_traces",
    "is_removed",
    "map_runs",
    "missing_run_error",
    "open_catalog",
    "resolve_root",
    "walk_directories",
]
