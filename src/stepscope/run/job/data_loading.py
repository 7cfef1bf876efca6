"""Analysis of a DataLoader: waits, batch creation, workers. Waits for whatever else fills them."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from stepscope import analysis, intervals, schema
from stepscope.run.frames import Frame, FrameColumns, frame_of, select_rows
from stepscope.run.job.spans import read_job_spans
from stepscope.run.model.rank_numbers import number_ranks
from stepscope.run.model.run import Rank, Run

LOADING_KINDS = ("data_wait", "loader_start", "fetch")
_AROUND_NS = 500_000_000
_WAIT_TYPES: dict[str, type] = {
    "rank": int,
    "step": int,
    "node": str,
    "start_ns": int,
    "duration_ns": int,
    "ready_count": int,
    "gpu_busy_ratio": float,
}


class LoaderWorker(msgspec.Struct, frozen=True, kw_only=True):
    """One worker process of a DataLoader."""

    process: str
    worker: int | None
    """Its number in its DataLoader."""
    rank: int | None
    """Of the process it worked for."""
    started_ns: int
    ended_ns: int | None
    fetch_ns: analysis.Statistics | None
    """How long its batches took to make; None when it made none that was recorded."""


class DataLoaderAnalysis(msgspec.Struct, frozen=True, kw_only=True):
    """The input pipeline, call by call. Times are nanoseconds."""

    iterator_start_ns: analysis.Statistics | None
    """Making an iterator, starting its workers included."""
    wait_ns: analysis.Statistics | None
    """The training thread's waits for a batch."""
    fetch_ns: analysis.Statistics | None
    """Making a batch, in whichever process."""
    workers: list[LoaderWorker]
    waits: Frame
    """One row per wait: rank, step, node, start, duration, batches in the prefetch queue
    (missing where unknown), and the mean busy ratio of the GPUs from half a second before the wait
    to half a second after it."""
    slow_waits: Frame
    """Of these, waits of at least twice the median, the longest first."""
    missing: list[str]
    """Data that was not recorded, one sentence each."""


def analyse_loading(run: Run, rank: int | None = None) -> DataLoaderAnalysis:
    """Analyse the calls of the input pipeline, of all ranks or of one and its workers."""
    spans = read_job_spans(run, kinds=LOADING_KINDS, rank=rank)
    waits = _read_waits(run, spans)
    duration_ns = _durations(spans, "data_wait")
    fetch = analysis.summarize(_durations(spans, "fetch"))
    return DataLoaderAnalysis(
        iterator_start_ns=analysis.summarize(_durations(spans, "loader_start")),
        wait_ns=analysis.summarize(duration_ns),
        fetch_ns=fetch,
        workers=_read_workers(run, spans),
        waits=frame_of(waits, _WAIT_TYPES),
        slow_waits=frame_of(
            [waits[row] for row in analysis.find_slow_waits(duration_ns)], _WAIT_TYPES
        ),
        missing=_explain_missing(has_waits=bool(waits), has_fetches=fetch is not None),
    )


def count_loader_workers(rank: Rank) -> int | None:
    """Count the workers of the DataLoader that feeds training; 0 if the process loads data itself.

    Files of other tools do not name the loader: there it is the last count that they state, or the
    count of worker processes in them, None without any.
    """
    if not rank.facts(schema.ImportedFact):
        return rank.loader.num_workers if rank.loader is not None else 0
    stated = [settings.worker_count for settings in rank.facts(schema.DataLoaderSettingsFact)]
    counts = [count for count in stated if count is not None]
    return counts[-1] if counts else len(rank.run.workers_of(rank.process)) or None


def _explain_missing(*, has_waits: bool, has_fetches: bool) -> list[str]:
    sentences = []
    if not has_waits:
        sentences.append("no wait for a batch of a DataLoader was recorded")
    if not has_fetches:
        sentences.append("no creation of a batch was recorded, so its duration is unknown")
    return sentences


def _mask(spans: FrameColumns, column: str, value: str) -> Any:
    """Mask the finished spans with a value in a column of strings."""
    codes = [code for code, string in enumerate(spans[column].values) if string == value]
    finished = ~np.ma.getmaskarray(spans["duration_ns"])
    return np.isin(spans[column].codes, codes) & finished


def _durations(spans: FrameColumns, kind: str, process: str | None = None) -> intervals.Int:
    mask = _mask(spans, "kind", kind)
    if process is not None:
        mask &= _mask(spans, "process", process)
    durations: intervals.Int = np.ma.getdata(spans["duration_ns"])[mask]
    return durations


def _read_waits(run: Run, spans: FrameColumns) -> list[dict[str, Any]]:
    names = ("rank", "step", "node", "start_ns", "duration_ns", "value")
    rows = select_rows({name: spans[name] for name in names}, _mask(spans, "kind", "data_wait"))
    waits = Frame(lambda: rows).rows()
    busy = {
        node: analysis.merge_series(metrics.load("gpu_busy_ratio")["gpu_busy_ratio"].values())
        for node, metrics in run.metrics.items()
    }
    for wait in waits:
        ready = wait.pop("value")
        wait["ready_count"] = ready if ready >= 0 else None
        start, end = wait["start_ns"], wait["start_ns"] + wait["duration_ns"]
        samples = busy.get(wait["node"])
        around = (start - _AROUND_NS, end + _AROUND_NS)
        wait["gpu_busy_ratio"] = samples.mean_between(*around) if samples is not None else None
    return waits


def _read_workers(run: Run, spans: FrameColumns) -> list[LoaderWorker]:
    rank_numbers = number_ranks(run).by_process
    ranks = {
        (p.node, p.pid): rank_numbers.get(p.process) for p in run.processes if p.role == "main"
    }
    workers = []
    for info in run.processes:
        if info.role != "dataloader_worker":
            continue
        numbers = [fact.worker for fact in info.facts_of(schema.DataLoaderWorkerFact)]
        workers.append(
            LoaderWorker(
                process=info.process,
                worker=numbers[0] if numbers else None,
                rank=ranks.get((info.node, info.parent_pid)),
                started_ns=info.started_ns,
                ended_ns=info.ended_ns,
                fetch_ns=analysis.summarize(_durations(spans, "fetch", info.process)),
            )
        )
    return workers


def find_line_waits(rank: Rank) -> list[analysis.LineWait]:
    """Find the waits of a rank by line, largest first, from stack samples."""
    waits = rank.run.derive(_LineWaits).by_process
    if rank.process.process not in waits:
        waits[rank.process.process] = _find_line_waits(rank)
    return waits[rank.process.process]


class _LineWaits:
    """Waits of the ranks of a run for which they were asked."""

    def __init__(self, _run: Run) -> None:
        self.by_process: dict[str, list[analysis.LineWait]] = {}


def _find_line_waits(rank: Rank) -> list[analysis.LineWait]:
    run, process = rank.run, rank.process
    samples = run.stack_samples(process)
    if not len(samples.t_ns):
        return []
    parents = {(sibling.process.node, sibling.process.pid) for sibling in run.ranks}
    # Its children, and processes of its node that another launcher has started.
    helpers = [
        run.stack_samples(worker)
        for worker in run.processes
        if worker.role == "worker"
        and worker.node == process.node
        and (worker.parent_pid == process.pid or (worker.node, worker.parent_pid) not in parents)
    ]
    return analysis.find_waits(rank.spans, samples, rank.steps, helpers)
