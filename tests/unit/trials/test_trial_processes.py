"""Result of a trial: reports that are accepted, and the reasons of refusals."""

from __future__ import annotations

from pathlib import Path

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
    with pytest.raises(TrialError, match=r"could not run the job: stepscope: no proc here"):
        processes.run_trial(source, SCHEDULE, changes={})
