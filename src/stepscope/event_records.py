"""Format of event files, which TensorBoard, TensorFlow and SageMaker Debugger write.

A file is a sequence of records: the length of the payload (8 bytes, little endian), its checksum,
the payload, its checksum. A payload is a message of protobuf, whose fields are read here without
knowledge of their meaning (https://protobuf.dev/programming-guides/encoding).

    masked_crc32c       checksum of some bytes
    begins_with_record  True for an event file
    read_records        file -> payloads
    read_fields         message -> fields
"""

from __future__ import annotations

import functools
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

MAX_RECORD_BYTES = 1 << 30
"""Payload that is held in memory at once."""
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Wire types of protobuf; 3 and 4, groups, are in no message of an event file."""
_LENGTH, _CHECKSUM = struct.Struct("<Q"), struct.Struct("<I")
_HEADER_BYTES = _LENGTH.size + _CHECKSUM.size
_SIZES = {FIXED64: 8, FIXED32: 4}
_MAX_VARINT_BYTES = 10
_WORD = 0xFFFFFFFF
_POLYNOMIAL = 0x82F63B78
"""Castagnoli's polynomial, lowest power in the highest bit."""
_LANE_BYTES = 64
_BLOCK_BYTES = 1 << 20

_Words = NDArray[np.uint32]


class DamagedRecordError(ValueError):
    """Record that is truncated or does not match its checksum; the message is a sentence's rest."""


class MalformedMessageError(ValueError):
    """Bytes that are not a message of protobuf."""


class Field(NamedTuple):
    """Field of a message."""

    number: int
    wire_type: int
    number_value: int
    """Value of a VARINT, unsigned; 0 for other wire types."""
    content: memoryview
    """Bytes of any other wire type."""


def masked_crc32c(data: bytes | memoryview) -> int:
    """Return the checksum of some bytes: CRC-32C, rotated and shifted as TensorFlow does.

    https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/lib/hash/crc32c.h

    >>> hex(masked_crc32c(b"123456789"))
    '0xc78ab0e5'
    """
    crc = _crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & _WORD


def begins_with_record(path: str | os.PathLike[str]) -> bool:
    """Return True for a file that begins with the length of a record and its checksum."""
    try:
        with Path(path).open("rb") as file:
            header = file.read(_HEADER_BYTES)
    except OSError:
        return False
    return len(header) == _HEADER_BYTES and _is_intact(header)


def read_records(path: Path) -> Iterator[bytes]:
    """Yield the payloads of a file up to the first damage.

    Raises:
        DamagedRecordError: a record is damaged, or larger than `MAX_RECORD_BYTES`.
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        position, size = 0, os.fstat(file.fileno()).st_size
        while header := file.read(_HEADER_BYTES):
            if len(header) < _HEADER_BYTES:
                raise DamagedRecordError(f"it ends in the middle of a record at byte {position:,}")
            if not _is_intact(header):
                raise DamagedRecordError(f"it is damaged from byte {position:,} on")
            (length,) = _LENGTH.unpack_from(header)
            if position + _HEADER_BYTES + length + _CHECKSUM.size > size:
                raise DamagedRecordError(f"it ends in the middle of a record at byte {position:,}")
            if length > MAX_RECORD_BYTES:
                raise DamagedRecordError(
                    f"the record at byte {position:,} has {length:,} bytes, which is above the "
                    f"limit of {MAX_RECORD_BYTES:,}"
                )
            payload = file.read(length)
            (checksum,) = _CHECKSUM.unpack(file.read(_CHECKSUM.size))
            if checksum not in {_PLACEHOLDER, masked_crc32c(payload)}:
                raise DamagedRecordError(f"it is damaged from byte {position:,} on")
            yield payload
            position += _HEADER_BYTES + length + _CHECKSUM.size


def read_fields(message: bytes | memoryview) -> Iterator[Field]:
    """Yield the fields of a message; messages within it are bytes.

    Raises:
        MalformedMessageError: at the first bytes that are no field.
    """
    view = memoryview(message)
    position, end = 0, len(view)
    while position < end:
        key, position = _read_varint(view, position)
        number, wire_type, value = key >> 3, key & 7, 0
        if wire_type == VARINT:
            value, position = _read_varint(view, position)
            yield Field(number, wire_type, value, view[:0])
            continue
        if wire_type == BYTES:
            size, position = _read_varint(view, position)
        elif wire_type in _SIZES:
            size = _SIZES[wire_type]
        else:
            raise MalformedMessageError(f"{wire_type} is no type of a field")
        if size > end - position:
            raise MalformedMessageError("a field ends after its message")
        yield Field(number, wire_type, 0, view[position : position + size])
        position += size


def _read_varint(view: memoryview, position: int) -> tuple[int, int]:
    """Return an integer of seven bits per byte, and the position after it."""
    value = 0
    for shift, byte in enumerate(view[position : position + _MAX_VARINT_BYTES]):
        value |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, position + shift + 1
    raise MalformedMessageError("an integer does not end")


# --- checksum -----------------------------------------------------------------------------------
#
# A CRC is linear over GF(2). With c the CRC that starts at 0,
# c(A + B) = shift(c(A), len(B)) ^ c(B), where shift appends zeros. So lanes of
# 64 bytes are computed side by side, and then joined.


def _crc32c(data: bytes | memoryview) -> int:
    crc = _WORD
    for start in range(0, len(data), _BLOCK_BYTES):
        block = data[start : start + _BLOCK_BYTES]
        if len(block) < 4 * _LANE_BYTES:
            for byte in block:
                crc = _BYTES[(crc ^ byte) & 0xFF] ^ crc >> 8
        else:
            crc = int(_append_zeros(np.array([crc], np.uint32), len(block))[0]) ^ _join(block)
    return crc ^ _WORD


def _join(block: bytes | memoryview) -> int:
    """Return the CRC of some bytes that starts at 0. Zeros in front do not change it."""
    padded = np.zeros(-(-len(block) // _LANE_BYTES) * _LANE_BYTES, dtype=np.uint8)
    padded[len(padded) - len(block) :] = np.frombuffer(block, dtype=np.uint8)
    crcs = np.zeros(len(padded) // _LANE_BYTES, dtype=np.uint32)
    for column in padded.reshape(-1, _LANE_BYTES).T:
        crcs = _TABLE[(crcs ^ column) & 0xFF] ^ crcs >> 8
    length = _LANE_BYTES
    while len(crcs) > 1:
        if len(crcs) % 2:
            crcs = np.append(np.zeros(1, dtype=np.uint32), crcs)
        crcs = _append_zeros(crcs[::2], length) ^ crcs[1::2]
        length *= 2
    return int(crcs[0])


def _append_zeros(crcs: _Words, count: int) -> _Words:
    """Return the CRCs after `count` more bytes of zero."""
    power = 0
    while count >> power:
        if count >> power & 1:
            tables = _zeros_table(power)
            crcs = (
                tables[0][crcs & 0xFF]
                ^ tables[1][crcs >> 8 & 0xFF]
                ^ tables[2][crcs >> 16 & 0xFF]
                ^ tables[3][crcs >> 24]
            )
        power += 1
    return crcs


@functools.cache
def _zeros_table(power: int) -> _Words:
    """Return (byte of a CRC, its value) -> the CRC after 2**power bytes of zero."""
    crcs = np.arange(256, dtype=np.uint32) << np.arange(0, 32, 8, dtype=np.uint32)[:, None]
    if power == 0:
        after: _Words = _TABLE[crcs & 0xFF] ^ crcs >> 8
        return after
    half = 1 << power - 1
    return _append_zeros(_append_zeros(crcs, half), half)


def _make_table() -> _Words:
    crcs = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        crcs = np.where(crcs & 1, crcs >> 1 ^ np.uint32(_POLYNOMIAL), crcs >> 1)
    return crcs


_TABLE = _make_table()
"""CRC of each byte."""
_BYTES: list[int] = _TABLE.tolist()
_PLACEHOLDER = masked_crc32c(b"0x12345678")
"""Checksum that SageMaker Debugger writes after every payload unless asked for real ones."""


def _is_intact(header: bytes) -> bool:
    (checksum,) = _CHECKSUM.unpack_from(header, _LENGTH.size)
    return int(checksum) == masked_crc32c(header[: _LENGTH.size])
