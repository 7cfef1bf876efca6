"""Runs drawn in text, and imported traces: written ones, and real ones where they are present."""

from __future__ import annotations

import json
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


@pytest.fixture
def new_run(tmp_path: Path) -> Callable[..., RunBuilder]:
    def make(**options: Any) -> RunBuilder:
        return RunBuilder(tmp_path / "run", code=CODE, **options)

    return make


Event = dict[str, Any]


@pytest.fixture
def imported(tmp_path: Path) -> Callable[..., Run]:
    """Make a run of drawn traces, each a list of events or the content of a file."""

    def bring_in(**recordings: list[Event] | dict[str, Any]) -> Run:
        files = []
        for name, content in recordings.items():
            files.append(tmp_path / f"{name}.json")
            document = content if isinstance(content, dict) else {"traceEvents": content}
            files[-1].write_text(json.dumps(document))
        return import_into(tmp_path / "run", *files)

    return bring_in


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Run]:
    """Make the run of a real trace by its file name; skip the test if the file is absent."""
    runs: dict[str, Path] = {}

    def bring_in(name: str) -> Run:
        if not (REAL_TRACES / name).is_file():
            pytest.skip(f"../shared/traces/{name} is not here")
        if name not in runs:
            runs[name] = tmp_path_factory.mktemp("real") / "run"
            return import_into(runs[name], REAL_TRACES / name)
        return Run(open_run(runs[name]))

    return bring_in
