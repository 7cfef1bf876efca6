"""Requests for a window, for a change of the configuration, and for the stop of a job.

Stopping a job, if its launcher allows that, and only on the launcher's machine. The launcher looks
for stop requests in its own local directory, so that looking never makes it wait.
"""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

from stepscope import errors, schema
from stepscope.run import (
    RequestState,
    Run,
    check_windows_enabled,
    choose_contents,
    find_listening_nodes,
    has_ended,
    is_lost,
    make_window_request,
    read_request_statuses,
    send_window_request,
)
from stepscope.server import payloads
from stepscope.server.worker import OpenRuns
from stepscope.watch import (
    STOP_REQUEST_FILE,
    ConfigurationEdit,
    StopRequest,
    read_decision,
    read_stop_request,
    request_configuration,
    user_name,
    write_stop_request,
)

ENDED_BEFORE_WINDOW = "the job ended before the window was recorded"


def capture(
    runs: OpenRuns, *, location: str, revision: int, request: payloads.CaptureRequest
) -> payloads.CaptureAccepted:
    """Send a window request to the monitors.

    Raises:
        UsageError: no monitor can read it, or the request contradicts itself.
    """
    contents = choose_contents(
        full=request.full,
        shapes=request.shapes,
        stacks=request.stacks,
        memory=request.memory,
        flops=request.flops,
        modules=request.modules,
    )
    reader = runs.open(location, revision).reader
    check_windows_enabled(request.run, reader)
    find_listening_nodes(request.run, reader)
    window_request = make_window_request(contents, steps=request.steps)
    send_window_request(location, window_request)
    return payloads.CaptureAccepted(request=window_request.name)


def capture_progress(
    runs: OpenRuns, *, location: str, revision: int, name: str
) -> payloads.CaptureProgress:
    """Collect the statuses of a window request on all nodes."""
    job = runs.open(location, revision).reader.statuses()
    job_is_over = has_ended(job.values())
    nodes = read_request_statuses(location, name, job)
    is_finished = bool(nodes) and all(status.state.is_final for status in nodes.values())
    windows = [window for status in nodes.values() for window in status.windows]
    stored_count = sum(window.state is RequestState.STORED for window in windows)
    failures = [s.message for s in nodes.values() if s.state is RequestState.FAILED]
    failure = None
    if not stored_count and (is_finished or job_is_over):
        failure = failures[0] if failures else ENDED_BEFORE_WINDOW
    return payloads.CaptureProgress(
        request=name,
        finished=is_finished or job_is_over,
        stored_count=stored_count,
        failure=failure,
        nodes=nodes,
    )


def capture_obstacle(run: Run) -> str | None:
    """Reason why no window can be recorded now; None when one can."""
    try:
        check_windows_enabled(run.reader.info.run_id, run.reader)
    except errors.UsageError as error:
        return str(error)
    return configure_obstacle(run)


ENDED_BEFORE_CHANGE = "the job ended before the change was applied"


def configure(
    runs: OpenRuns, *, location: str, revision: int, request: payloads.ConfigureRequest, client: str
) -> payloads.ConfigureAccepted:
    """Request a change of the configuration.

    Raises:
        UsageError: the job cannot be changed, or the change is not valid.
    """
    names = (*request.rules, *request.without_rules, *request.assignments)
    if any(":" in name for name in names):
        # Loading a file runs it, with the rights of the server.
        raise errors.UsageError(
            "a rule in a file can be changed with `stepscope configure RUN --rule FILE:RULE` only"
        )
    number = request_configuration(
        request.run,
        location,
        runs.open(location, revision).reader,
        ConfigurationEdit(
            interval_ms=None if request.interval_ns is None else request.interval_ns // 1_000_000,
            automatic=request.automatic,
            clear_schedules=request.clear_schedules,
            schedules=tuple(_make_schedule(schedule) for schedule in request.schedules),
            rules=tuple(request.rules),
            without_rules=tuple(request.without_rules),
            assignments=tuple(request.assignments),
        ),
        by=f"{user_name()} in the web UI (from {client})",
    )
    return payloads.ConfigureAccepted(number=number)


def _make_schedule(request: payloads.ScheduleRequest) -> schema.WindowSchedule:
    if request.interval is not None and request.interval <= request.step_count:
        raise errors.UsageError(
            f"windows of {request.step_count} steps would overlap every {request.interval} steps"
        )
    return schema.WindowSchedule(
        first_step=request.first_step, step_count=request.step_count, interval=request.interval
    )


def configure_progress(
    runs: OpenRuns, *, location: str, revision: int, number: int
) -> payloads.ConfigureProgress:
    """Read the decision of the monitors on a change."""
    decision = read_decision(location, number)
    statuses = runs.open(location, revision).reader.statuses().values()
    job_is_over = has_ended(statuses)
    failure = ENDED_BEFORE_CHANGE if decision is None and job_is_over else None
    return payloads.ConfigureProgress(
        number=number,
        finished=decision is not None or job_is_over,
        failure=failure if decision is None else decision.refusal,
    )


def configure_obstacle(run: Run) -> str | None:
    """Reason why the configuration cannot be changed now; None when it can."""
    try:
        find_listening_nodes(run.reader.info.run_id, run.reader)
    except errors.UsageError as error:
        return str(error)
    except (errors.StepscopeError, OSError) as error:
        return f"the run is not writable: {error}"
    return None


def stop(runs: OpenRuns, *, location: str, revision: int, client: str) -> payloads.StopAccepted:
    """Send a stop request to the launcher.

    Raises:
        UsageError: the job cannot be stopped from here.
    """
    run = runs.open(location, revision)
    reason = stop_obstacle(run)
    if reason is not None:
        raise errors.UsageError(reason)
    by = f"{user_name()} in the web UI (from {client})"
    write_stop_request(_request_path(run), StopRequest(by=by))
    return payloads.StopAccepted(by=by)


def stop_obstacle(run: Run) -> str | None:
    """Reason why the job cannot be stopped from here; None when it can."""
    if not run.reader.info.options.get("allow_stop"):
        return "the job was started without --allow-stop: `stepscope run --allow-stop -- CMD`"
    statuses = list(run.reader.statuses().values())
    if has_ended(statuses):
        return "the job has ended" if statuses else "no monitor has reported a status yet"
    if any(status.state is schema.JobState.STOPPING for status in statuses):
        return "the job is already stopping"
    if all(is_lost(status) for status in statuses):
        return "the job has sent no heartbeat for a while"
    if not _is_own_spool(_request_path(run).parent):
        return "a job can be stopped only on the machine of its launcher, by the same user"
    if read_stop_request(_request_path(run)) is not None:
        return "the job is already stopping"
    return None


def _request_path(run: Run) -> Path:
    return Path(str(run.reader.info.options.get("spool"))) / STOP_REQUEST_FILE


def _is_own_spool(directory: Path) -> bool:
    """Check for a launcher's directory: a run from elsewhere may name any directory."""
    if sys.platform != "linux":
        return False
    try:
        status = directory.lstat()
    except (OSError, ValueError):
        return False
    return (
        directory.is_absolute()
        and directory.name.startswith(f"stepscope-{os.getuid()}-")
        and stat.S_ISDIR(status.st_mode)
        and status.st_uid == os.getuid()
        and not status.st_mode & 0o022
    )
