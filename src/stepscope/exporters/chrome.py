"""Export of traces as Kineto writes them: JSON for chrome://tracing, Perfetto and Kineto's tools.

A file is written in slices of the trace, one query each, so that memory is bounded by the slice
and not by the trace. While DuckDB builds the next slice, another thread compresses and writes the
previous one. The keys of an event are in `chrome_events`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from stepscope import analysis, errors, run, views
from stepscope.exporters.chrome_events import (
    CATEGORIES_FOR,
    arrow_count,
    arrows_between,
    event_count,
    events_between,
    tables_without_export,
)
from stepscope.exporters.chrome_header import (
    TextFile,
    file_header,
    naming_events,
    open_text_file,
    place_tracks,
    select_base,
    span_events,
)
from stepscope.exporters.registry import ExportOptions, Written
from stepscope.quantities import count, count_of

SLICE_EVENTS = 100_000
"""Ids of a trace that one query reads: some 30 MB of text."""
ARROW_STEP = 2**40
"""Offset between the arrow numbers of two traces in one file, where all arrows need distinct
numbers. Doubles hold 8,000 such steps exactly."""


class Exported(Written, frozen=True, kw_only=True):
    """Summary of an exported file."""

    recordings: list[str]
    """Names of the traces in it."""
    event_count: int
    """Events of the imported traces; the file may have fewer arrows and names."""
    text_bytes: int
    """Length of the JSON, before compression."""


def export_chrome(
    traces: Sequence[run.Trace],
    path: Path,
    *,
    spans: bool = True,
    counters: bool = False,
    reader: str | None = None,
) -> Exported:
    """Write traces into one file, compressed when its name ends in `.gz`.

    Several traces become separate processes. Numbers in arguments, such as correlations, stay
    those of each trace.

    Args:
        traces: at least one.
        path: the file; an existing one is replaced when the new one is complete.
        spans: add a track with the spans that stepscope recorded in the same process during the
            trace.
        counters: add the queue depth of each stream and the bandwidth of copies.
        reader: tool of `READERS` that the file is for; None for those that read what Kineto
            writes.

    Raises:
        IncompleteExportError: not every event could be written.
        OSError: the file cannot be written.
    """
    base_ns = select_base(traces)
    with open_text_file(path) as file:
        # Some tools look for the rank line by line, and for a blank before it.
        header = msgspec.json.encode(file_header(traces, base_ns))
        members = msgspec.json.format(header, indent=2).decode().removesuffix("\n}")
        file.write(members + ',\n  "traceEvents": [')
        events = EventList(file, base_ns)
        for index, trace in enumerate(traces):
            number = index if len(traces) > 1 else None
            for texts in trace_events(trace, number, base_ns, spans=spans, reader=reader):
                events.write(texts)
            if counters:
                events.write(list(counter_events(trace, _choose_pid(trace, number), base_ns)))
        file.write("\n]}\n")
    count = sum(trace.event_count for trace in traces)
    names = [trace.name for trace in traces]
    recordings = names[0] if len(names) == 1 else f"{len(names)} traces"
    return Exported(
        path=str(path),
        content=f"{recordings}, {count_of(count, 'event')}",
        recordings=names,
        event_count=count,
        text_bytes=file.text_bytes,
    )


READERS = tuple(CATEGORIES_FOR)
"""Tools that expect something else than what Kineto writes."""
_FILE = re.compile(r"\.json(\.gz)?$|\.gz$")


class ChromeExporter:
    """Exporter of traces; see `registry.Exporter`."""

    options = frozenset({"trace", "rank", "merge", "spans", "counters", "reader"})

    def export(self, opened: run.Run, output: str, options: ExportOptions) -> list[Exported]:
        """Write traces, each into a file, or all into one."""
        selection = views.ViewOptions(rank=options.rank, trace=options.trace)
        recordings = views.select_traces(opened, selection)
        missing = views.explain_no_traces(opened, recordings)
        if missing is not None:
            raise errors.UsageError(f"Nothing to export: {missing}.")
        files = _assign_files(recordings, Path(output), merge=options.merge)
        return [
            export_chrome(
                traces, path, spans=options.spans, counters=options.counters, reader=options.reader
            )
            for path, traces in files.items()
        ]


def _assign_files(
    recordings: Sequence[run.Trace], output: Path, *, merge: bool
) -> dict[Path, Sequence[run.Trace]]:
    """Assign traces to output files."""
    if merge or (len(recordings) == 1 and not output.is_dir()):
        if output.is_dir():
            raise errors.UsageError(f"{output} is a directory; pass a file to -o with --merge.")
        return {output: recordings}
    if output.is_file() or (_FILE.search(output.name) and not output.is_dir()):
        raise errors.UsageError(
            f"Cannot write {len(recordings)} traces to one file, {output}; pass a directory to -o, "
            "select one trace with --trace or --rank, or add --merge."
        )
    files: dict[Path, Sequence[run.Trace]] = {}
    for recording in recordings:
        files[_find_free(output / _name_file(recording.name), files)] = [recording]
    return files


def _name_file(recording: str) -> str:
    """Turn the name of a trace into a file name; names of directories become its prefix."""
    name = re.sub(r"[^\w.=+-]+", "-", recording).strip("-.") or "trace"
    return name if _FILE.search(name) else f"{name}.json"


def _find_free(path: Path, used: Mapping[Path, Any]) -> Path:
    """Return the path, with a number before its suffixes if another trace uses it."""
    stem, dot, endings = path.name.partition(".json")
    number, candidate = 2, path
    while candidate in used:
        candidate = path.with_name(f"{stem}-{number}{dot}{endings}")
        number += 1
    return candidate


def _choose_pid(trace: run.Trace, number: int | None) -> int | str:
    """Choose the process of the first device of a trace, or its first process."""
    tracks = place_tracks(trace, number)
    pids = [track.pid for track in tracks if track.stream] or [track.pid for track in tracks]
    return pids[0] if pids else 0


class EventList:
    """List of events in a file, separated by commas."""

    omission = ""

    def __init__(self, file: TextFile, base_ns: int) -> None:
        self._file = file
        self._base_ns = base_ns
        self._separator = "\n"

    @property
    def text_bytes(self) -> int:
        """Length of the file before compression."""
        return self._file.text_bytes

    def write(self, texts: Sequence[str]) -> None:
        """Write events; see `timeline.EventSink`."""
        if texts:
            self._file.write(self._separator + ",\n".join(texts))
            self._separator = ",\n"

    def write_traces(self, traces: Sequence[run.Trace]) -> None:
        """Write traces; see `timeline.EventSink`."""
        # Counted from 1: the first process numbers belong to the nodes and processes of the run.
        for number, trace in enumerate(traces, 1):
            for texts in trace_events(trace, number, self._base_ns, spans=False):
                self.write(texts)


def trace_events(
    trace: run.Trace, number: int | None, base_ns: int, *, spans: bool, reader: str | None = None
) -> Iterator[list[str]]:
    """Yield the events of a trace, slice by slice; see `export_chrome`.

    Args:
        trace: the trace.
        number: its index among several traces of one file, None when it is the only one.
        base_ns: base of the times in the file.
        spans: add the spans of the same process.
        reader: see `export_chrome`.

    Raises:
        IncompleteExportError: fewer or more events were written than the trace has.
    """
    tracks = place_tracks(trace, number)
    yield list(naming_events(tracks))
    arrow_offset = (number or 0) * ARROW_STEP
    positions = [track.position for track in tracks]
    streams = [track.stream for track in tracks]
    query, written = events_between(reader=reader), 0
    for first in range(0, trace.event_count, SLICE_EVENTS):
        bounds = (trace.trace, first, first + SLICE_EVENTS)
        texts = _texts(trace, query, [*bounds, base_ns, arrow_offset, positions, streams])
        written += len(texts)
        yield texts
    check_events(trace, written)
    query, written = arrows_between(), 0
    for bounds in _arrow_slices(trace):
        texts = _texts(trace, query, [*bounds, base_ns, arrow_offset, positions])
        written += len(texts)
        yield texts
    _check_count(trace, "arrows", written, arrow_count())
    if spans:
        yield list(span_events(trace, number, base_ns))


def check_events(trace: run.Trace, written: int) -> None:
    """Check that every event of a trace was written once.

    Raises:
        IncompleteExportError: the numbers differ.
    """
    _check_count(trace, "events", written, event_count())


def _check_count(trace: run.Trace, noun: str, written: int, query: str) -> None:
    """Check that every row of the trace was written once."""
    tables = ", ".join(tables_without_export())
    cause = f" (no kind of event exports the tables: {tables})" if tables else ""
    total = int(trace.reader.sql(query, [trace.trace])["n"][0])
    check_count(trace.name, noun, written, total, cause)


def check_count(name: str, noun: str, written: int, total: int, cause: str = "") -> None:
    """Check that as many rows were written as the run has.

    Raises:
        IncompleteExportError: the numbers differ.
    """
    if written != total:
        raise errors.IncompleteExportError(
            f"Export of {name} is incomplete: {count(written)} of {count(total)} {noun} were "
            f"written{cause}. No file was created. This is a defect in stepscope; please report it."
        )


def _texts(trace: run.Trace, query: str, parameters: Sequence[Any]) -> list[str]:
    texts: list[str] = trace.reader.sql(query, parameters)["text"].tolist()
    return texts


def _arrow_slices(trace: run.Trace) -> Iterator[tuple[int, int, int]]:
    """Yield the number of the trace with ranges of arrow numbers, one slice of arrows each."""
    query = "SELECT DISTINCT flow FROM flows WHERE trace = $1 ORDER BY flow"
    numbers = trace.reader.sql(query, [trace.trace])["flow"]
    for first in range(0, len(numbers), SLICE_EVENTS):
        slice_ = numbers[first : first + SLICE_EVENTS]
        yield trace.trace, int(slice_[0]), int(slice_[-1]) + 1


MAX_VALUES = 2_000
"""Values of one counter."""


def counter_events(trace: run.Trace, pid: int | str, base_ns: int) -> Iterator[str]:
    """Yield the counters of a trace: the largest queue depth and the mean bandwidth in each of at
    most `MAX_VALUES` equal times.

    Args:
        trace: the trace.
        pid: number of the process that shows the counters.
        base_ns: base of the times in the file.
    """
    start_ns, end_ns = trace.extent
    buckets = analysis.cut_into_buckets(
        start_ns, end_ns, max(1, -(-(end_ns - start_ns) // MAX_VALUES))
    )
    if buckets is None:
        return
    launches = analysis.find_launches(run.device_work_of(trace, "keep"), run.calls_of(trace))
    for queue in analysis.measure_queue_depths(launches, buckets, streams=run.streams_of(trace)):
        name = f"queue depth of stream {'unknown' if queue.stream is None else queue.stream}"
        yield from _write_counter(name, "launches", queue.depth_curve, buckets, pid, base_ns)
    copies = trace.columns("copies", ("start_ns", *analysis.ACTIVITY_COPY_COLUMNS))
    for row in analysis.measure_copy_bandwidth(copies, buckets):
        values = [rate / 1e9 for rate in row.curve_bytes_per_s]
        name = f"bandwidth of {row.direction}"
        yield from _write_counter(name, "GB/s", values, buckets, pid, base_ns)


def _write_counter(  # noqa: PLR0917 - one event each
    name: str,
    series: str,
    values: Iterable[float],
    buckets: analysis.Buckets,
    pid: int | str,
    base_ns: int,
) -> Iterator[str]:
    """Yield the events of one counter; a value that does not change is not repeated."""
    previous = None
    for start_ns, value in zip(buckets.edges.tolist(), values, strict=False):
        if value != previous:
            event = {"ph": "C", "name": name, "pid": pid, "tid": 0}
            text = msgspec.json.encode(event | {"args": {series: value}}).decode()
            microseconds, rest = divmod(start_ns - base_ns, 1000)
            yield f'{text[:-1]},"ts":{microseconds}.{rest:03}}}'
        previous = value
