"""What rules have to say about a run, and who was told."""

from __future__ import annotations

import enum
from typing import Any, Literal

import msgspec

Progress = Literal["running", "ended", "stopped"]
"""Whether more may come: the job runs, it has ended, or evaluation was stopped before that."""


class RuleStatus(enum.StrEnum):
    """How the evaluation of a rule stands; the names are those that users of rules know."""

    IN_PROGRESS = "InProgress"
    """The job runs and the rule has not fired yet."""
    NO_ISSUES_FOUND = "NoIssuesFound"
    ISSUES_FOUND = "IssuesFound"
    """It fired at least once, whether or not its condition still holds."""
    ERROR = "Error"
    """The rule itself failed; `error` says how."""
    STOPPED = "Stopped"
    """Evaluation ended before the job did and the rule had not fired."""
    NOT_APPLICABLE = "NotApplicable"
    """What the rule needs is not in the run; `missing` says what."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """The report of one rule, fired or not. Five fields have the names of Debugger's reports."""

    rule: str
    status: RuleStatus
    rule_triggered: int = msgspec.field(default=0, name="RuleTriggered")
    """Scans in which the rule's condition held, each counted once however many devices."""
    violations: int = msgspec.field(default=0, name="Violations")
    """What the rule objected to; its page says what one is."""
    datapoints: int = msgspec.field(default=0, name="Datapoints")
    """What the rule looked at; its page says what one is."""
    rule_parameters: str = msgspec.field(default="", name="RuleParameters")
    """One `name:value` per line."""
    details: dict[str, Any] = msgspec.field(default_factory=dict, name="Details")
    """Numbers behind the sentences, as plain data; keys end in their unit."""
    sentences: list[str] = []
    """What was found, with its numbers."""
    recommendation: str = ""
    """What to do when it fired."""
    evidence: list[str] = []
    """Views that show it: `stepscope show RUN <view>`."""
    first_ns: int | None = None
    """End of the first scan in which it fired, epoch nanoseconds."""
    last_ns: int | None = None
    """End of the last one."""
    nodes: list[str] = []
    ranks: list[str] = []
    devices: list[str] = []
    """What it fired on; a device is `node/number`."""
    missing: str | None = None
    """What is not there, when the rule is not applicable."""
    error: str | None = None
    """Type and text of the exception, when the rule failed."""

    @property
    def fired(self) -> bool:
        """True when the rule found an issue."""
        return self.status is RuleStatus.ISSUES_FOUND


class DeliveryState(enum.StrEnum):
    """How far the news of a finding is on its way to one receiver."""

    PENDING = "pending"
    """It is being sent, or will be sent again."""
    SENT = "sent"
    FAILED = "failed"
    """It was given up."""


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the news of a finding; there is one per action and rule."""

    action: str
    """`stop`, `command`, `webhook` or `notify`."""
    number: int
    """Its place among the actions of the job."""
    target: str
    """Where to, without secrets."""
    rule: str
    state: DeliveryState = DeliveryState.PENDING
    try_count: int = 0
    last_ns: int | None = None
    """When the last try ended, epoch nanoseconds."""
    error: str | None = None
    """What the last try met, when it failed."""


class RuleRecord(msgspec.Struct, frozen=True, kw_only=True):
    """`findings/rules.json`: what rules have found so far, replaced whole by the watch process."""

    progress: Progress
    """`running`, `ended` (the whole job was looked at) or `stopped` (only a part of it)."""
    end_ns: int | None
    """Up to when the run was looked at, epoch nanoseconds."""
    scan_ns: int
    """How often rules are evaluated."""
    written_ns: int
    """When this was written, epoch nanoseconds."""
    findings: list[Finding]
    """One per rule, fired or not."""
    recorded_ns: dict[str, int] = {}
    """By rule that fired: when that was first known, epoch nanoseconds."""
    deliveries: list[Delivery] = []
    notes: list[str] = []
    """What of the run could not be read, and what else went wrong, one sentence each."""

    @property
    def fired(self) -> list[Finding]:
        """Findings of the rules that found issues."""
        return [finding for finding in self.findings if finding.fired]
