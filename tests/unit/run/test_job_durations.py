"""Durations of jobs on nodes whose wall clock was set back by an hour."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepscope.cost import PriceRequest, report_cost
from stepscope.run import Run, job_statistics
from stepscope.schema import JobState, JobStatus
from stepscope.store import open_run
from stepscope.testing import RunBuilder
from stepscope.testing.runs import EPOCH_NS
from stepscope.views.jobs import make_job_row
from stepscope.views.overview import show_overview
from tests.support.command import run_command

S = 1_000_000_000
HOUR_NS = 3600 * S
SET_BACK = {"started_ns": EPOCH_NS, "heartbeat_ns": EPOCH_NS + 5 * S - HOUR_NS}


def draw(path: Path) -> RunBuilder:
    """Draw 20 steps of 100 ms."""
    builder = RunBuilder(path)
    builder.rank(0).draw("forward 50 | backward 40 | optimizer 10", 20)
    return builder


def test_elapsed_time_counts_and_not_the_wall_clock(tmp_path: Path) -> None:
    for state in (JobState.IN_PROGRESS, JobState.COMPLETED):
        run = draw(tmp_path / state).status(state, elapsed_ns=5 * S, **SET_BACK).open()
        (node,) = show_overview(run).nodes
        assert node.duration_ns == 5 * S
        assert job_statistics(run).duration_ns == 5 * S
        assert make_job_row(run.reader, "x").duration_ns == 5 * S


def test_an_earlier_version_stored_an_end_before_the_start(tmp_path: Path) -> None:
    """The last record is the end then; the duration on the node is unknown, not negative."""
    fields = SET_BACK | {"ended_ns": EPOCH_NS + 5 * S - HOUR_NS}
    path = draw(tmp_path / "run").status(JobState.COMPLETED, **fields).write()
    run = Run(open_run(path))
    assert job_statistics(run).duration_ns == run.clock.end_ns - EPOCH_NS == 2 * S
    cost = report_cost(run, PriceRequest(usd_per_hour="3600"))
    assert cost.job_usd == pytest.approx(2)
    row = make_job_row(run.reader, "x")
    assert (row.duration_ns, row.cost_usd) == (None, None)
    text = run_command(tmp_path, "show", str(path), "overview").stdout
    assert "n0  Completed  n/a" in text
    assert "-" not in text.splitlines()[2]


def test_a_status_without_an_end() -> None:
    status = JobStatus(state=JobState.IN_PROGRESS, started_ns=EPOCH_NS, heartbeat_ns=EPOCH_NS + S)
    assert (status.duration_ns, status.end_ns) == (S, EPOCH_NS + S)
