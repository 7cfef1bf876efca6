"""Catalogs: the runs below a directory or URL.

base        protocol of catalogs, and errors
directory   runs and trace files below a directory
bucket      runs below a URL of an object store

Modules for buckets are imported where a URL is given: they take 10 ms.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from stepscope import errors, store
from stepscope.run.catalog.base import (
    Catalog,
    CatalogRun,
    CatalogTrace,
    RunListing,
    RunRemovedError,
    missing_run_error,
)
from stepscope.run.catalog.directory import (
    DirectoryCatalog,
    find_event_files,
    find_traces,
    walk_directories,
)

A = TypeVar("A")
R = TypeVar("R")


def resolve_root(location: str) -> Path | str:
    """Resolve the root of a catalog: a directory without links in its path, or a URL.

    Raises:
        UsageError: the directory does not exist or cannot be read, or there is nothing below the
            URL.
        OSError: the bucket cannot be reached.
    """
    if store.is_remote(location):
        from stepscope.run.catalog.bucket import resolve_url

        return resolve_url(location)
    root = Path(location)
    if not root.is_dir():
        raise errors.UsageError(
            f"{location} is not a directory. Pass a directory that contains runs."
        )
    try:
        with os.scandir(f"{root}/."):  # which takes the right to open what is in it
            pass
    except OSError as error:
        raise errors.UsageError(f"{location} cannot be read: {error.strerror}.") from None
    return root.resolve()


def open_catalog(root: Path | str) -> Catalog:
    """Open the catalog of a root from `resolve_root`."""
    if isinstance(root, Path):
        return DirectoryCatalog(root)
    from stepscope.run.catalog.bucket import BucketCatalog

    return BucketCatalog(root)


def map_runs(work: Callable[[CatalogRun, A], R], runs: Sequence[tuple[CatalogRun, A]]) -> list[R]:
    """Apply a function to runs and one argument each; in parallel for runs in buckets, where the
    network is the limit, not the cores."""
    if any(store.is_remote(run.location) for run, _ in runs):
        from stepscope.store import map_parallel

        return map_parallel(lambda item: work(*item), runs)
    return [work(run, argument) for run, argument in runs]


def is_removed(location: str) -> bool:
    """Check whether a local run no longer exists; errors of buckets say so themselves."""
    return not store.is_remote(location) and not Path(location, store.RUN_KEY).is_file()


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
