"""Factory of catalogs, for a directory or a URL."""

from __future__ import annotations

from pathlib import Path

from stepscope.errors import UsageError
from stepscope.server.bucket_catalog import BucketCatalog, resolve_url
from stepscope.server.catalog import Catalog
from stepscope.server.directory_catalog import DirectoryCatalog
from stepscope.store import is_remote


def resolve_root(location: str) -> Path | str:
    """Resolve what to serve: a directory without links in its path, or a URL.

    Raises:
        UsageError: the directory does not exist, or there is nothing below the URL.
        OSError: the bucket cannot be reached.
    """
    if is_remote(location):
        return resolve_url(location)
    root = Path(location)
    if not root.is_dir():
        raise UsageError(f"{location} is not a directory. Pass a directory that contains runs.")
    return root.resolve()


def open_catalog(root: Path | str) -> Catalog:
    """Open the catalog of a root from `resolve_root`."""
    return DirectoryCatalog(root) if isinstance(root, Path) else BucketCatalog(root)
