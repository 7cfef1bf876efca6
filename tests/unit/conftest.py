"""Runs drawn in text, and imported traces: written ones, and real ones where they are present."""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from stepscope.run import Run
from stepscope.store import open_run
from stepscope.testing import RunBuilder
from tests.support.imported_runs import REAL_TRACES, import_into
from tests.support.shared_folder import SharedFolder

GET = "fetch > Rows.__getitem__"
LOOP = "main > train"
CODE = {
    "read": f"{GET} > fetch_row > get@requests/api.py",
    "decode": f"{GET} > read_table@pyarrow/parquet/core.py",
    "augment": f"{GET} > Compose.__call__ > Mask.__call__",
    "tokenise": f"{GET} > encode@tiktoken/core.py",
    "lookup": f"{GET} > lookup",
    "collate": "fetch > collate_rows",
    "sync": f"{LOOP} # total += loss.item()",
    "log": f"{LOOP} # print(step, total)",
    "python": f"{LOOP} > schedule # rate = base / step",
    "batch": f"{LOOP} > get_batch # x = data[i : i + n]",
    "model": f"{LOOP} > Module.__call__@torch/nn/modules/module.py",
}


@pytest.fixture(autouse=True, scope="session")
def shared_databases() -> Iterator[Callable[..., duckdb.DuckDBPyConnection]]:
    """Give all that connects to DuckDB a cursor of one database per configuration.

    Opening a database takes 20 ms of CPU time, more than most tests. The views and tables of the
    store are temporary, and so belong to the cursor. A forked process opens its own.

    Yields:
        the original function, for tests of the connection itself.
    """
    connect = duckdb.connect
    databases: dict[object, duckdb.DuckDBPyConnection] = {}

    def share(
        database: str = ":memory:", config: dict[str, Any] | None = None
    ) -> duckdb.DuckDBPyConnection:
        if config is None:  # a test itself connects
            return connect(database)
        key = (os.getpid(), database, *sorted(config.items()))
        if key not in databases:
            databases[key] = connect(database, config=config)
        return databases[key].cursor()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(duckdb, "connect", share)
        yield connect


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> SharedFolder:
    """Provide the folder of the session, which all of its worker processes share."""
    base = tmp_path_factory.getbasetemp()
    return SharedFolder((base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "shared")


@functools.lru_cache(maxsize=16)
def open_shared(path: Path) -> Run:
    """Open a run of the shared folder; what a test has loaded of it, others need not load."""
    return Run(open_run(path))


@pytest.fixture(scope="session")
def drawn_once(shared_folder: SharedFolder) -> Callable[..., Run]:
    """Open the run that a function draws, which is drawn once for all tests."""

    def draw_once(draw: Callable[[Path], RunBuilder]) -> Run:
        name = f"{draw.__module__}.{draw.__qualname__}"
        return open_shared(shared_folder.make(name, lambda path: draw(path).write()))

    return draw_once


@pytest.fixture
def new_run(tmp_path: Path) -> Callable[..., RunBuilder]:
    def make(**options: Any) -> RunBuilder:
        return RunBuilder(tmp_path / "run", code=CODE, **options)

    return make


Event = dict[str, Any]


@pytest.fixture(scope="session")
def imported(shared_folder: SharedFolder) -> Callable[..., Run]:
    """Open the run of drawn traces, each a list of events or the content of a file.

    It is imported once for all tests with these traces.
    """

    def bring_in(**recordings: list[Event] | dict[str, Any] | bytes) -> Run:
        contents = {name: encode_trace(content) for name, content in recordings.items()}

        def make(path: Path) -> None:
            for name, content in contents.items():
                path.with_name(f"{name}.json").write_bytes(content)
            import_into(path, *(path.with_name(f"{name}.json") for name in contents))

        key = hashlib.sha256(repr(contents).encode()).hexdigest()[:16]
        return open_shared(shared_folder.make(key, make))

    return bring_in


def encode_trace(content: list[Event] | dict[str, Any] | bytes) -> bytes:
    if isinstance(content, bytes):
        return content
    document = content if isinstance(content, dict) else {"traceEvents": content}
    return json.dumps(document).encode()


@pytest.fixture(scope="session")
def real(shared_folder: SharedFolder) -> Callable[[str], Run]:
    """Open the run of a real trace by its file name; skip the test if the file is absent."""

    def bring_in(name: str) -> Run:
        if not (REAL_TRACES / name).is_file():
            pytest.skip(f"../shared/traces/{name} is not here")
        path = shared_folder.make(
            name.replace("/", "_"), lambda path: import_into(path, REAL_TRACES / name)
        )
        return open_shared(path)

    return bring_in
