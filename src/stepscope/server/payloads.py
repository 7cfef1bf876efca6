"""Payloads of the API that are not views: actions on a run and their results."""

from __future__ import annotations

from typing import Annotated

import msgspec

from stepscope import schema
from stepscope.run import MAX_REQUESTED_STEPS, RequestStatus, RunNotes

MAX_TRACES = 4096
"""Maximum number of traces of one import."""
MAX_SCHEDULES = 20
MAX_RULE_TEXTS = 200
"""Maximum numbers of schedules, and of names or parameters of rules, in one change."""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Reason why there is no payload."""

    error: str
    """One sentence."""


class JobEntry(msgspec.Struct, kw_only=True):
    """Row of the list of jobs, and what the server reads of it."""

    row: msgspec.Raw
    """A `stepscope.views.JobRow`."""
    created_ms: float
    is_live: bool
    """True for a job in progress, whose row also changes with time."""
    is_pending: bool
    """True without a verdict."""
    is_stored: bool
    """True if the verdict is stored with the run."""
    sources: list[schema.SourceFile]
    """Files that were imported into the run."""


class RunSession(msgspec.Struct, frozen=True, kw_only=True):
    """Actions that are available on a run from this client."""

    version: str
    """Version of stepscope."""
    location: str
    """Path or URL of the run, as commands take it."""
    local: bool
    """True when the browser runs on the server's machine and can open files in an editor."""
    can_capture: bool
    why_not_capture: str | None
    can_configure: bool
    why_not_configure: str | None
    can_stop: bool
    why_not_stop: str | None


class RunName(msgspec.Struct, frozen=True, kw_only=True):
    """Name of a run: its title, else that of its directory; and its verdict, once it is stored."""

    name: str
    headline: str | None
    """Where the job is stuck, else its bottleneck, as a sentence."""
    advice: str | None
    """First fix with a prediction, and what it saves."""


class EditorLinks(msgspec.Struct, frozen=True, kw_only=True):
    """URLs that open a line in an editor; null if the file is not on this machine."""

    vscode: str | None
    pycharm: str | None


class SourceLines(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of a source file."""

    file: str
    first_line: Annotated[int, schema.field_label(display="identifier")]
    """Number of the first of `lines`, counted from 1."""
    lines: list[str]
    line: int
    """Number of the requested line."""
    recorded: bool
    """True for the lines that the job ran; false for the current content of the file."""
    opens: EditorLinks


class SqlRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Query over the tables and views of a run."""

    run: str
    query: str
    """A single statement that reads: SELECT, WITH, FROM, DESCRIBE, SHOW or SUMMARIZE."""


class CaptureRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Request for a window: number of steps and content."""

    run: str
    steps: Annotated[
        int, msgspec.Meta(ge=1, le=MAX_REQUESTED_STEPS), schema.field_label(unit="count")
    ] = 20
    full: bool = True
    shapes: bool = False
    stacks: bool = False
    memory: bool = False
    flops: bool = False
    modules: bool = False


class CaptureAccepted(msgspec.Struct, frozen=True, kw_only=True):
    """Confirmation of a window request."""

    request: str
    """Name of the request, for queries of its progress."""


class CaptureProgress(msgspec.Struct, frozen=True, kw_only=True):
    """Progress of a window request."""

    request: str
    finished: bool
    """True when nothing more will happen."""
    stored_count: int
    """Number of windows in the run, one per process."""
    failure: str | None
    """Reason why nothing is recorded, once that is certain."""
    nodes: dict[str, RequestStatus]
    """Responses by node; a node without a response is missing."""


class ScheduleRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Schedule of windows to add to a running job."""

    first_step: Annotated[int, msgspec.Meta(ge=0), schema.field_label(display="identifier")]
    """Number of steps before the first window."""
    step_count: Annotated[int, msgspec.Meta(ge=1, le=MAX_REQUESTED_STEPS)]
    interval: Annotated[
        Annotated[int, msgspec.Meta(ge=1)] | None, schema.field_label(unit="count")
    ] = None
    """Steps from one start to the next; null for a single window."""


RuleTexts = Annotated[list[str], msgspec.Meta(max_length=MAX_RULE_TEXTS)]


class ConfigureRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Change of the configuration of a running job; what is left out does not change."""

    run: str
    interval_ns: int | None = None
    """Time between samples of a node."""
    automatic: bool | None = None
    """Whether automatic windows are recorded."""
    clear_schedules: bool = False
    """Remove all scheduled windows, before others are added."""
    schedules: Annotated[list[ScheduleRequest], msgspec.Meta(max_length=MAX_SCHEDULES)] = []
    """Schedules to add."""
    rules: RuleTexts = []
    """Names of rules to evaluate, too."""
    without_rules: RuleTexts = []
    """Names of rules to evaluate no longer."""
    assignments: RuleTexts = []
    """Parameters of rules: `Name.parameter=value`."""


class ConfigureAccepted(msgspec.Struct, frozen=True, kw_only=True):
    """Confirmation that the monitors can read a change."""

    number: int | None
    """Number of the change, for queries of its progress; null if nothing changes."""


class ConfigureProgress(msgspec.Struct, frozen=True, kw_only=True):
    """Progress of a change."""

    number: int
    finished: bool
    """True when nothing more will happen."""
    failure: str | None
    """Reason why it is not applied, once that is certain."""


class ImportRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Request to import traces below the served directory as one run."""

    traces: Annotated[list[str], msgspec.Meta(min_length=1, max_length=MAX_TRACES)]
    """Their ids in the list of jobs."""


class ImportProgress(msgspec.Struct, frozen=True, kw_only=True):
    """Progress of an import."""

    id: str
    finished: bool
    """True when nothing more will happen."""
    done_ratio: float | None
    """Share of the work that is done; null before it starts."""
    run: str | None
    """Id of the new run, once it is complete."""
    failure: str | None
    """Reason why there is no run, once that is certain."""


class TagRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Change of the labels of a run; what is left out does not change, an empty text removes."""

    run: str
    title: str | None = None
    tags: list[str] | None = None
    notes: str | None = None


class NotesRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Change of the notes and saved views of a run."""

    run: str
    add: RunNotes = RunNotes()
    """A saved view replaces an earlier one of its name."""
    remove: RunNotes = RunNotes()


class StopJobRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Request to stop the job of a run."""

    run: str


class StopAccepted(msgspec.Struct, frozen=True, kw_only=True):
    """Confirmation that the launcher has the stop request."""

    by: str
    """Requester, as recorded in the status of the job."""
