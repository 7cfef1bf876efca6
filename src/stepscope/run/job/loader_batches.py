"""Batches that the workers of DataLoaders make for a rank, and their receipt by its thread.

iteration   from the creation of an iterator on
number      k for the k-th batch of an iteration, which worker k modulo num_workers makes
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from stepscope import analysis, intervals, schema
from stepscope.analysis import FLAG_NO_RESULT
from stepscope.run.model.clock import Period
from stepscope.run.model.run import Rank, Run
from stepscope.run.model.tables import read_spans, spans_of

Int = intervals.Int


def read_spans_between(
    run: Run, processes: Sequence[schema.ProcessInfo], kinds: Sequence[str], window: Period
) -> dict[str, analysis.Spans]:
    """Read the spans of processes of one node that reach into a time."""
    if not processes:
        return {}
    rows = read_spans(
        run.reader,
        [process.process for process in processes],
        kinds,
        condition=f"start_ns < {window.end_ns} AND end_ns > {window.start_ns}",
        node=processes[0].node,
    )
    return {process: spans_of(columns) for process, columns in rows.items()}


class _Iterations(NamedTuple):
    """Iterations over the loaders of a rank, in the order of time."""

    start: Int
    loader: Int
    """Number of the loader of each, from 1."""
    worker_count: Int
    """Workers of each."""
    prefetch_factor: Int

    def find(self, loader: Int, time_ns: Int) -> Int:
        """Find the last iteration over a loader each at a time; -1 for none."""
        row = np.full(len(time_ns), -1, dtype=np.int64)
        for number in np.unique(loader).tolist():
            times, starts = np.flatnonzero(loader == number), np.flatnonzero(self.loader == number)
            at = np.searchsorted(self.start[starts], time_ns[times], side="right") - 1
            row[times] = np.append(starts, -1)[at]
        return row

    def find_since(self, loaders: Iterable[int], time_ns: int) -> int:
        """Find the start of the earliest iteration over loaders that goes on at a time; the time
        without any."""
        is_begun = self.start <= time_ns
        starts = [self.start[is_begun & (self.loader == number)] for number in loaders]
        return min((int(part[-1]) for part in starts if len(part)), default=time_ns)


def _find_iterations(rank: Rank) -> _Iterations:
    """Find the iterations of the training thread over loaders."""
    starts = _select_spans(rank, "loader_start")
    facts = {_number_loader(fact.name): fact for fact in rank.facts(schema.DataLoaderFact)}
    loaders = [facts.get(number, rank.loader) for number in starts.value.tolist()]
    settings = [
        (one.num_workers, one.prefetch_factor or 2) if one is not None else (0, 0)
        for one in loaders
    ]
    workers, prefetched = np.array(settings, dtype=np.int64).reshape(-1, 2).T
    return _Iterations(starts.start, starts.value.astype(np.int64), workers, prefetched)


def _select_spans(rank: Rank, kind: str) -> analysis.Spans:
    """Select spans of the training thread of the whole run: batches count from its iterations."""
    spans = rank.run.whole_run.step_spans(rank.process)
    return spans.on_thread(rank.steps.thread).of(kind)


def _number_loader(name: str) -> int:
    """Return the number of a loader from its name: that of `Images#0` is 1."""
    number = name.rpartition("#")[2]
    return int(number) + 1 if number.isdecimal() else 1


def _find_requests(rank: Rank, iterations: _Iterations) -> analysis.LoaderBatches:
    """Find the batches that a rank received from loaders."""
    waits = _select_spans(rank, "data_wait")
    waits = waits.take(~waits.has_flag(FLAG_NO_RESULT))
    numbers = np.array([_number_loader(name) for name in waits.names] or [0], dtype=np.int64)
    iteration = iterations.find(numbers[waits.name], waits.start)
    rows = np.flatnonzero(iteration >= 0)
    return analysis.LoaderBatches(
        start=waits.start[rows],
        end=waits.end[rows],
        iteration=iteration[rows],
        number=_count_before(iteration[rows]),
    )


def _count_before(values: Int) -> Int:
    """Count the equal values before each."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    counts = np.empty(len(values), dtype=np.int64)
    counts[order] = np.arange(len(values)) - np.searchsorted(ordered, ordered)
    return counts


class WorkerBatches(NamedTuple):
    """Work of the workers of a rank in a time."""

    work: analysis.LoaderWork
    """Activities are numbered from 0."""
    dataset: Int
    """Index of the dataset of each fetch."""
    datasets: list[str]


def read_worker_batches(rank: Rank, window: Period) -> WorkerBatches | None:
    """Read the batches that workers make for a rank in a time; None where there are none."""
    iterations = _find_iterations(rank)
    waits = _find_requests(rank, iterations)
    workers = _find_workers(rank, window, iterations)
    processes = [worker.process for worker in workers]
    fetched = read_spans_between(rank.run, processes, ("fetch",), window)
    since_ns = iterations.find_since({worker.loader for worker in workers}, window.start_ns)
    earlier = _read_earlier(rank.run, processes, Period(since_ns, window.start_ns))
    parts: list[tuple[Int, ...]] = []
    datasets: dict[str, int] = {}
    for index, worker in enumerate(workers):
        spans = fetched.get(worker.process.process)
        if spans is None:
            continue
        loader = np.full(len(spans), worker.loader)
        iteration = iterations.find(loader, spans.start)
        count = _count_before(iteration)
        before = earlier.get(worker.process.process)
        if before is not None:  # those of the iteration that goes on
            start = np.append(iterations.start, np.iinfo(np.int64).max)[iteration]
            is_begun = start <= window.start_ns
            count[is_begun] += (before >= start[is_begun][:1]).sum()
        number = worker.number + iterations.worker_count[iteration] * count
        codes = [datasets.setdefault(name, len(datasets)) for name in spans.names]
        dataset = np.array(codes, dtype=np.int64)[spans.name]
        columns = (spans.start, spans.end, iteration, number, np.full(len(spans), index), dataset)
        parts.append(tuple(column[iteration >= 0] for column in columns))
    if not parts:
        return None
    start, end, iteration, number, worker_index, dataset = (
        np.concatenate(part) for part in zip(*parts, strict=True)
    )
    is_near = (waits.end > window.start_ns) & (waits.start < window.end_ns)
    work = analysis.LoaderWork(
        fetches=analysis.LoaderBatches(start=start, end=end, iteration=iteration, number=number),
        worker=worker_index,
        activity=np.arange(len(start), dtype=np.int64),
        waits=waits.take(np.flatnonzero(is_near)),
        iteration_start=iterations.start,
        ahead_count=iterations.prefetch_factor * iterations.worker_count,
    )
    return WorkerBatches(work, dataset, list(datasets))


class _Worker(NamedTuple):
    process: schema.ProcessInfo
    number: int
    """Its number among the workers of its loader."""
    loader: int
    """Number of its loader."""


def _find_workers(rank: Rank, window: Period, iterations: _Iterations) -> list[_Worker]:
    """Find the workers that ran in a time; they are of the loader whose iteration started before
    them."""
    workers = []
    for process in rank.run.workers_of(rank.process):
        ended_ns = window.end_ns if process.ended_ns is None else process.ended_ns
        numbers = [fact.worker for fact in process.facts_of(schema.DataLoaderWorkerFact)]
        iteration = np.searchsorted(iterations.start, process.started_ns, side="right") - 1
        is_near = process.started_ns < window.end_ns and ended_ns > window.start_ns
        if is_near and iteration >= 0 and numbers and numbers[0] is not None:
            workers.append(_Worker(process, numbers[0], int(iterations.loader[iteration])))
    return workers


def _read_earlier(
    run: Run, processes: Sequence[schema.ProcessInfo], period: Period
) -> dict[str, Int]:
    """Read the starts of the fetches of workers that started and ended in a time."""
    if not processes or period.start_ns >= period.end_ns:
        return {}
    rows = run.reader.sql(
        "SELECT process, list(start_ns) AS start_ns FROM spans WHERE kind = 'fetch' "  # noqa: S608 - only numbers are inserted
        f"AND {period.condition('start_ns')} AND end_ns <= {period.end_ns} "
        "AND list_contains(?, process) GROUP BY process",
        ([process.process for process in processes],),
        within=period,
        node=processes[0].node,
    )
    times = (np.asarray(starts, dtype=np.int64) for starts in rows["start_ns"])
    return dict(zip(rows["process"].tolist(), times, strict=True))
