"""Rules are evaluated one by one, on a run that may still be growing.

evaluation = Evaluation(make_rules(registry, names, settings))
for signals in ...:                  # ranges of time, one after another
    evaluation.feed(signals)
evaluation.findings("running")       # at any time
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from stepscope.rules.base import IncrementalRule, NotApplicable, Rule
from stepscope.rules.parameters import parameters_text
from stepscope.rules.signals import Signals
from stepscope.schema import Finding, Progress, RuleStatus


@dataclass(slots=True)
class _Entry:
    rule: Rule[Any]
    state: Any = None
    error: Exception | None = None


class Evaluation:
    """The state of several rules. One that fails is reported as Error and harms no other."""

    def __init__(self, rules: Iterable[Rule[Any]]) -> None:
        self._entries = [_Entry(rule) for rule in rules]
        self._latest: Signals | None = None
        for entry in self._entries:
            if isinstance(entry.rule, IncrementalRule):
                _guarded(entry, lambda e: setattr(e, "state", e.rule.start()))

    @property
    def end_ns(self) -> int | None:
        """Up to when the rules have seen the run; None before anything was fed."""
        return self._latest.end_ns if self._latest else None

    def feed(self, signals: Signals) -> None:
        """Take in the next range of time. It ends where a scan does, unless it is the last."""
        self._latest = signals
        for entry in self._entries:
            if isinstance(entry.rule, IncrementalRule) and entry.error is None:
                _guarded(entry, lambda e: setattr(e, "state", e.rule.update(e.state, signals)))

    def findings(self, progress: Progress = "ended") -> list[Finding]:
        """One finding per rule, in the order of the rules; can be asked for at any time."""
        return [self._finding(entry, progress) for entry in self._entries]

    def _finding(self, entry: _Entry, progress: Progress) -> Finding:
        if entry.error is not None:
            return _failed(entry.rule, entry.error)
        try:
            found: object = self._ask(entry)
        except NotApplicable as reason:
            return _not_applicable(entry.rule, reason, progress)
        except Exception as error:  # noqa: BLE001 - a failing rule must not harm the others
            return _failed(entry.rule, error)
        if found is None:
            found = entry.rule.finding(triggered=0)
        if not isinstance(found, Finding):
            return _failed(entry.rule, TypeError(f"check returned {found!r}, which is no finding"))
        try:
            msgspec.json.encode(found)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:  # its details
            return _failed(entry.rule, error)
        if found.status is RuleStatus.NO_ISSUES_FOUND:
            return msgspec.structs.replace(found, status=_UNDECIDED[progress])
        return found

    def _ask(self, entry: _Entry) -> Finding | None:
        if isinstance(entry.rule, IncrementalRule):
            found: Finding | None = entry.rule.decide(entry.state)
            return found
        if self._latest is None:
            raise NotApplicable("nothing has been recorded yet")
        return entry.rule.check(self._latest.so_far())


_UNDECIDED: dict[Progress, RuleStatus] = {
    "running": RuleStatus.IN_PROGRESS,
    "ended": RuleStatus.NO_ISSUES_FOUND,
    "stopped": RuleStatus.STOPPED,
}


def _guarded(entry: _Entry, action: Any) -> None:
    try:
        action(entry)
    except Exception as error:  # noqa: BLE001 - a failing rule must not harm the others
        entry.error = error


def _failed(rule: Rule[Any], error: Exception) -> Finding:
    return Finding(
        rule=rule.name,
        status=RuleStatus.ERROR,
        rule_parameters=parameters_text(rule.parameters),
        error=f"{type(error).__name__}: {error}",
    )


def _not_applicable(rule: Rule[Any], reason: NotApplicable, progress: Progress) -> Finding:
    """While the job runs, what is missing may still come."""
    running = progress == "running"
    return Finding(
        rule=rule.name,
        status=RuleStatus.IN_PROGRESS if running else RuleStatus.NOT_APPLICABLE,
        datapoints=reason.datapoints,
        rule_parameters=parameters_text(rule.parameters),
        missing=reason.missing,
    )
