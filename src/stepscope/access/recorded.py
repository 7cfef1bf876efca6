"""A run, finished or still growing: state, waiting for data, selections by name and time."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from stepscope import errors, quantities, schema
from stepscope.run import (
    NodeMetrics,
    Rank,
    Run,
    has_ended,
    is_lost,
    job_borders,
    job_state,
    list_phases,
    number_ranks,
    open_run,
    reopen_run,
)

DEFAULT_TIMEOUT_S = 600.0
_MIN_PAUSE_S = 0.2
_Self = TypeVar("_Self", bound="RecordedRun")


def open_when_present(location: str | Path, timeout_s: float) -> Run:
    """Open a run, and wait for it to appear.

    Raises:
        NotARunError: there was none at the timeout.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return open_run(location)
        except errors.NotARunError:
            if time.monotonic() >= deadline:
                raise
        time.sleep(_MIN_PAUSE_S)


class RecordedRun:
    """State of a run, and selection of its data."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def __repr__(self) -> str:
        return f"OpenRun({self.info.run_id!r})"

    @property
    def info(self) -> schema.RunInfo:
        """Content of `run.json`."""
        return self._run.reader.info

    @property
    def state(self) -> schema.JobState | None:
        """State of the job at this moment: `InProgress`, `Stopping`, `Failed`, `Stopped`,
        `Unknown` (its exit status was not seen) or `Completed`, of several nodes the first of
        these; None for imported traces, and before the first heartbeat."""
        return job_state(self._run.reader.statuses().values())

    @property
    def start_ns(self) -> int:
        """Start of the job in nanoseconds since 1970; where unknown, the creation of the run."""
        return self._borders[0]

    @property
    def end_ns(self) -> int:
        """End of the job, or its last heartbeat."""
        return self._borders[1]

    @property
    def nodes(self) -> list[str]:
        """Names of the sampled nodes."""
        return sorted(self._run.nodes)

    @property
    def ranks(self) -> list[int]:
        """Ranks of the job; the only process of a job is rank 0. Empty where they are unknown."""
        return number_ranks(self._run).numbers

    @property
    def phases(self) -> list[str]:
        """Phases of the spans of the run."""
        return list_phases(self._run.reader)

    @property
    def damage(self) -> list[str]:
        """Files that could not be read so far, one sentence each."""
        return self._run.reader.damage

    # --- growing runs ------------------------------------------------------------------------

    def refresh(self: _Self) -> _Self:
        """Read a growing run again; returns the run. Frames that were read stay as they are."""
        self._run = reopen_run(self._run)
        self.__dict__.pop("_borders", None)
        return self

    def wait_for_system_metrics(
        self: _Self, metric: Names | None = None, *, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> _Self:
        """Wait for samples of the nodes; returns the run, read again.

        Args:
            metric: one or more metrics, each of which must have a sample; any of them by default.
            timeout_s: seconds.

        Raises:
            JobEndedError: the job has ended without them.
            WaitTimeoutError: there were none in time, or the monitor is lost.
        """
        names = chosen_names("metric", metric, schema.METRIC_TYPES)
        return self._wait_for_values("metrics", "metric", names, "sample", timeout_s)

    def wait_for_spans(
        self: _Self, kind: Names | None = None, *, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> _Self:
        """Wait for spans of the job's processes; returns the run, read again.

        Args:
            kind: one or more kinds, each of which must have a span; any of them by default.
            timeout_s: seconds.

        Raises:
            JobEndedError: the job has ended without them.
            WaitTimeoutError: there were none in time, or the monitor is lost.
        """
        kinds = chosen_names("kind of span", kind, schema.SPAN_KINDS)
        return self._wait_for_values("spans", "kind", kinds, "span", timeout_s)

    def wait_for_steps(
        self: _Self, step_count: int = 1, *, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> _Self:
        """Wait until a training process has this many complete steps; returns the run, read again.

        Raises:
            JobEndedError: the job has ended with fewer steps.
            WaitTimeoutError: there were fewer in time, or the monitor is lost.
        """

        def lacks_steps() -> str | None:
            present = max((len(rank.steps) for rank in self._run.ranks), default=0)
            if present >= step_count:
                return None
            return f"has {quantities.count_of(present, 'complete step')} of {step_count}"

        return self._wait(lacks_steps, timeout_s)

    def wait_for_end(self: _Self, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> _Self:
        """Wait until the job has ended on all nodes; returns the run, read again.

        Raises:
            WaitTimeoutError: it has not ended in time, or the monitor is lost.
        """
        return self._wait(lambda: None if self._has_ended else "has not ended", timeout_s)

    def _wait_for_values(
        self: _Self,
        table: str,
        column: str,
        values: Iterable[str] | None,
        noun: str,
        timeout_s: float,
    ) -> _Self:
        """Wait for rows of a table with each of some values; for any row if they are None."""

        def lacks_values() -> str | None:
            if values is None:
                return None if self._run.reader.row_count(table) else f"has no {noun}"
            query = f"SELECT DISTINCT {column} AS present FROM {table}"  # noqa: S608 - names of ours
            present = set(self._run.reader.sql(query)["present"].tolist())
            missing = [value for value in values if value not in present]
            return f"has no {noun} of {', '.join(missing)}" if missing else None

        return self._wait(lacks_values, timeout_s)

    def _wait(self: _Self, find_lack: Callable[[], str | None], timeout_s: float) -> _Self:
        """Read the run again until it lacks nothing.

        Args:
            find_lack: returns the end of a sentence about the job, None if nothing is missing.
            timeout_s: seconds.
        """
        name, deadline = f"The job {self.info.run_id}", time.monotonic() + timeout_s
        while True:
            start_s = time.monotonic()
            self.refresh()
            has_ended, is_silent = self._has_ended, self._is_silent  # before its data is read
            lack = find_lack()
            if lack is None:
                return self
            if has_ended:
                ending = f"has ended ({self.state})" if self.state else "was imported"
                raise errors.JobEndedError(f"{name} {ending} and {lack}.")
            if is_silent:
                raise errors.WaitTimeoutError(
                    f"{name} {lack}, and its monitor sends no heartbeat. If it was killed, "
                    "`stepscope recover RUN` reads the rest of the recorded data."
                )
            now_s = time.monotonic()
            if now_s >= deadline:
                raise errors.WaitTimeoutError(
                    f"{name} {lack} after {quantities.number(timeout_s)} s; its state is "
                    f"{self.state or 'unknown'}."
                )
            # Reading takes at most half of the time.
            time.sleep(min(max(_MIN_PAUSE_S, now_s - start_s), deadline - now_s))

    @property
    def _has_ended(self) -> bool:
        statuses = self._run.reader.statuses().values()
        if not statuses:
            return self._run.is_imported
        return has_ended(statuses)

    @property
    def _is_silent(self) -> bool:
        statuses = self._run.reader.statuses().values()
        running = [status for status in statuses if not status.state.is_final]
        return bool(running) and all(is_lost(status) for status in running)

    # --- selection ----------------------------------------------------------------------------

    @cached_property
    def _borders(self) -> tuple[int, int]:
        return job_borders(self._run)

    def _moment(self, moment: Moment | None) -> int | None:
        return moment_ns(moment, self.start_ns)

    def _ranks(self, rank: int | None) -> list[Rank]:
        """Return training processes with steps."""
        numbers = number_ranks(self._run)
        numbers.require(rank)
        processes = numbers.by_process
        return [r for r in self._run.ranks if rank in {None, processes.get(r.process.process)}]

    def _metrics(
        self, node: Names | None, start: Moment | None, end: Moment | None
    ) -> dict[str, NodeMetrics]:
        names = chosen_names("node", node, self.nodes)
        first, last = self._moment(start), self._moment(end)
        selected = {n: m for n, m in self._run.metrics.items() if names is None or n in names}
        return {name: metrics.between(first, last) for name, metrics in selected.items()}


Moment = int | datetime | timedelta
"""Nanoseconds since 1970, a time with its zone, or the time since the run began."""
Names = str | re.Pattern[str] | Sequence[str]
"""A name, several, or a compiled pattern that whole names match."""
MAX_LISTED = 100
"""Names that an error message lists."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def moment_ns(moment: Moment | None, begin_ns: int) -> int | None:
    """A moment in nanoseconds since 1970, exact; None stays None.

    Args:
        moment: as the caller gave it.
        begin_ns: when the run began.
    """
    if isinstance(moment, datetime):
        if moment.tzinfo is None:
            raise errors.UsageError(
                f"{moment} names no time zone: give datetime(..., tzinfo=...), nanoseconds since "
                "1970, or the time since the run started as a timedelta."
            )
        return (moment - _EPOCH) // _MICROSECOND * 1000
    if isinstance(moment, timedelta):
        return begin_ns + moment // _MICROSECOND * 1000
    return moment


def chosen_names(kind: str, requested: Names | None, available: Iterable[str]) -> list[str] | None:
    """Return the requested names; None for all.

    Raises:
        UsageError: a requested name is not available.
    """
    if requested is None:
        return None
    names = list(available)
    if isinstance(requested, re.Pattern):
        return [name for name in names if requested.fullmatch(name)]
    requested_names = [requested] if isinstance(requested, str) else list(requested)
    for name in requested_names:
        if name not in names:
            raise errors.UsageError(f"There is no {kind} {name!r}; there are {_listed(names)}.")
    return requested_names


def _listed(names: Sequence[str]) -> str:
    listed = ", ".join(repr(name) for name in names[:MAX_LISTED]) or "none"
    omitted_count = len(names) - MAX_LISTED
    return listed if omitted_count <= 0 else f"{listed} and {quantities.count(omitted_count)} more"
