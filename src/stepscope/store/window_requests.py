"""Requests for windows, as small documents of the run: how they reach the monitors of all nodes.

windows/<name>.json                  the request, written by `stepscope capture` or a monitor
window-agreements/<name>.json        where the window begins; the first monitor decides
window-answers/<name>@<node>.json    how far each node is
"""

from __future__ import annotations

import enum
from typing import TypeVar

import msgspec

from stepscope.store.layout import document_key
from stepscope.store.location import open_store

REQUESTS = "windows"
AGREEMENTS = "window-agreements"
ANSWERS = "window-answers"

Document = TypeVar("Document", bound=msgspec.Struct)


class WindowRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What is wanted of every training process of the job."""

    name: str
    asked_ns: int
    """Epoch nanoseconds."""
    reason: str = "requested"
    step_count: int | None = None
    """How many steps; None when it has a duration."""
    duration_ns: int | None = None
    depth: str = "full"
    options: list[str] = []


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    """Where the window begins, for all nodes."""

    first_step: int | None
    """Steps that end before it; None when it begins at a time."""
    start_ns: int
    """Epoch nanoseconds before which it does not begin."""


class AnswerState(enum.StrEnum):
    """How far a request is, on one node."""

    WAITING = "waiting"
    """Something has to end first; the message says what."""
    PLANNED = "planned"
    RECORDING = "recording"
    IMPORTING = "importing"
    STORED = "stored"
    FAILED = "failed"

    @property
    def final(self) -> bool:
        """True when nothing more will happen."""
        return self in {AnswerState.STORED, AnswerState.FAILED}


class AnsweredWindow(msgspec.Struct, frozen=True, kw_only=True):
    """The window of one process."""

    process: str
    number: int
    rank: int | None
    state: AnswerState
    reason: str | None = None
    """Why it failed."""


class WindowAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What one node says."""

    state: AnswerState
    message: str = ""
    """One sentence, where the state needs explaining."""
    first_step: int | None = None
    step_count: int | None = None
    windows: list[AnsweredWindow] = []


class RequestBoard:
    """These documents of one run."""

    def __init__(self, location: str) -> None:
        self._store = open_store(location)
        self._read: set[str] = set()

    def ask(self, request: WindowRequest) -> bool:
        """Put a request up; False when there is one of that name."""
        key = document_key(REQUESTS, request.name)
        return self._store.put_if_absent(key, msgspec.json.encode(request))

    def new_requests(self) -> list[WindowRequest]:
        """Requests that this board has not returned before; damaged ones are passed over."""
        found = []
        for key in self._store.list(f"{REQUESTS}/"):
            if key not in self._read:
                self._read.add(key)
                request = self._get(key, WindowRequest)
                if request is not None:
                    found.append(request)
        return found

    def agree(self, name: str, proposal: Agreement) -> Agreement:
        """What all nodes do: the proposal, unless another node has made one before."""
        key = document_key(AGREEMENTS, name)
        if self._store.put_if_absent(key, msgspec.json.encode(proposal)):
            return proposal
        return self._get(key, Agreement) or proposal

    def put_answer(self, name: str, node: str, answer: WindowAnswer) -> None:
        """Say how far this node is."""
        self._store.put(document_key(ANSWERS, f"{name}@{node}"), msgspec.json.encode(answer))

    def answer(self, name: str, node: str) -> WindowAnswer | None:
        """What a node said last, None when it has said nothing."""
        return self._get(document_key(ANSWERS, f"{name}@{node}"), WindowAnswer)

    def _get(self, key: str, document: type[Document]) -> Document | None:
        try:
            return msgspec.json.decode(self._store.get(key), type=document)
        except (FileNotFoundError, msgspec.MsgspecError):
            return None
