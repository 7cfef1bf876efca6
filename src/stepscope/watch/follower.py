"""Rule evaluation along a growing run, scan by scan.

A scan is evaluated as soon as all of its data are in the run, so that a finding is never an
interval late: the run is read whenever a monitor has written, not at times of our own clock.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import _duckdb as duckdb

from stepscope import errors, rule_feed, schema, store
from stepscope.quantities import duration
from stepscope.rule_feed import RULES_DOCUMENT
from stepscope.rules import Evaluation, Rule
from stepscope.watch.config import ReadingBudget

__all__ = ["POLL_S", "RULES_DOCUMENT", "Follower", "Pause", "follow_records"]

POLL_S = 0.5
SILENCE_TIMEOUT_NS = 60_000_000_000
"""Time without a heartbeat after which a monitor may not come back."""
START_TIMEOUT_NS = 10_000_000_000
"""The same, for a monitor that has not written a heartbeat yet."""
LOST_AFTER_S = 15.0
"""Time without a heartbeat of a node after which a job that has ended on another one is over."""
FINAL_TRIES = 5
MIN_NOTED_WAIT_S = 10.0
"""Delay of an evaluation by the budget from which the record says so."""

Pause = Callable[[float], bool]
"""Function that waits for at most that many seconds; returns False to end the loop."""


class Follower:
    """Evaluation of rules along a run, until its job has ended.

    Args:
        reader: the run.
        rules: rules to evaluate; their state is kept here.
        scan_ns: scan interval.
        is_abandoned: whether a job without heartbeats counts as ended.
        budget: limit of the time that evaluations take while the job runs; None for no limit.
    """

    def __init__(
        self,
        reader: store.RunReader,
        rules: Iterable[Rule[Any]],
        *,
        scan_ns: int,
        is_abandoned: Callable[[], bool] = lambda: True,
        budget: ReadingBudget | None = None,
    ) -> None:
        self._reader = reader
        self._scan_ns = scan_ns
        self._is_abandoned = is_abandoned
        self._budget = budget or ReadingBudget(math.inf, interval_s=0)
        self.heartbeat_ns = 0
        """The latest heartbeat of a monitor."""
        self._heartbeats = store.Heartbeats()
        self._ended = False
        self._read_error: str | None = None
        self.replace_rules(rules)

    def replace_rules(self, rules: Iterable[Rule[Any]]) -> None:
        """Evaluate other rules, from the start of the run."""
        self._feed = rule_feed.RuleFeed(self._reader, scan_ns=self._scan_ns)
        self._evaluation = Evaluation(rules)
        self._evaluated_heartbeat_ns = -1

    def follow(self, pause: Pause) -> Iterator[schema.RuleRecord]:
        """Yield the findings after each scan, and a last time when no more data will come.

        Data that cannot be read are retried; a note in the records says so.
        """
        while self._is_running():
            if self.heartbeat_ns != self._evaluated_heartbeat_ns and self._budget.allows:
                with self._budget.spending():
                    has_new_data = self._evaluate(final=False)
                if has_new_data:
                    yield self.record("running")
            if not pause(POLL_S):
                break
        for _ in range(FINAL_TRIES):
            self._evaluate(final=True)
            if self._read_error is None or not pause(POLL_S):
                break
        yield self.record("ended" if self._ended else "stopped")

    def record(self, progress: schema.Progress) -> schema.RuleRecord:
        """Return the findings so far."""
        notes = [*self._reader.damage, *([self._read_error] if self._read_error else [])]
        if progress == "running" and self._budget.wait_s >= MIN_NOTED_WAIT_S:
            notes.append(
                f"rules wait {duration(1e9 * self._budget.wait_s)} for their next evaluation, to "
                "keep the CPU budget of stepscope"
            )
        return schema.RuleRecord(
            progress=progress,
            end_ns=self._evaluation.end_ns,
            scan_ns=self._feed.scan_ns,
            written_ns=time.time_ns(),
            findings=self._evaluation.findings(progress),
            notes=notes,
        )

    def _is_running(self) -> bool:
        """Update the state of the job; False when no more data will come."""
        try:
            status_by_node = self._reader.statuses()
        except OSError as error:
            self._read_error = _read_error(error)
            return True
        statuses = status_by_node.values()
        created_ns = self._reader.info.created_ns
        self.heartbeat_ns = max((status.heartbeat_ns for status in statuses), default=created_ns)
        timeout_ns = SILENCE_TIMEOUT_NS if statuses else START_TIMEOUT_NS
        is_silent = time.time_ns() - self.heartbeat_ns > timeout_ns
        if is_silent and self._is_abandoned():
            self._ended = all(status.state.is_final for status in statuses)
            return False
        self._ended = bool(statuses) and self._have_ended(status_by_node)
        return not self._ended

    def _have_ended(self, statuses: Mapping[str, schema.JobStatus]) -> bool:
        """Return True if the job has ended on every node that is not lost: where it has ended on
        one, it does not wait for a node that was killed."""
        lost = {
            node
            for node, status in statuses.items()
            if self._heartbeats.observe(node, status.heartbeat_ns) >= LOST_AFTER_S
        }
        has_final = any(status.state.is_final for status in statuses.values())
        return has_final and all(
            status.state.is_final or node in lost for node, status in statuses.items()
        )

    def _evaluate(self, *, final: bool) -> bool:
        """Evaluate new data; False when there were none."""
        has_new_data = False
        try:
            for inputs in self._feed.ranges(final=final):
                self._evaluation.feed(inputs)
                has_new_data = True
        except (OSError, duckdb.Error, errors.StepscopeError) as error:
            self._read_error = _read_error(error)
        else:
            self._read_error = None
            self._evaluated_heartbeat_ns = self.heartbeat_ns
        return has_new_data


def follow_records(
    reader: store.RunReader, rules: Callable[[], Iterable[Rule[Any]]], *, scan_ns: int, pause: Pause
) -> Iterator[schema.RuleRecord]:
    """Yield the findings in a run after each scan: those that its watch process records, or else
    those of an evaluation here.

    Args:
        reader: the run.
        rules: creates the rules, for an evaluation here.
        scan_ns: scan interval of an evaluation here.
        pause: see `Follower.follow`.
    """
    previous = None
    while (record := rule_feed.recorded_rules(reader)) is not None or _may_start(reader):
        if record is not None and record != previous:
            previous = record
            yield record
            if record.progress != "running":
                return
        if record is not None and _is_stale(record):
            break
        if not pause(POLL_S):
            return
    yield from Follower(reader, rules(), scan_ns=scan_ns).follow(pause)


def _may_start(reader: store.RunReader) -> bool:
    """Check whether a watch process may still write its first record."""
    expected = bool(reader.info.options.get("rules"))
    return expected and time.time_ns() - reader.info.created_ns < START_TIMEOUT_NS


def _is_stale(record: schema.RuleRecord) -> bool:
    """Check whether the process that should replace a record has stopped doing so."""
    return time.time_ns() - record.written_ns > 2 * record.scan_ns + SILENCE_TIMEOUT_NS


def _read_error(error: Exception) -> str:
    return f"the run cannot be read at the moment: {error}"
