"""Header of a Chrome file, spans of the job as additional tracks, and the writing of the file.

Spans of the job during a trace, as additional tracks of the exported trace. Both clocks count
nanoseconds since 1970, so the spans need no alignment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np

from stepscope import output_files, run, schema, timeline
from stepscope.exporters.chrome_events import microseconds

_SECOND_NS = 10**9
_EXACT_MICROSECONDS = 2**43
"""Up to here, microseconds as a double distinguish single nanoseconds."""
PID_STEP = 10**8
"""Offset between the process numbers of two traces in one file, above all process numbers of
operating systems."""
_DEVICE_KEYS = {
    "id": "device",
    "name": "name",
    "totalGlobalMem": "memory_bytes",
    "computeMajor": "compute_major",
    "computeMinor": "compute_minor",
    "numSms": "multiprocessor_count",
    "maxThreadsPerMultiprocessor": "threads_per_multiprocessor",
    "maxThreadsPerBlock": "threads_per_block",
    "warpSize": "warp_size",
    "regsPerBlock": "registers_per_block",
    "sharedMemPerBlock": "shared_memory_per_block_bytes",
}
_GROUP_KEYS = {
    "pg_name": "name",
    "pg_desc": "description",
    "backend_config": "backend",
    "pg_size": "size",
}

Row = Mapping[str, Any]


class PlacedTrack(msgspec.Struct, frozen=True, kw_only=True):
    """Track with its position in a file."""

    row: Row
    pid: int | str
    tid: int | str | None
    label: str | None
    """Prefix of the process name in a file with several traces."""
    order: int
    """Offset of the process in the order of processes."""

    @property
    def position(self) -> str:
        """Process and thread as members of an event."""
        return f'"pid":{_json(self.pid)},"tid":{_json(self.tid)}'

    @property
    def stream(self) -> str | None:
        """Number of the stream."""
        return None if self.row["stream"] is None else str(self.row["stream"])


def select_base(traces: Sequence[run.Trace]) -> int:
    """Return the base of the times in a file, in nanoseconds since 1970.

    A single trace keeps its own base if doubles can hold its nanoseconds relative to it; otherwise
    the base is the last whole second before everything.
    """
    start = min(trace.start_ns for trace in traces)
    end = max(trace.end_ns for trace in traces)
    if len(traces) == 1:
        base = int(_rows(traces[0], "traces")[0]["base_ns"])
        if base and end - base < _EXACT_MICROSECONDS * 1000:
            return base
    return start // _SECOND_NS * _SECOND_NS


def file_header(traces: Sequence[run.Trace], base_ns: int) -> dict[str, Any]:
    """Return the members of the file except its events.

    Of several traces, the devices and ranks are those of the first, and other metadata is left out.
    """
    first = traces[0]
    metadata = dict(first.metadata) if len(traces) == 1 else {}
    distributed = metadata.pop("distributedInfo", {})
    header = {
        "schemaVersion": 1,
        "deviceProperties": [_device(row) for row in _rows(first, "devices")],
        **metadata,
        "displayTimeUnit": metadata.get("displayTimeUnit", "ms"),
        "baseTimeNanoseconds": base_ns,
    }
    if len(traces) == 1:
        distributed = _present(
            {
                "backend": first.backend,
                "rank": first.rank,
                "world_size": first.world_size,
                **distributed,
                "pg_config": [_group(row) for row in _rows(first, "process_groups")] or None,
            }
        )
        if distributed:
            header["distributedInfo"] = distributed
    return header


def place_tracks(trace: run.Trace, number: int | None) -> list[PlacedTrack]:
    """Return the tracks of a trace with their positions, by the number of the track.

    Args:
        trace: the trace.
        number: its index among several traces of one file, None when it is the only one.
    """
    return [
        PlacedTrack(
            row=row,
            pid=place_pid(_parse(row["pid"], row["pid_is_text"] & 1), number),
            tid=_parse(row["tid"], row["pid_is_text"] & 2),
            label=None if number is None else trace.label,
            order=(number or 0) * PID_STEP,
        )
        for row in _rows(trace, "tracks", order_by="track")
    ]


def place_pid(pid: int | str | None, number: int | None) -> Any:
    """Return the process number in a file with `number` traces before."""
    if number is None:
        return pid
    return pid + number * PID_STEP if isinstance(pid, int) else f"{pid} ({number})"


def naming_events(tracks: Sequence[PlacedTrack]) -> Iterator[str]:
    """Yield the events that set names, labels and order of processes and threads."""
    processes = {track.pid: track for track in tracks}
    for track in processes.values():
        name, order = track.row["process_name"], track.row["process_order"]
        if track.label is not None:
            name = f"{track.label}: {name or track.row['pid']}"
            order = (order or 0) + track.order
        position = f'"pid":{_json(track.pid)},"tid":0'
        yield from naming_event("process_name", position, "name", name)
        yield from naming_event("process_labels", position, "labels", track.row["process_labels"])
        yield from naming_event("process_sort_index", position, "sort_index", order)
    for track in tracks:
        row, position = track.row, track.position
        yield from naming_event("thread_name", position, "name", row["thread_name"])
        yield from naming_event("thread_sort_index", position, "sort_index", row["thread_order"])


def naming_event(name: str, position: str, key: str, value: Any) -> Iterator[str]:
    """Yield one naming event unless its value is None."""
    if value is not None:
        yield f'{{"ph":"M","name":"{name}",{position},"ts":0,"args":{{"{key}":{_json(value)}}}}}'


def _parse(text: str, is_text: int) -> int | str | None:
    """Return a process or thread in the type that the imported file uses."""
    if is_text:
        return text
    return int(text) if text.lstrip("-").isdigit() else None


def _device(row: Row) -> dict[str, Any]:
    members = {key: row[column] for key, column in _DEVICE_KEYS.items()}
    return {**_present(members), **_object(row["args"])}


def _group(row: Row) -> dict[str, Any]:
    members = {key: row[column] for key, column in _GROUP_KEYS.items()}
    ranks = row["ranks"]
    try:
        members["ranks"] = None if ranks is None else msgspec.json.decode(ranks, type=list[Any])
    except schema.MALFORMED_JSON:  # truncated by the recorder, with dots
        members["ranks"] = ranks
    return {**_present(members), **_object(row["args"])}


def _rows(trace: run.Trace, table: str, *, order_by: str | None = None) -> list[Row]:
    """Return the rows of one of the small tables, nulls as None."""
    columns = trace.reader.table(
        table, condition="trace = ?", parameters=[trace.trace], order_by=order_by
    )
    lists = [np.ma.asarray(values).tolist() for values in columns.values()]
    return [dict(zip(columns, row, strict=True)) for row in zip(*lists, strict=True)]


def _object(text: str | None) -> dict[str, Any]:
    return msgspec.json.decode(text, type=dict[str, Any]) if text else {}


def _present(members: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in members.items() if value is not None}


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


_FIRST_TID = 2**31
"""First thread number of the tracks of spans, above all thread numbers of operating systems."""

_NAME = f"to_json({timeline.SPAN_NAME})"
_START = microseconds("start_ns - $4")
_END = microseconds("coalesce(end_ns, $3) - $4")
_DURATION = microseconds("coalesce(end_ns, $3) - start_ns")
_ARGUMENTS = """',"args":{"kind":', to_json(kind), ',"value":', value, ',"labels":' || labels"""
_PAIR = "'\"id\":', to_json(concat_ws('/', process, log, seq)), ','"


def span_text(position: str) -> str:
    """Return SQL that writes a row of `spans` as Chrome events; an aggregate becomes an instant.

    In it, $3 is the end of spans that never ended, and $4 the base of the times.

    Args:
        position: SQL for the position of the span, as `"pid":1,"tid":2`.
    """
    common = f"""'"cat":"user_annotation","name":', {_NAME}, ',', {position}, ',"ts":'"""
    return f"""
    CASE
        WHEN end_ns = start_ns OR {timeline.IS_AGGREGATE}
            THEN concat('{{"ph":"i","s":"t",', {common}, {_START}, {_ARGUMENTS}, '}}}}')
        WHEN flags & 1 = 1
            THEN concat(
                '{{"ph":"b",', {_PAIR}, {common}, {_START}, {_ARGUMENTS}, '}}}},\n',
                '{{"ph":"e",', {_PAIR}, {common}, {_END}, '}}')
        ELSE concat(
            '{{"ph":"X",', {common}, {_START}, ',"dur":', {_DURATION}, {_ARGUMENTS}, '}}}}')
    END"""


# $1 process, $2 and $3 extent of the trace, $4 base, $5 log, $6 position.
_IN_TRACE = "process = $1 AND coalesce(end_ns, $3) >= $2 AND start_ns <= $3"
_LOGS = f"SELECT DISTINCT log FROM spans WHERE {_IN_TRACE} ORDER BY log"  # noqa: S608
_SPANS = (
    f"SELECT {span_text('$6')} AS text FROM spans "  # noqa: S608
    f"WHERE {_IN_TRACE} AND log = $5 ORDER BY seq"
)


def span_events(trace: run.Trace, number: int | None, base_ns: int) -> Iterator[str]:
    """Yield the spans of the traced process that overlap the trace, one track per thread.

    Spans that others may overlap are drawn as asynchronous ones.

    Args:
        trace: a trace that stepscope recorded; an imported one names no process.
        number: its index among several traces of one file, None when it is the only one.
        base_ns: base of the times in the file.
    """
    if trace.process is None:
        return
    extent = [trace.process, trace.start_ns, trace.end_ns]
    pid = place_pid(int(trace.process.partition("-")[0]), number)
    for index, log in enumerate(trace.reader.sql(_LOGS, extent)["log"].tolist()):
        position = f'"pid":{pid},"tid":{_FIRST_TID + index}'
        thread = re.match(r"\d*", log)[0]  # type: ignore[index]  # matches anything
        yield from naming_event("thread_name", position, "name", f"stepscope: thread {thread}")
        yield from naming_event("thread_sort_index", position, "sort_index", int(thread or 0))
        yield from trace.reader.sql(_SPANS, [*extent, base_ns, log, position])["text"].tolist()


try:  # several times as fast
    from isal import isal_zlib as deflate
except ImportError:
    import zlib as deflate  # type: ignore[no-redef]

_LEVEL = 2
"""Files a third larger than at zlib's usual level, in a fraction of the time."""
_GZIP_WINDOW = 31


class TextFile:
    """Writes text or packets, compressed or not, while the caller prepares the next piece.

    At most one piece waits: a caller that is faster than the disk is blocked.
    """

    def __init__(self, file: BinaryIO, *, compressed: bool) -> None:
        self._file = file
        self._deflater: Any = None
        if compressed:
            self._deflater = deflate.compressobj(_LEVEL, deflate.DEFLATED, _GZIP_WINDOW)
        self._thread = ThreadPoolExecutor(1)
        self._writing: Future[None] | None = None
        self.text_bytes = 0

    def write(self, text: str | bytes) -> None:
        """Write the next piece; raises the error of the previous piece."""
        self._wait()
        self._writing = self._thread.submit(self._write, text)

    def finish(self) -> None:
        """Write the remaining text."""
        self._wait()
        if self._deflater is not None:
            self._file.write(self._deflater.flush())

    def release(self) -> None:
        """End the thread."""
        self._thread.shutdown()

    def _wait(self) -> None:
        if self._writing is not None:
            self._writing.result()

    def _write(self, text: str | bytes) -> None:
        data = text.encode() if isinstance(text, str) else text
        self.text_bytes += len(data)
        self._file.write(data if self._deflater is None else self._deflater.compress(data))


@contextmanager
def open_text_file(path: Path) -> Iterator[TextFile]:
    """Open a text file that is published when the block succeeds; see `atomic_write`."""
    path.resolve().parent.mkdir(parents=True, exist_ok=True)
    with output_files.atomic_write(path) as file:
        text = TextFile(file, compressed=path.suffix == ".gz")
        try:
            yield text
            text.finish()
        finally:
            text.release()
