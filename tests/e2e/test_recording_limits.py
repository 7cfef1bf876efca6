"""Jobs whose processes are recorded for a limited time, and the rotation of the files of runs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import stepscope
from stepscope.schema import JobState
from stepscope.store import RunReader, open_run
from stepscope.testing.browser import CHROMIUM, chromium
from tests.support.command import run_command
from tests.support.under_stepscope import E2E, STEPSCOPE, FinishedJob, serving
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.seed("SMP-05"),
    pytest.mark.extended(
        "jobs of many seconds; tests/unit/capture/test_recording_end.py ends a recording"
    ),
]

MARKED = str(E2E / "recording" / "marked.py")
LIMIT_S = 5
SENTENCE = (
    f"Steps, annotations, scalars and stack samples were recorded only for the first {LIMIT_S} s "
    "of the job (--cpu-profiling-duration); later ones are unknown."
)
OF_PROCESSES = (
    *("steps", "input-pipeline", "annotations", "distributed", "dashboard", "usage", "insights"),
    *("tensors", "timeline", "timeline-summary", "timeline-flame"),
)


@contextmanager
def marked_job(
    directory: Path, *options: str, is_over: Callable[[RunReader], bool]
) -> Iterator[FinishedJob]:
    """Run the job under `stepscope run` until its run fulfils a condition; yields it finished."""
    run, stop = directory / "run", directory / "stop"
    command = [*STEPSCOPE, "run", "--out", str(run), "--interval", "100", *options, "--"]
    with subprocess.Popen(
        [*command, sys.executable, MARKED, str(stop)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as launcher:
        try:
            wait_until(lambda: bool(list(run.glob("nodes/*/status.json"))), timeout_s=60)
            wait_until(lambda: is_over(open_run(run)), timeout_s=120)
        finally:
            stop.touch()
        stdout, stderr = launcher.communicate(timeout=120)
    yield FinishedJob(run, launcher.returncode, stdout, stderr)


def end_ns(run: RunReader) -> int:
    (node,) = run.nodes().values()
    assert node.recording_end_ns is not None
    return node.recording_end_ns


def is_past_the_end(run: RunReader) -> bool:
    """Check that the run has samples of two seconds after the end."""
    samples = run.times("metrics") if run.has("metrics") else {}
    return any(times["t_ns"][1] > end_ns(run) + 2e9 for times in samples.values())


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> FinishedJob:
    """A job of which the first seconds are recorded."""
    options = ("--cpu-profiling-duration", str(LIMIT_S))
    directory = tmp_path_factory.mktemp("limited")
    with marked_job(directory, *options, is_over=is_past_the_end) as finished:
        assert finished.code == 0, finished.stderr
        return finished


def test_nothing_of_the_processes_is_recorded_after_the_limit(job: FinishedJob) -> None:
    run = open_run(job.run)
    for table, column in (("spans", "start_ns"), ("scalars", "t_ns")):
        times = run.table(table, [column])[column]
        assert len(times) > 0
        assert times.max() < end_ns(run)
    (status,) = run.statuses().values()
    assert status.state == JobState.COMPLETED
    (process,) = (p for p in run.processes() if p.role == "main")
    assert (end_ns(run) - process.started_ns) / 1e9 == pytest.approx(LIMIT_S, abs=LIMIT_S)
    assert process.dropped_count == 0
    trained = int(job.stdout.splitlines()[0])
    assert job.steps()["step_count"] < trained


def test_the_run_says_that_the_rest_is_unknown(job: FinishedJob) -> None:
    assert SENTENCE in job.verdict["notes"]
    assert f"recorded only for the first {LIMIT_S} s of the job" in " ".join(job.stderr.split())
    for view in OF_PROCESSES:
        assert job.payload("show", view)["recording_end"] == SENTENCE, view
    for view in ("system", "system-series", "kernels"):
        assert job.payload("show", view)["recording_end"] is None, view
    text = run_command(job.run, "show", str(job.run), "timeline").stdout
    assert "! Steps, annotations, scalars and stack samples were recorded only" in text


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_the_page_says_that_the_rest_is_unknown(job: FinishedJob) -> None:
    playwright = pytest.importorskip("playwright.sync_api")
    from tests.support.browsed import Ui

    root = job.run.parent
    with serving(str(root), "--port", "0") as (address, _), chromium() as browser:
        ui = Ui(root, address, browser)
        steps = ui.open("/steps?run=run")
        playwright.expect(steps.get_by_test_id("recording-end")).to_have_text(SENTENCE)
        timeline = ui.open("/timeline?run=run")
        timeline.locator(".tl-badge").get_by_text("note").click()
        playwright.expect(timeline.locator(".tl-badge")).to_contain_text(SENTENCE)
        system = ui.open("/system?run=run")
        playwright.expect(system.get_by_test_id("samples")).to_be_visible()
        assert system.get_by_test_id("recording-end").count() == 0
        ui.settle()


def test_a_range_before_the_limit_is_complete(job: FinishedJob) -> None:
    first = job.payload("show", "steps", "--from", "0s", "--to", "0.5s")
    assert first["recording_end"] is None
    across = job.payload("show", "steps", "--from", "0.5s", "--to", f"{LIMIT_S + 2}s")
    assert across["recording_end"] == SENTENCE


def test_the_time_after_the_limit_is_neither_training_nor_finalization(job: FinishedJob) -> None:
    statistics = stepscope.open(job.run).job_statistics()
    assert statistics.initialization_ns is not None
    assert (statistics.training_ns, statistics.finalization_ns) == (None, None)
    report = job.run.parent / "report.ipynb"
    done = run_command(job.run, "report", str(job.run), "-o", str(report))
    assert done.returncode == 0, done.stderr
    text = report.read_text()
    assert f"Training and finalization cannot be separated. {SENTENCE}" in text
    compared = run_command(job.run, "compare", str(job.run), str(job.run), "--json")
    figures = {row["name"] for row in json.loads(compared.stdout)["figures"]}
    assert "wall time" in figures
    assert not figures & {"training", "steps", "steps per second"}


def test_a_limit_before_the_first_step_gives_no_false_reason(tmp_path: Path) -> None:
    options = ("--cpu-profiling-duration", "0.001")
    with marked_job(tmp_path, *options, is_over=is_past_the_end) as job:
        assert job.code == 0
    assert job.verdict["headline"] == (
        "No verdict: no training step was recorded before the recording of the processes ended; "
        "raise --cpu-profiling-duration."
    )
    checked = run_command(
        *(tmp_path, "rules", "check", str(job.run), "--rule", "MaxInitializationTime"),
        *("--set", "MaxInitializationTime.threshold=0.01", "--json"),
    )
    (finding,) = json.loads(checked.stdout)["findings"]
    assert finding["status"] == "NotApplicable"


def test_files_rotate_at_the_given_time_and_the_heartbeat_continues(tmp_path: Path) -> None:
    heartbeats: set[int] = set()

    def has_beaten(run: RunReader) -> bool:
        assert not run.has("metrics")
        heartbeats.update(status.heartbeat_ns for status in run.statuses().values())
        return len(heartbeats) > 2

    options = ("--file-rotation", "3600", "--interval", "60000")
    with marked_job(tmp_path, *options, is_over=has_beaten) as job:
        assert job.code == 0
    names = {path.name for path in (job.run / "tables").rglob("*.parquet")}
    assert names == {"00000000-00000000.parquet"}
    assert job.steps()["step_count"] > 0
    assert SENTENCE not in job.verdict["notes"]


def test_the_options_are_in_the_run(job: FinishedJob) -> None:
    options: dict[str, Any] = open_run(job.run).info.options
    assert options["cpu_profiling_duration_s"] == LIMIT_S
    assert options["file_rotation_s"] is None
