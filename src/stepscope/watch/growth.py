"""Memory that grows for certain: the processes that grow are asked once what holds it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import _duckdb as duckdb

from stepscope import errors, rule_feed, schema, store
from stepscope.rules import Evaluation, Rule
from stepscope.run import request_growth_census
from stepscope.watch.config import ReadingBudget, WatchConfig

GROWTH_RULE = "HostMemoryGrowth"
"""Rule that is certain of growth."""
MIN_GROWTH_BYTES = 32 << 20
MAX_COUNT = 8
"""Processes of a job that are asked, those of each node by their share of its growth."""
SETTLED_S = 600
"""Time after which memory that still grows is asked for again: caches that fill have filled."""
LOOK_S = 2
LOOK_COUNT = 60
"""Looks at the start of a job, each at one more scan, and the time between them: many jobs that are
tried out end before the first scan of the rules does."""


class GrowthWatch:
    """Watch for growth that asks for censuses, once in a run, and once at its start.

    Args:
        config: configuration of the watch process.
        reader: the run.
        rules: rules of the job; without `HostMemoryGrowth` nothing is asked.
        budget: limit of the time for looks at memory.
        clock: monotonic time in seconds.
    """

    def __init__(
        self,
        config: WatchConfig,
        reader: store.RunReader,
        rules: Iterable[Rule[Any]],
        budget: ReadingBudget,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._run = config.run
        self._budget = budget
        self._is_over = not config.takes_census
        scan_ns = LOOK_S * 1_000_000_000
        self._looks_left = LOOK_COUNT if config.scan_ns > scan_ns else 0
        self._due_s = clock() + LOOK_S
        self._heartbeat_ns: int | None = None
        self._settled_s = clock()
        """Time from which growth is asked for again after a census at the start."""
        self._feed = rule_feed.RuleFeed(reader, scan_ns=scan_ns)
        self._evaluation = Evaluation([rule for rule in rules if rule.name == GROWTH_RULE])

    def look(self, heartbeat_ns: int) -> None:
        """Look at the memory at the start of the job, if it is time.

        Args:
            heartbeat_ns: the latest heartbeat of a monitor, without which there is nothing new.
        """
        is_due = self._looks_left and self._clock() >= self._due_s
        if self._is_over or not is_due or not self._budget.allows:
            return
        self._looks_left -= 1
        self._due_s = self._clock() + LOOK_S
        if heartbeat_ns == self._heartbeat_ns:
            return
        self._heartbeat_ns = heartbeat_ns
        with self._budget.spending(), suppress(OSError, duckdb.Error, errors.StepscopeError):
            for inputs in self._feed.ranges(final=False):
                self._evaluation.feed(inputs)
            for finding in self._evaluation.findings("running"):
                if finding.fired:
                    self._ask(finding, is_early=True)

    def note(self, finding: schema.Finding) -> None:
        """Ask for censuses if a finding is about growth that matters, unless the start of the job
        was a moment ago and they were asked for then."""
        if self._clock() >= self._settled_s:
            self._ask(finding, is_early=False)

    def _ask(self, finding: schema.Finding, *, is_early: bool) -> None:
        pids = {} if self._is_over else choose_growing(finding)
        if pids:
            with suppress(OSError):  # the next finding asks again
                request_growth_census(self._run, pids, is_early=is_early)
                self._is_over = not is_early
                if is_early:
                    self._looks_left = 0
                    self._settled_s = self._clock() + SETTLED_S


def choose_growing(finding: schema.Finding) -> dict[str, list[int]]:
    """Choose the processes by node that are asked what holds their memory; none without growth that
    matters."""
    if finding.rule != GROWTH_RULE:
        return {}
    nodes: dict[str, Any] = finding.details.get("nodes", {})
    growing: dict[str, list[int]] = {}
    free_count = MAX_COUNT
    for node in finding.nodes:
        detail = nodes.get(node, {})
        if detail.get("growth_bytes", 0) >= MIN_GROWTH_BYTES:
            growing[node] = detail["growing_pids"][:free_count]
            free_count -= len(growing[node])
    return {node: pids for node, pids in growing.items() if pids}
