"""Result of a trial: reports that are accepted, and the reasons of refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stepscope.errors import TrialError
from stepscope.trials import JobSource, Schedule, processes

SCHEDULE = Schedule(warmup_step_count=5, step_count=20, timeout_s=60)


def test_the_errors_of_a_supervisor_that_cannot_run_the_job_are_quoted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    supervisor = tmp_path / "supervisor.py"
    supervisor.write_text(
        "import sys; sys.stdin.read(); print('stepscope: no proc here', file=sys.stderr)\n"
        """print('{"report": null, "exit_code": null, "is_isolated": true}')"""
    )
    monkeypatch.setattr(processes, "SANDBOX", supervisor)
    source = JobSource(command=["true"], directory="/", environment={}, notes=[])
    with pytest.raises(
        TrialError, match=r"The supervisor of the trial could not run the job: stepscope: no"
    ):
        processes.run_trial(source, SCHEDULE, changes={})


def test_a_supervisor_may_read_a_long_request_late(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    supervisor = tmp_path / "supervisor.py"
    supervisor.write_text(
        "import json, sys; length = len(json.load(sys.stdin)['environment']['LONG'])\n"
        """print('{"report": null, "exit_code": %s, "is_isolated": true}' % length)"""
    )
    monkeypatch.setattr(processes, "SANDBOX", supervisor)
    monkeypatch.setattr(processes, "POLL_S", 0.0001)  # long before the supervisor has started
    environment = {"LONG": "x" * 1_000_000}
    source = JobSource(command=["true"], directory="/", environment=environment, notes=[])
    with pytest.raises(TrialError, match="The job failed in the trial with status 1000000"):
        processes.run_trial(source, SCHEDULE, changes={})


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ({"timed_out": True}, "The job did not reach 25 steps in 60 s"),
        (
            {"output": "EOFError: EOF", "exit_code": 1},
            "The job reads standard input, which a trial",
        ),
        ({"exit_code": 0}, "The job ended without a training step that stepscope recognises"),
        ({"exit_code": 3}, "The job failed in the trial with status 3: it printed nothing"),
        ({}, "The supervisor of the trial could not run the job: it printed nothing"),
    ],
)
def test_answers_without_a_report(answer: dict[str, Any], sentence: str) -> None:
    with pytest.raises(TrialError, match=sentence):
        processes._check(processes.Answer(**answer), SCHEDULE)


def test_a_supervisor_that_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    supervisor = tmp_path / "supervisor.py"
    supervisor.write_text("raise SystemExit('no namespaces')")
    monkeypatch.setattr(processes, "SANDBOX", supervisor)
    # A request that does not fit into the pipe breaks it: the supervisor does not read.
    environment = {"LONG": "x" * 1_000_000}
    source = JobSource(command=["true"], directory="/", environment=environment, notes=[])
    with pytest.raises(TrialError, match="The supervisor of the trial failed: no namespaces"):
        processes.run_trial(source, SCHEDULE, changes={})
