"""Views for which a run has no data: the reason is that of the view itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from stepscope.run import Run
from stepscope.testing import RunBuilder
from stepscope.views import VIEWS
from stepscope.views.job.recordings import ONE_RANK, list_missing_views
from tests.unit.run.test_causal_graphs import CASES

Imported = Callable[..., Run]
CHECKED = (
    *("steps", "critical-path", "input-pipeline", "operators", "modules", "annotations"),
    *("gpu-time", "kernels", "memory", "roofline", "system", "tensors", "xgboost"),
    *("memory-snapshot", "kernel-counters", "compilations", "configuration"),
)


def reason_of_view(run: Run, name: str) -> str | None:
    """Return why a view has no data, in the whole or in each of its traces."""
    payload: dict[str, Any] = msgspec.to_builtins(VIEWS[name](run))
    parts = [part["missing"] for part in payload.get("traces", []) if "missing" in part]
    reason: str | None = payload["missing"] or (parts[0] if parts and all(parts) else None)
    return reason


def check(run: Run) -> dict[str, str]:
    missing = {view.name: view.reason for view in list_missing_views(run)}
    assert {name: reason_of_view(run, name) for name in CHECKED} == {
        name: missing.get(name) for name in CHECKED
    }
    return missing


def test_a_trace(imported: Imported) -> None:
    missing = check(imported(trace=CASES["fetch"].content))
    assert not {"steps", "critical-path", "input-pipeline", "kernels", "gpu-time"} & set(missing)
    assert "with_modules=True" in missing["modules"]


def test_a_watched_run(new_run: Callable[..., RunBuilder]) -> None:
    run = new_run()
    run.rank().draw("data_wait 2 | forward 1 | optimizer 1", 30)
    missing = check(run.open())
    assert not {"steps", "input-pipeline", "system"} & set(missing)
    assert "`stepscope run --start-step N -- CMD`" in missing["kernels"]
    assert missing["ranks"] == ONE_RANK


def test_a_job_without_a_loader(new_run: Callable[..., RunBuilder]) -> None:
    run = new_run()
    run.rank().draw("forward 1 | optimizer 1", 30)
    opened = run.open()
    (rank,) = VIEWS["input-pipeline"](opened).ranks
    missing = {view.name: view.reason for view in list_missing_views(opened)}
    assert missing["input-pipeline"] == rank.missing


def test_an_empty_run(new_run: Callable[..., RunBuilder]) -> None:
    assert check(new_run().open()).keys() >= {"steps", "critical-path", "kernels", "tensors"}
