"""Recordings: drawn ones, and real ones where they are at hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from imported_runs import REAL_TRACES, import_into

from stepscope.diagnosis import Signals
from stepscope.store import open_run

Event = dict[str, Any]


@pytest.fixture
def imported(tmp_path: Path) -> Callable[..., Signals]:
    """Makes a run of drawn recordings, each a list of events or a whole file's content."""

    def bring_in(**recordings: list[Event] | dict[str, Any]) -> Signals:
        files = []
        for name, content in recordings.items():
            files.append(tmp_path / f"{name}.json")
            whole = content if isinstance(content, dict) else {"traceEvents": content}
            files[-1].write_text(json.dumps(whole))
        return import_into(tmp_path / "run", *files)

    return bring_in


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Signals]:
    """The run of a real recording by its file name; skips where the file is absent."""
    made: dict[str, Path] = {}

    def bring_in(name: str) -> Signals:
        if not (REAL_TRACES / name).is_file():
            pytest.skip(f"../shared/traces/{name} is not here")
        if name not in made:
            made[name] = tmp_path_factory.mktemp("real") / "run"
            return import_into(made[name], REAL_TRACES / name)
        return Signals(open_run(made[name]))

    return bring_in
