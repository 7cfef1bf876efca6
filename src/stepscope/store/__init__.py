"""Runs in directories and in object stores: the only code that reads or writes one.

Belongs here: names of files, atomic and durable writing, merging of segments, reading while a
run grows, damage, runs of older schema versions, copies of what lies elsewhere. Does not: what
the columns mean (`schema`), what follows from them (`analysis`), where the numbers come from
(`monitor`, `importers`).
"""

from __future__ import annotations

from stepscope.store.columns import DictColumn
from stepscope.store.engine import available_cores
from stepscope.store.objectstore import LocalStore, ObjectStore, is_remote, open_store
from stepscope.store.reader import RunReader, open_run
from stepscope.store.repeats import repeated_runs
from stepscope.store.revision import revision_of, size_of
from stepscope.store.writer import RunWriter, create_run

__all__ = [
    "DictColumn",
    "LocalStore",
    "ObjectStore",
    "RunReader",
    "RunWriter",
    "available_cores",
    "create_run",
    "is_remote",
    "open_run",
    "open_store",
    "repeated_runs",
    "revision_of",
    "size_of",
]
