"""Result of a trial: reports that are accepted, and the reasons of refusals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stepscope.errors import TrialError
from stepscope.trials import JobSource, Schedule, processes

SCHEDULE = Schedule(warmup_step_count=5, step_count=20, timeout_s=60)
LONG_ENVIRONMENT = {"LONG": "x" * 1_000_000}
"""A request with it does not fit into a pipe."""


@pytest.fixture
def supervise(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., object]:
    """Run a trial by another supervisor: its code, and the environment of the job."""

    def run(code: str, environment: dict[str, str] | None = None) -> object:
        supervisor = tmp_path / "supervisor.py"
        supervisor.write_text(code)
        monkeypatch.setattr(processes, "SANDBOX", supervisor)
        variables = environment or {}
        source = JobSource(command=["true"], directory="/", environment=variables, notes=[])
        return processes.run_trial(source, SCHEDULE, changes={})

    return run


def test_the_errors_of_a_supervisor_that_cannot_run_the_job_are_quoted(
    supervise: Callable[..., object],
) -> None:
    with pytest.raises(
        TrialError, match=r"The supervisor of the trial could not run the job: stepscope: no"
    ):
        supervise(
            "import sys; sys.stdin.read(); print('stepscope: no proc here', file=sys.stderr)\n"
            """print('{"report": null, "exit_code": null, "is_isolated": true}')"""
        )


def test_a_supervisor_may_read_a_long_request_late(
    supervise: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "POLL_S", 0.0001)  # long before the supervisor has started
    with pytest.raises(TrialError, match="The job failed in the trial with status 1000000"):
        supervise(
            "import json, sys; length = len(json.load(sys.stdin)['environment']['LONG'])\n"
            """print('{"report": null, "exit_code": %s, "is_isolated": true}' % length)""",
            LONG_ENVIRONMENT,
        )


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


def test_a_supervisor_that_fails(supervise: Callable[..., object]) -> None:
    with pytest.raises(TrialError, match="The supervisor of the trial failed: no namespaces"):
        supervise("raise SystemExit('no namespaces')", LONG_ENVIRONMENT)  # it does not read
