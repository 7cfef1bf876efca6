"""Events of a Perfetto trace in the form of Chrome."""

from __future__ import annotations

import math
import struct
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, BinaryIO

import msgspec
import numpy as np
from msgspec import Raw

from stepscope import schema
from stepscope.importers.content import decimal_text
from stepscope.importers.perfetto.packets import (
    BEGIN,
    CATEGORIES,
    COUNTER,
    END,
    INSTANT,
    INT64_MAX,
    KEYS,
    NAMES,
    TEXTS,
    Fields,
    Packets,
    Part,
    Track,
    bytes_of,
    fields_of,
    signed,
    text_of,
    value_of,
)
from stepscope.importers.wire import DamagedMessageError, Message

HEADER_CATEGORY = "__metadata"
"""Category of the instant that holds the header of a trace, in files that stepscope wrote."""
_FLOW_BITS = 48
_DOUBLE = struct.Struct("<d")
_WRITTEN_EVENTS = 10_000
_SECOND_NS = 10**9
_NO_TRACK = Track()
_PROCESS_KEYS = ("process_name", "process_labels")
_MAX_DEPTH = 64
_MAX_CACHED_ARGUMENTS = 100_000
_FLOWS = ((47, 1, 0), (36, 0, 0), (48, 1, 1), (42, 0, 1))
"""Fields of arrows: number, 1 for a fixed width, 1 for the end of one."""
_FLOW_FIELDS = frozenset(field for field, _, _ in _FLOWS)


class ChromeForm:
    """Writer of the events of a file in the form of Chrome."""

    def __init__(self, packets: Packets) -> None:
        self._packets = packets
        self._base_ns = min(packets.times) // _SECOND_NS * _SECOND_NS
        self._is_own = any("pid" in track.description for track in packets.tracks.values())
        """True if stepscope wrote the file."""
        self._flow_kinds = {_number_kind(kind): kind for kind in self._list_flow_kinds()}
        """Kinds of arrows by the upper bits of their numbers, in such files."""
        self._headers: list[dict[str, Any]] = []
        self._used: dict[int, tuple[Any, Any]] = {}
        """Process and thread of the tracks that have events."""
        self._arguments_of: defaultdict[int, dict[bytes, tuple[str, Any]]] = defaultdict(dict)
        """Decoded arguments by their bytes, of each state of a writer: most are of many events."""

    def write(self, file: BinaryIO) -> None:
        """Write the events. The list of those of a truncated file does not end, either."""
        order = np.argsort(np.array(self._packets.times, dtype=np.int64), kind="stable").tolist()
        file.write(b'{"baseTimeNanoseconds":%d,"traceEvents":[\n' % self._base_ns)
        separator = b""
        for batch in _batches(chain(self._events(order), self._naming_events())):
            file.write(separator + b",\n".join(map(msgspec.json.encode, batch)))
            separator = b",\n"
        if not (self._packets.is_truncated or self._packets.damage):
            (header,) = self._headers if len(self._headers) == 1 else ({},)
            header.pop("baseTimeNanoseconds", None)
            members = msgspec.json.encode(header)[1:]
            file.write(b"\n]" + (b"," if header else b"") + members)

    def _pair(self, order: Sequence[int]) -> tuple[dict[int, int], set[int]]:
        """Return the times of the ends of slices by the events that begin them, and the events
        that end none."""
        ends: dict[int, int] = {}
        unpaired: set[int] = set()
        open_rows: defaultdict[int, list[int]] = defaultdict(list)
        for row in order:
            if self._packets.types[row] == BEGIN:
                open_rows[self._packets.numbers[row]].append(row)
            elif self._packets.types[row] == END:
                if rows := open_rows[self._packets.numbers[row]]:
                    ends[rows.pop()] = self._packets.times[row]
                else:
                    unpaired.add(row)
        return ends, unpaired

    def _events(self, order: Sequence[int]) -> Iterator[dict[str, Any]]:
        ends, unpaired = self._pair(order)
        packets = self._packets
        sums: defaultdict[int, float] = defaultdict(float)
        flows: set[int] = set()
        for row in order:
            kind, number = packets.types[row], packets.numbers[row]
            if kind == END and row not in unpaired:
                continue
            message, fields = packets.event(row)
            pid, tid = self._used.get(number) or self._position(number)
            event = {"pid": pid, "tid": tid, "ts": self._microseconds(packets.times[row])}
            if kind == COUNTER:
                track = packets.tracks.get(number, _NO_TRACK)
                value = _count(message, fields, track)
                sums[number] = sums[number] + value if track.is_incremental else value
                stated = track.description if self._is_own else {}
                name, series = stated.get("counter") or track.name, stated.get("series") or "value"
                yield {"ph": "C", "name": name, **event, "args": {series: sums[number]}}
                continue
            if kind == END:
                yield {"ph": "E", **event}
                continue
            state = packets.state_numbers[row]
            texts = packets.states[state].texts
            args = self._arguments(message, fields, state)
            categories = [texts[CATEGORIES].get(part[0], "") for part in fields.get(3, ())]
            categories += [
                bytes_of(message, part).decode(errors="replace") for part in fields.get(22, ())
            ]
            name = texts[NAMES].get(value_of(fields, 10)) or text_of(message, fields, 23)
            event["name"], event["cat"] = name, ",".join(categories)
            if args:
                event["args"] = args
            if self._is_own and categories == [HEADER_CATEGORY]:
                self._headers.append(args)
            elif kind == INSTANT:
                if not self._is_arrow(message, fields, event["cat"]):
                    yield {"ph": "i", "s": "t", **event}
            elif row in ends:
                event["dur"] = Raw(decimal_text(ends[row] - packets.times[row]))
                yield {"ph": "X", **event}
            else:
                yield {"ph": "B", **event}
            if not _FLOW_FIELDS.isdisjoint(fields):
                yield from self._arrows(message, fields, event, flows)

    def _list_flow_kinds(self) -> Iterator[str]:
        """Yield the kinds of arrows: known ones, and the categories of ends at no event."""
        yield from ("ac2g", "fwdbwd")
        for entry in schema.ACCELERATORS:
            yield from (entry.launch_arrows, entry.operator_arrows)
        for state in self._packets.states:
            yield from state.texts[CATEGORIES].values()

    def _is_arrow(self, message: Message, fields: Fields, category: str) -> bool:
        """Return True for an instant that stands for the end of an arrow at no event."""
        numbers = [
            int.from_bytes(bytes_of(message, part), "little") >> _FLOW_BITS
            for number in (47, 48)
            for part in fields.get(number, ())
        ]
        return self._is_own and numbers == [_number_kind(category)]

    def _arguments(self, message: Message, fields: Fields, state: int) -> dict[str, Any]:
        """Return the arguments of an event; of damaged ones, none."""
        data, texts = message.data, self._packets.states[state].texts
        cache = self._arguments_of[state]
        args: dict[str, Any] = {}
        try:
            for part in fields.get(4, ()):
                content = data[part[0] : part[1]]
                entry = cache.get(content)
                if entry is None:
                    entry = _annotation(message, part, texts)
                    if len(cache) < _MAX_CACHED_ARGUMENTS:
                        cache[content] = entry
                args[entry[0]] = entry[1]
            return args
        except DamagedMessageError as error:
            self._packets.damage = self._packets.damage or error
            return {}

    def _arrows(
        self, message: Message, fields: Fields, event: Mapping[str, Any], flows: set[int]
    ) -> Iterator[dict[str, Any]]:
        """Yield the ends of arrows at an event."""
        for field_number, is_fixed, is_end in _FLOWS:
            for part in fields.get(field_number, ()):
                flow = part[0]
                if is_fixed:
                    flow = int.from_bytes(bytes_of(message, part), "little")
                # In such files an end may be before its start, where clocks differ.
                phase = "f" if is_end or (flow in flows and not self._is_own) else "s"
                flows.add(flow)
                kind = "flow"
                if self._is_own:
                    kind = self._flow_kinds.get(flow >> _FLOW_BITS, kind)
                    flow &= (1 << _FLOW_BITS) - 1
                position = {key: event[key] for key in ("pid", "tid", "ts")}
                end = {"ph": phase, "id": flow & INT64_MAX, "cat": kind, "name": kind, **position}
                yield end | ({"bp": "e"} if phase == "f" else {})

    def _microseconds(self, time_ns: int) -> Raw:
        return Raw(decimal_text(time_ns - self._base_ns))

    # --- tracks ------------------------------------------------------------------------------

    def _position(self, number: int) -> tuple[Any, Any]:
        """Return process and thread of a track: those of the nearest one that has some."""
        if number not in self._used:
            self._used[number] = self._find_position(number)
        return self._used[number]

    def _find_position(self, number: int) -> tuple[Any, Any]:
        track = self._packets.tracks.get(number, _NO_TRACK)
        pid, tid = (track.description.get(key) for key in ("pid", "tid"))
        if self._is_own and isinstance(pid, int | str) and isinstance(tid, int | str | None):
            return pid, tid
        for above in self._ancestors(number):
            if above.pid is not None:
                is_thread = above is track and track.tid is not None
                return above.pid, track.tid if is_thread else number & INT64_MAX
        root = [*self._ancestors(number)][-1:]
        return (root[0].name if root and root[0].name else "tracks"), number & INT64_MAX

    def _ancestors(self, number: int) -> Iterator[Track]:
        """Yield a track and those above it."""
        for _ in range(_MAX_DEPTH):
            if (track := self._packets.tracks.get(number)) is None:
                return
            yield track
            number = track.parent

    def _naming_events(self) -> Iterator[dict[str, Any]]:
        """Yield the names and the order of processes and threads."""
        processes = {
            track.pid: track.process_name
            for track in self._packets.tracks.values()
            if track.pid is not None and track.process_name
        }
        for number, (pid, tid) in self._used.items():
            track = self._packets.tracks.get(number, _NO_TRACK)
            if track is _NO_TRACK or "counter" in track.description:
                continue
            stated, above = track.description, self._packets.tracks.get(track.parent, _NO_TRACK)
            names: dict[str, Any] = {"process_name": processes.get(pid), "thread_name": track.name}
            if self._is_own:
                names = {
                    **{key: above.description.get(key) for key in _PROCESS_KEYS},
                    "process_sort_index": above.order,
                    "thread_name": stated.get("thread_name"),
                    "thread_sort_index": track.order,
                }
            for name, value in names.items():
                if value is not None and value != "":
                    args = {name.rpartition("_")[2]: value}
                    if name.endswith("sort_index"):
                        args = {"sort_index": value}
                    yield {"ph": "M", "name": name, "pid": pid, "tid": tid, "ts": 0, "args": args}


def _number_kind(kind: str) -> int:
    """Return the upper bits of the numbers of arrows of a kind, in files that stepscope wrote."""
    return zlib.crc32(kind.encode()) & 0xFFFF


def _batches(events: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    while batch := list(islice(events, _WRITTEN_EVENTS)):
        yield batch


def _count(message: Message, fields: Fields, track: Track) -> float:
    """Return the value of a counter."""
    if 44 in fields:
        value = _double(message, fields[44][-1])
        return value if math.isfinite(value) else 0.0
    return float(signed(value_of(fields, 30)) * track.multiplier)


def _annotation(
    message: Message, part: Part, texts: Mapping[int, Mapping[int, str]], depth: int = 0
) -> tuple[str, Any]:
    """Return key and value of a debug annotation."""
    fields = fields_of(message, part)
    key = text_of(message, fields, 10) or texts[KEYS].get(value_of(fields, 1), "")
    for number, items in fields.items():
        item = items[-1]
        match number:
            case 2:
                return key, bool(item[0])
            case 3 | 7:
                return key, item[0]
            case 4:
                return key, signed(item[0])
            case 5:
                return key, _double(message, item)
            case 6:
                return key, bytes_of(message, item).decode(errors="replace")
            case 17:
                return key, texts[TEXTS].get(item[0], "")
            case 9:
                return key, _decode_json(bytes_of(message, item).decode(errors="replace"))
            case 11 | 12 if depth < _MAX_DEPTH:
                entries = [_annotation(message, entry, texts, depth + 1) for entry in items]
                return key, dict(entries) if number == 11 else [value for _, value in entries]
    return key, None


def _double(message: Message, part: Part) -> float:
    content = bytes_of(message, part)
    value: float = _DOUBLE.unpack(content)[0] if len(content) == _DOUBLE.size else 0.0
    return value


def _decode_json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except schema.MALFORMED_JSON:
        return text
