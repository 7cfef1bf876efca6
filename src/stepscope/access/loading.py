"""Analysis of a DataLoader: waits, batch creation, workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from stepscope.access.frames import Columns, Frame, frame_of
from stepscope.analysis import Distribution, Metrics, summarize
from stepscope.run import DictColumn, Run
from stepscope.schema import DataLoaderWorkerFact

SLOW_FACTOR = 2.0
"""A wait of this many medians is a slow one."""
_WAIT_TYPES: dict[str, type] = {
    "rank": int,
    "step": int,
    "node": str,
    "start_ns": int,
    "duration_ns": int,
    "ready_count": int,
    "gpu_busy_ratio": float,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderWorker:
    """One worker process of a DataLoader."""

    process: str
    worker: int | None
    """Its number in its DataLoader."""
    rank: int | None
    """Of the process it worked for."""
    started_ns: int
    ended_ns: int | None
    fetch_ns: Distribution | None
    """How long its batches took to make; None when it made none that was recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataLoaderAnalysis:
    """The input pipeline, call by call. Times are nanoseconds."""

    iterator_start_ns: Distribution | None
    """Making an iterator, starting its workers included."""
    wait_ns: Distribution | None
    """The training thread's waits for a batch."""
    fetch_ns: Distribution | None
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


def analyse_loading(run: Run, spans: Columns) -> DataLoaderAnalysis:
    """Analyse the spans of data loading; see `framework.framework_columns`."""
    waits = _waits(run, spans)
    durations = [row["duration_ns"] for row in waits]
    limit = SLOW_FACTOR * float(np.median(durations)) if durations else 0.0
    slow = [row for row in waits if row["duration_ns"] >= max(limit, 1)]
    slow.sort(key=lambda row: -row["duration_ns"])
    fetch = summarize(_durations(spans, "fetch"))
    return DataLoaderAnalysis(
        iterator_start_ns=summarize(_durations(spans, "loader_start")),
        wait_ns=summarize(durations),
        fetch_ns=fetch,
        workers=_workers(run, spans),
        waits=frame_of(waits, _WAIT_TYPES),
        slow_waits=frame_of(slow, _WAIT_TYPES),
        missing=_missing(durations, fetch),
    )


def _missing(waits: list[int], fetch: Distribution | None) -> list[str]:
    sentences = []
    if not waits:
        sentences.append("no wait for a batch was recorded: the job used no torch DataLoader")
    if fetch is None:
        sentences.append("no creation of a batch was recorded, so its duration is unknown")
    return sentences


def _mask(spans: Columns, kind: str) -> Any:
    codes = [code for code, name in enumerate(spans["kind"].values) if name == kind]
    finished = ~np.ma.getmaskarray(spans["duration_ns"])
    return np.isin(spans["kind"].codes, codes) & finished


def _durations(spans: Columns, kind: str) -> Any:
    return np.ma.getdata(spans["duration_ns"])[_mask(spans, kind)]


def _waits(run: Run, spans: Columns) -> list[dict[str, Any]]:
    wait_rows = np.flatnonzero(_mask(spans, "data_wait"))
    columns = {
        name: np.ma.asarray(
            spans[name].decode() if isinstance(spans[name], DictColumn) else spans[name]
        )[wait_rows].tolist()
        for name in ("rank", "step", "node", "start_ns", "duration_ns", "value")
    }
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    busy = {node: metrics.load("gpu_busy_ratio") for node, metrics in run.metrics.items()}
    for row in rows:
        ready = row.pop("value")
        row["ready_count"] = ready if ready >= 0 else None
        start, end = row["start_ns"], row["start_ns"] + row["duration_ns"]
        row["gpu_busy_ratio"] = _gpu_busy(busy.get(row["node"]), start, end)
    return rows


_AROUND_NS = 500_000_000


def _gpu_busy(samples: Metrics | None, start_ns: int, end_ns: int) -> float | None:
    if samples is None:
        return None
    first, last = np.searchsorted(samples.t_ns, [start_ns - _AROUND_NS, end_ns + _AROUND_NS])
    values = samples.value[first:last]
    return float(values.mean()) if len(values) else None


def _workers(run: Run, spans: Columns) -> list[LoaderWorker]:
    process = spans["process"]
    ranks = {(p.node, p.pid): p.rank for p in run.processes if p.role == "main"}
    fetches = _mask(spans, "fetch")
    workers = []
    for info in run.processes:
        if info.role != "dataloader_worker":
            continue
        codes = [code for code, name in enumerate(process.values) if name == info.process]
        fetches_of_worker = fetches & np.isin(process.codes, codes)
        numbers = [fact.worker for fact in info.facts_of(DataLoaderWorkerFact)]
        workers.append(
            LoaderWorker(
                process=info.process,
                worker=numbers[0] if numbers else None,
                rank=ranks.get((info.node, info.parent_pid)),
                started_ns=info.started_ns,
                ended_ns=info.ended_ns,
                fetch_ns=summarize(np.ma.getdata(spans["duration_ns"])[fetches_of_worker]),
            )
        )
    return workers
