"""List of jobs.

A row is made of small documents. Figures that take longer, such as the verdict, are a `JobSummary`,
which is computed separately and passed in once it is available.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from stepscope import analysis, comparison, cost, diagnosis, quantities, rule_feed, schema, store
from stepscope.run import (
    Run,
    count_devices_with_work,
    count_machines,
    count_ranks,
    find_results,
    is_lost,
    job_state,
    recall,
)
from stepscope.views.job.overview import measure_duration

MAX_COMMAND_LENGTH = 1000
SPARKLINE_POINTS = 24
_STORED_NAME = "job"
JobListStatus = Literal[
    "InProgress", "Stopping", "Completed", "Failed", "Stopped", "Unknown", "Imported"
]
SHORT_VERDICTS: dict[diagnosis.Suspect, str] = {
    "data_pipeline": "waits for data",
    "model": "mostly model compute",
    "communication": "waits for ranks",
    "framework_overhead": "framework overhead",
    "healthy": "no bottleneck found",
    "insufficient_evidence": "not enough evidence",
}


class JobVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """Verdict of a job in short."""

    suspect: diagnosis.Suspect
    words: str
    """Verdict in at most three words."""
    cause: str
    share_ratio: float
    share_of: str
    confidence_ratio: float
    headline: str
    stuck: str | None
    """Where the job is stuck, or was when it ended, as a sentence; null if it is not."""
    fix: str | None
    """First fix with a prediction."""
    saving_ratio: float | None
    """Its predicted saving."""
    saving_of: str | None
    saving_is_bound: bool
    """True where it saves at most that."""


def describe_verdict(verdict: JobVerdict) -> str:
    """Write a verdict in a short sentence: where the job is stuck, else the bottleneck."""
    if verdict.stuck is not None:
        return verdict.stuck
    if verdict.suspect in {"healthy", "insufficient_evidence"}:
        return f"{verdict.words.capitalize()}."
    share = quantities.percent(verdict.share_ratio)
    cause = "" if verdict.cause == "unknown" else f": {diagnosis.name_cause(verdict.cause)}"
    suspect = diagnosis.SUSPECT_NAMES[verdict.suspect]
    return f"Bottleneck: {suspect}, {share} of {_shorten(verdict.share_of)}{cause}."


def describe_saving(verdict: JobVerdict) -> str | None:
    """Name the first fix with a prediction, and what it saves; None without one."""
    if verdict.fix is None:
        return None
    at_most = "at most " if verdict.saving_is_bound else ""
    saving = quantities.percent(verdict.saving_ratio)
    return f"{verdict.fix}: saves {at_most}{saving} of {_shorten(verdict.saving_of or '')}."


def _shorten(denominator: str) -> str:
    return denominator.replace(" wall time", " time")


class JobSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of a job that need the tables of its run."""

    verdict: JobVerdict
    goodput_ratio: float | None
    """Share of the job in steps whose result was kept; null for traces alone."""
    first_step_ns: int | None
    """Time from the start of the job to its first step; null without steps."""
    rank_count: int
    """Ranks with training steps, or with traces."""
    gpu_count: int
    """Devices with work in traces."""
    step_median_ns: list[int]
    """Moving medians of the first rank's steps, from the first step to the last."""
    steps_per_s: float | None
    peak_memory_bytes: int | None
    duration_ns: int
    """Duration of the job so far, or of the traces of an imported run."""
    size_bytes: int
    finished: bool
    """True if the run is complete."""


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    id: Annotated[str, schema.field_label("run")]
    """Path of the run below the served directory."""
    name: str
    """Title, or else the last part of `id`."""
    title: str | None
    """Title that a user gave it; null without one."""
    status: JobListStatus
    """Status over all nodes; `Imported` if no job was watched."""
    monitor_lost: bool
    """True if the job was in progress at its last heartbeat but has been silent since."""
    reason: str | None
    """Reason for the status, if it needs one."""
    created_ms: Annotated[float, schema.field_label("created", unit="epoch_ms")]
    """Milliseconds since 1970."""
    duration_ns: int | None
    """Duration of the job so far, or of the traces of an imported run. Null if unknown."""
    rank_count: int | None
    gpu_count: int | None
    gpu_names: Annotated[list[str], schema.field_label("GPU models")]
    node_count: int | None
    """Null if unknown: most imported traces do not name their node."""
    verdict: JobVerdict | None
    """Null until it has been computed."""
    goodput_ratio: Annotated[float | None, schema.field_label("in steps")]
    """Share of the job in steps whose result was kept. Null until the verdict has been computed,
    and for traces alone."""
    first_step_ns: Annotated[int | None, schema.field_label("first step")]
    """Time from the start of the job to its first step."""
    step_median_ns: Annotated[list[int], schema.field_label("step time")]
    """Moving medians of the first rank's steps, from the first step to the last."""
    steps_per_s: Annotated[float | None, schema.field_label("steps/s", unit="per_s")]
    """Steps per second of training, without time between stages."""
    peak_memory_bytes: Annotated[int | None, schema.field_label("peak memory")]
    """Largest host memory of the job's processes together."""
    host: str | None
    """Names of the nodes."""
    tags: list[str]
    notes: str
    git_revision: Annotated[str | None, schema.field_label("git revision")]
    cost_usd: float | None
    """Machines x price x duration, rounded to the cent."""
    price_said: str | None
    """Origin and date of the price of a machine."""
    why_no_cost: str | None
    command: str
    working_directory: str
    size_bytes: Annotated[int | None, schema.field_label(display="file_size")]
    problem: str | None
    """Reason why the run or its verdict is not available."""


class TraceRow(msgspec.Struct, frozen=True, kw_only=True):
    """One trace file that is in no run yet."""

    id: Annotated[str, schema.field_label("trace")]
    """Path of the file below the served directory."""
    worker: str | None
    """Worker in the name of the file, as torch.profiler's `tensorboard_trace_handler` writes it."""
    rank: int | None
    """Rank in the name of the file; null if there is none."""
    changed_ms: Annotated[float, schema.field_label("written", unit="epoch_ms")]
    """Milliseconds since 1970."""
    size_bytes: Annotated[int, schema.field_label(display="file_size")]


class Jobs(msgspec.Struct, frozen=True, kw_only=True):
    """Payload of the list of jobs, newest run first."""

    root: str
    """Served directory."""
    revision: Annotated[int, schema.field_label(display="identifier")]
    """Increases with every change of the list; the parameter `since` of the next request."""
    is_partial: bool
    """True for a list of only the runs that have changed since the requested revision."""
    jobs: list[JobRow]
    removed: list[str]
    """Runs that were removed since the requested revision."""
    unread_count: Annotated[int, schema.field_label("runs not read yet")]
    """Runs that are not read yet; they follow as a change."""
    pending_count: Annotated[int, schema.field_label("pending runs")]
    """Runs whose verdict is still being computed."""
    traces: list[TraceRow]
    """Trace files that are in no run yet, newest first."""
    why_not_import: str | None
    """Reason why the page can import no traces, as a sentence."""
    notes: list[str]


def make_job_row(reader: store.RunReader, run_id: str, summary: JobSummary | None = None) -> JobRow:
    """Make the row of a run without opening its tables.

    Args:
        reader: the run.
        run_id: id of the row.
        summary: figures from the tables, if they have been computed.
    """
    info = reader.info
    named_statuses, named_nodes = reader.statuses(), reader.nodes()
    statuses, nodes = list(named_statuses.values()), list(named_nodes.values())
    state = job_state(statuses)
    duration_ns = _measure_duration(statuses) if summary is None else summary.duration_ns
    count = count_machines(named_nodes, named_statuses)
    labels = store.read_labels(reader.location)
    priced = cost.price_job(info, nodes, instance_count=count, duration_ns=duration_ns or 0)
    reason = priced if isinstance(priced, str) else None
    return JobRow(
        id=run_id,
        title=labels.title,
        name=labels.title or store.directory_name(reader.location, info.run_id),
        status="Imported" if state is None else state.value,
        monitor_lost=any(is_lost(status) for status in statuses),
        reason=next((status.reason for status in statuses if status.reason is not None), None),
        created_ms=info.created_ns / 1e6,
        duration_ns=duration_ns,
        rank_count=_count_ranks(reader, summary),
        gpu_count=_count_gpus(nodes, summary),
        gpu_names=sorted({str(gpu.get("name", "GPU")) for node in nodes for gpu in node.gpus}),
        node_count=count or None,
        verdict=None if summary is None else summary.verdict,
        goodput_ratio=None if summary is None else summary.goodput_ratio,
        first_step_ns=None if summary is None else summary.first_step_ns,
        step_median_ns=[] if summary is None else summary.step_median_ns,
        steps_per_s=None if summary is None else summary.steps_per_s,
        peak_memory_bytes=None if summary is None else summary.peak_memory_bytes,
        host=", ".join(sorted({node.host or name for name, node in named_nodes.items()})) or None,
        tags=labels.tags,
        notes=labels.notes,
        git_revision=info.git_revision,
        cost_usd=None if isinstance(priced, str) or duration_ns is None else priced.job_usd,
        price_said=None if isinstance(priced, str) else priced.price.used.origin,
        why_no_cost=reason,
        command=" ".join(info.command)[:MAX_COMMAND_LENGTH],
        working_directory=info.working_directory,
        size_bytes=None if summary is None else summary.size_bytes,
        problem=None,
    )


def make_unopened_row(run_id: str, problem: str) -> JobRow:
    """Make the row of a run that cannot be opened."""
    return JobRow(
        id=run_id,
        name=run_id.rpartition("/")[2] or run_id,
        title=None,
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
        goodput_ratio=None,
        first_step_ns=None,
        step_median_ns=[],
        steps_per_s=None,
        peak_memory_bytes=None,
        host=None,
        tags=[],
        notes="",
        git_revision=None,
        cost_usd=None,
        price_said=None,
        why_no_cost=None,
        command="",
        working_directory="",
        size_bytes=None,
        problem=problem,
    )


def make_trace_row(trace_id: str, source: schema.SourceFile) -> TraceRow:
    """Make the row of a trace file by its path and state."""
    name = trace_id.rpartition("/")[2]
    parts = schema.parse_trace_name(name)
    written_ns = parts.written_ns if parts is not None else None
    return TraceRow(
        id=trace_id,
        worker=parts.worker if parts is not None else None,
        rank=schema.rank_in_name(name),
        changed_ms=(source.changed_ns if written_ns is None else written_ns) / 1e6,
        size_bytes=source.size_bytes,
    )


def summarize_job(run: Run, size_bytes: int) -> JobSummary:
    """Compute the figures of a job that need the tables of its run, or read them where they are
    stored with it."""
    summary = recall(
        run,
        _STORED_NAME,
        JobSummary,
        lambda: _summarize_job(run, size_bytes),
        uses_findings=False,  # the headline is of the steps
    )
    return msgspec.structs.replace(summary, size_bytes=size_bytes)


def read_stored_job(location: str) -> JobSummary | None:
    """Read the figures of a job that are stored at the location of its run, without opening it;
    None where there are none of its files as they are."""
    results = find_results(location, uses_findings=False)
    return None if results is None else results.get(_STORED_NAME, JobSummary)


def _summarize_job(run: Run, size_bytes: int) -> JobSummary:
    verdict = rule_feed.make_verdict(run)
    job = verdict.job
    figures = comparison.get_summary(run).metrics
    peak_bytes = figures.get("memory/host_peak_bytes")
    fix = next((fix for fix in verdict.fixes if fix.prediction is not None), None)
    prediction = None if fix is None else fix.prediction
    steps = next((rank.steps for rank in run.ranks if len(rank.steps)), None)
    groups = None if steps is None else analysis.group_steps(steps, SPARKLINE_POINTS)
    return JobSummary(
        verdict=JobVerdict(
            suspect=verdict.suspect,
            words=SHORT_VERDICTS[verdict.suspect],
            cause=verdict.cause,
            share_ratio=verdict.share_ratio,
            share_of=verdict.share_of,
            confidence_ratio=verdict.confidence_ratio,
            headline=verdict.headline,
            stuck=None if verdict.stuck is None else verdict.stuck.headline,
            fix=None if fix is None else fix.title,
            saving_ratio=None if prediction is None else prediction.saving_ratio,
            saving_of=None if prediction is None else prediction.share_of,
            saving_is_bound=prediction is not None and prediction.is_bound,
        ),
        goodput_ratio=None if job is None else job.goodput_ratio,
        first_step_ns=None if job is None else job.first_step_ns,
        rank_count=count_ranks(run),
        gpu_count=count_devices_with_work(run),
        step_median_ns=[] if groups is None else groups.median_ns.round().astype(int).tolist(),
        steps_per_s=figures.get("job/throughput_per_s"),
        peak_memory_bytes=None if peak_bytes is None else round(peak_bytes),
        duration_ns=measure_duration(run, verdict),
        size_bytes=size_bytes,
        finished=rule_feed.progress_of(run.reader) == "ended",
    )


def _measure_duration(statuses: list[schema.JobStatus]) -> int | None:
    if not statuses:
        return None
    ends_ns = [status.end_ns for status in statuses if status.end_ns is not None]
    if len(ends_ns) < len(statuses):
        return None
    return max(ends_ns) - min(status.started_ns for status in statuses)


def _count_ranks(reader: store.RunReader, summary: JobSummary | None) -> int | None:
    if summary is not None and summary.rank_count:
        return summary.rank_count
    ranks = {p.rank for p in reader.processes() if p.role == "main"} - {None}
    return len(ranks) or None


def _count_gpus(nodes: list[schema.NodeInfo], summary: JobSummary | None) -> int | None:
    if nodes:
        return sum(len(node.gpus) for node in nodes)
    return None if summary is None else summary.gpu_count
