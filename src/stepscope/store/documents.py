"""Documents of a run: their encoding, configuration changes, window requests.

Changes of the configuration of a running job: requests, and the decisions on them.

    configuration-requests/<number>.json      written by a command or the web UI
    configuration-decisions/<number>.json     written by the first monitor that decides

The numbers order the changes, and the first to write a number has it. A request contains the
complete new configuration, so that it cannot be applied in part.

Window requests as small documents of the run, through which they reach all nodes:

    windows/<name>.json                  the request, written by `stepscope capture` or a monitor
    window-agreements/<name>.json        start of the window; the first monitor decides
    window-answers/<name>@<node>.json    status of the request on one node
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

import msgspec

from stepscope import errors, schema
from stepscope.store import layout
from stepscope.store.layout import document_key
from stepscope.store.local import make_private_directory
from stepscope.store.location import is_remote, open_store

Document = TypeVar("Document", bound=msgspec.Struct)


class RunDocuments:
    """Small documents of a run; needs no database."""

    def __init__(self, location: str | Path) -> None:
        self._store = open_store(location)

    def _get(self, key: str, document: type[Document]) -> Document | None:
        """Read a document; None if it is missing or damaged."""
        try:
            return msgspec.json.decode(self._store.get(key), type=document)
        except (FileNotFoundError, *schema.MALFORMED_JSON):
            return None


class UserDocument(RunDocuments, Generic[Document]):
    """A document of users in `labels/`: no record of the job, whose results do not depend on it.

    Args:
        location: directory or URL of the run.
        name: name of the document.
        kind: its type, which has a default for each field.
    """

    def __init__(self, location: str | Path, name: str, kind: type[Document]) -> None:
        super().__init__(location)
        self._key = document_key(layout.LABELS.rstrip("/"), name)
        self._kind = kind

    def read(self) -> Document:
        """Read the document; the defaults where there is none, or it is damaged."""
        return self._get(self._key, self._kind) or self._kind()

    def write(self, document: Document) -> None:
        """Replace the document."""
        self._store.put(self._key, encode_document(document))


def create_run(location: str | Path, info: schema.RunInfo, *, is_shared: bool = False) -> None:
    """Create a run.

    Args:
        location: directory, which may exist, or URL.
        info: content of `run.json`.
        is_shared: let the umask decide who may read a new directory; else only its owner may.

    Raises:
        RunExistsError: a run exists at that location.
        UsageError: a file is in the way.
        OSError: the location cannot be written.
    """
    try:
        if not is_remote(location) and not is_shared:
            make_private_directory(Path(location).absolute())
        created = open_store(location).put_if_absent(layout.RUN_KEY, encode_document(info))
    except (FileExistsError, NotADirectoryError) as error:
        raise errors.UsageError(
            f"{location} cannot be created: {error.filename} is a file. Use a new directory."
        ) from error
    if not created:
        raise errors.RunExistsError(f"{location} already holds a run. Use a new directory.")


def encode_document(document: msgspec.Struct | Mapping[str, Any]) -> bytes:
    """Encode a document of a run as indented JSON."""
    try:
        encoded = msgspec.json.encode(document)
    except UnicodeEncodeError:
        # Arguments and paths that are not UTF-8 reach Python as lone surrogates.
        encoded = msgspec.json.encode(_valid_unicode(msgspec.to_builtins(document)))
    return msgspec.json.format(encoded, indent=2) + b"\n"


def _valid_unicode(value: Any) -> Any:
    """Replace characters that are not Unicode with '?' in plain data."""
    match value:
        case str():
            return value.encode("utf-8", "replace").decode()
        case list():
            return [_valid_unicode(item) for item in value]
        case dict():
            return {_valid_unicode(key): _valid_unicode(item) for key, item in value.items()}
        case _:
            return value


CONFIGURATION_REQUESTS = "configuration-requests"
CONFIGURATION_DECISIONS = "configuration-decisions"


class ConfigurationChanges(RunDocuments):
    """Changes of the configuration of one job."""

    def request(self, request: schema.ConfigurationRequest) -> bool:
        """Write a request; False if there is one of this number."""
        key = _key(CONFIGURATION_REQUESTS, request.number)
        return self._store.put_if_absent(key, msgspec.json.encode(request))

    def read_request(self, number: int) -> schema.ConfigurationRequest | None:
        """Read a request; None if there is none."""
        return self._get(_key(CONFIGURATION_REQUESTS, number), schema.ConfigurationRequest)

    def decide(
        self, number: int, decision: schema.ConfigurationDecision
    ) -> schema.ConfigurationDecision:
        """Decide on a request, unless another node has; returns the decision that holds.

        Raises:
            OSError: the run cannot be written.
        """
        key = _key(CONFIGURATION_DECISIONS, number)
        if self._store.put_if_absent(key, msgspec.json.encode(decision)):
            return decision
        return self.read_decision(number) or decision

    def read_decision(self, number: int) -> schema.ConfigurationDecision | None:
        """Read the decision on a request; None before it."""
        return self._get(_key(CONFIGURATION_DECISIONS, number), schema.ConfigurationDecision)


def _key(kind: str, number: int) -> str:
    return document_key(kind, f"{number:04}")


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
    is_census: bool = False
    """Two censuses of what holds the memory of each process, in place of a window."""
    pids: dict[str, list[int]] = {}
    """Processes of which a census is taken, by node; empty for all of the job."""


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
    first_step: Annotated[int | None, schema.field_label(display="identifier")] = None
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
