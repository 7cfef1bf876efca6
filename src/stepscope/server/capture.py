"""Requests for a detailed window, as of `stepscope capture`, and their progress."""

from __future__ import annotations

from stepscope.errors import StepscopeError, UsageError
from stepscope.run import answers_of, contents, listening_nodes, new_request
from stepscope.server.open_runs import OpenRuns
from stepscope.server.payloads import CaptureAccepted, CaptureProgress, CaptureRequest
from stepscope.store import AnswerState, RequestBoard, RunReader

JOB_ENDED = "the job ended before the window was recorded"


def capture(
    runs: OpenRuns, *, location: str, revision: int, request: CaptureRequest
) -> CaptureAccepted:
    """Publish a window request for the monitors.

    Raises:
        UsageError: no monitor can read it, or the request contradicts itself.
    """
    content = contents(
        full=request.full,
        shapes=request.shapes,
        stacks=request.stacks,
        memory=request.memory,
        flops=request.flops,
        modules=request.modules,
    )
    listening_nodes(request.run, runs.open(location, revision).reader)
    window_request = new_request(content, steps=request.steps)
    RequestBoard(location).ask(window_request)
    return CaptureAccepted(request=window_request.name)


def capture_progress(runs: OpenRuns, *, location: str, revision: int, name: str) -> CaptureProgress:
    """Collect the responses of the nodes to a window request."""
    statuses = runs.open(location, revision).reader.statuses()
    answers = answers_of(RequestBoard(location), name, statuses)
    finished = bool(answers) and all(answer.state.final for answer in answers.values())
    has_ended = all(status.state.final for status in statuses.values())
    windows = [window for answer in answers.values() for window in answer.windows]
    stored_count = sum(window.state is AnswerState.STORED for window in windows)
    failures = [a.message for a in answers.values() if a.state is AnswerState.FAILED]
    failure = None
    if not stored_count and (finished or has_ended):
        failure = failures[0] if failures else JOB_ENDED
    return CaptureProgress(
        request=name,
        finished=finished or has_ended,
        stored_count=stored_count,
        failure=failure,
        nodes=answers,
    )


def capture_obstacle(reader: RunReader) -> str | None:
    """Reason why no window can be recorded now; None when one can."""
    try:
        listening_nodes(reader.info.run_id, reader)
    except UsageError as error:
        return str(error)
    except (StepscopeError, OSError) as error:
        return f"the run is not writable: {error}"
    return None
