"""What is sent to and fro that is no view: what may be done with a run, and what came of it."""

from __future__ import annotations

from typing import Annotated

import msgspec

from stepscope.run import MOST_STEPS
from stepscope.store import WindowAnswer


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Why there is no payload."""

    error: str
    """One sentence."""


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """What may be done with a run from here."""

    version: str
    """Of stepscope."""
    local: bool
    """Whether the browser is on the server's machine, so that it can open files in an editor."""
    can_capture: bool
    why_not_capture: str | None
    can_stop: bool
    why_not_stop: str | None


class Editors(msgspec.Struct, frozen=True, kw_only=True):
    """Addresses that open a line in an editor; null where the file is not on this machine."""

    vscode: str | None
    pycharm: str | None


class SourceLines(msgspec.Struct, frozen=True, kw_only=True):
    """Some lines of a source file."""

    file: str
    first_line: int
    """Number of the first of `lines`, counted from 1."""
    lines: list[str]
    line: int
    """The one that was asked for."""
    recorded: bool
    """True where the lines are those that the job ran; else they are the file's of today."""
    opens: Editors


class CaptureWanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a browser asks for: a window of so many steps, and what it holds."""

    run: str
    steps: Annotated[int, msgspec.Meta(ge=1, le=MOST_STEPS)] = 20
    full: bool = True
    shapes: bool = False
    stacks: bool = False
    memory: bool = False
    flops: bool = False
    modules: bool = False


class CaptureRequested(msgspec.Struct, frozen=True, kw_only=True):
    """A window has been asked for."""

    request: str
    """Its name, by which its progress is asked."""


class CaptureProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a window is."""

    request: str
    finished: bool
    """Nothing more will happen."""
    stored_count: int
    """Windows that are in the run, one for each process."""
    failure: str | None
    """Why nothing is recorded, once that is certain."""
    nodes: dict[str, WindowAnswer]
    """What each node has said; those are missing that have not yet said anything."""


class StopWanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a browser asks for."""

    run: str


class StopRequested(msgspec.Struct, frozen=True, kw_only=True):
    """The launcher has been told to stop the job."""

    by: str
    """Who wants it, as the job's status will say."""
