"""`stepscope attach PID`: record a job that runs already, from outside."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import msgspec

from stepscope import budget, diagnosis, errors, masking, schema
from stepscope._version import __version__
from stepscope.cli.job.job_run import conclude
from stepscope.cli.job.launcher import MONITOR_TIMEOUT_S, explain_monitor_failure
from stepscope.cli.job.places import make_run, make_spool, new_run_id
from stepscope.cli.options.common import json_option
from stepscope.cli.options.recording import budget_option, interval_option
from stepscope.cli.output import locate, print_json, say, suggest
from stepscope.cli.writers.verdict import print_states
from stepscope.monitor import (
    DEFAULT_SPOOL_LIMIT_BYTES,
    AttachSettings,
    Handshake,
    JobExit,
    MonitorConfig,
    Target,
    WindowSettings,
    check_target,
    examine_target,
    open_log,
    start_monitor,
    take_snapshot,
)

DETACH_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
POLL_S = 0.2


@click.command(
    "attach",
    help="Record the running job of process PID and its children from outside, until it ends or "
    "Ctrl-C, which does not affect it.\n\n"
    "Recorded are the use of CPU, memory and GPUs, and stack samples if py-spy is installed. For "
    "steps, phases and times of batches, start the job with `stepscope run -- CMD`.\n\n"
    "With --once nothing is recorded: it says what each process does now, and which one the others "
    "wait for.",
)
@click.argument("pid", type=click.IntRange(min=1), metavar="PID")
@click.option(
    "--out", metavar="RUN", help="Run directory to create. Default: stepscope-runs/<name>."
)
@interval_option
@budget_option
@click.option(
    "--duration",
    "duration_s",
    type=click.FloatRange(min=0, min_open=True),
    metavar="S",
    help="Detach after S seconds. Default: at the end of the job.",
)
@click.option(
    "--once",
    is_flag=True,
    help="Say what the processes do now, for example where they hang, and end.",
)
@json_option("stepscope.diagnosis.Verdict", "stepscope.diagnosis.ProcessStates")
def command(pid: int, duration_s: float | None, once: bool, as_json: bool, **values: Any) -> None:
    if once:
        _describe(pid, as_json=as_json)
        return
    target = examine_target(pid)
    with _blocked_signals():  # none may end this process without ending the recording
        log = open_log()
        location, spool, monitor = _start(target, log, **values)
        _announce(target, location)
        _await_end(monitor, spool, duration_s)
    _await_monitor(monitor, spool, location, log)
    conclude(location, as_json=as_json)


def _describe(pid: int, *, as_json: bool) -> None:
    """Print what the processes of a job do now.

    Raises:
        UsageError: the process does not run, or belongs to another user.
    """
    check_target(pid)
    snapshot = take_snapshot(pid)
    states = diagnosis.describe_processes(
        snapshot.processes, snapshot.duration_ns, snapshot.moved, snapshot.notes
    )
    if states is None:
        raise errors.UsageError(f"Process {pid} has just ended.")
    if as_json:
        print_json(states)
    else:
        print_states(states)


@contextmanager
def _blocked_signals() -> Iterator[None]:
    earlier = signal.pthread_sigmask(signal.SIG_BLOCK, DETACH_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, earlier)


def _start(
    target: Target, log: int, *, out: str | None, interval_ms: int, monitor_budget: budget.Budget
) -> tuple[Path, Path, subprocess.Popen[bytes]]:
    """Create the run and its spool, and start the monitor.

    Raises:
        StepscopeError: nothing can be recorded.
    """
    run_id = new_run_id(target.command)
    spool, problems = make_spool(target.trace_directory, run_id, DEFAULT_SPOOL_LIMIT_BYTES)
    has_windows = target.kineto_directory is not None
    info = schema.RunInfo(
        schema_version=schema.SCHEMA_VERSION,
        run_id=run_id,
        created_ns=time.time_ns(),
        command=masking.mask(target.command),
        working_directory=target.working_directory,
        stepscope_version=__version__,
        options={
            "attached_pid": target.pid,
            "interval_ms": interval_ms,
            "monitor_budget": msgspec.to_builtins(monitor_budget),
            "spool": str(spool) if spool else None,
            "window": "asked" if has_windows else "off",
        },
    )
    directory = make_run(out, info, problems, spool=spool)
    if spool is None or directory is None:
        raise errors.UsageError(f"Nothing can be recorded: {'; '.join(problems)}.")
    for problem in problems:
        say(problem)
    config = MonitorConfig(
        run=str(directory.path),
        spool=str(spool),
        job_pid=target.pid,
        launcher_pid=None,
        interval_ms=interval_ms,
        budget=monitor_budget,
        windows=WindowSettings(
            enabled=has_windows,
            automatic=False,
            kineto_directory=target.kineto_directory,
            by_duration=True,
        ),
        attached=AttachSettings(py_spy=target.py_spy, limits=target.limits),
    )
    return directory.path, spool, start_monitor(config, log)


def _announce(target: Target, location: Path) -> None:
    """Say what is recorded, and what cannot be."""
    stacks = [] if target.py_spy is None else ["stacks of Python processes"]
    say(
        f"Recording process {target.pid} and its children into {location}: "
        f"{', '.join(['CPU, memory and GPUs', *stacks])}. Ctrl-C detaches; the job goes on."
    )
    for limit in target.limits:
        say(f"Not recorded: {limit}.")
    if target.kineto_directory is not None:
        say(f"For a detailed window: {suggest('capture', locate(location), '--seconds', '2')}")


def _await_end(monitor: subprocess.Popen[bytes], spool: Path, duration_s: float | None) -> None:
    """Wait for the end of the job; tell the monitor when it is time to detach before."""
    deadline = float("inf") if duration_s is None else time.monotonic() + duration_s
    while monitor.poll() is None:
        received = signal.sigtimedwait(DETACH_SIGNALS, POLL_S)
        if received is not None or time.monotonic() > deadline:
            detached = JobExit(exit_code=0, signal=None, ended_monotonic_ns=time.monotonic_ns())
            Handshake(spool).write_exit(detached)
            return


def _await_monitor(monitor: subprocess.Popen[bytes], spool: Path, location: Path, log: int) -> None:
    """Wait until the recording is in the run.

    Raises:
        StepscopeError: the monitor has failed.
    """
    try:
        code = monitor.wait(MONITOR_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        say(f"The monitor {monitor.pid} is still storing records; the verdict so far follows.")
        return
    if code:
        raise errors.StepscopeError(explain_monitor_failure(log, spool, location))
