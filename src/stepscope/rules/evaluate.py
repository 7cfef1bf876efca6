"""Evaluation of several rules on a run that may still be growing.

evaluation = Evaluation(make_rules(registry, names, settings))
for inputs in ...:                   # consecutive time ranges
    evaluation.feed(inputs)
evaluation.findings("running")       # at any time
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from stepscope import schema
from stepscope.rules.base import IncrementalRule, NotApplicable, NotRecorded, Rule
from stepscope.rules.inputs import RuleInputs
from stepscope.rules.parameters import format_parameters


class _Entry(msgspec.Struct):
    rule: Rule[Any]
    state: Any = None
    error: Exception | None = None


class Evaluation:
    """State of several rules. A rule that raises is reported as Error and affects no other."""

    def __init__(self, rules: Iterable[Rule[Any]]) -> None:
        self._entries = [_Entry(rule) for rule in rules]
        self._latest: RuleInputs | None = None
        self._has_imported_traces = self._has_nodes = False
        self._unknown_devices: str | None = None
        self._recorder = schema.PYTORCH
        for entry in self._entries:
            if isinstance(entry.rule, IncrementalRule):
                _run_guarded(entry, lambda e: setattr(e, "state", e.rule.start()))

    @property
    def end_ns(self) -> int | None:
        """End of the evaluated time; None before the first range."""
        return self._latest.end_ns if self._latest else None

    def feed(self, inputs: RuleInputs) -> None:
        """Evaluate the next time range. It ends where a scan does, unless it is the last."""
        self._latest = inputs
        self._has_nodes |= bool(inputs.nodes)
        self._has_imported_traces |= any(not trace.is_watched for trace in inputs.traces)
        for trace in inputs.traces:
            self._unknown_devices = self._unknown_devices or trace.unknown_devices
            self._recorder = self._recorder if trace.is_watched else trace.recorder
        for entry in self._entries:
            if isinstance(entry.rule, IncrementalRule) and entry.error is None:
                _run_guarded(entry, lambda e: setattr(e, "state", e.rule.update(e.state, inputs)))

    def findings(self, progress: schema.Progress = "ended") -> list[schema.Finding]:
        """Return one finding per rule, in the order of the rules; may be called at any time.

        A rule that was not requested is left out if the run has none of the data that it is about.
        """
        findings = (self._finding(entry, progress) for entry in self._entries)
        return [finding for finding in findings if finding is not None]

    def _finding(self, entry: _Entry, progress: schema.Progress) -> schema.Finding | None:
        if entry.error is not None:
            return _failed(entry.rule, entry.error)
        entry.rule.has_ended = progress == "ended"
        try:
            finding: object = self._decide(entry)
        except NotApplicable as reason:
            if isinstance(reason, NotRecorded) and not entry.rule.is_requested:
                return None
            has_only_traces = self._has_imported_traces and not self._has_nodes
            in_traces = entry.rule.missing_in_traces if has_only_traces else ""
            if in_traces and entry.rule.rests_on_devices and self._unknown_devices is not None:
                in_traces = self._unknown_devices
            missing = in_traces or reason.missing
            is_imported = self._latest is not None and self._latest.is_imported
            if reason.advice and not in_traces and not is_imported:
                missing = f"{missing}; {reason.advice}"
            return _not_applicable(entry.rule, missing, reason.datapoints, progress)
        except Exception as error:  # noqa: BLE001 - a failing rule must not affect the others
            return _failed(entry.rule, error)
        if finding is None:
            finding = entry.rule.finding(triggered=0)
        if not isinstance(finding, schema.Finding):
            return _failed(entry.rule, TypeError(f"check returned {finding!r}, not a Finding"))
        try:
            msgspec.json.encode(finding)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:  # its details
            return _failed(entry.rule, error)
        if finding.fired and finding.first_ns is None and self._latest is not None:
            finding = msgspec.structs.replace(
                finding, first_ns=self._latest.origin_ns, last_ns=self._latest.end_ns - 1
            )
        if finding.recommendation:
            recommended = self._recorder.recommend(finding.rule, finding.recommendation)
            finding = msgspec.structs.replace(finding, recommendation=recommended)
        if finding.status is schema.RuleStatus.NO_ISSUES_FOUND:
            return msgspec.structs.replace(finding, status=_QUIET_STATUS[progress])
        return finding

    def _decide(self, entry: _Entry) -> schema.Finding | None:
        if isinstance(entry.rule, IncrementalRule):
            finding: schema.Finding | None = entry.rule.decide(entry.state)
            return finding
        if self._latest is None:
            raise NotApplicable("nothing has been recorded yet")
        return entry.rule.check(self._latest.from_start())


_QUIET_STATUS: dict[schema.Progress, schema.RuleStatus] = {
    "running": schema.RuleStatus.IN_PROGRESS,
    "ended": schema.RuleStatus.NO_ISSUES_FOUND,
    "stopped": schema.RuleStatus.STOPPED,
}
"""Status of a rule that has not fired."""


def _run_guarded(entry: _Entry, action: Any) -> None:
    try:
        action(entry)
    except Exception as error:  # noqa: BLE001 - a failing rule must not affect the others
        entry.error = error


def _failed(rule: Rule[Any], error: Exception) -> schema.Finding:
    return schema.Finding(
        rule=rule.name,
        status=schema.RuleStatus.ERROR,
        rule_parameters=format_parameters(rule.parameters),
        error=f"{type(error).__name__}: {error}",
    )


def _not_applicable(
    rule: Rule[Any], missing: str, datapoints: int, progress: schema.Progress
) -> schema.Finding:
    """Report missing inputs; while the job runs they may still arrive."""
    running = progress == "running"
    return schema.Finding(
        rule=rule.name,
        status=schema.RuleStatus.IN_PROGRESS if running else schema.RuleStatus.NOT_APPLICABLE,
        datapoints=datapoints,
        rule_parameters=format_parameters(rule.parameters),
        missing=missing,
    )
