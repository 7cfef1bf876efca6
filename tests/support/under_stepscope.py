"""Scripts under `stepscope run`, and the output of commands on their runs."""

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

from tests.support.command import run_command

E2E = Path(__file__).parents[1] / "e2e"
STEPSCOPE = [sys.executable, "-m", "stepscope"]
TORCHRUN = (
    *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"),
    "--local-addr=127.0.0.1",  # the name of the machine may have no address
)
JOB_TIMEOUT_S = 600
"""Only a job that hangs takes as long, however busy the machine is."""
TIMEOUT_S = 120.0


@dataclass(frozen=True)
class FinishedJob:
    """A job that has ended under `stepscope run`."""

    run: Path
    code: int
    stdout: str
    stderr: str

    def payload(self, *arguments: str) -> dict[str, Any]:
        """Return the JSON of `stepscope show RUN VIEW`, or of another command."""
        return command_json(*arguments, run=self.run)

    @property
    def verdict(self) -> dict[str, Any]:
        """The verdict of the run."""
        return self.payload("diagnose")

    def steps(self, rank: int = 0) -> dict[str, Any]:
        """Return the steps of one rank."""
        ranks: list[dict[str, Any]] = self.payload("show", "steps")["ranks"]
        return ranks[rank]


def command_json(command: str, *view: str, run: Path) -> dict[str, Any]:
    """Return the JSON that a command prints about a run."""
    done = run_command(run.parent, command, str(run.resolve()), *view, "--json")
    assert done.returncode == 0, done.stderr
    payload: dict[str, Any] = json.loads(done.stdout)
    return payload


def run_under(
    run: Path, *command: str, options: tuple[str, ...] = (), strict: bool = True, **environment: str
) -> FinishedJob:
    """Run a command under `stepscope run`.

    Args:
        strict: raise exceptions of probes into the job, so that they show.
    """
    variables = {**os.environ, **environment}
    if strict:
        variables["STEPSCOPE_STRICT"] = "1"
    done = subprocess.run(
        [*STEPSCOPE, "run", "--out", str(run), *options, "--", *command],
        capture_output=True,
        text=True,
        timeout=JOB_TIMEOUT_S,
        env=variables,
        cwd=run.parent,
    )
    return FinishedJob(run, done.returncode, done.stdout, done.stderr)


def label(script: Path, name: str) -> str:
    """Return a label at the top of a script: SUSPECT, CAUSE, EXPECTED_STEPS or BURNERS."""
    for line in script.read_text().splitlines():
        if line.startswith(f"{name} = "):
            return line.partition(" = ")[2].partition("#")[0].strip().strip('"')
    raise AssertionError(f"{script} has no label {name}")


def bearer_of(url: str) -> dict[str, str]:
    """Return the header with the token in an address that `stepscope ui` printed."""
    token = url.partition("?token=")[2]
    return {"Authorization": f"Bearer {token}"} if token else {}


@contextmanager
def serving(
    *options: str, cwd: Path | None = None, **environment: str
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Start `stepscope ui`; yields its printed address and its process, ended as by Ctrl-C."""
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
            process.communicate(timeout=TIMEOUT_S)
        finally:
            process.kill()


@contextmanager
def training(run: Path, directory: Path) -> Iterator[subprocess.Popen[str]]:
    """Start a job that trains until it is stopped, and can be stopped in the web UI.

    Args:
        run: directory of the run.
        directory: a directory for the files that `watch/stalling.py` waits for and writes.
    """
    script = [E2E / "watch" / "stalling.py", "--stall", directory / "stall"]
    script += ["--until", directory / "until", "--out", directory / "seen"]
    job = [sys.executable, *map(str, script)]
    with subprocess.Popen(
        [*STEPSCOPE, "run", "--quiet", "--allow-stop", "--no-rules", "--out", str(run), "--", *job],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as launcher:
        try:
            yield launcher
        finally:
            if launcher.poll() is None:
                os.killpg(launcher.pid, signal.SIGKILL)
