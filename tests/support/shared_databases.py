"""DuckDB databases that the readers and writers of a test process share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any
from unittest import mock

import duckdb
import pytest

from stepscope.store import writer

_connect = duckdb.connect
_databases: dict[tuple[int, str], duckdb.DuckDBPyConnection] = {}


@pytest.fixture(scope="session", autouse=True)
def shared_databases() -> Iterator[None]:
    """Answer `duckdb.connect` with another connection to a database of the same settings.

    A new database takes 25 ms of CPU time, most of what a small run takes to be written and read.
    Views, settings of queries and errors are a connection's own.
    """
    with mock.patch.object(duckdb, "connect", _share):
        yield


def _share(
    database: str = ":memory:", read_only: bool = False, config: dict[str, Any] | None = None
) -> duckdb.DuckDBPyConnection:
    assert database == ":memory:"
    assert not read_only
    if (config or {}).get("memory_limit") not in {None, writer._MEMORY_LIMIT}:  # is locked
        return _connect(database, config=config or {})
    key = os.getpid(), repr(config)  # threads of a database do not survive a fork
    try:
        _databases[key].execute("SELECT 1")
    except (KeyError, duckdb.Error):  # not opened yet, or unusable after an internal error
        _databases[key] = _connect(database, config=config or {})
    return _databases[key].cursor()
