"""Format of TensorBoard's event files, as far as it is written here.

A file is a sequence of records: the length of the payload (8 bytes, little endian), its checksum,
the payload, its checksum. A payload is the protobuf message `Event` of
https://github.com/tensorflow/tensorboard/blob/master/tensorboard/compat/proto/event.proto, encoded
by hand (https://protobuf.dev/programming-guides/encoding).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import BinaryIO

from stepscope.event_records import BYTES, FIXED32, FIXED64, VARINT, masked_crc32c

_DOUBLE, _FLOAT, _LENGTH, _CHECKSUM = (struct.Struct(f"<{code}") for code in "dfQI")


class EventFileWriter:
    """Writer of one event file.

    Args:
        file: the file, which stays open.
        t_ns: epoch nanoseconds of its start.
    """

    def __init__(self, file: BinaryIO, t_ns: int) -> None:
        self._file = file
        self._write_event(t_ns, 0, _bytes(3, b"brain.Event:2"))

    def write_scalar(self, tag: str, step: int, t_ns: int, value: float) -> None:
        """Write one number; TensorBoard keeps single precision."""
        self._write_value(tag, step, t_ns, _key(2, FIXED32) + _FLOAT.pack(value))

    def write_histogram(
        self,
        tag: str,
        step: int,
        t_ns: int,
        *,
        extremes: tuple[float, float],
        sums: tuple[float, float],
        bins: Sequence[tuple[float, float, float]],
    ) -> None:
        """Write one histogram.

        Args:
            tag: its name.
            step, t_ns: its place on the axes.
            extremes: smallest and largest element.
            sums: sum of the elements, and of their squares.
            bins: lower end, upper end and count, ascending; gaps between them have no elements.
        """
        limits: list[float] = []
        counts: list[float] = []
        for low, high, count in bins:
            if not limits or limits[-1] != low:
                limits.append(low)
                counts.append(0.0)
            limits.append(high)
            counts.append(count)
        numbers = (*extremes, sum(counts), *sums)
        message = b"".join(
            _key(field, FIXED64) + _DOUBLE.pack(number)
            for field, number in enumerate(numbers, start=1)
        )
        for field, values in ((6, limits), (7, counts)):
            message += _bytes(field, struct.pack(f"<{len(values)}d", *values))
        self._write_value(tag, step, t_ns, _bytes(5, message))

    def _write_value(self, tag: str, step: int, t_ns: int, content: bytes) -> None:
        value = _bytes(1, tag.encode()) + content
        self._write_event(t_ns, step, _bytes(5, _bytes(1, value)))

    def _write_event(self, t_ns: int, step: int, content: bytes) -> None:
        payload = _key(1, FIXED64) + _DOUBLE.pack(t_ns / 1e9)
        payload += _key(2, VARINT) + _varint(step) + content
        length = _LENGTH.pack(len(payload))
        for part in (length, payload):
            self._file.write(part + _CHECKSUM.pack(masked_crc32c(part)))


def _key(field: int, wire_type: int) -> bytes:
    return bytes([field << 3 | wire_type])


def _bytes(field: int, content: bytes) -> bytes:
    return _key(field, BYTES) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    """Encode an integer that is not negative, seven bits per byte."""
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])
