"""Asking for a detailed window, as `stepscope capture` does, and how far it is."""

from __future__ import annotations

from stepscope.errors import StepscopeError, UsageError
from stepscope.run import answers_of, contents, listening_nodes, new_request
from stepscope.server.open_runs import OpenRuns
from stepscope.server.payloads import CaptureProgress, CaptureRequested, CaptureWanted
from stepscope.store import AnswerState, RequestBoard, RunReader

OVER = "the job has ended before the window was recorded"


def capture(
    runs: OpenRuns, *, location: str, revision: int, wanted: CaptureWanted
) -> CaptureRequested:
    """Put the request up.

    Raises:
        UsageError: no monitor can hear it, or the request contradicts itself.
    """
    what = contents(
        full=wanted.full,
        shapes=wanted.shapes,
        stacks=wanted.stacks,
        memory=wanted.memory,
        flops=wanted.flops,
        modules=wanted.modules,
    )
    listening_nodes(wanted.run, runs.open(location, revision).reader)
    request = new_request(what, steps=wanted.steps)
    RequestBoard(location).ask(request)
    return CaptureRequested(request=request.name)


def capture_progress(runs: OpenRuns, *, location: str, revision: int, name: str) -> CaptureProgress:
    """What the nodes have said of a request."""
    statuses = runs.open(location, revision).reader.statuses()
    answers = answers_of(RequestBoard(location), name, statuses)
    finished = bool(answers) and all(answer.state.final for answer in answers.values())
    over = all(status.state.final for status in statuses.values())
    windows = [window for answer in answers.values() for window in answer.windows]
    stored = sum(window.state is AnswerState.STORED for window in windows)
    failures = [a.message for a in answers.values() if a.state is AnswerState.FAILED]
    failure = None
    if not stored and (finished or over):
        failure = failures[0] if failures else OVER
    return CaptureProgress(
        request=name,
        finished=finished or over,
        stored_count=stored,
        failure=failure,
        nodes=answers,
    )


def why_no_capture(reader: RunReader) -> str | None:
    """Why no window can be had now; None when one can."""
    try:
        listening_nodes(reader.info.run_id, reader)
    except UsageError as error:
        return str(error)
    except (StepscopeError, OSError) as error:
        return f"the run cannot be written to: {error}"
    return None
