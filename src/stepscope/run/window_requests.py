"""Asking for a window from outside the job: who can hear it, what it shall hold, how far it is.

For `stepscope capture` and for the web UI's button.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable

import msgspec

from stepscope.errors import UsageError
from stepscope.schema import JobStatus
from stepscope.spool import OPTIONS, Depth
from stepscope.store import RequestBoard, RunReader, WindowAnswer, WindowRequest

SILENT_S = 30.0
"""A monitor that has given no sign of life for so long is not heard."""
MOST_STEPS = 10_000


class WindowContents(msgspec.Struct, frozen=True, kw_only=True):
    """What a window holds."""

    depth: str
    options: list[str]


def contents(*, full: bool, **chosen: bool) -> WindowContents:
    """What the flags ask for.

    Raises:
        UsageError: a light window holds nothing of what is asked.
    """
    options = [name for name in OPTIONS if chosen[name]]
    if options and not full:
        raise UsageError(f"a light window has no operators; leave out --light or --{options[0]}")
    return WindowContents(depth=Depth.FULL if full else Depth.LIGHT, options=options)


def new_request(
    what: WindowContents, *, steps: int | None = None, seconds: float | None = None
) -> WindowRequest:
    """A request for a window of so many steps or seconds, with a name of its own."""
    return WindowRequest(
        name=f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}",
        asked_ns=time.time_ns(),
        step_count=steps,
        duration_ns=None if seconds is None else round(1e9 * seconds),
        depth=what.depth,
        options=what.options,
    )


def listening_nodes(run: str, reader: RunReader) -> list[str]:
    """Nodes whose monitors can hear.

    Raises:
        UsageError: there are none.
    """
    if not reader.is_local:
        raise UsageError(
            f"{run} lies in an object store, where no monitor looks for requests; ask with the "
            "directory into which the job is recorded"
        )
    if reader.info.options.get("window") == "off":
        raise UsageError(f"the job of {run} was started with --window off")
    statuses = reader.statuses()
    if not statuses:
        raise UsageError(f"no monitor has written to {run} yet; is its job running?")
    running = {node: status for node, status in statuses.items() if not status.state.final}
    if not running:
        raise UsageError(f"the job of {run} is over; a window needs a running job")
    heard = [node for node, status in running.items() if _age_s(status) <= SILENT_S]
    if not heard:
        age = min(_age_s(status) for status in running.values())
        raise UsageError(
            f"the monitor of {run} has not been heard for {age:.0f} s; if the job is gone, "
            f"bring the rest in with: stepscope recover {run}"
        )
    return heard


def answers_of(board: RequestBoard, name: str, nodes: Iterable[str]) -> dict[str, WindowAnswer]:
    """What the nodes have said of a request, by node; without those that have said nothing."""
    found = {node: board.answer(name, node) for node in nodes}
    return {node: answer for node, answer in found.items() if answer is not None}


def _age_s(status: JobStatus) -> float:
    return (time.time_ns() - status.heartbeat_ns) / 1e9
