"""Rules followed along a growing run, scan by scan.

A scan is evaluated as soon as everything that belongs to it is in the run. So a finding is known
when its scan has ended and its data have arrived, and never an interval later: the run is asked
for a complete scan whenever a monitor has written, not by a clock of our own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import duckdb

from stepscope.diagnosis.rule_check import RULES_DOCUMENT, recorded_rules
from stepscope.diagnosis.rule_signals import RunFeed
from stepscope.errors import StepscopeError
from stepscope.rules import Evaluation, Rule
from stepscope.schema import Progress, RuleRecord
from stepscope.store import RunReader

__all__ = ["POLL_S", "RULES_DOCUMENT", "Follower", "Pause", "follow_records"]

POLL_S = 0.5
SILENT_NS = 60_000_000_000
"""A monitor that has not been heard for so long may not come back."""
FIRST_WORD_NS = 10_000_000_000
"""The same, for one that has not said anything yet."""
FINAL_TRIES = 5

Pause = Callable[[float], bool]
"""Waits for so many seconds, or less; False when there is no more interest."""


class Follower:
    """Evaluates rules along a run, until its job has ended.

    Args:
        reader: the run.
        rules: what to evaluate; their state is kept here.
        scan_ns: how often.
        abandoned: whether a job of which nothing is heard any more is to be taken for ended.
    """

    def __init__(
        self,
        reader: RunReader,
        rules: Iterable[Rule[Any]],
        *,
        scan_ns: int,
        abandoned: Callable[[], bool] = lambda: True,
    ) -> None:
        self._reader = reader
        self._feed = RunFeed(reader, scan_ns=scan_ns)
        self._evaluation = Evaluation(rules)
        self._abandoned = abandoned
        self._heard_ns = 0
        self._asked_ns = -1
        self._ended = False
        self._trouble: str | None = None

    def records(self, pause: Pause) -> Iterator[RuleRecord]:
        """What was found after each scan; the last one when nothing more will come.

        Whatever of the run cannot be read for a while is tried again; the records say so.
        """
        while self._goes_on():
            if self._heard_ns != self._asked_ns and self._take_in(final=False):
                yield self.record("running")
            if not pause(POLL_S):
                break
        for _ in range(FINAL_TRIES):
            self._take_in(final=True)
            if self._trouble is None or not pause(POLL_S):
                break
        yield self.record("ended" if self._ended else "stopped")

    def record(self, progress: Progress) -> RuleRecord:
        """What was found so far."""
        return RuleRecord(
            progress=progress,
            end_ns=self._evaluation.end_ns,
            scan_ns=self._feed.scan_ns,
            written_ns=time.time_ns(),
            findings=self._evaluation.findings(progress),
            notes=[*self._reader.damage, *([self._trouble] if self._trouble else [])],
        )

    def _goes_on(self) -> bool:
        """Whether more may come."""
        try:
            statuses = self._reader.statuses().values()
        except OSError as error:
            self._trouble = _sentence(error)
            return True
        created_ns = self._reader.info.created_ns
        self._heard_ns = max((each.heartbeat_ns for each in statuses), default=created_ns)
        silent = time.time_ns() - self._heard_ns > (SILENT_NS if statuses else FIRST_WORD_NS)
        if silent and self._abandoned():
            self._ended = not any(not each.state.final for each in statuses)
            return False
        self._ended = bool(statuses) and all(each.state.final for each in statuses)
        return not self._ended

    def _take_in(self, *, final: bool) -> bool:
        """Evaluate what is new; True when there was something."""
        fed = False
        try:
            for signals in self._feed.ranges(final=final):
                self._evaluation.feed(signals)
                fed = True
        except (OSError, duckdb.Error, StepscopeError) as error:
            self._trouble = _sentence(error)
        else:
            self._trouble = None
            self._asked_ns = self._heard_ns
        return fed


def follow_records(
    reader: RunReader,
    rules: Callable[[], Iterable[Rule[Any]]],
    *,
    scan_ns: int,
    pause: Pause,
) -> Iterator[RuleRecord]:
    """What rules find in a run, after each scan: as its watch process records it, or else as it is
    found out here.

    Args:
        reader: the run.
        rules: makes the rules, where they have to be evaluated here.
        scan_ns: how often, in that case.
        pause: as `Follower.records` has it.
    """
    seen = None
    while (record := recorded_rules(reader)) is not None or _may_begin(reader):
        if record is not None and record != seen:
            seen = record
            yield record
            if record.progress != "running":
                return
        if record is not None and _deserted(record):
            break
        if not pause(POLL_S):
            return
    yield from Follower(reader, rules(), scan_ns=scan_ns).records(pause)


def _may_begin(reader: RunReader) -> bool:
    """Whether the first word of a watch process may still come."""
    expected = bool(reader.info.options.get("rules"))
    return expected and time.time_ns() - reader.info.created_ns < FIRST_WORD_NS


def _deserted(record: RuleRecord) -> bool:
    """Whether the process that should replace a record does not do so any more."""
    return time.time_ns() - record.written_ns > 2 * record.scan_ns + SILENT_NS


def _sentence(error: Exception) -> str:
    return f"the run could not be read for a while: {error}"
