"""Export of a whole run on one time axis, as a Chrome trace, with marks of bottlenecks.

Samples of the machines become counters, spans of the job's processes become tracks, and the traces
of the framework's profiler are drawn in parallel. `TimelineContent` selects among them.

All clocks count nanoseconds since 1970. Rows are written in slices of time, one query each, so
that memory is bounded by the slice and not by the run.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np

from stepscope import errors, schema
from stepscope.exporters.chrome import EventList, check_count
from stepscope.exporters.chrome_events import microseconds
from stepscope.exporters.chrome_header import naming_event, open_text_file, span_text
from stepscope.exporters.registry import ExportOptions, Written
from stepscope.exporters.timeline_marks import finding_marks, gpu_marks
from stepscope.quantities import count_of
from stepscope.run import Run, RunReader, Trace, literal

SOURCES = ("system", "framework", "communication", "traces", "bottlenecks")
"""Samples of the nodes; spans except those of collectives; these; traces; and marks of GPUs that
are hardly used and of findings of rules."""
GPU_BELOW_RATIO = 0.85
"""GPUs busy for a smaller share of the time are marked, as in Debugger's merged timeline."""
_RECORDER = "labels->>'$.recorder'"
_RECORDERS = (
    f"SELECT DISTINCT {_RECORDER} AS recorder FROM spans WHERE {_RECORDER} <> '' ORDER BY recorder"  # noqa: S608
)
MAX_LISTED = 20
"""Names that an error message lists."""
SLICE_ROWS = 100_000
"""Approximate rows of one query; the range is divided into slices of equal time."""
_SECOND_NS = 10**9
_FIRST_NODE, _FINDINGS, _FIRST_PROCESS = 1, 999, 1_000
"""Process numbers in the file. Processes of different machines may have the same number, so
the real one is in the name."""
_FIRST_NAMELESS_THREAD = 2**31
"""Imported tracks from this number on are no threads."""

# $1 and $2 slice, $3 base, $4 nodes, $5 their positions.
_NODE = "$5[list_position($4, node)]"
_COUNTER_NAME = "to_json(concat_ws(' ', metric, nullif(device, '')))"
_COUNTERS = f"""
    SELECT concat('{{"ph":"C","name":', {_COUNTER_NAME}, ',', {_NODE}, ',"ts":',
        {microseconds("t_ns - $3")}, ',"args":{{"value":', CAST(value AS VARCHAR), '}}}}') AS text
    FROM metrics
    WHERE t_ns >= $1 AND t_ns < $2 AND isfinite(value) AND list_contains($4, node)
    ORDER BY t_ns, node, metric, device
"""  # noqa: S608
# $1 and $2 slice, $3 end of the range, $4 base, $5 tracks, $6 their positions.
_TRACK = "concat(process, '/', log)"
_SPANS = f"""
    SELECT {span_text(f"$6[list_position($5, {_TRACK})]")} AS text
    FROM selected
    WHERE start_ns >= $1 AND start_ns < $2 AND list_contains($5, {_TRACK})
    ORDER BY start_ns, depth, process, log, seq
"""  # noqa: S608
_TRACKS = """
    SELECT process, log, max_by(label, (n, label)) AS label
    FROM (
        SELECT process, log, count(*) AS n,
            coalesce(labels->>'$.phase', labels->>'$.tensor', kind) AS label
        FROM selected GROUP BY ALL
    )
    GROUP BY process, log
    ORDER BY process, log
"""
_EXTENT = """
    SELECT min(first) AS first, max(last) AS last FROM (
        SELECT min(t_ns) AS first, max(t_ns) AS last FROM metrics
        UNION ALL SELECT min(start_ns), max(coalesce(end_ns, start_ns)) FROM spans
        UNION ALL SELECT min(start_ns), max(end_ns) FROM traces
    )
"""


class TimelineContent(msgspec.Struct, frozen=True, kw_only=True):
    """Content of a timeline."""

    sources: Collection[str] = SOURCES
    suffixes: Sequence[str] | None = None
    """Ends of the names of imported files: spans and traces of other files are left out. None for
    all."""
    gpu_below_ratio: float = GPU_BELOW_RATIO

    def has_trace(self, trace: Trace) -> bool:
        """Return True for a trace of the content."""
        if "traces" not in self.sources:
            return False
        return self.suffixes is None or trace.name.endswith(tuple(self.suffixes))

    @property
    def span_condition(self) -> str:
        """SQL condition for the spans."""
        kinds = {"framework": "kind <> 'communication'", "communication": "kind = 'communication'"}
        selected = [condition for source, condition in kinds.items() if source in self.sources]
        condition = f"({' OR '.join(selected) or 'false'})"
        if self.suffixes is None:
            return condition
        suffixes = " OR ".join(f"suffix({_RECORDER}, {literal(text)})" for text in self.suffixes)
        return f"{condition} AND ({suffixes or 'false'})"


def choose_content(
    run: Run,
    *,
    sources: Sequence[str] = SOURCES,
    suffixes: Sequence[str] | None = None,
    gpu_below_ratio: float = GPU_BELOW_RATIO,
) -> TimelineContent:
    """Check a selection of the content.

    Raises:
        UsageError: a source is unknown, or no imported file has a suffix.
    """
    for source in sources:
        if source not in SOURCES:
            raise errors.UsageError(
                f"There is no source {source!r}; there are {', '.join(SOURCES)}."
            )
    if suffixes is not None:
        recorders = run.reader.sql(_RECORDERS)["recorder"].tolist()
        names = [*recorders, *(trace.name for trace in run.traces)]
        for suffix in suffixes:
            if not any(name.endswith(suffix) for name in names):
                raise errors.UsageError(
                    f"No imported file has the suffix {suffix!r}; there are "
                    f"{', '.join(names[:MAX_LISTED]) or 'none'}."
                )
    return TimelineContent(sources=sources, suffixes=suffixes, gpu_below_ratio=gpu_below_ratio)


def find_step_range(run: Run, steps: tuple[int, int]) -> tuple[int, int]:
    """Find the time from the start of the first step of any rank to the end of the last of any.

    Args:
        run: the run.
        steps: first step and the step after the last.

    Returns:
        Start and end in epoch nanoseconds.

    Raises:
        UsageError: no rank has these steps.
    """
    starts, ends = [], []
    for rank in run.ranks:
        rows = np.flatnonzero((rank.steps.number >= steps[0]) & (rank.steps.number < steps[1]))
        if len(rows):
            starts.append(int(rank.steps.start[rows[0]]))
            ends.append(int(rank.steps.end[rows[-1]]))
    if not starts:
        raise errors.UsageError(f"No rank has a step from {steps[0]} to before {steps[1]}.")
    return min(starts), max(ends)


class ExportedTimeline(Written, frozen=True, kw_only=True):
    """Summary of an exported file."""

    start_ns: int
    end_ns: int
    counter_count: int
    """Samples written as counters."""
    span_count: int
    bottleneck_count: int
    """Marks of GPUs that are hardly used and of findings of rules."""
    recordings: list[str]
    """Names of the traces in it."""
    text_bytes: int
    """Length of the JSON, before compression."""


class EventSink(Protocol):
    """File that events of a run are written to."""

    @property
    def text_bytes(self) -> int:
        """Length of the file before compression."""

    @property
    def omission(self) -> str:
        """The part that the form cannot hold, as the rest of a sentence; empty for nothing."""

    def write(self, texts: Sequence[str]) -> None:
        """Write events in the form of Chrome, those of a track in the order of their starts."""

    def write_traces(self, traces: Sequence[Trace]) -> None:
        """Write the events of traces."""


SinkOpener = Callable[[Path, int], AbstractContextManager[EventSink]]
"""Opens a file for events, from its path and the base of the times of the events."""


class _Track(msgspec.Struct, frozen=True, kw_only=True):
    """Position of the rows of one log."""

    key: str
    position: str
    name: str


class _Range(msgspec.Struct, frozen=True, kw_only=True):
    """Time range of an export."""

    start: int
    end: int
    base_ns: int

    def slices(self, rows: int) -> list[tuple[int, int]]:
        """Divide the range into equal pieces of about `SLICE_ROWS` rows each."""
        if rows == 0:
            return []
        count = -(-rows // SLICE_ROWS)
        cuts = [self.start + (self.end - self.start) * n // count for n in range(count + 1)]
        return list(itertools.pairwise(cuts))


def export_timeline(
    run: Run,
    path: Path,
    *,
    start_ns: int | None = None,
    end_ns: int | None = None,
    content: TimelineContent | None = None,
    open_sink: SinkOpener | None = None,
) -> ExportedTimeline:
    """Write a run, or a part of it, into one file, compressed when its name ends in `.gz`.

    Args:
        run: the run.
        path: the file; an existing one is replaced when the new one is complete.
        start_ns, end_ns: range of the samples and spans, by their start, the end excluded; None
            for an open range. Traces that overlap the range are written whole.
        content: sources and files; all by default.
        open_sink: opener of the file; None for JSON.

    Raises:
        IncompleteExportError: not every sample, span or event of a trace could be written.
        OSError: the file cannot be written.
    """
    reader, content = run.reader, content or TimelineContent()
    extent = reader.sql(_EXTENT)
    first, last = (_optional(extent[name]) for name in ("first", "last"))
    start = start_ns if start_ns is not None else first or 0
    end = end_ns if end_ns is not None else (last or 0) + 1
    traces = [
        t for t in run.traces if t.start_ns < end and t.end_ns >= start and content.has_trace(t)
    ]
    base_ns = min([start, *(t.start_ns for t in traces)]) // _SECOND_NS * _SECOND_NS
    within = _Range(start=start, end=end, base_ns=base_ns)
    with (open_sink or _open_list)(path, base_ns) as events:
        counter_count, bottleneck_count = _write_nodes(events, run, within, content)
        span_count = _write_spans(events, run, within, content.span_condition)
        events.write_traces(traces)
    return ExportedTimeline(
        path=str(path),
        content=f"{count_of(counter_count, 'sample')}, {count_of(span_count, 'span')}, "
        f"{count_of(len(traces), 'trace')}, {count_of(bottleneck_count, 'mark')} of bottlenecks"
        f"{events.omission}",
        start_ns=start,
        end_ns=end,
        counter_count=counter_count,
        span_count=span_count,
        bottleneck_count=bottleneck_count,
        recordings=[trace.name for trace in traces],
        text_bytes=events.text_bytes,
    )


@contextmanager
def _open_list(path: Path, base_ns: int) -> Iterator[EventList]:
    with open_text_file(path) as file:
        members = {"displayTimeUnit": "ms", "baseTimeNanoseconds": base_ns}
        file.write(msgspec.json.encode(members).decode()[:-1] + ',"traceEvents":[')
        yield EventList(file, base_ns)
        file.write("\n]}\n")


class TimelineExporter:
    """Exporter of whole runs; see `registry.Exporter`."""

    options = frozenset({"steps", "source", "suffix", "gpu_below"})
    open_sink: SinkOpener | None = None

    def export(self, run: Run, output: str, options: ExportOptions) -> list[ExportedTimeline]:
        """Write one file."""
        path = Path(output)
        if path.is_dir():
            raise errors.UsageError(f"{path} is a directory; pass a file to -o.")
        ratio = GPU_BELOW_RATIO if options.gpu_below is None else options.gpu_below / 100
        content = choose_content(
            run,
            sources=options.source or SOURCES,
            suffixes=options.suffix or None,
            gpu_below_ratio=ratio,
        )
        steps = options.steps
        start_ns, end_ns = (None, None) if steps is None else find_step_range(run, steps)
        return [
            export_timeline(
                run,
                path,
                start_ns=start_ns,
                end_ns=end_ns,
                content=content,
                open_sink=self.open_sink,
            )
        ]


def _write_nodes(
    events: EventSink, run: Run, within: _Range, content: TimelineContent
) -> tuple[int, int]:
    """Write the samples of all nodes, and the marks; returns the number of each."""
    if not {"system", "bottlenecks"} & set(content.sources):
        return 0, 0
    nodes = run.reader.sql("SELECT DISTINCT node FROM metrics ORDER BY node")["node"].tolist()
    positions = [f'"pid":{_FIRST_NODE + number},"tid":0' for number in range(len(nodes))]
    for number, (node, position) in enumerate(zip(nodes, positions, strict=True)):
        events.write(list(_process_names(position, f"{node}: system", number)))
    counter_count = bottleneck_count = 0
    if "system" in content.sources:
        counter_count = _write_counters(events, run.reader, within, nodes, positions)
    if "bottlenecks" in content.sources:
        bottleneck_count = _write_marks(events, run, within, content, nodes)
    return counter_count, bottleneck_count


def _write_counters(
    events: EventSink, reader: RunReader, within: _Range, nodes: list[str], positions: list[str]
) -> int:
    """Write the samples of all nodes; returns their number."""
    query = "SELECT count(*) AS n FROM metrics WHERE t_ns >= ? AND t_ns < ? AND isfinite(value)"
    rows = int(reader.sql(query, [within.start, within.end])["n"][0])
    written = 0
    for start, end in within.slices(rows):
        texts = reader.sql(_COUNTERS, [start, end, within.base_ns, nodes, positions])["text"]
        written += len(texts)
        events.write(texts.tolist())
    check_count("the timeline", "samples", written, rows)
    return written


def _write_marks(
    events: EventSink, run: Run, within: _Range, content: TimelineContent, nodes: list[str]
) -> int:
    """Write the marks of GPUs and of findings; returns their number."""
    texts: list[str] = []
    for pid, node in enumerate(nodes, _FIRST_NODE):
        metrics = run.metrics[node].between(within.start, within.end)
        for marks in gpu_marks(
            metrics, pid, below_ratio=content.gpu_below_ratio, base_ns=within.base_ns
        ):
            texts += marks
    findings = finding_marks(run, _FINDINGS, (within.start, within.end), base_ns=within.base_ns)
    if findings:
        position = f'"pid":{_FINDINGS},"tid":0'
        texts += [*_process_names(position, "findings of rules", _FINDINGS), *findings]
    events.write(texts)
    return sum(text.startswith('{"ph":"X"') for text in texts)


def _write_spans(events: EventSink, run: Run, within: _Range, condition: str) -> int:
    """Write the spans of the job's processes that meet a condition; returns their number."""
    tracks: list[_Track] = []
    for number, (label, process_tracks) in enumerate(_tracks(run, condition)):
        position = f'"pid":{_FIRST_PROCESS + number},"tid":0'
        events.write(list(_process_names(position, label, 1_000 + number)))
        for order, track in enumerate(process_tracks):
            events.write(list(naming_event("thread_name", track.position, "name", track.name)))
            order_event = naming_event("thread_sort_index", track.position, "sort_index", order)
            events.write(list(order_event))
        tracks += process_tracks
    selected = _select(condition)
    query = "SELECT count(*) AS n FROM selected WHERE start_ns >= ? AND start_ns < ?"
    rows = int(run.reader.sql(selected + query, [within.start, within.end])["n"][0])
    keys, positions = [track.key for track in tracks], [track.position for track in tracks]
    written = 0
    for start, end in within.slices(rows):
        parameters = [start, end, within.end, within.base_ns, keys, positions]
        texts = run.reader.sql(selected + _SPANS, parameters)["text"]
        written += len(texts)
        events.write(texts.tolist())
    check_count("the timeline", "spans", written, rows)
    return written


def _select(condition: str) -> str:
    """Name the spans that meet a condition, for the query that follows."""
    return f"WITH selected AS (SELECT * FROM spans WHERE {condition}) "  # noqa: S608 - of ours


def _tracks(run: Run, condition: str) -> Iterator[tuple[str, list[_Track]]]:
    """Yield the label and tracks of every process with spans that meet a condition: ranks first,
    those without a manifest last."""
    rows = run.reader.sql(_select(condition) + _TRACKS)
    logs: dict[str, list[tuple[str, str]]] = {}
    for process_id, log, label in zip(*(rows[n].tolist() for n in rows), strict=True):
        logs.setdefault(process_id, []).append((log, label))
    processes = [process for process in run.processes if process.process in logs]
    processes.sort(
        key=lambda p: (p.role == "dataloader_worker", p.rank is None, p.rank or 0, p.pid)
    )
    labels = {process.process: _label(process, run.processes) for process in processes}
    for process_id in sorted(logs.keys() - labels.keys()):
        labels[process_id] = f"process {process_id}"
    for number, (process_id, label) in enumerate(labels.items()):
        yield (
            label,
            [
                _Track(
                    key=f"{process_id}/{log}",
                    position=f'"pid":{_FIRST_PROCESS + number},"tid":{tid}',
                    name=_thread_name(log, log_label),
                )
                for tid, (log, log_label) in enumerate(logs[process_id], 1)
            ],
        )


def _thread_name(log: str, label: str) -> str:
    thread = "".join(itertools.takewhile(str.isdigit, log))
    return label if int(thread or 0) >= _FIRST_NAMELESS_THREAD else f"thread {thread}"


def _label(process: schema.ProcessInfo, processes: Sequence[schema.ProcessInfo]) -> str:
    location = f"pid {process.pid} on {process.node}"
    if process.rank is not None:
        return f"rank {process.rank} ({location})"
    parents = [p for p in processes if (p.node, p.pid) == (process.node, process.parent_pid)]
    if process.role != "dataloader_worker" or not parents:
        return f"{process.role} ({location})"
    rank = "" if parents[0].rank is None else f" of rank {parents[0].rank}"
    return f"DataLoader worker{rank} ({location})"


def _process_names(position: str, name: str, order: int) -> Iterator[str]:
    yield from naming_event("process_name", position, "name", name)
    yield from naming_event("process_sort_index", position, "sort_index", order)


def _optional(values: Any) -> int | None:
    return None if np.ma.getmaskarray(values)[0] else int(values[0])
