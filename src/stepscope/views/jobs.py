"""The list of jobs: what each run says of itself, and its verdict in three words.

A row is made of small documents. What takes longer, such as the verdict, is a `JobSummary`, made
apart and handed in when it is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from stepscope.cost import price_job
from stepscope.diagnosis import Suspect, diagnose
from stepscope.rule_feed import progress_of
from stepscope.run import Run, is_lost
from stepscope.schema import JobState, JobStatus, NodeInfo
from stepscope.store import RunReader

LONGEST_COMMAND = 1000
Standing = Literal["InProgress", "Stopping", "Completed", "Failed", "Stopped", "Imported"]
_WORST_FIRST = (
    JobState.IN_PROGRESS,
    JobState.STOPPING,
    JobState.FAILED,
    JobState.STOPPED,
    JobState.COMPLETED,
)
THREE_WORDS: dict[Suspect, str] = {
    "data_pipeline": "waits for data",
    "model": "the model's work",
    "communication": "waits for ranks",
    "framework_overhead": "overhead of framework",
    "healthy": "nothing to accuse",
    "insufficient_evidence": "not enough evidence",
}


class JobVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What a job waits for, in short."""

    suspect: Suspect
    words: str
    """Three of them."""
    cause: str
    share_ratio: float
    share_of: str
    confidence_ratio: float
    headline: str


class JobSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What takes a look into the tables of a run."""

    verdict: JobVerdict
    rank_count: int
    """Ranks with training steps, or of recordings."""
    gpu_count: int
    """Devices with work in recordings."""
    recorded_ns: int | None
    """From the start of the first recording to the end of the last; null without recordings."""
    size_bytes: int
    finished: bool
    """Whether nothing more will come of the run."""


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    id: str
    """What the server knows it by: its path below the served directory."""
    name: str
    status: Standing
    """Over all nodes; `Imported` where no job was watched."""
    monitor_lost: bool
    """In progress by its last word, but silent since."""
    reason: str | None
    """Why it stands so, where that needs explaining."""
    created_ms: float
    """Milliseconds since 1970."""
    duration_ns: int | None
    """Of the job so far; of an imported run, of its recordings. Null where not known (yet)."""
    rank_count: int | None
    gpu_count: int | None
    gpu_names: list[str]
    node_count: int | None
    """Null for an imported run: recordings do not say on which machine they were made."""
    verdict: JobVerdict | None
    """Null until it has been computed."""
    cost_usd: float | None
    """Machines x price x duration, rounded to the cent."""
    price_said: str | None
    """Who says what a machine costs, and of which day that is."""
    why_no_cost: str | None
    command: str
    working_directory: str
    size_bytes: int | None
    problem: str | None
    """Why the run, or its verdict, cannot be had."""


class Jobs(msgspec.Struct, frozen=True, kw_only=True):
    """The payload: the newest run first."""

    root: str
    """The directory that is served."""
    jobs: list[JobRow]
    pending_count: int
    """Runs whose verdict is still being computed."""
    notes: list[str]


def job_row(reader: RunReader, run_id: str, summary: JobSummary | None = None) -> JobRow:
    """What a run says of itself, without opening its tables.

    Args:
        reader: the run.
        run_id: what the row is to be known by.
        summary: what is in the tables, where somebody has looked.
    """
    info = reader.info
    statuses, nodes = list(reader.statuses().values()), list(reader.nodes().values())
    state = next((s for s in _WORST_FIRST if any(each.state == s for each in statuses)), None)
    duration_ns = _duration_ns(statuses)
    if duration_ns is None and summary is not None:
        duration_ns = summary.recorded_ns
    priced = price_job(info, nodes, instance_count=len(statuses), duration_ns=duration_ns or 0)
    reason = priced if isinstance(priced, str) else None
    has_cost = duration_ns is not None and bool(statuses)
    return JobRow(
        id=run_id,
        name=info.run_id,
        status="Imported" if state is None else state.value,
        monitor_lost=any(is_lost(each) for each in statuses),
        reason=next((each.reason for each in statuses if each.reason is not None), None),
        created_ms=info.created_ns / 1e6,
        duration_ns=duration_ns,
        rank_count=_rank_count(reader, summary),
        gpu_count=_gpu_count(nodes, summary),
        gpu_names=sorted({str(gpu.get("name", "GPU")) for each in nodes for gpu in each.gpus}),
        node_count=len(statuses) or None,
        verdict=None if summary is None else summary.verdict,
        cost_usd=None if isinstance(priced, str) or not has_cost else priced.job_usd,
        price_said=None if isinstance(priced, str) else priced.price.used.origin,
        why_no_cost=reason,
        command=" ".join(info.command)[:LONGEST_COMMAND],
        working_directory=info.working_directory,
        size_bytes=None if summary is None else summary.size_bytes,
        problem=None,
    )


def unopened_row(run_id: str, problem: str) -> JobRow:
    """The row of a run that cannot be opened."""
    return JobRow(
        id=run_id,
        name=run_id,
        status="Imported",
        monitor_lost=False,
        reason=None,
        created_ms=0.0,
        duration_ns=None,
        rank_count=None,
        gpu_count=None,
        gpu_names=[],
        node_count=None,
        verdict=None,
        cost_usd=None,
        price_said=None,
        why_no_cost=None,
        command="",
        working_directory="",
        size_bytes=None,
        problem=problem,
    )


def jobs_of(root: str, rows: Iterable[JobRow], notes: Iterable[str] = ()) -> Jobs:
    """The list of some rows."""
    ordered = sorted(rows, key=lambda row: (-row.created_ms, row.id))
    return Jobs(
        root=root,
        jobs=ordered,
        pending_count=sum(row.verdict is None and row.problem is None for row in ordered),
        notes=list(notes),
    )


def summarize(run: Run, size_bytes: int) -> JobSummary:
    """What is in the tables of a run."""
    verdict = diagnose(run)
    clock = run.clock
    return JobSummary(
        verdict=JobVerdict(
            suspect=verdict.suspect,
            words=THREE_WORDS[verdict.suspect],
            cause=verdict.cause,
            share_ratio=verdict.share_ratio,
            share_of=verdict.share_of,
            confidence_ratio=verdict.confidence_ratio,
            headline=verdict.headline,
        ),
        rank_count=len(run.ranks) or len({(t.rank, t.process) for t in run.traces}),
        gpu_count=_devices_with_work(run),
        recorded_ns=clock.end_ns - clock.origin_ns if run.traces else None,
        size_bytes=size_bytes,
        finished=progress_of(run.reader) == "ended",
    )


def _duration_ns(statuses: list[JobStatus]) -> int | None:
    if not statuses:
        return None
    ends = (each.heartbeat_ns if each.ended_ns is None else each.ended_ns for each in statuses)
    return max(0, max(ends) - min(each.started_ns for each in statuses))


def _rank_count(reader: RunReader, summary: JobSummary | None) -> int | None:
    if summary is not None and summary.rank_count:
        return summary.rank_count
    ranks = {each.rank for each in reader.processes() if each.role == "main"} - {None}
    return len(ranks) or None


def _gpu_count(nodes: list[NodeInfo], summary: JobSummary | None) -> int | None:
    if nodes:
        return sum(len(each.gpus) for each in nodes)
    return None if summary is None else summary.gpu_count


def _devices_with_work(run: Run) -> int:
    """Pairs of a rank and a device on which one of its recordings has kernels."""
    rank_of: Mapping[int, object] = {each.trace: (each.rank, each.process) for each in run.traces}
    found = run.reader.sql("SELECT DISTINCT trace, device FROM kernels")
    pairs = zip(found["trace"].tolist(), found["device"].tolist(), strict=True)
    return len({(rank_of.get(trace), device) for trace, device in pairs})
