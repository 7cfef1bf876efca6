"""What there is to see of a running job: how it stands, how fast it is, what its rules found."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import duckdb
import msgspec

from stepscope.diagnosis import Signals, diagnose
from stepscope.errors import StepscopeError
from stepscope.schema import Delivery, Finding, JobState, Progress, RuleRecord
from stepscope.store import RunReader

RECENT_STEPS = 50
RECENT_SAMPLES = 10
REFRESH_S = 3.0
READING_SHARE = 0.02
"""Reading the growing run may take this share of the time; a large run is read less often."""


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """How a job proceeds, by the latest steps of its first rank and the latest samples."""

    step_count: int = 0
    steps_per_s: float | None = None
    data_wait_ratio: float | None = None
    """Share of the wall time of these steps."""
    gpu_busy_ratio: float | None = None
    cpu_busy_ratio: float | None = None


class LiveView(msgspec.Struct, frozen=True, kw_only=True):
    """The payload: a job at one moment."""

    run_id: str
    state: JobState | None
    """None before a monitor has said anything."""
    reason: str | None
    started_ns: int | None
    heard_ns: int | None
    """The latest sign of life of a monitor."""
    pace: Pace
    suspect: str | None
    headline: str | None
    """The verdict so far in one sentence."""
    progress: Progress
    end_ns: int | None
    """Up to when rules have looked at the run."""
    rule_statuses: dict[str, int]
    """How many rules have which status."""
    findings: list[Finding]
    """Of rules that fired, the latest first."""
    deliveries: list[Delivery]
    notes: list[str]


class Budget:
    """Allows something dear as often as a share of the time permits. All that the process does
    meanwhile counts: queries run in threads of their own."""

    def __init__(self) -> None:
        self._next = time.monotonic()

    @property
    def allows(self) -> bool:
        """Whether it may be done now."""
        return time.monotonic() >= self._next

    @contextmanager
    def spending(self) -> Iterator[None]:
        """Do it."""
        began = time.process_time()
        try:
            yield
        finally:
            cost = time.process_time() - began
            self._next = time.monotonic() + max(REFRESH_S, cost / READING_SHARE)


class Observer:
    """Looks at a growing run. Speed and verdict are read again as often as their cost allows, and
    when the job has ended."""

    def __init__(self, reader: RunReader) -> None:
        self._reader = reader
        self._budget = Budget()
        self._pace = Pace()
        self._suspect: str | None = None
        self._headline: str | None = None
        self._seen: RuleRecord | None = None

    def look(self, record: RuleRecord) -> LiveView:
        """The job now, with what its rules found last."""
        ended = record.progress != "running" and record is not self._seen
        if ended or self._budget.allows:
            self._seen = record
            with self._budget.spending():
                self._read_run()
        statuses = self._reader.statuses()
        first = next(iter(statuses.values()), None)
        return LiveView(
            run_id=self._reader.info.run_id,
            state=first.state if first else None,
            reason=first.reason if first else None,
            started_ns=first.started_ns if first else None,
            heard_ns=max((each.heartbeat_ns for each in statuses.values()), default=None),
            pace=self._pace,
            suspect=self._suspect,
            headline=self._headline,
            progress=record.progress,
            end_ns=record.end_ns,
            rule_statuses=dict(Counter(str(each.status) for each in record.findings)),
            findings=sorted(record.fired, key=lambda each: -(each.first_ns or 0)),
            deliveries=record.deliveries,
            notes=record.notes,
        )

    def _read_run(self) -> None:
        try:
            signals = Signals(self._reader)
            self._pace = pace(signals)
            verdict = diagnose(signals)
        except (StepscopeError, OSError, duckdb.Error):  # what was known is still worth showing
            return
        self._suspect, self._headline = verdict.suspect, verdict.headline


def pace(signals: Signals) -> Pace:
    """How a job proceeds."""
    gpu, cpu = _busy(signals)
    if not signals.ranks:
        return Pace(gpu_busy_ratio=gpu, cpu_busy_ratio=cpu)
    steps = signals.ranks[0].steps
    recent = slice(max(0, len(steps) - RECENT_STEPS), None)
    wall = int(steps.wall_ns[recent].sum())
    waited = int(steps.phase_ns["data_wait"][recent].sum())
    return Pace(
        step_count=len(steps),
        steps_per_s=1e9 * len(steps.wall_ns[recent]) / wall if wall else None,
        data_wait_ratio=waited / wall if wall else None,
        gpu_busy_ratio=gpu,
        cpu_busy_ratio=cpu,
    )


def _busy(signals: Signals) -> tuple[float | None, float | None]:
    """Mean utilisation of the GPUs and of the cores of the first node."""
    for node, times in signals.reader.times("metrics").items():
        if node in signals.nodes:
            end = times["t_ns"][1] + 1
            begin = end - RECENT_SAMPLES * signals.nodes[node].sample_interval_ns
            metrics = signals.metrics[node].between(begin, end)
            return metrics.mean_over_devices("gpu_busy_ratio"), metrics.mean("cpu_busy_ratio")
    return None, None
