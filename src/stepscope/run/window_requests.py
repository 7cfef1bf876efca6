"""Requests for a window from outside the job: contents, progress.

Used by `stepscope capture` and by the web UI.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from stepscope.errors import UsageError
from stepscope.spool import OPTIONS, Depth
from stepscope.store import RequestStatus, WindowRequest, WindowRequests

if TYPE_CHECKING:
    from stepscope.store import RunReader

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


def check_windows_enabled(run: str, reader: RunReader) -> None:
    """Raise UsageError if the job of a run cannot record windows."""
    if reader.info.options.get("window") != "off":
        return
    if reader.info.attached_pid is not None:
        raise UsageError(
            f"the job of {run} was not started with KINETO_USE_DAEMON=1, without which no window "
            "can be opened from outside"
        )
    raise UsageError(f"the job of {run} was started with --window off")


def read_request_statuses(
    location: str, name: str, nodes: Iterable[str]
) -> dict[str, RequestStatus]:
    """Read the statuses of a request by node; nodes without a status are omitted."""
    requests = WindowRequests(location)
    statuses = {node: requests.read_status(name, node) for node in nodes}
    return {node: status for node, status in statuses.items() if status is not None}
