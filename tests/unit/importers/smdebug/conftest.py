"""A directory for Debugger's output."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.debugger_files import DebuggerOutput


@pytest.fixture
def output(tmp_path: Path) -> DebuggerOutput:
    return DebuggerOutput(tmp_path / "profiler-output")
