"""What stands around the events of a Chrome file, and where it draws the tracks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from stepscope.run import Trace

_SECOND_NS = 10**9
_EXACT_MICROSECONDS = 2**43
"""A double that holds microseconds up to here tells single nanoseconds apart."""
PID_STEP = 10**8
"""Processes of one recording of several are numbered so far above those of the one before;
process numbers of systems are below."""
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
    """A track and where a file draws it."""

    row: Row
    pid: int | str
    tid: int | str | None
    label: str | None
    """What the name of the process begins with, where a file holds several recordings."""
    order: int
    """What is added to the place of the process in the order of processes."""

    @property
    def place(self) -> str:
        """Process and thread as members of an event."""
        return f'"pid":{_json(self.pid)},"tid":{_json(self.tid)}'

    @property
    def stream(self) -> str | None:
        """Number of the stream."""
        return None if self.row["stream"] is None else str(self.row["stream"])


def chosen_base_ns(recordings: Sequence[Trace]) -> int:
    """What the times of a file are relative to.

    Its own base for one recording if that lies near enough for doubles to hold nanoseconds, else
    the last whole second before everything.
    """
    start = min(recording.start_ns for recording in recordings)
    end = max(recording.end_ns for recording in recordings)
    (own, *others) = (_rows(recording, "traces")[0]["base_ns"] for recording in recordings)
    if not others and own and end - own < _EXACT_MICROSECONDS * 1000:
        return int(own)
    return start // _SECOND_NS * _SECOND_NS


def header(recordings: Sequence[Trace], base_ns: int) -> dict[str, Any]:
    """The members of the file besides its events. Devices and ranks are those of the first of
    several recordings; what else a recording said of itself is left out then."""
    first = recordings[0]
    said = dict(first.metadata) if len(recordings) == 1 else {}
    distributed = said.pop("distributedInfo", {})
    found = {
        "schemaVersion": 1,
        "deviceProperties": [_device(row) for row in _rows(first, "devices")],
        **said,
        "displayTimeUnit": said.get("displayTimeUnit", "ms"),
        "baseTimeNanoseconds": base_ns,
    }
    if len(recordings) == 1:
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
            found["distributedInfo"] = distributed
    return found


def placed_tracks(recording: Trace, number: int | None) -> list[PlacedTrack]:
    """Where the tracks of a recording are drawn, by the number of the track.

    Args:
        recording: whose tracks.
        number: its place among several recordings of one file, None when it is alone.
    """
    return [
        PlacedTrack(
            row=row,
            pid=placed_pid(_written(row["pid"], row["pid_is_text"] & 1), number),
            tid=_written(row["tid"], row["pid_is_text"] & 2),
            label=None if number is None else recording_label(recording),
            order=(number or 0) * PID_STEP,
        )
        for row in _rows(recording, "tracks", order_by="track")
    ]


def placed_pid(pid: int | str | None, number: int | None) -> Any:
    """The process as a file writes it in which `number` recordings lie before its own."""
    if number is None:
        return pid
    return pid + number * PID_STEP if isinstance(pid, int) else f"{pid} ({number})"


def recording_label(recording: Trace) -> str:
    """Tells a recording from the others of a file."""
    return recording.name if recording.rank is None else f"rank {recording.rank}"


def naming_events(tracks: Sequence[PlacedTrack]) -> Iterator[str]:
    """Names, labels and order of processes and threads."""
    processes = {track.pid: track for track in tracks}
    for track in processes.values():
        name, order = track.row["process_name"], track.row["process_order"]
        if track.label is not None:
            name = f"{track.label}: {name or track.row['pid']}"
            order = (order or 0) + track.order
        place = f'"pid":{_json(track.pid)},"tid":0'
        yield from naming_event("process_name", place, "name", name)
        yield from naming_event("process_labels", place, "labels", track.row["process_labels"])
        yield from naming_event("process_sort_index", place, "sort_index", order)
    for track in tracks:
        row = track.row
        yield from naming_event("thread_name", track.place, "name", row["thread_name"])
        yield from naming_event("thread_sort_index", track.place, "sort_index", row["thread_order"])


def naming_event(name: str, place: str, key: str, value: Any) -> Iterator[str]:
    """One such event, when there is something to say."""
    if value is not None:
        yield f'{{"ph":"M","name":"{name}",{place},"ts":0,"args":{{"{key}":{_json(value)}}}}}'


def _written(text: str, is_text: int) -> int | str | None:
    """A process or thread as its file wrote it."""
    if is_text:
        return text
    return int(text) if text.lstrip("-").isdigit() else None


def _device(row: Row) -> dict[str, Any]:
    known = {key: row[column] for key, column in _DEVICE_KEYS.items()}
    return {**_present(known), **_object(row["args"])}


def _group(row: Row) -> dict[str, Any]:
    known = {key: row[column] for key, column in _GROUP_KEYS.items()}
    ranks = row["ranks"]
    try:
        known["ranks"] = None if ranks is None else msgspec.json.decode(ranks, type=list[Any])
    except msgspec.MsgspecError:  # cut short by the recorder, with dots
        known["ranks"] = ranks
    return {**_present(known), **_object(row["args"])}


def _rows(recording: Trace, table: str, *, order_by: str | None = None) -> list[Row]:
    """The rows of one of the small tables, nulls as None."""
    columns = recording.reader.table(
        table, where="trace = ?", parameters=[recording.trace], order_by=order_by
    )
    lists = [np.ma.asarray(values).tolist() for values in columns.values()]
    return [dict(zip(columns, row, strict=True)) for row in zip(*lists, strict=True)]


def _object(text: str | None) -> dict[str, Any]:
    return msgspec.json.decode(text, type=dict[str, Any]) if text else {}


def _present(members: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in members.items() if value is not None}


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
