"""Runs in directories and in object stores: the only code that reads or writes one.

Belongs here: names of files, atomic and durable writing, merging of segments, reading while a
run grows, damage, runs of older schema versions, copies of what lies elsewhere. Does not: what
the columns mean (`schema`), what follows from them (`analysis`), where the numbers come from
(`monitor`, `importers`).
"""

from __future__ import annotations

from stepscope.store.bucket import Bucket, Entry, Place, UnreachableError, in_parallel, is_path
from stepscope.store.cache import cache_home
from stepscope.store.columns import NUMPY_TYPES, DictColumn
from stepscope.store.engine import available_cores, literal
from stepscope.store.layout import RUN_KEY
from stepscope.store.objectstore import LocalStore, ObjectStore, is_hidden, is_remote, open_store
from stepscope.store.reader import RunReader, open_run
from stepscope.store.repeats import repeated_runs
from stepscope.store.revision import revision_of, revision_of_entries, size_of
from stepscope.store.upload import check_free, upload
from stepscope.store.window_requests import (
    Agreement,
    AnsweredWindow,
    AnswerState,
    RequestBoard,
    WindowAnswer,
    WindowRequest,
)
from stepscope.store.writer import RunWriter, create_run

__all__ = [
    "NUMPY_TYPES",
    "RUN_KEY",
    "Agreement",
    "AnswerState",
    "AnsweredWindow",
    "Bucket",
    "DictColumn",
    "Entry",
    "LocalStore",
    "ObjectStore",
    "Place",
    "RequestBoard",
    "RunReader",
    "RunWriter",
    "UnreachableError",
    "WindowAnswer",
    "WindowRequest",
    "available_cores",
    "cache_home",
    "check_free",
    "create_run",
    "in_parallel",
    "is_hidden",
    "is_path",
    "is_remote",
    "literal",
    "open_run",
    "open_store",
    "repeated_runs",
    "revision_of",
    "revision_of_entries",
    "size_of",
    "upload",
]
