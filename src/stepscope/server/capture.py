"""Requests for a detailed window, as of `stepscope capture`, and their progress."""

from __future__ import annotations

from stepscope.errors import UsageError
from stepscope.run import (
    RequestState,
    Run,
    check_windows_enabled,
    choose_contents,
    find_listening_nodes,
    has_ended,
    make_window_request,
    read_request_statuses,
    send_window_request,
)
from stepscope.server.configuring import configure_obstacle
from stepscope.server.open_runs import OpenRuns
from stepscope.server.payloads import CaptureAccepted, CaptureProgress, CaptureRequest

JOB_ENDED = "the job ended before the window was recorded"


def capture(
    runs: OpenRuns, *, location: str, revision: int, request: CaptureRequest
) -> CaptureAccepted:
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
    return CaptureAccepted(request=window_request.name)


def capture_progress(runs: OpenRuns, *, location: str, revision: int, name: str) -> CaptureProgress:
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
        failure = failures[0] if failures else JOB_ENDED
    return CaptureProgress(
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
    except UsageError as error:
        return str(error)
    return configure_obstacle(run)
