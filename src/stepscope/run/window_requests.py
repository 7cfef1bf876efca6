"""Requests for a window from outside the job: listening monitors, contents, progress.

Used by `stepscope capture` and by the web UI.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable

import msgspec

from stepscope.errors import UsageError
from stepscope.quantities import duration
from stepscope.schema import JobStatus
from stepscope.spool import OPTIONS, Depth
from stepscope.store import RequestStatus, RunReader, WindowRequest, WindowRequests

SILENT_S = 30.0
"""A monitor without a heartbeat for this long does not count as listening."""
MAX_REQUESTED_STEPS = 10_000


class WindowContents(msgspec.Struct, frozen=True, kw_only=True):
    """Contents of a window."""

    depth: str
    options: list[str]


def choose_contents(*, full: bool, **flags: bool) -> WindowContents:
    """Translate flags into window contents.

    Raises:
        UsageError: a light window cannot hold the requested contents.
    """
    options = [name for name in OPTIONS if flags[name]]
    if options and not full:
        raise UsageError(f"a light window has no operators; leave out --light or --{options[0]}")
    return WindowContents(depth=Depth.FULL if full else Depth.LIGHT, options=options)


def make_window_request(
    contents: WindowContents, *, steps: int | None = None, seconds: float | None = None
) -> WindowRequest:
    """Create a request for a window of some steps or seconds, with a unique name."""
    return WindowRequest(
        name=f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}",
        asked_ns=time.time_ns(),
        step_count=steps,
        duration_ns=None if seconds is None else round(1e9 * seconds),
        depth=contents.depth,
        options=contents.options,
    )


def send_window_request(location: str, request: WindowRequest) -> None:
    """Write a request into the run, from which the monitors of all nodes read it."""
    WindowRequests(location).send(request)


def find_listening_nodes(run: str, reader: RunReader) -> list[str]:
    """List the nodes with a listening monitor.

    Raises:
        UsageError: no monitor is listening.
    """
    if not reader.is_local:
        raise UsageError(
            f"{run} is in an object store, where no monitor looks for requests; name the directory "
            "that the job is recorded into"
        )
    if reader.info.options.get("window") == "off":
        raise UsageError(f"the job of {run} was started with --window off")
    statuses = reader.statuses()
    if not statuses:
        raise UsageError(f"no monitor has written to {run} yet; is its job running?")
    running = {node: status for node, status in statuses.items() if not status.state.is_final}
    if not running:
        raise UsageError(f"the job of {run} is over; a window needs a running job")
    listening = [node for node, status in running.items() if _age_s(status) <= SILENT_S]
    if not listening:
        age = min(_age_s(status) for status in running.values())
        raise UsageError(
            f"the monitor of {run} has sent no heartbeat for {duration(1e9 * age)}; if the job is "
            f"gone, recover the rest with: stepscope recover {run}"
        )
    return listening


def read_request_statuses(
    location: str, name: str, nodes: Iterable[str]
) -> dict[str, RequestStatus]:
    """Read the statuses of a request by node; nodes without a status are omitted."""
    requests = WindowRequests(location)
    statuses = {node: requests.read_status(name, node) for node in nodes}
    return {node: status for node, status in statuses.items() if status is not None}


def _age_s(status: JobStatus) -> float:
    return (time.time_ns() - status.heartbeat_ns) / 1e9
