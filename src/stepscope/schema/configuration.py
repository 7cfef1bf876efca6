"""Configuration of a job's recording, and its changes while the job runs.

A change is one document: the complete new configuration. The monitors agree on one decision for
each, in the order of their numbers.
"""

from __future__ import annotations

from typing import Literal

import msgspec

INTERVALS_MS = (100, 200, 500, 1000, 5000, 60000)
"""Sampling intervals that users may choose, in milliseconds."""

WindowMode = Literal["auto", "asked", "off"]
"""Detailed windows: automatic ones too, only those that are scheduled or requested, or none."""


class WindowSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """Schedule of windows from the start of the job, in steps or in time."""

    first_step: int | None = None
    """Number of steps before the first window."""
    step_count: int | None = None
    start_s: float | None = None
    """Seconds from the start of the job to the first window, for a schedule in time."""
    duration_s: float | None = None
    interval: float | None = None
    """Steps, or seconds, from one start to the next; None for a single window."""
    warmup_count: int = 0
    """Steps before each window for which the profiler runs and its records are discarded."""
    repeat_count: int | None = None
    """Number of windows of a schedule with an interval; None for no end."""
    depth: str = "full"
    options: list[str] = []
    min_start: float = 0
    """Steps, or seconds, before which no window starts: when the schedule was added to a running
    job."""


class RuleSelection(msgspec.Struct, frozen=True, kw_only=True):
    """Rules that are evaluated while a job runs, and their parameters."""

    names: list[str] = []
    """Names, or `path.py:MyRule`; empty for all but `without`."""
    without: list[str] = []
    """Names of rules that are not evaluated, if `names` is empty."""
    config: str | None = None
    """File with parameters."""
    assignments: list[str] = []
    """`Name.parameter=value`; they win over the file, and later ones over earlier ones."""


class JobConfiguration(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a job's recording that can change while it runs."""

    interval_ms: int
    """Milliseconds between samples of a node."""
    window: WindowMode
    schedules: list[WindowSchedule]
    rules: RuleSelection | None
    """None if no rule is evaluated while the job runs."""


class ConfigurationRequest(msgspec.Struct, frozen=True, kw_only=True):
    """`configuration-requests/<number>.json`: request to change the configuration of a job."""

    number: int
    """Requests are numbered from 1."""
    requested_ns: int
    """Epoch nanoseconds."""
    by: str
    """Who requested it, from where."""
    configuration: JobConfiguration


class ConfigurationDecision(msgspec.Struct, frozen=True, kw_only=True):
    """`configuration-decisions/<number>.json`: decision of the monitors on a request."""

    decided_ns: int
    """Time from which the change applies, epoch nanoseconds."""
    configuration: JobConfiguration | None
    """The new configuration; None if it was refused."""
    refusal: str | None = None
    """Reason of a refusal, one sentence."""
