"""Wire format of protocol buffers (https://protobuf.dev/programming-guides/encoding).

Small messages are read field by field (`Message.scan`). Of many messages of one type, all first
fields are read at once, then all second ones, and so on (`scan_many`): a trace has millions of
events with a handful of fields each.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Int = NDArray[np.int64]
Bytes = NDArray[np.uint8]

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
_MAX_VARINT_BYTES = 10


class DamagedMessageError(ValueError):
    """Bytes that are no message.

    Args:
        position: where they are in the file.
    """

    def __init__(self, position: int) -> None:
        super().__init__(f"no message at byte {position}")
        self.position = position


class Field(NamedTuple):
    """One field of one message."""

    number: int
    value: int
    """Number of a varint; position of any other field."""
    end: int
    """Position after the field."""
    is_cut: bool = False
    """The end of the file cuts it."""


class Fields(NamedTuple):
    """One field of each of many messages."""

    row: Int
    """Index of the message."""
    number: Int
    value: Int
    """Bits of a number, position of a field with a length."""
    length: Int
    """Bytes of a field with a length, else 0."""

    def of(self, number: int) -> Fields:
        """Select the messages whose field has a number."""
        is_field = self.number == number
        return Fields(*(column[is_field] for column in self))


def read_varint(data: bytes, start: int) -> tuple[int, int]:
    """Read one number; return it and the position after it.

    Raises:
        DamagedMessageError: the number has no end.
    """
    value = shift = 0
    for byte in data[start : start + _MAX_VARINT_BYTES]:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, start + shift // 7
    raise DamagedMessageError(start)


class Message:
    """Reader of the messages in a file.

    A message that the end of the file cuts ends there, or before the field that is cut;
    `is_truncated` says so.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.is_truncated = False

    @cached_property
    def _array(self) -> Bytes:
        return np.frombuffer(self.data, dtype=np.uint8)

    def text(self, field: Field) -> str:
        """Return the text of a field."""
        return self.data[field.value : field.end].decode(errors="replace")

    def scan(self, start: int, end: int) -> Iterator[Field]:
        """Yield the fields of one message.

        Raises:
            DamagedMessageError: a field exceeds the message, or has an unknown type.
        """
        position = start
        while position < end:
            field = self._read_field(position, end)
            if field is None:
                return
            yield field
            position = field.end

    def split(self, start: int, end: int, number: int) -> tuple[Int, Int, list[Field]]:
        """Split a message with many fields of one number, which have a length.

        Returns:
            Positions and lengths of these fields, and the other fields.

        Raises:
            DamagedMessageError: see `scan`.
        """
        data, tag = self.data, number << 3 | LENGTH
        starts, lengths, header_fields = [], [], []
        position = start
        while position < end:
            # The usual case is inlined: a call per field would double the time.
            if data[position] == tag and position + 1 < end and data[position + 1] < 0x80:
                size = data[position + 1]
                position += 2
                if position + size <= end:
                    starts.append(position)
                    lengths.append(size)
                    position += size
                    continue
                position -= 2
            field = self._read_field(position, end)
            if field is None:
                break
            position = field.end
            if field.number != number:
                header_fields.append(field)
            elif not field.is_cut:
                starts.append(field.value)
                lengths.append(field.end - field.value)
        return np.array(starts, dtype=np.int64), np.array(lengths, dtype=np.int64), header_fields

    def scan_many(self, start: Int, length: Int) -> Iterator[Fields]:
        """Yield the first field of all messages, then the second one of those that have it, and so
        on.

        Raises:
            DamagedMessageError: a field exceeds its message, or has an unknown type.
        """
        return _scan_many(self._array, start, length)

    def _read_field(self, position: int, end: int) -> Field | None:
        """Read the field at a position; None if the end of the file cuts it."""
        data, start = self.data, position
        try:
            tag, position = read_varint(data, position)
            number, form = tag >> 3, tag & 7
            value = position
            if form in (VARINT, LENGTH):
                value, position = read_varint(data, position)
        except DamagedMessageError as error:
            if len(data) - error.position >= _MAX_VARINT_BYTES:
                raise
            self.is_truncated = True
            return None
        is_cut = False
        if form == LENGTH:
            value, position = position, position + value
        elif form in (FIXED64, FIXED32):
            position += 8 if form == FIXED64 else 4
        elif form != VARINT:
            raise DamagedMessageError(start)
        if position > end:
            if end != len(data):
                raise DamagedMessageError(start)
            self.is_truncated = is_cut = True
            if form != LENGTH:
                return None
            position = end
        return Field(number, value, position, is_cut)


def read_varints(data: Bytes, start: Int) -> tuple[Int, Int]:
    """Read one number at each position; return the numbers, as signed, and the positions after.

    Raises:
        DamagedMessageError: a number has no end.
    """
    value = np.zeros(len(start), dtype=np.uint64)
    position = start.copy()
    rows = np.arange(len(start))
    for shift in range(0, 7 * _MAX_VARINT_BYTES, 7):
        at = position[rows]
        if len(at) and at.max() >= len(data):
            raise DamagedMessageError(int(start[rows[np.argmax(at)]]))
        byte = data[at].astype(np.uint64)
        value[rows] |= (byte & np.uint64(0x7F)) << np.uint64(shift)
        position[rows] += 1
        rows = rows[byte >= 0x80]
        if not len(rows):
            return value.view(np.int64), position
    raise DamagedMessageError(int(start[rows[0]]))


def _scan_many(data: Bytes, start: Int, length: Int) -> Iterator[Fields]:
    end = start + length
    rows = np.flatnonzero(length > 0)
    position = start[rows]
    while len(rows):
        tag, position = read_varints(data, position)
        form = tag & 7
        value, size = position.copy(), np.zeros(len(rows), dtype=np.int64)
        has_number = (form == VARINT) | (form == LENGTH)
        number, after = read_varints(data, position[has_number])
        position[has_number] = after
        value[has_number] = number
        has_length = form == LENGTH
        size[has_length] = value[has_length]
        value[has_length] = position[has_length]
        for fixed, width in ((FIXED64, 8), (FIXED32, 4)):
            is_fixed = form == fixed
            if is_fixed.any():
                value[is_fixed] = _read_fixed(data, position[is_fixed], width)
                position[is_fixed] += width
        after = position + size
        is_wrong = ~np.isin(form, (VARINT, FIXED64, LENGTH, FIXED32)) | (size < 0)
        is_wrong |= after > end[rows]
        if is_wrong.any():
            raise DamagedMessageError(int(position[is_wrong][0]))
        yield Fields(rows, tag >> 3, value, size)
        goes_on = after < end[rows]
        rows, position = rows[goes_on], after[goes_on]


def _read_fixed(data: Bytes, position: Int, width: int) -> Int:
    if (position + width > len(data)).any():
        raise DamagedMessageError(int(position.max()))
    raw = data[position[:, None] + np.arange(width)]
    padded = np.zeros((len(position), 8), dtype=np.uint8)
    padded[:, :width] = raw
    return padded.view(np.int64)[:, 0]
