"""Header of a Chrome file, and the positions of tracks in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from stepscope.run import Trace
from stepscope.schema import MALFORMED_JSON

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


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedTrack:
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


def select_base(traces: Sequence[Trace]) -> int:
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


def file_header(traces: Sequence[Trace], base_ns: int) -> dict[str, Any]:
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


def place_tracks(trace: Trace, number: int | None) -> list[PlacedTrack]:
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
    except MALFORMED_JSON:  # truncated by the recorder, with dots
        members["ranks"] = ranks
    return {**_present(members), **_object(row["args"])}


def _rows(trace: Trace, table: str, *, order_by: str | None = None) -> list[Row]:
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
