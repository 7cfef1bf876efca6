"""Export of a whole run as a Perfetto trace: slices, counters and arrows in protobuf.

The content is that of `timeline`, event by event in the form of Chrome, from which packets are made
(https://perfetto.dev/docs/reference/synthetic-track-event):

    process, thread, stream    tracks, threads below their process; what they are called elsewhere
                               (pid, tid) is in their description as JSON
    range                      begin and end of a slice. Slices of one track nest, so those that
                               overlap others are on further tracks, which are drawn as one
    instant, counter           instant; a counter track per series
    arrow                      a flow, whose upper 16 bits are a checksum of the kind of the arrow
    arguments                  debug annotations; arrays and objects as JSON
    header of a trace          an instant on a track named like the trace

Names, categories, keys and texts are interned, and forgotten when there are many, so that memory
does not grow with the run. Timestamps are nanoseconds since 1970.
"""

from __future__ import annotations

import itertools
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from stepscope import schema
from stepscope.exporters import protobuf
from stepscope.exporters.chrome import ARROW_STEP, check_events
from stepscope.exporters.chrome_events import arrow_ends_between, events_between, slice_starts
from stepscope.exporters.chrome_header import (
    TextFile,
    file_header,
    naming_events,
    open_text_file,
    place_tracks,
)
from stepscope.exporters.timeline import TimelineExporter
from stepscope.quantities import count_of
from stepscope.run import Trace

SLICE_EVENTS = 50_000
"""Events of a trace that one query reads."""
MAX_INTERNED = 50_000
"""Texts after which all are forgotten, and sent again when they are needed."""
HEADER_CATEGORY = "__metadata"
"""Category of the instant with the header of a trace."""
_TIME_LIMITS = (-(2**63), 2**63 - 1)
_PACKET = 1
_TIMESTAMP, _SEQUENCE, _TRACK_EVENT, _INTERNED, _FLAGS = 8, 10, 11, 12, 13
_CLOCKS, _DESCRIPTOR = 6, 60
_BEGIN, _END, _INSTANT, _COUNTER = 1, 2, 3, 4
_EXPLICIT_ORDER, _UNMERGED, _MERGED_BY_KEY = 3, 2, 3
_CLEARED, _NEEDS_STATE = 1, 2
_CATEGORY, _NAME, _KEY, _TEXT = 1, 2, 3, 29
"""Fields of `InternedData`."""
_REALTIME, _BOOTTIME = 1, 6
"""Clocks: that of the timestamps is the second one, which is set to the first one."""
_SEQUENCE_ID = protobuf.integer(_SEQUENCE, 1)
_FLOW_BITS = 48
_NS_LIMIT = 2**63
Identifier = int | str | None
Flows = Sequence[tuple[int, bool]]
"""Number of each arrow at an event, and True at its end."""


class _Event(msgspec.Struct, gc=False):
    """Event of Chrome."""

    ph: str
    name: str = ""
    cat: str | None = None
    pid: int | str | None = None
    tid: int | str | None = None
    ts: msgspec.Raw = msgspec.Raw()
    dur: msgspec.Raw = msgspec.Raw()
    id: int | str | None = None
    args: msgspec.Raw = msgspec.Raw()

    @property
    def flow(self) -> tuple[int, bool]:
        """Number of the arrow, and True at its end."""
        return flow_number(self.cat or "", int(self.id or 0)), self.ph == "f"


class _Lane(msgspec.Struct):
    """Track whose slices nest."""

    uuid: int
    last_ns: int = -(2**63)
    ends: list[int] = msgspec.field(default_factory=list)
    """Ends of the open slices, innermost last."""

    def open(self, start_ns: int, end_ns: int) -> bool:
        """Add a slice; False if it overlaps others without nesting."""
        if start_ns < self.last_ns:
            return False
        while self.ends and self.ends[-1] <= start_ns:
            self.ends.pop()
        if self.ends and self.ends[-1] < end_ns:
            return False
        self.ends.append(end_ns)
        self.last_ns = start_ns
        return True


_decode_events = msgspec.json.Decoder(list[_Event]).decode
_decode_args = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def flow_number(kind: str, number: int) -> int:
    """Return the number of a flow: different for arrows of different kinds.

    >>> hex(flow_number("fwdbwd", 7))
    '0x4451000000000007'
    """
    return (zlib.crc32(kind.encode()) & 0xFFFF) << _FLOW_BITS | number & ((1 << _FLOW_BITS) - 1)


class PerfettoFile:
    """Packets in a file, made of events of Chrome; see `timeline.EventSink`.

    The events of a track come in the order of their starts.
    """

    def __init__(self, file: TextFile, base_ns: int) -> None:
        self._file = file
        self._base_ns = base_ns
        self._names: defaultdict[tuple[Identifier, Identifier], dict[str, Any]] = defaultdict(dict)
        """Values of the events that name a process or thread, by pid and tid."""
        self._processes: dict[Identifier, int] = {}
        self._lanes: defaultdict[tuple[Identifier, Identifier], list[_Lane]] = defaultdict(list)
        self._counters: dict[tuple[Identifier, Identifier, str, str], int] = {}
        self._track_count = 0
        self._tables: dict[int, dict[str, int]] = {}
        self._annotations: dict[tuple[str, bytes], bytes] = {}
        self._new: list[bytes] = []
        """Interned texts that are not written yet."""
        self._is_cleared = True
        self._untimed_count = 0
        self._packets: list[bytes] = []
        clocks = (
            protobuf.integer(1, c) + protobuf.integer(2, base_ns) for c in (_REALTIME, _BOOTTIME)
        )
        snapshot = b"".join(protobuf.content(1, clock) for clock in clocks)
        self._add(protobuf.integer(_TIMESTAMP, base_ns) + protobuf.content(_CLOCKS, snapshot))

    @property
    def text_bytes(self) -> int:
        """Length of the content before compression."""
        return self._file.text_bytes

    @property
    def omission(self) -> str:
        """Events without a time that a file can hold, as the rest of a sentence."""
        count = self._untimed_count
        return f", {count_of(count, 'event')} without a time left out" if count else ""

    def write(self, texts: Sequence[str]) -> None:
        """Write events."""
        self._write_events(texts, (), {})

    def write_traces(self, traces: Sequence[Trace]) -> None:
        """Write traces.

        Raises:
            IncompleteExportError: fewer or more events were written than a trace has.
        """
        is_alone = len(traces) == 1 and not self._processes
        for number, trace in enumerate(traces, 1):
            self._write_trace(trace, None if is_alone else number)

    def _write_trace(self, trace: Trace, number: int | None) -> None:
        tracks = place_tracks(trace, number)
        self.write(list(naming_events(tracks)))
        header = msgspec.json.encode(
            {key: value for key, value in file_header([trace], 0).items() if value}
        )
        event = _Event(
            "i",
            trace.name,
            HEADER_CATEGORY,
            f"trace {trace.name}",
            "header",
            args=msgspec.Raw(header),
        )
        self._instant(event, trace.start_ns, ())
        positions = [track.position for track in tracks]
        streams = [track.stream for track in tracks]
        starts = trace.reader.sql(slice_starts(), [trace.trace, SLICE_EVENTS])["start_ns"]
        bounds = [_TIME_LIMITS[0], *starts.tolist(), _TIME_LIMITS[1]]
        query, written = events_between("time"), 0
        offset = (number or 0) * ARROW_STEP
        for first, end in itertools.pairwise(bounds):
            parameters = [trace.trace, first, end]
            rows = trace.reader.sql(
                query,
                [*parameters, self._base_ns, offset, positions, streams],
                traces=[trace.trace],
            )
            arrows: defaultdict[int | None, list[_Event]] = defaultdict(list)
            ends = trace.reader.sql(arrow_ends_between(), parameters, traces=[trace.trace])
            columns = [np.ma.asarray(values).tolist() for values in ends.values()]
            for event, track, t_ns, kind, name, flow, is_target in zip(*columns, strict=True):
                arrow = _Event("f" if is_target else "s", name, kind, id=flow + offset)
                if event is not None:
                    arrows[event].append(arrow)
                elif track is not None:
                    arrow.pid, arrow.tid = tracks[track].pid, tracks[track].tid
                    self._instant(arrow, t_ns, [arrow.flow])
            self._write_events(rows["text"].tolist(), rows["id"].tolist(), arrows)
            written += len(rows["id"])
        check_events(trace, written)

    def _write_events(
        self, texts: Sequence[str], ids: Sequence[int], arrows: Mapping[int | None, list[_Event]]
    ) -> None:
        """Write events.

        Args:
            texts: one or more events each, which follow each other if they belong together.
            ids: numbers of the events without arrows and names, or nothing.
            arrows: further arrows that start or end at the events, by these numbers.
        """
        for index, text in enumerate(texts):
            event, *parts = _decode_events(f"[{text}]".encode(errors="replace"))
            if event.ph == "M":
                self._rename(event)
                continue
            start_ns = self._time(event)
            if start_ns is None:
                self._untimed_count += 1
                continue
            if event.ph == "C":
                self._count(event, start_ns)
                continue
            flows = [part.flow for part in parts if part.ph != "e"]
            if ids:
                flows += [arrow.flow for arrow in arrows.get(ids[index], ())]
            end_ns = next((self._time(part) for part in parts if part.ph == "e"), None)
            if event.ph == "X" and bytes(event.dur):
                end_ns = start_ns + _nanoseconds(event.dur)
            if end_ns is None:
                self._instant(event, start_ns, flows)
            else:
                self._range(event, start_ns, max(start_ns, end_ns), flows)
        self.flush()

    def flush(self) -> None:
        """Hand the packets so far to the file."""
        self._file.write(b"".join(self._packets))
        self._packets = []

    def _time(self, event: _Event) -> int | None:
        """Return the time of an event; None without one that a file can hold."""
        if not bytes(event.ts):
            return None
        time_ns = self._base_ns + _nanoseconds(event.ts)
        return time_ns if 0 <= time_ns < _NS_LIMIT else None

    # --- events ------------------------------------------------------------------------------

    def _range(self, event: _Event, start_ns: int, end_ns: int, flows: Flows) -> None:
        position = (event.pid, event.tid)
        lane = next((lane for lane in self._lanes[position] if lane.open(start_ns, end_ns)), None)
        if lane is None:
            lane = self._add_lane(position)
            lane.open(start_ns, end_ns)
        self._add_event(start_ns, _BEGIN, lane.uuid, self._describe(event, flows))
        self._add_event(end_ns, _END, lane.uuid, b"")

    def _instant(self, event: _Event, t_ns: int, flows: Flows) -> None:
        position = (event.pid, event.tid)
        lanes = self._lanes[position]
        lane = lanes[0] if lanes else self._add_lane(position)
        self._add_event(t_ns, _INSTANT, lane.uuid, self._describe(event, flows))

    def _count(self, event: _Event, t_ns: int) -> None:
        for series, value in msgspec.json.decode(event.args, type=dict[str, float]).items():
            uuid = self._counter(event, series)
            self._add_event(t_ns, _COUNTER, uuid, protobuf.double(44, value))

    def _describe(self, event: _Event, flows: Flows) -> bytes:
        """Encode name, category, arguments and flows."""
        if sum(map(len, self._tables.values())) > MAX_INTERNED:
            self._tables.clear()
            self._annotations.clear()
            self._new.clear()
            self._is_cleared = True
        fields = [protobuf.integer(10, self._intern(_NAME, event.name))]
        if event.cat:
            fields.append(protobuf.integer(3, self._intern(_CATEGORY, event.cat)))
        if bytes(event.args):
            try:
                args = _decode_args(event.args)
            except schema.MALFORMED_JSON:
                args = {"args": event.args}
            for item in args.items():
                key = (item[0], bytes(item[1]))
                annotation = self._annotations.get(key)
                if annotation is None:
                    if len(self._annotations) > MAX_INTERNED:
                        self._annotations.clear()
                    annotation = self._annotations[key] = self._annotate(*key)
                fields.append(annotation)
        for flow, is_end in flows:
            fields.append(protobuf.fixed64(48 if is_end else 47, flow))
        return b"".join(fields)

    def _annotate(self, key: str, text: bytes) -> bytes:
        value = msgspec.json.decode(text)
        match value:
            case None:
                return b""
            case bool():
                field = protobuf.integer(2, value)
            case int() if -(2**63) <= value < 2**63:
                field = protobuf.integer(4, value)
            case int() if 0 <= value < 2**64:
                field = protobuf.integer(3, value)
            case float():
                field = protobuf.double(5, value)
            case str():
                field = protobuf.integer(17, self._intern(_TEXT, value))
            case _:
                field = protobuf.content(9, text)
        return protobuf.content(4, protobuf.integer(1, self._intern(_KEY, key)) + field)

    def _intern(self, table: int, text: str) -> int:
        """Return the number of a text, which is written before it is used."""
        numbers = self._tables.setdefault(table, {})
        number = numbers.get(text)
        if number is None:
            number = numbers[text] = len(numbers) + 1
            entry = protobuf.integer(1, number) + protobuf.text(2, text)
            self._new.append(protobuf.content(table, entry))
        return number

    def _add_event(self, t_ns: int, kind: int, uuid: int, fields: bytes) -> None:
        packet = [protobuf.integer(_TIMESTAMP, t_ns)]
        if kind in {_BEGIN, _INSTANT}:
            flags = _NEEDS_STATE | (_CLEARED if self._is_cleared else 0)
            self._is_cleared = False
            packet.append(protobuf.integer(_FLAGS, flags))
        if self._new:
            packet.append(protobuf.content(_INTERNED, b"".join(self._new)))
            self._new.clear()
        event = protobuf.integer(9, kind) + protobuf.integer(11, uuid) + fields
        packet.append(protobuf.content(_TRACK_EVENT, event))
        self._add(b"".join(packet))

    def _add(self, packet: bytes) -> None:
        self._packets.append(protobuf.content(_PACKET, _SEQUENCE_ID + packet))

    # --- tracks ------------------------------------------------------------------------------

    def _rename(self, event: _Event) -> None:
        """Note what an event says of a process or thread."""
        is_thread = event.name.startswith("thread_")
        names = self._names[event.pid, event.tid if is_thread else None]
        (names[event.name],) = msgspec.json.decode(event.args, type=dict[str, Any]).values()

    def _process(self, pid: Identifier) -> int:
        """Return the track of a process."""
        if pid not in self._processes:
            names = self._names[pid, None]
            labels, name = (names.get(f"process_{key}") for key in ("labels", "name"))
            name = str(name or _label("process", pid))
            self._processes[pid] = self._describe_track(
                f"{name} ({labels})" if labels else name,
                {"pid": pid, "process_name": names.get("process_name"), "process_labels": labels},
                protobuf.integer(11, _EXPLICIT_ORDER)
                + protobuf.integer(15, _UNMERGED)
                + _rank(names.get("process_sort_index")),
            )
        return self._processes[pid]

    def _add_lane(self, position: tuple[Identifier, Identifier]) -> _Lane:
        """Add a track to those of a thread."""
        pid, tid = position
        names = self._names[position]
        lane = _Lane(
            self._describe_track(
                str(names.get("thread_name") or _label("thread", tid)),
                {"pid": pid, "tid": tid, "thread_name": names.get("thread_name")},
                protobuf.integer(5, self._process(pid))
                + protobuf.integer(15, _MERGED_BY_KEY)
                + protobuf.text(16, f"{pid}/{tid}")
                + _rank(names.get("thread_sort_index")),
            )
        )
        self._lanes[position].append(lane)
        return lane

    def _counter(self, event: _Event, series: str) -> int:
        """Return the track of a series of a counter."""
        pid, tid, name = event.pid, event.tid, event.name
        key = (pid, tid, name, series)
        if key not in self._counters:
            self._counters[key] = self._describe_track(
                name if series == "value" else f"{name} {series}",
                {"pid": pid, "tid": tid, "counter": name, "series": series},
                protobuf.integer(5, self._process(pid))
                + protobuf.content(8, b"")
                + protobuf.integer(15, _UNMERGED),
            )
        return self._counters[key]

    def _describe_track(self, name: str, names: Mapping[str, Any], fields: bytes) -> int:
        """Write the descriptor of a track; return its number."""
        self._track_count += 1
        stated = {key: value for key, value in names.items() if value is not None}
        descriptor = [
            protobuf.integer(1, self._track_count),
            protobuf.text(2, name),
            protobuf.text(14, msgspec.json.encode(stated).decode()),
            fields,
        ]
        self._add(protobuf.content(_DESCRIPTOR, b"".join(descriptor)))
        return self._track_count


class PerfettoExporter(TimelineExporter):
    """Exporter of whole runs; see `registry.Exporter`."""

    @staticmethod
    @contextmanager
    def open_sink(path: Path, base_ns: int) -> Iterator[PerfettoFile]:
        """Open a file."""
        with open_text_file(path) as file:
            packets = PerfettoFile(file, base_ns)
            yield packets
            packets.flush()


def _label(noun: str, identifier: Identifier) -> str:
    return identifier if isinstance(identifier, str) else f"{noun} {identifier}"


def _rank(order: Any) -> bytes:
    """Encode the rank of a track among its siblings."""
    return protobuf.integer(12, order) if isinstance(order, int) and abs(order) < 2**31 else b""


def _nanoseconds(microseconds: msgspec.Raw) -> int:
    """Return the nanoseconds of a number with three decimals."""
    return int(bytes(microseconds).replace(b".", b""))
