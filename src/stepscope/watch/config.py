"""Configuration of the watch process."""

from __future__ import annotations

from typing import Literal

import msgspec

from stepscope.budget import Budget
from stepscope.schema import RuleSelection

ActionKind = Literal["stop", "command", "webhook", "notify"]


class ActionConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Action on a finding."""

    kind: ActionKind
    address: str
    """The command, the URL, or, to stop the job, the path of the stop request."""
    target: str
    """Form of the address that the run records: no secrets."""
    rules: list[str] | None = None
    """Rules that trigger the action; None for all."""


class WatchConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Configuration, passed as JSON on standard input: URLs hold secrets, and every user of the
    machine can read command lines."""

    run: str
    shown: str | None = None
    """Location of the run in alerts, if it is another one: the URL of a run that is recorded for an
    object store."""
    node: str | None = None
    """This node, if the launchers of several nodes share the run: the one that holds the lease
    evaluates the rules. None for the only node."""
    launcher_pid: int
    """PID of `stepscope run`."""
    scan_ns: int
    selection: RuleSelection = RuleSelection()
    """Rules at the start of the job."""
    also: list[str] = []
    """Further rules, which actions refer to: names, or `path.py:MyRule`."""
    actions: list[ActionConfig] = []
    budget: Budget = Budget()
    """CPU time and memory of this process."""
    report: str | None = None
    """File of the report that is written while the job runs."""
