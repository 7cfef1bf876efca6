"""A run of two traces, which tests do not change."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command import run_command
from tests.support.kineto_files import trace, training


@pytest.fixture(scope="session")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run with traces of two ranks, in a directory whose name is a pattern of DuckDB."""
    base = tmp_path_factory.mktemp("queries")
    (base / "traces").mkdir()
    for rank in (0, 1):
        (base / "traces" / f"{rank}.json").write_bytes(
            trace(*training(), distributedInfo={"rank": rank})
        )
    run = base / "r[u]n's *"
    assert run_command(base, "import", "traces", "-o", str(run)).returncode == 0
    return run
