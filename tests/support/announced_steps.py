"""Jobs that write the number of each step to a file of their own before they take the step."""

from __future__ import annotations

import sys
from pathlib import Path

from stepscope.store import open_run
from tests.support.job_control import JOBS

WITHOUT_RULES = ("--no-rules",)
"""Options of jobs in which the watch process would only take time."""


def announced_command(truth: Path, *arguments: str) -> list[str]:
    """Return the command line of a job that announces its steps in a file."""
    return [sys.executable, str(JOBS / "announced_steps.py"), str(truth), *arguments]


def announced_count(truth: Path) -> int:
    """Return the number of steps that a job has begun, from its own file."""
    return int(truth.read_text() or 0) if truth.exists() else 0


def stored_steps(run: Path) -> list[int]:
    """Return the numbers of the steps in a run, sorted."""
    steps = open_run(run).table("spans", ["value"], condition="kind = 'step'")["value"]
    return sorted(steps.tolist())
