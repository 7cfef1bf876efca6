"""Findings of rules, and the delivery of their notifications."""

from __future__ import annotations

import enum
from typing import Annotated, Any, Literal

import msgspec

from stepscope.schema.labels import field_label

Progress = Literal["running", "ended", "stopped"]
"""State of evaluation: the job is running, it has ended, or evaluation stopped before that."""


class RuleStatus(enum.StrEnum):
    """State of a rule's evaluation, named as in SageMaker Debugger."""

    IN_PROGRESS = "InProgress"
    """The job is running and the rule has not fired yet."""
    NO_ISSUES_FOUND = "NoIssuesFound"
    ISSUES_FOUND = "IssuesFound"
    """The rule fired at least once, even if its condition no longer holds."""
    ERROR = "Error"
    """The rule itself failed; `error` has the exception."""
    STOPPED = "Stopped"
    """Evaluation ended before the job did and the rule had not fired."""
    NOT_APPLICABLE = "NotApplicable"
    """The run lacks data that the rule needs; `missing` names it."""

    @property
    def words(self) -> str:
        """Status as text for readers."""
        return _STATUS_WORDS[self]


_STATUS_WORDS = {
    RuleStatus.IN_PROGRESS: "passed so far",
    RuleStatus.NO_ISSUES_FOUND: "passed",
    RuleStatus.ISSUES_FOUND: "found issues",
    RuleStatus.ERROR: "failed",
    RuleStatus.STOPPED: "passed until evaluation stopped",
    RuleStatus.NOT_APPLICABLE: "not applicable",
}


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one rule, fired or not. Five fields have the names of Debugger's reports."""

    rule: str
    status: RuleStatus
    rule_triggered: int = msgspec.field(default=0, name="RuleTriggered")
    """Scans in which the rule's condition held, counted once for all devices."""
    violations: int = msgspec.field(default=0, name="Violations")
    """Number of violations; the page of the rule defines one."""
    datapoints: int = msgspec.field(default=0, name="Datapoints")
    """Number of evaluated data points; the page of the rule defines one."""
    rule_parameters: str = msgspec.field(default="", name="RuleParameters")
    """Parameters of the rule, one `name:value` per line."""
    details: dict[str, Any] = msgspec.field(default_factory=dict, name="Details")
    """Numbers behind the sentences, as plain data; keys end in their unit."""
    sentences: list[str] = []
    """Description of the issue, with its numbers."""
    recommendation: str = ""
    """Recommended action if the rule fired."""
    evidence: list[str] = []
    """Views that show the issue: `stepscope show RUN <view>`."""
    first_ns: int | None = None
    """Start of the first data that violated the condition, epoch nanoseconds; the start of the job
    for a rule about the whole job."""
    last_ns: int | None = None
    """End of the last data that violated it, epoch nanoseconds; the end of the evaluated data for a
    rule about the whole job."""
    nodes: list[str] = []
    """Nodes on which it fired."""
    ranks: list[str] = []
    """Ranks on which it fired."""
    devices: list[str] = []
    """Devices on which it fired, as `node/number`."""
    missing: str | None = None
    """Missing data, if the rule is not applicable; unreadable data, if its figures are withheld."""
    error: str | None = None
    """Type and text of the exception, if the rule failed."""

    @property
    def fired(self) -> bool:
        """True if the rule found an issue."""
        return self.status is RuleStatus.ISSUES_FOUND


class DeliveryState(enum.StrEnum):
    """State of a notification on its way to one receiver."""

    PENDING = "pending"
    """It is being sent, or will be retried."""
    SENT = "sent"
    FAILED = "failed"
    """All attempts failed."""


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """Delivery of a notification; there is one per action and rule."""

    action: str
    """`stop`, `command`, `webhook` or `notify`."""
    number: int
    """Index among the actions of the job."""
    target: Annotated[str, field_label("to")]
    """Receiver, without secrets."""
    rule: str
    """Rule that fired."""
    state: DeliveryState = DeliveryState.PENDING
    try_count: int = 0
    """Number of attempts."""
    last_ns: Annotated[int | None, field_label("last attempt", unit="epoch_ns")] = None
    """End of the last attempt."""
    error: str | None = None
    """Error of the last attempt, if it failed."""


class RuleRecord(msgspec.Struct, frozen=True, kw_only=True):
    """`findings/rules.json`: results of the rules so far, replaced whole by the watch process."""

    progress: Progress
    """`running`, `ended` (the complete job was evaluated) or `stopped` (only part of it)."""
    end_ns: int | None
    """Time up to which the run was evaluated, epoch nanoseconds."""
    scan_ns: int
    """Interval between evaluations."""
    written_ns: int
    """Time of writing, epoch nanoseconds."""
    findings: list[Finding]
    """One finding per rule, fired or not."""
    recorded_ns: dict[str, int] = {}
    """Time at which the firing of a rule was first known, epoch nanoseconds, by rule."""
    deliveries: list[Delivery] = []
    notes: list[str] = []
    """Unreadable parts of the run and other problems, one sentence each."""

    @property
    def fired(self) -> list[Finding]:
        """Findings of the rules that fired."""
        return [finding for finding in self.findings if finding.fired]
