"""Wire format of protocol buffers: fields of messages as bytes.

https://protobuf.dev/programming-guides/encoding
"""

from __future__ import annotations

import struct

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_DOUBLE, _FLOAT, _FIXED = struct.Struct("<d"), struct.Struct("<f"), struct.Struct("<Q")
_WRAP = 1 << 64
_SHORT = [bytes([value]) for value in range(0x80)]


def varint(value: int) -> bytes:
    """Encode an integer of 64 bits, seven bits per byte; a negative one takes ten bytes.

    >>> varint(300)
    b'\\xac\\x02'
    """
    if 0 <= value < 0x80:
        return _SHORT[value]
    if value < 0:
        value += _WRAP
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def integer(field: int, value: int) -> bytes:
    """Encode a field of type int32, int64, uint32, uint64, bool or enum."""
    return varint(field << 3 | _VARINT) + varint(value)


def content(field: int, value: bytes) -> bytes:
    """Encode a field of type bytes, a message, or a packed array."""
    return varint(field << 3 | _LENGTH) + varint(len(value)) + value


def text(field: int, value: str) -> bytes:
    """Encode a field of type string; what UTF-8 cannot express becomes a question mark."""
    return content(field, value.encode(errors="replace"))


def integers(field: int, values: list[int]) -> bytes:
    """Encode a packed field of integers."""
    return content(field, b"".join(map(varint, values)))


def double(field: int, value: float) -> bytes:
    """Encode a field of type double."""
    return varint(field << 3 | _FIXED64) + _DOUBLE.pack(value)


def fixed64(field: int, value: int) -> bytes:
    """Encode a field of type fixed64."""
    return varint(field << 3 | _FIXED64) + _FIXED.pack(value)


def single(field: int, value: float) -> bytes:
    """Encode a field of type float."""
    return varint(field << 3 | _FIXED32) + _FLOAT.pack(value)
