"""`stepscope run -- CMD`: launch a job under the profiler, print the verdict at the end."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click

from stepscope._version import __version__
from stepscope.capture.bootstrap import environment
from stepscope.cli.launcher import Launcher, exit_like, stop_is_pending
from stepscope.cli.options import json_option, parse_bytes
from stepscope.cli.places import git_revision, make_spool, new_run_id, run_locations
from stepscope.cli.status_line import StatusLine
from stepscope.cli.verdict_text import print_verdict
from stepscope.errors import RunExistsError, StepscopeError, UsageError
from stepscope.monitor.config import DEFAULT_INTERVAL_MS, INTERVALS_MS, MonitorConfig
from stepscope.monitor.exchange import Exchange, JobExit
from stepscope.monitor.host import node_name
from stepscope.monitor.launch import LOG_NAME, start_monitor
from stepscope.monitor.masking import mask
from stepscope.schema import SCHEMA_VERSION, RunInfo
from stepscope.store import RunWriter, create_run

MONITOR_PATIENCE_S = 60.0
"""How long the last of the recording may take to reach the run before we leave it running."""


@click.command(
    "run",
    context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False},
    help="Launch CMD under the profiler and say at the end what it was waiting for.\n\n"
    "CMD is the command as you would type it (python train.py, torchrun …); no line of the "
    "script changes. The exit status is CMD's own.",
)
@click.option("--out", metavar="RUN", help="Run directory to make. Default: stepscope-runs/<name>.")
@click.option(
    "--interval",
    "interval_ms",
    type=click.Choice([str(ms) for ms in INTERVALS_MS]),
    default=str(DEFAULT_INTERVAL_MS),
    show_default=True,
    help="Milliseconds between samples of the node.",
)
@click.option("--spool", metavar="DIR", help="Local directory for the span logs.")
@click.option(
    "--spool-limit",
    callback=parse_bytes,
    default="256MiB",
    show_default=True,
    help="What the span logs may hold; beyond it, records are dropped and counted.",
)
@click.option(
    "--window",
    type=click.Choice(["auto", "off"]),
    default="auto",
    show_default=True,
    help="Let the framework's own profiler record a few steps where coarse times need it.",
)
@click.option("--quiet", is_flag=True, help="No status line; the verdict only.")
@json_option
@click.argument("command", nargs=-1, required=True, metavar="-- CMD…", type=click.UNPROCESSED)
def command(  # noqa: PLR0917 - click passes options by name
    out: str | None,
    interval_ms: str,
    spool: str | None,
    spool_limit: int,
    window: str,
    quiet: bool,
    as_json: bool,
    command: tuple[str, ...],
) -> None:
    _check_command(command)
    run_id = new_run_id(command)
    spool_path, problems = make_spool(spool, run_id, spool_limit)
    info = RunInfo(
        schema_version=SCHEMA_VERSION,
        run_id=run_id,
        created_ns=time.time_ns(),
        command=mask(command),
        working_directory=str(Path.cwd()),
        stepscope_version=__version__,
        git_revision=git_revision(),
        options={
            "interval_ms": int(interval_ms),
            "spool": str(spool_path) if spool_path else None,
            "spool_limit_bytes": spool_limit,
            "window": window,
        },
    )
    try:
        location = _make_run(out, info, problems)
    except StepscopeError:
        if spool_path is not None:
            spool_path.rmdir()
        raise
    if spool_path is None or location is None:
        _say("nothing is recorded: " + "; ".join(problems))
        exit_like(_run_alone(command))
    for problem in problems:
        _say(problem)
    session = _Session(location, spool_path, spool_limit, int(interval_ms), window)
    exit_like(session.run(command, quiet=quiet, as_json=as_json))


class _Session:
    """One job, its monitor, and what is said about them."""

    def __init__(
        self, location: Path, spool: Path, spool_limit: int, interval_ms: int, window: str
    ) -> None:
        self._location = location
        self._spool = spool
        self._limit = spool_limit
        self._interval_ms = interval_ms
        self._window = window

    def run(self, command: Sequence[str], *, quiet: bool, as_json: bool) -> JobExit:
        """Run the job to its end and print the verdict."""
        status = StatusLine(self._location, sys.stderr if not quiet else None)
        launcher = Launcher(
            exchange=Exchange(self._spool), start_monitor=self._start_monitor, on_tick=status.tick
        )
        job_environment = {
            **os.environ,
            **environment(str(self._spool), self._limit),
            "STEPSCOPE_WINDOW": self._window,
        }
        try:
            job_exit = launcher.run(command, job_environment)
        except UsageError:  # nothing ran: leave no trace, and nothing of anybody's but ours
            (self._location / "run.json").unlink(missing_ok=True)
            _remove_if_empty(self._location)
            shutil.rmtree(self._spool, ignore_errors=True)
            raise
        finally:
            status.clear()
        if self._await_monitor(launcher.monitor):
            self._conclude(as_json=as_json)
        return job_exit

    def _start_monitor(self, job_pid: int) -> subprocess.Popen[bytes] | None:
        config = MonitorConfig(
            run=str(self._location),
            spool=str(self._spool),
            spool_limit_bytes=self._limit,
            job_pid=job_pid,
            launcher_pid=os.getpid(),
            interval_ms=self._interval_ms,
        )
        try:
            return start_monitor(config)
        except OSError as error:
            _say(f"the monitor cannot be started: {error}")
            return None

    def _await_monitor(self, monitor: subprocess.Popen[bytes] | None) -> bool:
        """True when everything recorded is in the run."""
        recover = f"stepscope recover {self._location}"
        if monitor is None:
            _say(f"the recording is still in {self._spool}; bring it in with: {recover}")
            return False
        code = self._wait_for_monitor(monitor)
        if code is None:
            _say(
                "the recording goes on in the background; what is known so far follows, and later: "
                f"stepscope diagnose {self._location}"
            )
            return True
        if code == 0:
            shutil.rmtree(self._spool, ignore_errors=True)
            return True
        _say(
            f"the monitor failed ({_last_line(self._spool / LOG_NAME)}); what was recorded is safe "
            f"in {self._spool}: once the cause is gone, bring it in with: {recover}"
        )
        return False

    def _wait_for_monitor(self, monitor: subprocess.Popen[bytes]) -> int | None:
        """The monitor's exit status, None when it stays with processes of the job."""
        exchange = Exchange(self._spool)
        deadline = time.monotonic() + MONITOR_PATIENCE_S
        while time.monotonic() < deadline and not exchange.is_detached():
            if stop_is_pending():
                return None
            try:
                return monitor.wait(0.1)
            except subprocess.TimeoutExpired:
                continue
        return None

    def _conclude(self, *, as_json: bool) -> None:
        try:
            verdict = print_verdict(self._location, as_json=as_json, to_stderr=not as_json)
            RunWriter(self._location, node_name()).put_document("findings", "verdict", verdict)
        except Exception as error:  # noqa: BLE001 - the job's exit status comes first
            _say(f"the verdict cannot be given: {error}; try: stepscope diagnose {self._location}")


def _check_command(command: Sequence[str]) -> None:
    """Find the mistakes that would otherwise show after the run directory exists.

    Raises:
        UsageError: the command or the script cannot be found.
    """
    program = command[0]
    if shutil.which(program) is None:
        script = Path(program)
        if script.suffix == ".py" and script.is_file():
            raise UsageError(
                f"{program} is not executable; run it as: stepscope run -- python {program}"
            )
        raise UsageError(f"cannot find the command {program!r}; check its spelling and PATH")
    if Path(program).name.startswith("python"):
        script_name = next((word for word in command[1:] if not word.startswith("-")), None)
        direct = len(command) > 1 and command[1] == script_name
        if direct and script_name and not Path(script_name).exists():
            raise UsageError(f"the script {script_name} does not exist in {Path.cwd()}")


def _make_run(out: str | None, info: RunInfo, problems: list[str]) -> Path | None:
    """Make the run directory. One that the user named must work; others are tried in turn."""
    if out is not None:
        _check_out(out)
        try:
            create_run(out, info)
        except OSError as error:
            raise UsageError(
                f"the run directory {out} cannot be made: {error.strerror}; name another with --out"
            ) from None
        return Path(out).absolute()
    for location in run_locations(info.run_id):
        try:
            create_run(location, info)
        except RunExistsError:
            continue
        except OSError as error:
            problems.append(f"no run can be made at {location}: {error.strerror}")
            continue
        return location
    return None


def _check_out(out: str) -> None:
    """A run gets a directory of its own.

    Raises:
        UsageError: there are other people's files in it.
    """
    place = Path(out)
    if place.is_dir() and any(place.iterdir()) and not (place / "run.json").exists():
        raise UsageError(f"the directory {out} is not empty; name a new one with --out")


def _remove_if_empty(directory: Path) -> None:
    try:
        directory.rmdir()
    except OSError:
        pass


def _run_alone(command: Sequence[str]) -> JobExit:
    """Run the job without a recording: it must not suffer for ours."""
    launcher = Launcher(exchange=None, start_monitor=lambda pid: None, on_tick=lambda: None)
    return launcher.run(command, os.environ)


def _last_line(log: Path) -> str:
    try:
        lines = log.read_text(errors="replace").strip().splitlines()
    except OSError:
        lines = []
    return lines[-1] if lines else "it left no message"


def _say(text: str) -> None:
    click.echo(f"stepscope: {text}", err=True)
