"""Causal graph of a watched run, from its spans.

A sample of consecutive steps, with those before it as far as batches reach that are made ahead:

    training thread      phases and annotations, the innermost of which has the time
    DataLoader workers   fetches, by iteration and number of the batch
    ranks                collectives of the script; and the exposed exchange of gradients, with
                         which the last backward pass of a step ends
    evaluation           one piece of time, whatever runs in it
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import analysis, intervals
from stepscope.analysis import FLAG_ASYNC, FLAG_NO_RESULT, PathCategory
from stepscope.run.job.data_loading import count_loader_workers
from stepscope.run.job.loader_batches import read_spans_between, read_worker_batches
from stepscope.run.model.clock import Period
from stepscope.run.model.run import Rank, Run
from stepscope.run.model.tables import NO_SPANS
from stepscope.run.ranks.causal_graph import CONTRADICTION, RunGraph, join_parts
from stepscope.run.ranks.collectives import SharedSteps, read_shared_steps
from stepscope.run.traces.causal_graph import PieceNames

Int = intervals.Int
MAX_STEPS = 4_000
"""Limit of steps of a graph …"""
MAX_RANK_STEPS = 20_000
"""… and of steps of all its ranks together."""
LEAD_STEPS = 32
"""Steps before the sample, in which the batches were made that it begins with."""
TRACK = 0
"""Training thread of a rank."""
_CATEGORIES = {
    "data_wait": PathCategory.INPUT,
    "loader_start": PathCategory.STARTUP,
    "h2d": PathCategory.COPY,
    "forward": PathCategory.COMPUTE,
    "backward": PathCategory.COMPUTE,
    "optimizer": PathCategory.COMPUTE,
    "communication": PathCategory.COMMUNICATION,
    "checkpoint": PathCategory.CHECKPOINT,
    "evaluation": PathCategory.EVALUATION,
    "exchange": PathCategory.COMMUNICATION,
    "fetch": PathCategory.INPUT,
}
"""Category of the time of each kind of span; of others it is Python."""
_KIND_TITLES = {"annotation": "range", "fetch": "fetch"}
"""Kinds of activities that are no phases."""
MAX_RANKS = 64
"""Limit of ranks of a graph."""
NO_STEPS = "no complete training step was recorded"
ON_DEVICE = (
    "the steps compute on a device, and spans do not tell what waits for it: record a window with "
    "`stepscope capture RUN --steps 20` while the job runs"
)
NO_SHARED_STEP = "the ranks have no measured step in common"


class _Collectives(NamedTuple):
    """Collectives of one rank, in the order of time."""

    start: Int
    end: Int
    step: Int
    """Number of the step."""
    kind: Int
    """1 for the exchange of gradients, 0 for one of the script."""


class SpanGraph(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Causal graph of steps of one rank, and what its edges stand for."""

    points: analysis.RankGraph
    rank: int | None
    label: str
    names: list[tuple[str, str]]
    """Names of activities with their kinds."""
    name: Int
    """Index of the name of each activity."""
    in_optimizer: NDArray[np.bool_]
    reads_host: NDArray[np.bool_]

    def read_names(self) -> tuple[list[str], Int]:
        """Return the names of the activities, and the index of that of each."""
        return [name for name, _ in self.names], self.name

    def name_pieces(self, activity: Int, time_ns: Int) -> PieceNames:
        """Name pieces of a path by their activities; spans have no Python functions."""
        none = np.full(len(time_ns), -1, dtype=np.int64)
        return PieceNames(np.append(self.name, -1)[activity], none, self.names)


def get_span_graph(run: Run) -> RunGraph | str:
    """Return the causal graph of the spans of all ranks of a run, built once per run, or explain
    why there is none."""
    return run.derive(_build_all)


def _build_all(run: Run) -> RunGraph | str:
    return build_span_graph(run.ranks)


def build_span_graph(ranks: Sequence[Rank]) -> RunGraph | str:
    """Build the causal graph of a sample of the measured steps of ranks, or explain why there is
    none."""
    reason = explain_no_span_graph(ranks)
    if reason is not None:
        return reason
    shared = read_shared_steps(ranks)
    if shared is None or not len(shared.number):
        return NO_SHARED_STEP
    rows = _select_ranks(shared)
    numbers = select_sample(
        shared.number, max(LEAD_STEPS, min(MAX_STEPS, MAX_RANK_STEPS // len(rows)))
    )
    exchange_ns = np.zeros((len(ranks), len(numbers)))
    if len(ranks) > 1:
        exchange_ns = shared.exchange_ns[:, np.searchsorted(shared.number, numbers)]
    first, exchange_ns = int(numbers[0]), exchange_ns.astype(np.int64)
    parts = _match([_build_rank(ranks[row], first, exchange_ns[row]) for row in rows])
    notes = _describe_sample(len(rows), len(ranks), numbers, shared.number)
    try:
        return join_parts(parts, notes)
    except analysis.CycleError:
        return CONTRADICTION


def explain_no_span_graph(ranks: Sequence[Rank]) -> str | None:
    """Explain why the spans of ranks have no causal graph; None where nothing speaks against it."""
    if not ranks:
        return NO_STEPS
    frames = [rank.table.steps.frame for rank in ranks]
    is_on_device = any(one.clock == "device" or one.source == "dispatch" for one in frames)
    return ON_DEVICE if is_on_device else None


def _select_ranks(shared: SharedSteps) -> list[int]:
    """Select ranks: of many, some at equal distances, and the one that waits least for others."""
    count = len(shared.communication_ns)
    if count <= MAX_RANKS:
        return list(range(count))
    spread = np.linspace(0, count - 1, MAX_RANKS - 1).astype(np.int64)
    slowest = int(shared.communication_ns.mean(axis=1).argmin())
    return sorted({*spread.tolist(), slowest})


def select_sample(numbers: Int, limit: int) -> Int:
    """Select the middle of the longest range of consecutive numbers.

    >>> select_sample(np.array([1, 2, 5, 6, 7, 8, 9]), 3)
    array([6, 7, 8])
    """
    ranges = np.split(numbers, np.flatnonzero(np.diff(numbers) != 1) + 1)
    longest = max(ranges, key=len)
    first = max(0, len(longest) - limit) // 2
    return longest[first : first + limit]


def _describe_sample(rank_count: int, of_ranks: int, numbers: Int, measured: Int) -> list[str]:
    """Describe which measured steps and ranks were left out."""
    notes = []
    if len(numbers) < len(measured):
        first, last = int(numbers[0]) + 1, int(numbers[-1]) + 1
        notes.append(f"of {len(measured):,} measured steps, {first:,} to {last:,} are replayed")
    if rank_count < of_ranks:
        notes.append(
            f"of {of_ranks:,} ranks, {rank_count} are replayed, with the one that waits least"
        )
    return notes


class _Ranges(NamedTuple):
    """Ranges of the training thread; one entry per range."""

    start: Int
    end: Int
    category: Int
    name: Int
    """Index of its name."""


def _build_rank(rank: Rank, first_number: int, exchange_ns: Int) -> tuple[SpanGraph, _Collectives]:
    steps = rank.steps
    first = first_number - steps.first
    stop = first + len(exchange_ns)
    lead = max(0, first - LEAD_STEPS)
    window = Period(int(steps.start[lead]), int(steps.end[stop - 1]))
    names: dict[tuple[str, str], int] = {}
    spans = rank.spans.on_thread(steps.thread)
    spans = spans.take((spans.start < window.end_ns) & (spans.end > window.start_ns))
    collectives = _find_collectives(spans, steps, first, exchange_ns)
    ranges = _list_ranges(rank, spans, window, collectives, names)
    count = len(ranges.start)
    extents = intervals.Intervals(steps.start[lead:stop], steps.end[lead:stop])
    host = _make_host_ranges(ranges, extents)
    threads = analysis.build_threads(host, TRACK)
    batches, name, more_time = read_worker_batches(rank, window), ranges.name, intervals.EMPTY.start
    points = None
    if batches is not None:
        work = msgspec.structs.replace(batches.work, activity=batches.work.activity + count)
        points = analysis.add_worker_fetches(threads, work, TRACK)
    if points is not None and batches is not None:
        threads, more_time = points
        codes = [names.setdefault(("fetch", text), len(names)) for text in batches.datasets]
        name = np.concatenate([name, np.array(codes, dtype=np.int64)[batches.dataset]])
    else:
        threads = analysis.add_fetches(threads, _read_waits(rank, spans), TRACK)
    kinds = np.array([kind for kind, _ in names] or [""])[name]
    borders = np.append(extents.start[first - lead : first - lead + 1], steps.end[first:stop])
    graph = SpanGraph(
        points=analysis.RankGraph(
            time_ns=np.concatenate([threads.time, more_time]),
            edges=threads.edges,
            step_count=stop - first,
            last_points=threads.find(np.full(len(borders), TRACK), borders, before=True),
            last_steps=np.arange(len(borders), dtype=np.int64),
            activity_count=len(name),
            calls=_place_collectives(threads, collectives),
        ),
        rank=rank.process.rank,
        label=rank.name,
        names=[_title(kind, text) for kind, text in names],
        name=name,
        in_optimizer=kinds == "optimizer",
        reads_host=kinds == "h2d",
    )
    return graph, collectives


def _title(kind: str, name: str) -> tuple[str, str]:
    """Title of an activity, and its kind."""
    text = name if kind == "annotation" else kind.replace("_", " ")
    if name not in {"", kind, text}:
        text = f"{text} {name}"
    return text, _KIND_TITLES.get(kind, "phase")


def _make_host_ranges(ranges: _Ranges, steps: intervals.Intervals) -> analysis.HostRanges:
    """Make the ranges of the thread: steps around what runs in them."""
    step_count, count = len(steps.start), len(ranges.start)
    python = np.full(step_count, PathCategory.PYTHON)
    is_busy = np.concatenate([ranges.category != PathCategory.PYTHON, np.zeros(step_count, bool)])
    return analysis.HostRanges(
        track=np.full(count + step_count, TRACK),
        start=np.concatenate([ranges.start, steps.start]),
        end=np.concatenate([ranges.end, steps.end]),
        activity=np.append(np.arange(count, dtype=np.int64), np.full(step_count, -1)),
        category=np.concatenate([ranges.category, python]).astype(np.int8),
        is_input=np.append(ranges.category == PathCategory.INPUT, np.zeros(step_count, bool)),
        is_busy=is_busy,
    )


def _list_ranges(
    rank: Rank,
    spans: analysis.Spans,
    window: Period,
    collectives: _Collectives,
    names: dict[tuple[str, str], int],
) -> _Ranges:
    """List what runs on the training thread in a time."""
    steps = rank.steps
    excluded = intervals.unite(steps.evaluation, steps.recording)
    more = _read_more(rank, window)
    parts = []
    for part in (spans.of(*analysis.PHASE_OF_KIND), more.on_thread(steps.thread)):
        included = part.take(~intervals.contains(excluded, part.start))
        parts.append((included.start, included.end, *_number_names(included, names)))
    is_exchange = collectives.kind == 1
    extents = (
        ("evaluation", excluded),
        ("exchange", intervals.Intervals(*(part[is_exchange] for part in collectives[:2]))),
    )
    for kind, extent in extents:
        count = len(extent.start)
        number = names.setdefault((kind, ""), len(names))
        parts.append(
            (extent.start, extent.end, np.full(count, _CATEGORIES[kind]), np.full(count, number))
        )
    start, end, category, name = (np.concatenate(part) for part in zip(*parts, strict=True))
    start, end = np.maximum(start, window.start_ns), np.minimum(end, window.end_ns)
    inside = end > start
    return _Ranges(*(part[inside] for part in (start, end, category, name)))


def _number_names(spans: analysis.Spans, names: dict[tuple[str, str], int]) -> tuple[Int, Int]:
    """Return the category of each span, and the index of its name."""
    codes = [names.setdefault((group.kind, group.name), len(names)) for group in spans.groups]
    # A wait that finds no more batches is for workers that end.
    categories = [
        PathCategory.STARTUP
        if group.kind == "data_wait" and group.flags & FLAG_NO_RESULT
        else _CATEGORIES.get(group.kind, PathCategory.PYTHON)
        for group in spans.groups
    ]
    tables = (np.array(values, dtype=np.int64) for values in (categories, codes))
    category, name = (table[spans.group] for table in tables)
    return category, name


def _read_more(rank: Rank, window: Period) -> analysis.Spans:
    """Read the annotations of a process and its own fetches, in a time."""
    process = rank.process
    return read_spans_between(rank.run, [process], ("annotation", "fetch"), window).get(
        process.process, NO_SPANS
    )


def _read_waits(rank: Rank, spans: analysis.Spans) -> analysis.Fetches:
    """Read the waits of a rank for batches."""
    waits = spans.of("data_wait")
    outside = ~intervals.contains(rank.steps.evaluation, waits.start)
    waits = waits.take(outside & ~waits.has_flag(FLAG_NO_RESULT))
    return analysis.Fetches(
        start=waits.start, end=waits.end, has_workers=bool(count_loader_workers(rank))
    )


def _find_collectives(
    spans: analysis.Spans, steps: analysis.Steps, first: int, exchange_ns: Int
) -> _Collectives:
    """Find the collectives of a rank in steps.

    Args:
        spans: spans of the training thread.
        steps: all steps.
        first: index of the first step.
        exchange_ns: exposed exchange of each step.
    """
    stop = first + len(exchange_ns)
    calls = spans.of("communication")
    calls = calls.take(~calls.has_flag(FLAG_ASYNC))
    extent = intervals.take_outermost(calls.intervals)
    step = analysis.find_step_at(extent.start, steps)
    passes = intervals.take_outermost(spans.of("backward").intervals)
    # The last pass of each step; a step without any has none.
    row = np.searchsorted(passes.start, steps.end[first:stop]) - 1
    end = np.append(passes.end, 0)[row]
    begin = np.maximum(np.append(passes.start, 0)[row], end - exchange_ns)
    has_pass = (row >= 0) & (begin >= steps.start[first:stop]) & (exchange_ns > 0)
    exchanged = np.flatnonzero(has_pass & (begin < end))
    inside = (step >= first) & (step < stop)
    parts = (
        (extent.start[inside], begin[exchanged]),
        (extent.end[inside], end[exchanged]),
        (step[inside] + steps.first, exchanged + first + steps.first),
        (np.zeros(int(inside.sum()), dtype=np.int64), np.ones(len(exchanged), dtype=np.int64)),
    )
    columns: Any = [np.concatenate(part) for part in parts]
    order = np.argsort(columns[0], kind="stable")
    return _Collectives(*(column[order] for column in columns))


def _place_collectives(
    threads: analysis.HostThreads, collectives: _Collectives
) -> analysis.CollectivePoints:
    """Find the points and edges of collectives, which are not matched yet."""
    track, count = np.full(len(collectives.start), TRACK), len(collectives.start)
    start, end = (threads.find(track, times) for times in collectives[:2])
    fits = (start >= 0) & (end > start) & (threads.time[start] == collectives.start)
    fits &= threads.time[end] == collectives.end
    return analysis.CollectivePoints(
        collective=np.full(count, -1, dtype=np.int64),
        transfer_ns=np.zeros(count, dtype=np.int64),
        start=np.where(fits, start, -1),
        end=np.where(fits, end, -1),
        first_edge=np.where(fits, threads.edge_after[start], 0),
        edge_count=np.where(fits, end - start, 0),
    )


def _match(built: Sequence[tuple[SpanGraph, _Collectives]]) -> list[SpanGraph]:
    """Match the k-th collectives of each step, where all ranks have as many in it. They transfer
    as long as the rank that came last was in it."""
    rank = np.repeat(np.arange(len(built)), [len(calls.start) for _, calls in built])
    start, end, step, kind = (
        np.concatenate([part[column] for _, part in built]) for column in range(4)
    )
    of_rank = analysis.group_rows(rank, step, kind)
    order = np.argsort(of_rank.group, kind="stable")
    index = np.empty(len(order), dtype=np.int64)
    sorted_group = of_rank.group[order]
    index[order] = np.arange(len(order)) - np.searchsorted(sorted_group, sorted_group)
    groups = analysis.group_rows(step, kind, index)
    of_step = analysis.group_rows(step, kind)
    has_all = (groups.counts()[groups.group] == len(built)).astype(np.int64)
    is_even = of_step.minima(has_all)[of_step.group] == 1
    transfer_ns = groups.minima(end - start)[groups.group]
    parts = []
    for number, (graph, _) in enumerate(built):
        rows = np.flatnonzero(rank == number)
        calls = msgspec.structs.replace(
            graph.points.calls,
            collective=np.where(is_even, groups.group, -1)[rows],
            transfer_ns=transfer_ns[rows],
        )
        points = msgspec.structs.replace(graph.points, calls=calls)
        parts.append(msgspec.structs.replace(graph, points=points))
    return parts
