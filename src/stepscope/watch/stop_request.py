"""Stop requests to a job's launcher: a small file next to the span logs.

A file survives the process that wrote it: the launcher sees the request of a watch process that has
been killed since. It is local, so that looking for it never makes the launcher wait.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from stepscope.schema import MALFORMED_JSON

STOP_REQUEST_FILE = "stop-request.json"


class StopRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Request of a rule or a person to stop the job."""

    rule: str | None = None
    by: str | None = None
    """The person, where the request comes from no rule."""


def write_stop_request(path: Path, request: StopRequest) -> None:
    """Write a request, replacing an earlier one.

    Raises:
        OSError: the file cannot be written.
    """
    temporary = path.with_name(path.name + ".new")
    temporary.write_bytes(msgspec.json.encode(request))
    temporary.replace(path)


def read_stop_request(path: Path) -> StopRequest | None:
    """Read the request; None while there is none."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=StopRequest)
    except (OSError, *MALFORMED_JSON):
        return None
