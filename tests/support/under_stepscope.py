"""Running scripts under the profiler, as a user would, and reading what the run says."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parents[1] / "e2e"
STEPSCOPE = [sys.executable, "-m", "stepscope"]
LIMIT_S = 180
PATIENCE_S = 30.0


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


@contextmanager
def serving(
    *options: str, cwd: Path | None = None, **environment: str
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The printed address, and the process, which is ended as a terminal does."""
    process = subprocess.Popen(
        [*STEPSCOPE, "ui", "--no-browser", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env={**os.environ, **environment},
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip(), process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
        try:
            process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()


@contextmanager
def training(run: Path, place: Path) -> Iterator[subprocess.Popen[str]]:
    """A job that trains until somebody stops it, which its launcher allows.

    Args:
        run: where it is recorded.
        place: a directory for what `watch/stalling.py` waits for and writes.
    """
    script = [HERE / "watch" / "stalling.py", "--stall", place / "stall"]
    script += ["--until", place / "until", "--out", place / "seen"]
    job = [sys.executable, *map(str, script)]
    with subprocess.Popen(
        [*STEPSCOPE, "run", "--quiet", "--allow-stop", "--no-rules", "--out", str(run), "--", *job],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as launcher:  # which closes its pipe
        try:
            yield launcher
        finally:
            if launcher.poll() is None:
                os.killpg(launcher.pid, signal.SIGKILL)
