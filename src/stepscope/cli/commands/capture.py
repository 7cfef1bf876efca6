"""`stepscope capture RUN`: open a detailed window in a running job."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import click
import msgspec

from stepscope import errors, store
from stepscope.cli.job.census import take_census
from stepscope.cli.options.common import json_option, run_argument
from stepscope.cli.options.windows import DepthOptions, depth_options
from stepscope.cli.output import locate, print_json, say, suggest
from stepscope.quantities import duration
from stepscope.run import (
    MAX_REQUESTED_STEPS,
    check_windows_enabled,
    find_listening_nodes,
    has_ended,
    make_window_request,
    read_request_statuses,
    send_window_request,
)

ANSWER_S = 20.0
"""Time a monitor gets to accept a request."""
POLL_S = 0.2
MAX_SECONDS = 3600


class Captured(msgspec.Struct, frozen=True, kw_only=True):
    """The payload."""

    run: str
    request: str
    nodes: dict[str, store.RequestStatus]

    @property
    def stored_count(self) -> int:
        """Number of windows stored in the run."""
        windows = [window for answer in self.nodes.values() for window in answer.windows]
        return sum(window.state is store.RequestState.STORED for window in windows)


class CaptureOptions(DepthOptions, frozen=True, kw_only=True):
    """Options of `stepscope capture`."""

    steps: int | None
    seconds: float | None
    timeout: float
    """Seconds."""
    as_json: bool


@click.command(
    "capture",
    help="Open a detailed window in a running job, on the same steps of every rank, and wait "
    "until it is stored in RUN. Ctrl-C stops the wait, not the window. With --memory, and neither "
    "--steps nor --seconds, show which variables and attributes hold the host memory that grows: "
    "two censuses of each process, at least 20 steps and 2 s apart, pause it for at most 0.5 s "
    "each.",
)
@run_argument
@click.option(
    "--steps", type=click.IntRange(1, MAX_REQUESTED_STEPS), metavar="N", help="Length in steps."
)
@click.option(
    "--seconds",
    type=click.FloatRange(0, MAX_SECONDS, min_open=True),
    metavar="S",
    help="Length in seconds, rounded up to whole steps in a job with steps.",
)
@depth_options
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=300.0,
    show_default=True,
    metavar="S",
    help="Give up waiting after S seconds.",
)
@json_option("stepscope.cli.commands.capture.Captured")
def command(run: str, **values: Any) -> None:
    _capture(run, CaptureOptions(**values))


def _capture(run: str, options: CaptureOptions) -> None:
    """Request a window and wait until it is stored.

    Raises:
        UsageError: options contradict each other.
        StepscopeError: no window was recorded.
    """
    if options.memory and options.steps is None and options.seconds is None:
        take_census(run, timeout_s=options.timeout, as_json=options.as_json)
        return
    if (options.steps is None) == (options.seconds is None):
        raise errors.UsageError("Set the length of the window with --steps N or --seconds S.")
    reader = store.open_run(run)
    check_windows_enabled(run, reader)
    nodes = find_listening_nodes(run, reader)
    request = make_window_request(options.contents, steps=options.steps, seconds=options.seconds)
    send_window_request(run, request)
    tell: Callable[[str], None] = _silent if options.as_json else say
    try:
        answers = _wait(run, request.name, nodes, reader, options.timeout, tell)
    except KeyboardInterrupt:
        say(f"Stopped waiting; the window will still be stored in {run}.")
        raise click.exceptions.Abort from None
    captured = Captured(run=run, request=request.name, nodes=answers)
    if options.as_json:
        print_json(captured)
    failures = [a.message for a in answers.values() if a.state is store.RequestState.FAILED]
    if not captured.stored_count:
        raise errors.StepscopeError(f"No window was recorded: {failures[0]}")
    if not options.as_json:
        for line in _lines(captured):
            click.echo(line)


def _wait(  # noqa: PLR0917
    run: str,
    name: str,
    nodes: list[str],
    reader: store.RunReader,
    timeout: float,
    tell: Callable[[str], None],
) -> dict[str, store.RequestStatus]:
    """Wait for the window and return the final status of all nodes.

    Raises:
        StepscopeError: the monitors do not answer, or the window takes too long.
    """
    start = time.monotonic()
    reported = ""
    while True:
        answers = read_request_statuses(run, name, nodes)
        if len(answers) == len(nodes) and all(a.state.is_final for a in answers.values()):
            return answers
        waited = time.monotonic() - start
        over = has_ended(reader.statuses().values())
        if over and waited > POLL_S:
            answers = read_request_statuses(
                run, name, nodes
            )  # the final status may have arrived meanwhile
            if len(answers) == len(nodes) and all(a.state.is_final for a in answers.values()):
                return answers
            raise errors.StepscopeError("The job ended before the window was recorded.")
        if not answers and waited > min(ANSWER_S, timeout):
            raise errors.StepscopeError(
                f"The monitor did not respond within {duration(1e9 * waited)}."
            )
        if waited > timeout:
            raise errors.StepscopeError(
                f"The window was not stored within {duration(1e9 * waited)} ({_state(answers)}); "
                "recording continues."
            )
        state = _state(answers)
        if state != reported:
            reported = state
            tell(state)
        time.sleep(POLL_S)


def _state(answers: dict[str, store.RequestStatus]) -> str:
    if not answers:
        return "requested; waiting for the monitor"
    slowest = min(answers.values(), key=lambda answer: list(store.RequestState).index(answer.state))
    position = "" if slowest.first_step is None else f" after step {slowest.first_step}"
    match slowest.state:
        case store.RequestState.WAITING:
            return f"waiting: {slowest.message}"
        case store.RequestState.PLANNED:
            return f"planned{position}"
        case store.RequestState.RECORDING:
            return "recording"
        case store.RequestState.IMPORTING:
            return "being stored"
        case _:
            return str(slowest.state)


def _lines(captured: Captured) -> Iterator[str]:
    for node, answer in captured.nodes.items():
        for window in answer.windows:
            rank = f"rank {window.rank}" if window.rank is not None else window.process
            if window.state is store.RequestState.STORED:
                yield f"Stored window {window.number} of {rank} on {node} in {captured.run}"
            else:
                yield f"No window of {rank} on {node}: {window.reason}"
    yield f"Show it with: {suggest('show', locate(captured.run), 'operators')}"


def _silent(text: str) -> None:
    """Print nothing, for JSON output."""
