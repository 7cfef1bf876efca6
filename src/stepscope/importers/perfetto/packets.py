"""Packets of Perfetto traces: events as numbers, texts of their writers, tracks and clocks."""

from __future__ import annotations

import zlib
from array import array
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from stepscope import schema
from stepscope.importers import wire
from stepscope.importers.content import MAX_INFLATED_BYTES
from stepscope.importers.wire import DamagedMessageError, Message, read_varint

CATEGORIES, NAMES, KEYS, TEXTS = 1, 2, 3, 29
"""Fields of `InternedData` that are read."""
BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4
"""Types of events."""
_REALTIME, _BOOTTIME = 1, 6
_CLEARED = 1
INT64_MAX = 2**63 - 1
Part = tuple[int, int]
"""Number of a varint or position of any other field, and the position after the field. A tuple: a
trace has millions."""
Fields = Mapping[int, Sequence[Part]]
_EVENT_FIELDS = frozenset({8, 10, 11, 13, 58})
"""Fields of packets with an event and nothing else but flags."""


class PacketSequence(msgspec.Struct):
    """State of one writer of packets, until it is cleared."""

    texts: dict[int, dict[int, str]] = msgspec.field(
        default_factory=lambda: {kind: {} for kind in (CATEGORIES, NAMES, KEYS, TEXTS)}
    )
    clock: int = _BOOTTIME
    track: int = 0


class Track(msgspec.Struct):
    """Descriptor of a track."""

    parent: int = 0
    name: str = ""
    pid: int | None = None
    tid: int | None = None
    process_name: str | None = None
    multiplier: float = 1.0
    is_incremental: bool = False
    order: int | None = None
    description: dict[str, Any] = msgspec.field(default_factory=dict)
    """Where stepscope wrote the file, what tracks were called elsewhere."""


class Packets:
    """Content of a file."""

    def __init__(self, message: Message) -> None:
        self.damage: DamagedMessageError | None = None
        self.is_truncated = False
        self.messages = [message]
        """The file, and the packets in it that were compressed."""
        self._sequences: dict[int, PacketSequence] = defaultdict(PacketSequence)
        self.states: list[PacketSequence] = []
        self.tracks: dict[int, Track] = {}
        self._offsets: dict[int, int] = {}
        """Nanoseconds to add to the times of a clock."""
        self._incremental: dict[tuple[int, int], int] = {}
        self._multipliers: dict[int, int] = {}
        self.times, self.numbers = array("q"), array("Q")
        self.types, self.positions = array("b"), array("q")
        self.ends, self.state_numbers = array("q"), array("l")
        self.message_numbers = array("l")

    @property
    def event_count(self) -> int:
        """Number of track events."""
        return len(self.times)

    def event(self, row: int) -> tuple[Message, Fields]:
        """Return the fields of an event, and the message that has them."""
        message = self.messages[self.message_numbers[row]]
        return message, fields_of(message, (self.positions[row], self.ends[row]))

    # --- packets -----------------------------------------------------------------------------

    def read(self) -> None:
        """Read all packets.

        Raises:
            DamagedMessageError: bytes that are no packet; the ones before are read.
        """
        self._read_packets(0)
        self.is_truncated |= self.messages[0].is_truncated

    def _read_packets(self, number: int) -> None:
        message = self.messages[number]
        for field in message.scan(0, len(message.data)):
            if field.number == 1 and not field.is_cut:
                self._read_packet(number, (field.value, field.end))
            self.is_truncated |= field.is_cut

    def _read_packet(self, number: int, packet: Part) -> None:
        message = self.messages[number]
        fields = fields_of(message, packet)
        source = value_of(fields, 10)
        if not fields.keys() <= _EVENT_FIELDS or value_of(fields, 13) & _CLEARED:
            self._read_state(number, fields, source)
        state = self._sequences[source]
        for start, end in fields.get(11, ()):
            event = fields_of(message, (start, end))
            kind = value_of(event, 9)
            if not BEGIN <= kind <= COUNTER:
                continue
            if not self.states or self.states[-1] is not state:
                self.states.append(state)
            clock = value_of(fields, 58, state.clock)
            self.times.append(self._convert(clock, value_of(fields, 8), source))
            self.numbers.append(value_of(event, 11, state.track))
            self.types.append(kind)
            self.positions.append(start)
            self.ends.append(end)
            self.state_numbers.append(len(self.states) - 1)
            self.message_numbers.append(number)

    def _read_state(self, number: int, fields: Fields, source: int) -> None:
        """Read what a packet has of its writer, of clocks and of tracks."""
        message = self.messages[number]
        if value_of(fields, 13) & _CLEARED or value_of(fields, 41):
            self._sequences[source] = PacketSequence()
        state = self._sequences[source]
        for field in fields.get(59, ()):
            defaults = fields_of(message, field)
            state.clock = value_of(defaults, 58, state.clock)
            for item in defaults.get(11, ()):
                state.track = value_of(fields_of(message, item), 11, state.track)
        for field in fields.get(12, ()):
            self._intern(message, field, state)
        for field in fields.get(6, ()):
            self._read_clocks(message, field, source)
        for field in fields.get(60, ()):
            self._describe(message, field)
        for field in fields.get(50, ()):
            if number == 0:
                self.messages.append(Message(_inflate(message, field)))
                self._read_packets(len(self.messages) - 1)

    def _intern(self, message: Message, data: Part, state: PacketSequence) -> None:
        for field in message.scan(*data):
            texts = state.texts.get(field.number)
            if texts is not None:
                entry = fields_of(message, (field.value, field.end))
                texts[value_of(entry, 1)] = text_of(message, entry, 2)

    def _read_clocks(self, message: Message, snapshot: Part, source: int) -> None:
        times = {}
        for entry in fields_of(message, snapshot).get(1, ()):
            clock = fields_of(message, entry)
            number, timestamp = value_of(clock, 1), value_of(clock, 2)
            self._multipliers[number] = value_of(clock, 4, 1) or 1
            if value_of(clock, 3):
                self._incremental[source, number] = timestamp
            times[number] = timestamp * self._multipliers[number]
        if _REALTIME in times:
            self._offsets |= {number: times[_REALTIME] - t for number, t in times.items()}

    def _convert(self, clock: int, timestamp: int, source: int) -> int:
        """Return the nanoseconds since 1970, or of the clock if the file does not relate them."""
        if (source, clock) in self._incremental:
            timestamp += self._incremental[source, clock]
            self._incremental[source, clock] = timestamp
        time_ns = timestamp * self._multipliers.get(clock, 1) + self._offsets.get(clock, 0)
        return min(max(time_ns, 0), INT64_MAX)

    def _describe(self, message: Message, descriptor: Part) -> None:
        fields = fields_of(message, descriptor)
        track = Track(parent=value_of(fields, 5))
        track.name = text_of(message, fields, 2) or text_of(message, fields, 10)
        track.order = signed(value_of(fields, 12)) if 12 in fields else None
        for field in fields.get(3, ()):
            process = fields_of(message, field)
            track.pid = signed(value_of(process, 1))
            track.process_name = text_of(message, process, 6)
        for field in fields.get(4, ()):
            thread = fields_of(message, field)
            track.pid, track.tid = signed(value_of(thread, 1)), signed(value_of(thread, 2))
            track.name = track.name or text_of(message, thread, 5)
        for field in fields.get(8, ()):
            counter = fields_of(message, field)
            track.multiplier = signed(value_of(counter, 4)) or 1
            track.is_incremental = bool(value_of(counter, 5))
        try:
            track.description = msgspec.json.decode(
                text_of(message, fields, 14) or "{}", type=dict[str, Any]
            )
        except schema.MALFORMED_JSON:
            track.description = {}
        self.tracks[value_of(fields, 1)] = track


def _inflate(message: Message, part: Part) -> bytes:
    """Return the packets in a field that is compressed.

    Raises:
        DamagedMessageError: they are damaged, or larger than a file may be.
    """
    inflater = zlib.decompressobj()
    try:
        content = inflater.decompress(bytes_of(message, part), MAX_INFLATED_BYTES)
    except zlib.error:
        raise DamagedMessageError(part[0]) from None
    if not inflater.eof:
        raise DamagedMessageError(part[0])
    return content


def fields_of(message: Message, part: Part) -> Fields:
    """Return the fields of a message by their numbers."""
    data, (position, end) = message.data, part
    fields: dict[int, list[Part]] = {}
    while position < end:
        # As `Message.scan`, in a third of the time: these messages are complete.
        start = position
        tag, position = data[position], position + 1
        if tag >= 0x80:
            if position < end and data[position] < 0x80:
                tag, position = tag & 0x7F | data[position] << 7, position + 1
            else:
                tag, position = read_varint(data, start)
        value, form = position, tag & 7
        if form in {wire.VARINT, wire.LENGTH} and position < end:
            value, position = data[position], position + 1
            if value >= 0x80:
                if position < end and data[position] < 0x80:
                    value, position = value & 0x7F | data[position] << 7, position + 1
                else:
                    value, position = read_varint(data, position - 1)
            if form == wire.LENGTH:
                value, position = position, position + value
        elif form in {wire.FIXED64, wire.FIXED32}:
            position += 8 if form == wire.FIXED64 else 4
        else:
            raise DamagedMessageError(start)
        if position > end:
            raise DamagedMessageError(start)
        number = tag >> 3
        if number in fields:
            fields[number].append((value, position))
        else:
            fields[number] = [(value, position)]
    return fields


def value_of(fields: Fields, number: int, default: int = 0) -> int:
    """Return the last value of a number."""
    return fields[number][-1][0] if number in fields else default


def signed(value: int) -> int:
    """Return a number as signed."""
    return value - 2**64 if value > INT64_MAX else value


def bytes_of(message: Message, part: Part) -> bytes:
    """Return the bytes of a field."""
    return message.data[part[0] : part[1]]


def text_of(message: Message, fields: Fields, number: int) -> str:
    """Return the last text of a number; empty without one."""
    if number not in fields:
        return ""
    return bytes_of(message, fields[number][-1]).decode(errors="replace")
