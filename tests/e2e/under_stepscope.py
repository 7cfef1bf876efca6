"""Running scripts under the profiler, as a user would, and reading what the run says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
STEPSCOPE = [sys.executable, "-m", "stepscope"]
LIMIT_S = 180


@dataclass(frozen=True)
class Finished:
    """A job that has ended under the profiler."""

    run: Path
    code: int
    stdout: str
    stderr: str

    def payload(self, *arguments: str) -> dict[str, Any]:
        """`stepscope show RUN VIEW --json`, or another command's JSON."""
        return command_json(*arguments, run=self.run)

    @property
    def verdict(self) -> dict[str, Any]:
        """The verdict on the run."""
        return self.payload("diagnose")

    def steps(self, rank: int = 0) -> dict[str, Any]:
        """The steps of one rank."""
        ranks: list[dict[str, Any]] = self.payload("show", "steps")["ranks"]
        return ranks[rank]


def command_json(command: str, *view: str, run: Path) -> dict[str, Any]:
    """JSON that a command prints about a run."""
    done = subprocess.run(
        [*STEPSCOPE, command, str(run), *view, "--json"],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def run_under(
    run: Path, *command: str, options: tuple[str, ...] = (), strict: bool = True, **environment: str
) -> Finished:
    """Run a command under `stepscope run`.

    Args:
        strict: whatever fails inside a probe is raised into the job, so that it shows.
    """
    variables = {**os.environ, **environment}
    if strict:
        variables["STEPSCOPE_STRICT"] = "1"
    done = subprocess.run(
        [*STEPSCOPE, "run", "--out", str(run), *options, "--", *command],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env=variables,
        cwd=run.parent,
    )
    return Finished(run, done.returncode, done.stdout, done.stderr)


def label(script: Path, name: str) -> str:
    """The value of a label at the top of a script: SUSPECT, CAUSE, EXPECTED_STEPS, BURNERS."""
    for line in script.read_text().splitlines():
        if line.startswith(f"{name} = "):
            return line.partition(" = ")[2].partition("#")[0].strip().strip('"')
    raise AssertionError(f"{script} has no label {name}")
