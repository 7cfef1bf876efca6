"""Planes, lines and events of an XPlane file.

A plane is a device, or the host. A line is a stream of a device, or a thread. An event names its
metadata, which hold its name; its statistics are numbers and texts, named by metadata as well.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope.importers.wire import Field, Int, Message

_UNSIGNED, _INTEGER, _TEXT, _REFERENCE = 3, 4, 5, 7
"""Numbers of the fields of a statistic that hold its value."""
Value = int | float | str
ABSENT = -1


class Statistics(msgspec.Struct):
    """Statistics of the events of a line, in no order."""

    row: Int
    """Index of the event."""
    name: Int
    """Id of the metadata."""
    form: Int
    """Number of the field that holds the value."""
    value: Int
    """Number, bits of a double, id of a text, or position of one."""
    length: Int


class Line(msgspec.Struct):
    """Events of one stream or thread; arrays have one entry per event."""

    id: int = 0
    name: str = ""
    timestamp_ns: int = 0
    metadata_id: Int = msgspec.field(default_factory=lambda: np.empty(0, dtype=np.int64))
    offset_ps: Int = msgspec.field(default_factory=lambda: np.empty(0, dtype=np.int64))
    duration_ps: Int = msgspec.field(default_factory=lambda: np.empty(0, dtype=np.int64))
    statistics: Statistics | None = None

    def __len__(self) -> int:
        return len(self.metadata_id)

    @property
    def start_ns(self) -> Int:
        """Starts, rounded to nanoseconds."""
        return self.timestamp_ns + (self.offset_ps + 500) // 1000

    @property
    def duration_ns(self) -> Int:
        """Durations: the rounded end minus the rounded start, so that neighbours do not overlap."""
        end_ns = self.timestamp_ns + (self.offset_ps + self.duration_ps + 500) // 1000
        return end_ns - self.start_ns


class Plane(msgspec.Struct):
    """A device, or the host."""

    data: bytes
    name: str = ""
    lines: list[Line] = msgspec.field(default_factory=list)
    event_names: dict[int, str] = msgspec.field(default_factory=dict)
    """Names of events by the id of their metadata."""
    statistic_names: dict[int, str] = msgspec.field(default_factory=dict)
    """Names of statistics, and texts that statistics refer to."""
    statistics: dict[str, Value] = msgspec.field(default_factory=dict)
    """Those of the plane itself."""

    def ids_of(self, *names: str) -> list[int]:
        """Return the ids of statistics with one of some names."""
        return [number for number, name in self.statistic_names.items() if name in names]

    def integers(self, line: Line, *names: str) -> Int:
        """Return an integer per event, `ABSENT` where it has no statistic of these names."""
        values = np.full(len(line), ABSENT, dtype=np.int64)
        statistics = line.statistics
        if statistics is not None:
            is_number = np.isin(statistics.form, (_UNSIGNED, _INTEGER))
            selected = is_number & np.isin(statistics.name, self.ids_of(*names))
            values[statistics.row[selected]] = statistics.value[selected]
        return values

    def texts(self, line: Line, *names: str) -> list[str | None]:
        """Return a text per event, None where it has no statistic of these names."""
        texts: list[str | None] = [None] * len(line)
        statistics = line.statistics
        if statistics is not None:
            selected = np.flatnonzero(np.isin(statistics.name, self.ids_of(*names)))
            for row, form, value, length in zip(
                *(
                    column[selected].tolist()
                    for column in (
                        statistics.row, statistics.form, statistics.value, statistics.length,
                    )
                ),
                strict=True,
            ):  # fmt: skip
                if form == _REFERENCE:
                    texts[row] = self.statistic_names.get(value)
                elif form == _TEXT:
                    texts[row] = self.data[value : value + length].decode(errors="replace")
        return texts

    def has(self, line: Line, *names: str) -> NDArray[np.bool_]:
        """Mark the events that have a statistic of one of some names."""
        mask = np.zeros(len(line), dtype=np.bool_)
        if line.statistics is not None:
            selected = np.isin(line.statistics.name, self.ids_of(*names))
            mask[line.statistics.row[selected]] = True
        return mask


class Space(msgspec.Struct):
    """Content of a file."""

    planes: list[Plane] = msgspec.field(default_factory=list)
    hostnames: list[str] = msgspec.field(default_factory=list)
    is_truncated: bool = False


def read_space(data: bytes) -> Space:
    """Read a file, as far as it goes.

    Raises:
        DamagedMessageError: the bytes are no such file, beyond a missing end.
    """
    message = Message(data)
    reader = _Reader(message)
    space = Space()
    for item in message.scan(0, len(data)):
        if item.number == 1:
            space.planes.append(reader.read_plane(item))
        elif item.number == 4:
            space.hostnames.append(message.text(item))
    space.is_truncated = message.is_truncated
    return space


class _Reader:
    """Reader of planes."""

    def __init__(self, message: Message) -> None:
        self._message = message
        self._data = message.data
        self._text = message.text

    def _scan(self, field: Field) -> Iterator[Field]:
        return self._message.scan(field.value, field.end)

    def read_plane(self, message: Field) -> Plane:
        """Read a plane."""
        plane = Plane(self._data)
        statistics: list[Field] = []
        for item in self._scan(message):
            match item.number:
                case 2:
                    plane.name = self._text(item)
                case 3:
                    plane.lines.append(self._line(item))
                case 4:
                    number, name = self._metadata(item, display_field=4)
                    plane.event_names[number] = name
                case 5:
                    number, name = self._metadata(item, display_field=0)
                    plane.statistic_names[number] = name
                case 6:
                    statistics.append(item)
        for item in statistics:
            name_id, value = self._statistic(item, plane)
            if value is not None:
                plane.statistics[plane.statistic_names.get(name_id, str(name_id))] = value
        return plane

    def _metadata(self, entry: Field, *, display_field: int) -> tuple[int, str]:
        """Read an entry of a map of metadata: its key, and the name in its value.

        A display name is shorter than a name that is a whole instruction.
        """
        number, name, display_name = 0, "", ""
        for item in self._scan(entry):
            if item.number == 1:
                number = item.value
            elif item.number == 2:
                for part in self._scan(item):
                    if part.number == 2:
                        name = self._text(part)
                    elif part.number == display_field:
                        display_name = self._text(part)
        return _signed(number), display_name or name

    def _statistic(self, message: Field, plane: Plane) -> tuple[int, Value | None]:
        name_id, value = 0, None
        for item in self._scan(message):
            match item.number:
                case 1:
                    name_id = _signed(item.value)
                case 2:
                    (value,) = struct.unpack_from("<d", self._data, item.value)
                case 3:
                    value = item.value
                case 4:
                    value = _signed(item.value)
                case 5:
                    value = self._text(item)
                case 7:
                    value = plane.statistic_names.get(item.value)
        return name_id, value

    def _line(self, message: Field) -> Line:
        line = Line()
        start, length, fields = self._message.split(message.value, message.end, number=4)
        display_name = ""
        for item in fields:
            match item.number:
                case 1:
                    line.id = _signed(item.value)
                case 2:
                    line.name = self._text(item)
                case 3:
                    line.timestamp_ns = _signed(item.value)
                case 11:
                    display_name = self._text(item)
        line.name = display_name or line.name
        self._fill(line, start, length)
        return line

    def _fill(self, line: Line, start: Int, length: Int) -> None:
        columns = {number: np.zeros(len(start), dtype=np.int64) for number in (1, 2, 3)}
        parts: list[tuple[Int, Int, Int]] = []
        for fields in self._message.scan_many(start, length):
            for number, column in columns.items():
                selected = fields.of(number)
                column[selected.row] = selected.value
            statistics = fields.of(4)
            if len(statistics.row):
                parts.append((statistics.row, statistics.value, statistics.length))
        line.metadata_id, line.offset_ps, line.duration_ps = columns.values()
        if parts:
            row, position, size = map(np.concatenate, zip(*parts, strict=True))
            line.statistics = self._statistics(row, position, size)

    def _statistics(self, row: Int, start: Int, length: Int) -> Statistics:
        name, form, value, size = (np.zeros(len(row), dtype=np.int64) for _ in range(4))
        for fields in self._message.scan_many(start, length):
            names = fields.of(1)
            name[names.row] = names.value
            is_value = fields.number != 1
            rows = fields.row[is_value]
            form[rows] = fields.number[is_value]
            value[rows] = fields.value[is_value]
            size[rows] = fields.length[is_value]
        return Statistics(row, name, form, value, size)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value
