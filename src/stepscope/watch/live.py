"""State of a running job: status, speed, findings of its rules, alert that it is stuck."""

from __future__ import annotations

import time
from collections import Counter
from typing import Annotated

import _duckdb as duckdb
import msgspec

from stepscope import analysis, diagnosis, errors, schema, store
from stepscope.run import NodeMetrics, Run, find_recording_end, job_state
from stepscope.watch.config import ReadingBudget

RECENT_STEPS = 50
RECENT_SAMPLES = 10
CURVE_SAMPLES = 50
_Ratios = Annotated[list[float | None], schema.field_label(display="curve")]


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """Speed of a job, from the latest steps of its first rank and the latest samples."""

    step_count: int = 0
    """Recorded steps."""
    recording_has_ended: bool = False
    """True if the steps that the job takes now are not recorded."""
    steps_per_s: float | None = None
    data_wait_ratio: float | None = None
    """Share of the wall time of the latest steps."""
    gpu_busy_ratio: float | None = None
    cpu_busy_ratio: float | None = None


class RecentCurves(msgspec.Struct, frozen=True, kw_only=True):
    """The latest steps of the first rank and samples of the first node, in their order."""

    step_ns: Annotated[list[float | None], schema.field_label(display="curve")] = []
    """Wall time of the steps of which the speed is."""
    gpu_busy_ratio: _Ratios = []
    """Mean over the GPUs by sample."""
    cpu_busy_ratio: _Ratios = []


class LiveView(msgspec.Struct, frozen=True, kw_only=True):
    """Snapshot of a job."""

    name: str
    """Name of the run on all surfaces."""
    run_id: str
    state: schema.JobState | None
    """None before the first heartbeat."""
    reason: str | None
    started_ns: int | None
    duration_ns: int | None
    """Time from the start of the job to its end or last heartbeat; null if unknown."""
    heard_ns: int | None
    """Time of the latest heartbeat of a monitor."""
    pace: Pace
    curves: RecentCurves
    suspect: str | None
    headline: str | None
    """The verdict so far in one sentence."""
    job: diagnosis.JobAccount | None
    """What the time of the job so far went to; null before the first process."""
    progress: schema.Progress
    end_ns: int | None
    """End of the latest scan that the rules have evaluated."""
    rule_statuses: dict[str, int]
    """Number of rules by status."""
    findings: list[schema.Finding]
    """Findings of rules that fired, the latest first."""
    deliveries: list[schema.Delivery]
    death: diagnosis.Death | None
    """What ended the job, if it did not succeed; null otherwise."""
    memory: diagnosis.MemoryAccount | None
    """Host memory: growth, and when its limit is full; null without samples."""
    stuck: diagnosis.StuckAccount | None
    """Collective or line at which the job is stuck or has failed; null if it is not."""
    notes: list[str]


class Observer:
    """Observer of a growing run. Reads speed and verdict as often as their cost allows, and when
    the job has ended."""

    def __init__(self, reader: store.RunReader) -> None:
        self._reader = reader
        self._budget = ReadingBudget()
        self._pace, self._curves = Pace(), RecentCurves()
        self._suspect: str | None = None
        self._headline: str | None = None
        self._job: diagnosis.JobAccount | None = None
        self._memory: diagnosis.MemoryAccount | None = None
        self._record: schema.RuleRecord | None = None
        self._stuck = StuckAlerts(reader)
        self._failure: diagnosis.StuckAccount | None = None
        self._death: diagnosis.Death | None = None

    def observe(self, record: schema.RuleRecord) -> LiveView:
        """Read the state of the job, with the latest findings of its rules."""
        has_ended = record.progress != "running" and record is not self._record
        if has_ended or self._budget.allows:
            self._record = record
            with self._budget.spending():
                self._read_run()
        statuses = self._reader.statuses()
        state = job_state(statuses.values())
        first = next((s for s in statuses.values() if s.state is state), None)
        first = first or next(iter(statuses.values()), None)
        return LiveView(
            name=store.run_name(self._reader.location, self._reader.info.run_id),
            run_id=self._reader.info.run_id,
            state=state,
            reason=first.reason if first else None,
            started_ns=first.started_ns if first else None,
            duration_ns=first.duration_ns if first else None,
            heard_ns=max((status.heartbeat_ns for status in statuses.values()), default=None),
            pace=self._pace,
            curves=self._curves,
            suspect=self._suspect,
            headline=self._headline,
            job=self._job,
            progress=record.progress,
            end_ns=record.end_ns,
            rule_statuses=dict(Counter(str(finding.status) for finding in record.findings)),
            findings=sorted(record.fired, key=lambda finding: -(finding.first_ns or 0)),
            deliveries=record.deliveries,
            death=self._death,
            memory=self._memory,
            stuck=self._stuck.read() or self._failure,
            notes=record.notes,
        )

    def _read_run(self) -> None:
        try:
            run = Run(self._reader)
            self._pace, self._curves = measure_pace(run), read_curves(run)
            verdict = diagnosis.diagnose(run)
        except (errors.StepscopeError, OSError, duckdb.Error):  # the previous figures stay useful
            return
        self._suspect, self._headline = verdict.suspect, verdict.headline
        self._job, self._death = verdict.job, verdict.death
        self._memory = verdict.memory
        is_over = verdict.stuck is not None and verdict.stuck.has_ended
        self._failure = verdict.stuck if is_over else None


def measure_pace(run: Run) -> Pace:
    """Measure the speed of a job."""
    gpu, cpu = _measure_utilization(run)
    if not run.ranks:
        return Pace(gpu_busy_ratio=gpu, cpu_busy_ratio=cpu)
    steps = run.ranks[0].steps
    if find_recording_end(run) is not None:
        return Pace(
            step_count=len(steps), recording_has_ended=True, gpu_busy_ratio=gpu, cpu_busy_ratio=cpu
        )
    recent = slice(max(0, len(steps) - RECENT_STEPS), None)
    wall = int(steps.wall_ns[recent].sum())
    data_wait = int(steps.phase_ns["data_wait"][recent].sum())
    return Pace(
        step_count=len(steps),
        steps_per_s=1e9 * len(steps.wall_ns[recent]) / wall if wall else None,
        data_wait_ratio=data_wait / wall if wall else None,
        gpu_busy_ratio=gpu,
        cpu_busy_ratio=cpu,
    )


def read_curves(run: Run) -> RecentCurves:
    """Read the latest steps, while they are recorded, and the latest samples."""
    is_recorded = bool(run.ranks) and find_recording_end(run) is None
    step_ns = run.ranks[0].steps.wall_ns[-RECENT_STEPS:].tolist() if is_recorded else []
    metrics = _latest_metrics(run, CURVE_SAMPLES)
    if metrics is None:
        return RecentCurves(step_ns=step_ns)
    series = metrics.load("gpu_busy_ratio", "cpu_busy_ratio")
    gpu, cpu = analysis.average_devices(series["gpu_busy_ratio"]), series["cpu_busy_ratio"].get("")
    return RecentCurves(
        step_ns=step_ns,
        gpu_busy_ratio=_list_values(gpu),
        cpu_busy_ratio=[] if cpu is None else _list_values(cpu),
    )


def _list_values(series: analysis.Series) -> list[float | None]:
    return analysis.nan_to_none(series.value[-CURVE_SAMPLES:])


def _measure_utilization(run: Run) -> tuple[float | None, float | None]:
    """Average the utilization of the GPUs and of the cores of the first node."""
    metrics = _latest_metrics(run, RECENT_SAMPLES)
    if metrics is None:
        return None, None
    return metrics.mean_over_devices("gpu_busy_ratio"), metrics.mean("cpu_busy_ratio")


def _latest_metrics(run: Run, count: int) -> NodeMetrics | None:
    """Select the latest samples of the first node that has any; None without."""
    for node, times in run.reader.times("metrics").items():
        if node in run.nodes:
            end = times["t_ns"][1] + 1
            start = end - count * run.nodes[node].interval_ns_at(end)
            return run.metrics[node].between(start, end)
    return None


READ_INTERVAL_S = 1.0
RECOMMENDATION = (
    "Look at the lines of the ranks that have not arrived, or that called something else."
)
HANG_RECOMMENDATION = (
    "Look at the line at which the first process waits, and end what it waits for: give the wait a "
    "timeout, or find who holds the lock, should write, or should have set the event."
)


class StuckAlerts:
    """Reader of the accounts of a job that makes no progress.

    Args:
        reader: the run.
    """

    def __init__(self, reader: store.RunReader) -> None:
        self._reader = reader
        self._next_s = 0.0
        self._account: diagnosis.StuckAccount | None = None

    def read(self) -> diagnosis.StuckAccount | None:
        """Return the account of a running job; None while it makes progress."""
        if time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + READ_INTERVAL_S
            try:
                nodes = diagnosis.read_stuck_nodes(self._reader)
                is_running = bool(nodes) and not all(node.has_ended for node in nodes.values())
                self._account = diagnosis.explain_stuck(nodes) if is_running else None
            except (errors.StepscopeError, OSError, duckdb.Error):  # the next reading tries again
                pass
        return self._account


def make_stuck_finding(account: diagnosis.StuckAccount) -> schema.Finding:
    """Make the finding that actions are told."""
    return schema.Finding(
        rule=schema.STUCK_ALERT,
        status=schema.RuleStatus.ISSUES_FOUND,
        rule_triggered=1,
        violations=1,
        datapoints=len(account.ranks) or len(account.processes),
        details={
            "kind": account.kind,
            "group": account.group,
            "number": account.number,
            "collective": account.collective,
            "culprits": account.culprits,
            "without_progress_ns": account.duration_ns,
            "processes": [process.pid for process in account.processes if process.is_blamed],
        },
        sentences=[account.headline, *account.lines],
        recommendation=HANG_RECOMMENDATION if account.kind == "hang" else RECOMMENDATION,
        evidence=["overview"],
        first_ns=account.since_ns,
        last_ns=account.since_ns + account.duration_ns,
        ranks=[f"rank {rank}" for rank in account.culprits],
    )
