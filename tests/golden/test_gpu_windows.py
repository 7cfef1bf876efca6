"""Windows that `make gpu-check` recorded on a real GPU keep their links and their sums."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepscope.importers import import_files
from stepscope.run import Run
from stepscope.schema import SCHEMA_VERSION, RunInfo
from stepscope.store import create_run, open_run
from stepscope.views import VIEWS

HERE = Path(__file__).parent


@pytest.mark.parametrize("depth", ["light", "full"])
def test_recorded_window(tmp_path: Path, depth: str) -> None:
    file = HERE / f"gpu_{depth}.json.gz"
    if not file.exists():
        pytest.skip("no window has been recorded on a GPU yet: run `make gpu-check` where one is")
    run = tmp_path / "run"
    create_run(
        run,
        RunInfo(
            schema_version=SCHEMA_VERSION,
            run_id="golden",
            created_ns=0,
            command=[],
            working_directory="",
            stepscope_version="0",
        ),
    )
    import_files([file], run, "imported")
    signals = Run(open_run(run))
    (trace,) = signals.traces
    kernels = trace.columns("kernels", ("launch", "carry_over", "operator"))
    assert len(kernels["launch"])
    assert ((kernels["launch"] < 0) & (kernels["carry_over"] == 0)).mean() < 0.01
    assert ((kernels["operator"] >= 0).mean() > 0.95) == (depth == "full")
    (figures,) = VIEWS["gpu-time"](signals).traces
    parts = (
        figures.compute_ns + figures.exposed_comm_ns + figures.exposed_memcpy_ns + figures.idle_ns
    )
    assert parts == figures.total_ns
