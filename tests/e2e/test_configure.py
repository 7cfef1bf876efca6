"""Changes of the configuration of real jobs while they run."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepscope.rule_feed import recorded_rules
from stepscope.store import open_run
from tests.support import waiting
from tests.support.under_stepscope import JOB_TIMEOUT_S, STEPSCOPE, TORCHRUN
from tests.support.windowed_jobs import WindowedJob, starting, stored

pytestmark = pytest.mark.seed("DBP-10")
wait_until = functools.partial(waiting.wait_until, timeout_s=90.0)
in_detail = pytest.mark.extended(
    "test_interval_windows_and_rules_of_a_running_job changes all three"
)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., WindowedJob]]:
    """Start jobs, which are killed after the test."""
    with starting(tmp_path) as start_job:
        yield start_job


def configure(job: WindowedJob, *options: str) -> subprocess.CompletedProcess[str]:
    """Run `stepscope configure` after the job has started to work."""
    wait_until(lambda: open_run(job.run).has("spans"))
    return subprocess.run(
        [*STEPSCOPE, "configure", str(job.run), *options],
        capture_output=True,
        text=True,
        timeout=JOB_TIMEOUT_S,
    )


def show(job: WindowedJob, view: str) -> dict[str, Any]:
    """Return the payload of a view."""
    command = [*STEPSCOPE, "show", str(job.run), view, "--json"]
    payload: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True).stdout)
    return payload


def sample_times(job: WindowedJob) -> Any:
    """Return the times of the samples of the node."""
    if not open_run(job.run).has("metrics"):
        return np.array([], dtype=np.int64)
    condition = "metric = 'cpu_busy_ratio' AND device = ''"
    return open_run(job.run).table("metrics", ["t_ns"], condition=condition)["t_ns"]


@pytest.mark.seed("DBP-02", "DBI-07")
def test_interval_windows_and_rules_of_a_running_job(start: Callable[..., WindowedJob]) -> None:
    job = start("--window", "asked", "--scan-interval", "2", "--interval", "500")
    wait_until(lambda: len(sample_times(job)) > 6)
    options = ("--interval", "100", "--schedule", "start_step=0,num_steps=4,every=500")
    rules = ("--without-rule", "StepOutlier", "--set", "LowGPUUtilization.threshold_p95=60")
    done = configure(job, *options, *rules, "--json")
    assert done.returncode == 0, done.stderr
    configuration = json.loads(done.stdout)
    assert configuration["interval_ns"] == 100_000_000
    assert configuration["schedules"] == ["steps 0 to 3 every 500 steps"]
    assert "StepOutlier" in configuration["other_rules"]
    (node,) = open_run(job.run).nodes().values()

    def changed_ns() -> int:
        changes = next(iter(open_run(job.run).nodes().values())).interval_changes
        return changes[0].t_ns if changes else 2**62

    wait_until(lambda: len(job.facts()) >= 2)
    wait_until(lambda: np.count_nonzero(sample_times(job) > changed_ns()) > 30)
    assert job.end() == 0
    # The interval: five times shorter from the recorded time on.
    times = sample_times(job)
    before, after = times[times < changed_ns()], times[times >= changed_ns()]
    assert 3 < np.median(np.diff(before)) / np.median(np.diff(after)) < 7
    assert node.sample_interval_ns == 500_000_000
    # The windows: at their steps, none before they were added.
    windows = [(fact["first_step"] % 500, fact["step_count"]) for fact in job.facts()]
    assert set(windows) == {(0, 4)}
    assert all(fact["first_step"] > 0 for fact in job.facts())
    assert len(stored(job.run)) == len(job.facts())
    # The rules, from the start of the run.
    record = recorded_rules(open_run(job.run))
    assert record is not None
    findings = {finding.rule: finding for finding in record.findings}
    assert "StepOutlier" not in findings
    assert findings["LowGPUUtilization"].rule_parameters.startswith("threshold_p95:60")
    assert len(findings) > 5
    # The history, on every surface.
    changes = show(job, "overview")["configuration_changes"]
    assert [(c["setting"], c["before"], c["after"]) for c in changes] == [
        ("sampling interval", "500 ms", "100 ms"),
        ("scheduled window", "none", "steps 0 to 3 every 500 steps"),
        ("rules", "all", "all but StepOutlier"),
        ("LowGPUUtilization.threshold_p95", "default", "60"),
    ]
    assert {c["state"] for c in changes} == {"applied"}
    assert all("stepscope configure" in c["by"] for c in changes)
    report = subprocess.run(
        [
            *STEPSCOPE,
            "report",
            str(job.run),
            "--rule",
            "StepOutlier",
            "-o",
            str(job.run / "r.html"),
        ],
        capture_output=True,
    )
    assert report.returncode == 0
    assert "all but StepOutlier" in (job.run / "r.html").read_text()
    (system,) = show(job, "system")["nodes"]
    assert [c["interval_ns"] for c in system["interval_changes"]] == [100_000_000]
    late = configure(job, "--interval", "200")
    assert late.returncode == 2
    assert "is over" in late.stderr
    assert configure(job).returncode == 0  # it can still be shown


@in_detail
@pytest.mark.seed("DBP-03")
def test_all_ranks_follow_added_schedules(start: Callable[..., WindowedJob]) -> None:
    job = start("--window", "asked", "--no-rules", command=TORCHRUN)
    done = configure(job, "--schedule", "start_step=7,num_steps=3,every=400")
    assert done.returncode == 0, done.stderr
    wait_until(lambda: len(job.facts()) >= 4)
    assert job.end() == 0
    first = sorted((f["first_step"], f["step_count"]) for f in job.facts())[:4]
    assert first[0] == first[1]
    assert first[2] == first[3] == (first[0][0] + 400, 3)
    assert first[0][0] % 400 == 7


@in_detail
@pytest.mark.seed("DBP-09")
def test_a_refused_change_changes_nothing(start: Callable[..., WindowedJob]) -> None:
    job = start("--window", "asked", "--rule", "StepOutlier", "--fail-on", "BatchSize")
    for options, sentence in (
        (("--interval", "300"), "is not one of"),
        (("--rule", "Nope"), "Unknown rule 'Nope'"),
        (("--set", "StepOutlier.nope=1"), "StepOutlier has no parameter 'nope'"),
        (("--set", "LowGPUUtilization.window=9"), "LowGPUUtilization is not evaluated"),
        (("--without-rule", "BatchSize"), "--stop-on or --fail-on"),
        (("--num-steps", "5"), "use `stepscope capture RUN`"),
        (("--start-step", "90000", "--every", "1"), "would overlap"),
    ):
        refused = configure(job, "--interval", "100", *options)
        assert refused.returncode == 2, options
        assert sentence in refused.stderr
        assert "Traceback" not in refused.stderr
    wait_until(lambda: job.step_count() > 20)
    past = configure(job, "--interval", "100", "--start-step", "3")
    assert past.returncode == 2
    assert "the window after 3 steps is in the past: the job is in step" in past.stderr
    assert "nothing was changed" in past.stderr
    same = configure(job, "--interval", "500")
    assert same.returncode == 0
    assert "Nothing to change." in same.stderr
    assert job.end() == 0
    (node,) = open_run(job.run).nodes().values()
    assert node.interval_changes == []
    assert show(job, "overview")["configuration_changes"] == []
    refusals = show(job, "configuration")["changes"]
    assert {c["state"] for c in refusals} == {"refused"}
    assert {c["setting"] for c in refusals} == {"sampling interval", "scheduled window"}


@in_detail
def test_several_schedules_of_a_job_and_their_removal(start: Callable[..., WindowedJob]) -> None:
    # Far enough apart for a busy machine to write the first window before the second begins.
    steps = ("--start-step", "300", "--start-step", "900", "--num-steps", "3", "--num-steps", "5")
    job = start("--window", "asked", "--no-rules", *steps, "--schedule", "start_step=90000000")
    wait_until(lambda: len(job.facts()) >= 2)
    windows = sorted((fact["first_step"], fact["step_count"]) for fact in job.facts())
    assert windows == [(300, 3), (900, 5)]
    done = configure(job, "--no-windows")
    assert done.returncode == 0, done.stderr
    assert job.end() == 0
    (status,) = open_run(job.run).statuses().values()
    assert status.notes == []  # a removed window is not a missing one
    assert len(stored(job.run)) == 2


@in_detail
def test_a_monitor_that_takes_over_keeps_the_configuration(
    start: Callable[..., WindowedJob],
) -> None:
    job = start("--window", "asked", "--no-rules")
    options = ("--interval", "100", "--schedule", "start_step=0,num_steps=2,every=300")
    assert configure(job, *options).returncode == 0
    wait_until(lambda: next(iter(open_run(job.run).nodes().values())).interval_changes)
    os.kill(job.monitor(), signal.SIGKILL)
    killed_ns = int(sample_times(job).max())
    wait_until(lambda: np.count_nonzero(sample_times(job) > killed_ns + 5_000_000_000) > 20)
    wait_until(lambda: len(job.facts()) >= 2)
    assert job.end() == 0
    (node,) = open_run(job.run).nodes().values()
    assert [change.interval_ns for change in node.interval_changes] == [100_000_000]
    times = sample_times(job)
    later = times[times > killed_ns + 5_000_000_000]
    assert np.median(np.diff(later)) < 250_000_000 <= node.sample_interval_ns / 2
    assert {fact["first_step"] % 300 for fact in job.facts()} == {0}
