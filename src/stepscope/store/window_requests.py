"""Window requests as small documents of the run, through which they reach all nodes.

windows/<name>.json                  the request, written by `stepscope capture` or a monitor
window-agreements/<name>.json        start of the window; the first monitor decides
window-answers/<name>@<node>.json    status of the request on one node
"""

from __future__ import annotations

import enum
from typing import Annotated

import msgspec

from stepscope.schema import field_label
from stepscope.store.documents import RunDocuments
from stepscope.store.layout import document_key

REQUESTS = "windows"
AGREEMENTS = "window-agreements"
STATUSES = "window-answers"


class WindowRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Request for a window of every training process of the job."""

    name: str
    asked_ns: int
    """Time of the request, epoch nanoseconds."""
    reason: str = "requested"
    step_count: int | None = None
    """Number of steps; None for a window with a duration."""
    duration_ns: int | None = None
    depth: str = "full"
    options: list[str] = []


class WindowAgreement(msgspec.Struct, frozen=True, kw_only=True):
    """Start of a window on all nodes."""

    first_step: int | None
    """Number of steps before the window; None if it starts at a time."""
    start_ns: int
    """Earliest start, epoch nanoseconds."""


class RequestState(enum.StrEnum):
    """State of a request, or of one window of it."""

    WAITING = "waiting"
    """The window cannot be planned yet; the message gives the reason."""
    PLANNED = "planned"
    RECORDING = "recording"
    IMPORTING = "importing"
    STORED = "stored"
    FAILED = "failed"

    @property
    def is_final(self) -> bool:
        """True when nothing more will happen."""
        return self in {RequestState.STORED, RequestState.FAILED}


class WindowStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Status of the window of one process."""

    process: str
    number: int
    rank: int | None
    state: RequestState
    reason: str | None = None
    """Reason of a failure."""


class RequestStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Status of a request on one node."""

    state: RequestState
    message: str = ""
    """One sentence that explains the state, if it needs one."""
    first_step: Annotated[int | None, field_label(display="identifier")] = None
    step_count: int | None = None
    windows: list[WindowStatus] = []


class WindowRequests(RunDocuments):
    """Window requests of one run."""

    def __init__(self, location: str) -> None:
        super().__init__(location)
        self._read: set[str] = set()

    def send(self, request: WindowRequest) -> bool:
        """Write a request; False if there is one of the same name."""
        key = document_key(REQUESTS, request.name)
        return self._store.put_if_absent(key, msgspec.json.encode(request))

    def read_new(self) -> list[WindowRequest]:
        """Read the requests that this object has not returned before; skips damaged ones."""
        requests = []
        for key in self._store.list(f"{REQUESTS}/"):
            if key not in self._read:
                self._read.add(key)
                request = self._get(key, WindowRequest)
                if request is not None:
                    requests.append(request)
        return requests

    def agree(self, name: str, proposal: WindowAgreement) -> WindowAgreement:
        """Agree with all nodes: on the proposal, or on an earlier one of another node."""
        key = document_key(AGREEMENTS, name)
        if self._store.put_if_absent(key, msgspec.json.encode(proposal)):
            return proposal
        return self._get(key, WindowAgreement) or proposal

    def put_status(self, name: str, node: str, status: RequestStatus) -> None:
        """Write the status of a request on a node."""
        self._store.put(document_key(STATUSES, f"{name}@{node}"), msgspec.json.encode(status))

    def read_status(self, name: str, node: str) -> RequestStatus | None:
        """Read the status of a request on a node; None if the node has written none."""
        return self._get(document_key(STATUSES, f"{name}@{node}"), RequestStatus)
