"""Runs in directories and object stores: the only package that reads or writes one.

Belongs here: file names, atomic and durable writes, merging of segments, reads of a growing run,
damage, older schema versions, local copies of remote objects. Does not: the meaning of columns
(`schema`), conclusions from them (`analysis`), the source of the numbers (`monitor`, `importers`).

Layers: `objectstore` (protocol) < `local`, `remote` (implementations) < `location` (factory) <
`queries` < `reader`, `writer` < `opening`.
"""

from __future__ import annotations

from stepscope.store.bucket import (
    Bucket,
    BucketLocation,
    Entry,
    UnreachableError,
    is_path,
    map_parallel,
)
from stepscope.store.cache import cache_home
from stepscope.store.columns import NUMPY_TYPES, DictColumn
from stepscope.store.configuration import (
    CONFIGURATION_DECISIONS,
    CONFIGURATION_REQUESTS,
    ConfigurationChanges,
)
from stepscope.store.download import Download, download_files
from stepscope.store.engine import available_cores, literal
from stepscope.store.layout import RUN_KEY
from stepscope.store.local import LocalStore
from stepscope.store.location import is_remote, open_store
from stepscope.store.objectstore import ObjectStore, is_hidden
from stepscope.store.opening import open_run
from stepscope.store.reader import RunReader
from stepscope.store.repeats import repeated_runs
from stepscope.store.revision import revision_of, revision_of_entries, size_of
from stepscope.store.run_cache import CachedRun, describe_source
from stepscope.store.upload import check_free, upload_run
from stepscope.store.window_requests import (
    RequestState,
    RequestStatus,
    WindowAgreement,
    WindowRequest,
    WindowRequests,
    WindowStatus,
)
from stepscope.store.writer import RunWriter, create_run

__all__ = [
    "CONFIGURATION_DECISIONS",
    "CONFIGURATION_REQUESTS",
    "NUMPY_TYPES",
    "RUN_KEY",
    "Bucket",
    "BucketLocation",
    "CachedRun",
    "ConfigurationChanges",
    "DictColumn",
    "Download",
    "Entry",
    "LocalStore",
    "ObjectStore",
    "RequestState",
    "RequestStatus",
    "RunReader",
    "RunWriter",
    "UnreachableError",
    "WindowAgreement",
    "WindowRequest",
    "WindowRequests",
    "WindowStatus",
    "available_cores",
    "cache_home",
    "check_free",
    "create_run",
    "describe_source",
    "download_files",
    "is_hidden",
    "is_path",
    "is_remote",
    "literal",
    "map_parallel",
    "open_run",
    "open_store",
    "repeated_runs",
    "revision_of",
    "revision_of_entries",
    "size_of",
    "upload_run",
]
