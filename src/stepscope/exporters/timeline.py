"""A whole run on one axis of time, as a Chrome trace: what the machines did as counters, what the
job's processes did as tracks, and the recordings of the framework's profiler beside them.

All clocks count nanoseconds since 1970. Rows are written in slices of time, each one query, so that
memory is bounded by the slice and not by the run.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from stepscope.exporters.chrome import EventList, recording_events
from stepscope.exporters.chrome_events import microseconds
from stepscope.exporters.chrome_header import naming_event
from stepscope.exporters.chrome_spans import span_text
from stepscope.exporters.text_file import writing
from stepscope.run import Run, Trace
from stepscope.schema import ProcessInfo
from stepscope.store import RunReader

SLICE_ROWS = 100_000
"""Rows that one query writes, about: as many slices of equal time are made as that takes."""
_SECOND_NS = 10**9
_FIRST_NODE, _FIRST_PROCESS = 1, 1_000
"""Where the numbers of drawn processes begin. A process of the system may have one of the same
number as another on another machine, so its own is in its name."""
_NAMELESS_THREAD = 2**31
"""Imported tracks from this number on are no threads."""

# $1 and $2 the slice, $3 base, $4 nodes, $5 where each is drawn.
_NODE = "$5[list_position($4, node)]"
_COUNTER_NAME = "to_json(concat_ws(' ', metric, nullif(device, '')))"
_COUNTERS = f"""
    SELECT concat('{{"ph":"C","name":', {_COUNTER_NAME}, ',', {_NODE}, ',"ts":',
        {microseconds("t_ns - $3")}, ',"args":{{"value":', CAST(value AS VARCHAR), '}}}}') AS text
    FROM metrics
    WHERE t_ns >= $1 AND t_ns < $2 AND isfinite(value) AND list_contains($4, node)
    ORDER BY t_ns
"""  # noqa: S608
# $1 and $2 the slice, $3 end of the range, $4 base, $5 tracks, $6 where each is drawn.
_TRACK = "concat(process, '/', log)"
_SPANS = f"""
    SELECT {span_text(f"$6[list_position($5, {_TRACK})]")} AS text
    FROM spans
    WHERE start_ns >= $1 AND start_ns < $2 AND list_contains($5, {_TRACK})
    ORDER BY start_ns, depth
"""  # noqa: S608
_TRACKS = """
    SELECT process, log,
        any_value(coalesce(labels->>'$.phase', labels->>'$.tensor', kind)) AS called
    FROM spans
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedTimeline:
    """A file that was written."""

    path: str
    start_ns: int
    end_ns: int
    counter_count: int
    """Samples that counters were drawn of."""
    span_count: int
    recordings: list[str]
    """Names of the recordings in it."""
    text_bytes: int
    """Length of the JSON, before compression."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Track:
    """Where the rows of one log are drawn."""

    key: str
    place: str
    name: str


def export_timeline(
    run: Run, path: Path, *, start_ns: int | None = None, end_ns: int | None = None
) -> ExportedTimeline:
    """Writes a run, or a range of it, into one file, compressed when its name ends in `.gz`.

    Args:
        signals: the run.
        path: the file; one that exists is replaced when the new one is complete.
        start_ns, end_ns: samples and spans that begin from the one until before the other;
            recordings that overlap the range are written whole. None for an open range.

    Raises:
        OSError: the file cannot be written.
    """
    reader = run.reader
    extent = reader.sql(_EXTENT)
    first, last = (_known(extent[name]) for name in ("first", "last"))
    start = start_ns if start_ns is not None else first or 0
    stop = end_ns if end_ns is not None else (last or 0) + 1
    recordings = [t for t in run.traces if t.start_ns < stop and t.end_ns >= start]
    base_ns = min([start, *(t.start_ns for t in recordings)]) // _SECOND_NS * _SECOND_NS
    with writing(path) as file:
        members = {"displayTimeUnit": "ms", "baseTimeNanoseconds": base_ns}
        file.write(msgspec.json.encode(members).decode()[:-1] + ',"traceEvents":[')
        events = EventList(file)
        counters = _write_counters(events, reader, start, stop, base_ns)
        spans = _write_spans(events, run, start, stop, base_ns)
        _write_recordings(events, recordings, base_ns)
        file.write("\n]}\n")
    return ExportedTimeline(
        path=str(path),
        start_ns=start,
        end_ns=stop,
        counter_count=counters,
        span_count=spans,
        recordings=[recording.name for recording in recordings],
        text_bytes=file.text_bytes,
    )


def _write_counters(
    events: EventList, reader: RunReader, start: int, stop: int, base_ns: int
) -> int:
    nodes = reader.sql("SELECT DISTINCT node FROM metrics ORDER BY node")["node"].tolist()
    places = [f'"pid":{_FIRST_NODE + number},"tid":0' for number in range(len(nodes))]
    for number, (node, place) in enumerate(zip(nodes, places, strict=True)):
        events.write(list(_names(place, f"{node}: system", number)))
    query = "SELECT count(*) AS n FROM metrics WHERE t_ns >= ? AND t_ns < ?"
    rows = int(reader.sql(query, [start, stop])["n"][0])
    written = 0
    for begin, end in _slices(start, stop, rows):
        found = reader.sql(_COUNTERS, [begin, end, base_ns, nodes, places])["text"]
        written += len(found)
        events.write(found.tolist())
    return written


def _write_spans(events: EventList, run: Run, start: int, stop: int, base_ns: int) -> int:
    tracks = []
    for number, (process, own) in enumerate(_tracks(run)):
        place = f'"pid":{_FIRST_PROCESS + number},"tid":0'
        events.write(list(_names(place, _label(process, run.processes), 1_000 + number)))
        for order, track in enumerate(own):
            events.write(list(naming_event("thread_name", track.place, "name", track.name)))
            events.write(list(naming_event("thread_sort_index", track.place, "sort_index", order)))
        tracks += own
    query = "SELECT count(*) AS n FROM spans WHERE start_ns >= ? AND start_ns < ?"
    rows = int(run.reader.sql(query, [start, stop])["n"][0])
    keys, places = [track.key for track in tracks], [track.place for track in tracks]
    written = 0
    for begin, end in _slices(start, stop, rows):
        found = run.reader.sql(_SPANS, [begin, end, stop, base_ns, keys, places])["text"]
        written += len(found)
        events.write(found.tolist())
    return written


def _write_recordings(events: EventList, recordings: Sequence[Trace], base_ns: int) -> None:
    # Counted from 1: the first numbers of processes are taken by those drawn above.
    for number, recording in enumerate(recordings, 1):
        for texts in recording_events(recording, number, base_ns, spans=False):
            events.write(texts)


def _tracks(run: Run) -> Iterator[tuple[ProcessInfo, list[_Track]]]:
    """The job's processes, ranks first, each with its tracks."""
    rows = run.reader.sql(_TRACKS)
    logs: dict[str, list[tuple[str, str]]] = {}
    for process, log, called in zip(*(rows[n].tolist() for n in rows), strict=True):
        logs.setdefault(process, []).append((log, called))
    known = [process for process in run.processes if process.process in logs]
    known.sort(key=lambda p: (p.role == "dataloader_worker", p.rank is None, p.rank or 0, p.pid))
    for number, process in enumerate(known):
        yield (
            process,
            [
                _Track(
                    key=f"{process.process}/{log}",
                    place=f'"pid":{_FIRST_PROCESS + number},"tid":{place}',
                    name=_thread_name(log, called),
                )
                for place, (log, called) in enumerate(logs[process.process], 1)
            ],
        )


def _thread_name(log: str, called: str) -> str:
    thread = "".join(itertools.takewhile(str.isdigit, log))
    return called if int(thread or 0) >= _NAMELESS_THREAD else f"thread {thread}"


def _label(process: ProcessInfo, processes: Sequence[ProcessInfo]) -> str:
    where = f"pid {process.pid} on {process.node}"
    if process.rank is not None:
        return f"rank {process.rank} ({where})"
    parents = [p for p in processes if (p.node, p.pid) == (process.node, process.parent_pid)]
    if process.role != "dataloader_worker" or not parents:
        return f"{process.role} ({where})"
    of = "" if parents[0].rank is None else f" of rank {parents[0].rank}"
    return f"DataLoader worker{of} ({where})"


def _names(place: str, name: str, order: int) -> Iterator[str]:
    yield from naming_event("process_name", place, "name", name)
    yield from naming_event("process_sort_index", place, "sort_index", order)


def _slices(start: int, stop: int, rows: int) -> list[tuple[int, int]]:
    """The range, cut into as many equal pieces as hold a slice of the rows each."""
    if rows == 0:
        return []
    count = -(-rows // SLICE_ROWS)
    cuts = [start + (stop - start) * n // count for n in range(count + 1)]
    return list(itertools.pairwise(cuts))


def _known(values: Any) -> int | None:
    return None if np.ma.getmaskarray(values)[0] else int(values[0])
