"""What the watch process is told when it is started."""

from __future__ import annotations

from typing import Literal

import msgspec

ActionKind = Literal["stop", "command", "webhook", "notify"]


class ActionConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to do when a rule fires."""

    kind: ActionKind
    address: str
    """The command, the URL, or, to stop the job, the file of the wish."""
    target: str
    """What the run may say of the address: no secrets."""
    rules: list[str] | None = None
    """Only when one of these fires."""


class WatchConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Comes on the standard input of the process as JSON: URLs hold secrets, and command lines
    are for everybody to see."""

    run: str
    launcher_pid: int
    """`stepscope run`."""
    scan_ns: int
    rules: list[str] = []
    """Names, or `path.py:MyRule`; none for all."""
    also: list[str] = []
    """Rules that actions name, as above."""
    parameters: str | None = None
    """File with parameters of rules."""
    assignments: list[str] = []
    """`Name.parameter=value`."""
    actions: list[ActionConfig] = []
