"""Rules on running jobs, with real jobs, processes and receivers: notification, stop, failure."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stepscope.rule_feed import recorded_rules
from stepscope.schema import DeliveryState, JobState, JobStatus, RuleRecord
from stepscope.spool import process_start_ticks
from stepscope.store import open_run
from tests.support import waiting
from tests.support.under_stepscope import E2E, JOB_TIMEOUT_S, STEPSCOPE, run_under
from tests.support.webhooks import receiving

wait_until = functools.partial(waiting.wait_until, timeout_s=60.0)

STALLING = str(E2E / "watch" / "stalling.py")
RULE = "DataloaderBottleneck"
SCAN_S = 8
SCAN_NS = SCAN_S * 1_000_000_000
HEALTHY_STEPS = 150
ALWAYS = """
from stepscope.rules import Rule

class Always(Rule):
    def check(self, signals):
        return self.finding(triggered=1, sentences=["it always fires."])
"""


class StallingJob:
    """A job under `stepscope run` whose input stalls, and which ends, on request."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.run = directory / "run"
        self.stall, self.until, self.out = (
            directory / "stall",
            directory / "until",
            directory / "seen",
        )
        self.errors = directory / "errors"
        command = [*STEPSCOPE, "run", "--quiet", "--out", str(self.run), *options, "--"]
        script = [STALLING, "--stall", self.stall, "--until", self.until, "--out", self.out]
        with self.errors.open("wb") as errors:
            self.launcher = subprocess.Popen(
                [*command, sys.executable, *map(str, script)],
                stderr=errors,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )

    @property
    def step_count(self) -> int:
        """Number of steps in the run."""
        if not (self.run / "tables" / "spans").is_dir():
            return 0
        rows = open_run(self.run).table("spans", ["seq"], condition="kind = 'optimizer'")
        return len(rows["seq"])

    @property
    def record(self) -> RuleRecord:
        """Results of the rules, as recorded by the watch process."""
        record = recorded_rules(open_run(self.run))
        assert record is not None
        return record

    @property
    def status(self) -> JobStatus:
        """The status of the job."""
        (status,) = open_run(self.run).statuses().values()
        return status

    def start_stall(self) -> int:
        """Stall the input after some healthy steps; returns the epoch time in nanoseconds."""
        wait_until(lambda: self.step_count > HEALTHY_STEPS)
        start_ns = time.time_ns()
        self.stall.touch()
        return start_ns

    def wait(self) -> int:
        """Wait for the exit status of `stepscope run`."""
        return self.launcher.wait(JOB_TIMEOUT_S)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., StallingJob]]:
    """Start jobs, which are killed after the test."""
    started: list[StallingJob] = []

    def start_job(*options: str) -> StallingJob:
        scan = ("--scan-interval", str(SCAN_S), "--window", "off")
        started.append(StallingJob(tmp_path, *scan, *options))
        return started[-1]

    yield start_job
    for job in started:
        if job.launcher.poll() is None:
            os.killpg(job.launcher.pid, signal.SIGKILL)
            job.launcher.wait()


@pytest.mark.seed("DBP-15", "DIAG-06")
def test_a_stall_is_found_within_one_interval_while_the_job_trains(
    start: Callable[..., StallingJob],
) -> None:
    with receiving() as receiver:
        job = start("--rules", f"{RULE},StepOutlier", "--webhook", receiver.url, "--fail-on", RULE)
        stall_ns = job.start_stall()
        follower = subprocess.Popen(
            [*STEPSCOPE, "watch", str(job.run), "--json"], stdout=subprocess.PIPE
        )
        wait_until(lambda: RULE in job.record.recorded_ns)
        before = job.step_count
        wait_until(lambda: job.step_count > before)  # the job continues
        job.until.touch()
        assert job.wait() == 3
        lines = [json.loads(line) for line in follower.communicate(timeout=30)[0].splitlines()]
    (finding,) = [rule_finding for rule_finding in job.record.fired if rule_finding.rule == RULE]
    visible_ns = int(job.out.read_text())
    recorded_ns = job.record.recorded_ns[RULE]
    assert finding.first_ns is not None
    assert finding.last_ns is not None
    # Its time is that of a stalled step, …
    assert stall_ns < finding.last_ns <= job.status.heartbeat_ns
    # … and it is recorded before the end of the scan after the one in which the stall is visible.
    assert stall_ns < recorded_ns < visible_ns + 2 * SCAN_NS
    assert job.status.ended_ns is not None
    assert recorded_ns < job.status.ended_ns
    assert (job.status.state, job.status.exit_code) == (JobState.COMPLETED, 0)
    deliveries = [body for body in receiver.bodies if body["rule"] == RULE]
    assert len(deliveries) == 1
    assert deliveries[0]["finding"]["first_ns"] == finding.first_ns
    assert f"The job succeeded, but {RULE} fired" in job.errors.read_text()
    assert "Rules that fired" in job.errors.read_text()
    assert [line["progress"] for line in lines][-1] == "ended"
    assert len({line["end_ns"] for line in lines}) == len(lines) >= 2
    assert RULE in [rule_finding["rule"] for rule_finding in lines[-1]["findings"]]


@pytest.mark.seed("DBT-10", "DBT-13")
def test_a_job_is_stopped_by_a_rule(start: Callable[..., StallingJob]) -> None:
    with receiving() as receiver:
        job = start("--rule", RULE, "--stop-on", RULE, "--webhook", receiver.url)
        job.start_stall()
        assert job.wait() == -signal.SIGTERM
        assert [body["rule"] for body in receiver.bodies] == [RULE]
    status = job.status
    assert (status.state, status.signal) == (JobState.STOPPED, signal.SIGTERM)
    assert status.reason == f"the rule {RULE} fired and stopped the job (signal 15)"
    assert job.record.progress == "ended"
    states = {delivery.action: delivery.state for delivery in job.record.deliveries}
    assert states == {"stop": DeliveryState.SENT, "webhook": DeliveryState.SENT}
    errors = job.errors.read_text()
    assert f"stop the job ({RULE}): done" in errors
    checked = subprocess.run(
        [*STEPSCOPE, "rules", "check", str(job.run)], capture_output=True, text=True
    )
    assert checked.returncode == 3
    assert f"stop the job ({RULE}): done" in checked.stdout


@pytest.mark.extended("test_a_job_is_stopped_by_a_rule")
def test_a_job_that_ignores_sigterm_is_killed_with_its_children(tmp_path: Path) -> None:
    (tmp_path / "always.py").write_text(ALWAYS)
    pids = tmp_path / "pids"
    job = run_under(
        tmp_path / "run",
        *("sh", "-c", f"trap '' TERM; sleep 300 & echo $! > {pids}; while :; do wait; done"),
        options=(
            *("--rules", "always.py:Always", "--stop-on", "Always"),
            *("--scan-interval", "1", "--stop-grace", "1"),
        ),
    )
    assert job.code == -signal.SIGKILL
    (status,) = open_run(job.run).statuses().values()
    assert (status.state, status.signal) == (JobState.STOPPED, signal.SIGKILL)
    assert "the rule Always fired" in str(status.reason)
    assert process_start_ticks(pids.read_text().strip()) is None


@pytest.mark.extended("the opposite case")
def test_a_job_without_findings_succeeds(tmp_path: Path) -> None:
    job = run_under(tmp_path / "run", "true", options=("--fail-on", RULE))
    assert job.code == 0, job.stderr
    assert "Rules that fired" not in job.stderr


@pytest.mark.extended("exit statuses are in tests/faults")
def test_a_job_that_fails_keeps_its_exit_status(tmp_path: Path) -> None:
    (tmp_path / "always.py").write_text(ALWAYS)
    options = ("--rule", "always.py:Always", "--fail-on", "Always", "--scan-interval", "1")
    job = run_under(tmp_path / "run", "sh", "-c", "sleep 1; exit 7", options=options)
    assert job.code == 7
    assert "Always  it always fires." in job.stderr


@pytest.mark.extended("another job; commands are in tests/unit/watch")
@pytest.mark.seed("DBT-09")
def test_a_command_is_run_on_a_finding(tmp_path: Path) -> None:
    (tmp_path / "always.py").write_text(ALWAYS)
    out = tmp_path / "out.json"
    job = run_under(
        tmp_path / "run",
        *("sleep", "1"),
        options=("--rule", "always.py:Always", "--on-finding", f"cat >> {out}"),
    )
    assert job.code == 0, job.stderr
    delivery: dict[str, Any] = json.loads(out.read_text())
    assert (delivery["rule"], delivery["run"]) == ("Always", str(job.run))


def outliers_in(report: str | bytes) -> dict[str, Any]:
    """Return the finding of one rule in a report in JSON."""
    finding = json.loads(report)["rules"]["StepOutlier"]
    assert isinstance(finding, dict)
    return finding


@pytest.mark.extended("a long job; reports of a job in progress are in tests/unit/watch")
@pytest.mark.seed("DBR-01")
def test_the_report_is_written_while_the_job_runs_and_at_its_end(
    start: Callable[..., StallingJob], tmp_path: Path
) -> None:
    path = tmp_path / "report.json"
    job = start("--report", str(path), "--rule", "StepOutlier", "--set", "StepOutlier.stddev=4")
    wait_until(path.exists)
    assert job.launcher.poll() is None, "written before the end of the job"
    early = outliers_in(path.read_text())
    job.until.touch()
    assert job.wait() == 0
    late = outliers_in(path.read_text())
    assert late["Datapoints"] > early["Datapoints"]
    assert "stddev:4" in str(late["RuleParameters"]).replace(" ", "")
    options = ("--rule", "StepOutlier", "--set", "StepOutlier.stddev=4", "--json")
    again = subprocess.run(
        [*STEPSCOPE, "report", str(job.run), *options], capture_output=True, check=True
    )
    assert outliers_in(again.stdout) == late


@pytest.mark.extended("a long job; the report of a job in progress is in the test above")
@pytest.mark.seed("DBR-01", "DBR-02", "DBR-03")
def test_page_notebook_and_a_file_per_rule_are_there_while_the_job_runs(
    start: Callable[..., StallingJob], tmp_path: Path
) -> None:
    directory = tmp_path / "report"
    page, notebook = directory / "profiler-report.html", directory / "profiler-report.ipynb"
    finding = directory / "profiler-reports" / f"{RULE}.json"
    job = start("--report", str(directory))
    job.start_stall()
    wait_until(finding.exists)
    early_pages = page.read_text(), notebook.read_text()
    early = json.loads(finding.read_text())
    assert job.launcher.poll() is None, "written before the end of the job"
    assert all("still running" in text or '"in_progress":true' in text for text in early_pages)
    job.until.touch()
    assert job.wait() == 0
    late = json.loads(finding.read_text())
    assert late["RuleTriggered"] > 0
    assert late["Datapoints"] > early["Datapoints"]
    recorded = {result.rule: result for result in job.record.findings}
    assert late["Violations"] == recorded[RULE].violations
    assert '"in_progress":false' in page.read_text()
    assert f"Report: {directory}" in job.errors.read_text()
    cells = json.loads(notebook.read_text())["cells"]
    assert all(cell["outputs"] for cell in cells if cell["source"][0].startswith("show("))
    assert {path.stem for path in finding.parent.iterdir()} == recorded.keys()


@pytest.mark.extended("another job")
def test_a_report_that_cannot_be_written_at_the_end_is_announced(tmp_path: Path) -> None:
    (tmp_path / "reports").mkdir()
    command = [*STEPSCOPE, "run", "--report", "reports/report.json", "--", sys.executable, "-c"]
    process = subprocess.run(
        [*command, "import os; os.rmdir('reports')"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0
    lines = [line for line in process.stderr.splitlines() if "report was not written" in line]
    assert len(lines) == 1, process.stderr
    assert lines[0].endswith("reports is not a directory; create it or use another path.")


@pytest.mark.extended("three more jobs")
@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--report", "report.pdf"), "no known format"),
        (("--report", "absent/report.html"), "absent is not a directory"),
        (("--report", "report.html", "--no-rules"), "--no-rules conflicts"),
    ],
)
def test_a_report_that_cannot_be_written_is_refused_before_the_job_starts(
    tmp_path: Path, options: tuple[str, ...], text: str
) -> None:
    command = [*STEPSCOPE, "run", *options, "--", sys.executable, "-c", "open('ran', 'w')"]
    process = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert process.returncode == 2
    assert text in process.stderr
    assert not (tmp_path / "ran").exists()
