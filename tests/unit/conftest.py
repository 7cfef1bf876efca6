"""Runs drawn in text, and imported traces: written ones, and real ones where they are present."""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stepscope.run import Run
from stepscope.store import open_run
from stepscope.testing import RunBuilder
from tests.support.cause_runs import CODE, judge_cause  # noqa: F401 - a fixture
from tests.support.imported_runs import REAL_TRACES, import_into
from tests.support.shared_databases import shared_databases  # noqa: F401 - a fixture
from tests.support.shared_folder import SharedFolder


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
