"""Reader of plain data in Python's marshal format, which files of cProfile have.

The `marshal` module of Python may crash on hostile bytes, and it builds code objects. This reader
builds numbers, strings, tuples, lists and dicts only, never runs code, and raises ValueError for
everything else. The format is that of versions 0 to 4 (Python/marshal.c of CPython).
"""

from __future__ import annotations

import struct
from typing import Any

MAX_DEPTH = 16
_REFERENCE_FLAG = 0x80
_CONSTANTS: dict[str, Any] = {"N": None, "F": False, "T": True}
_LONG_STRINGS = {"s": None, "u": "utf-8", "t": "utf-8", "a": "latin-1", "A": "latin-1"}
"""Types of strings with four bytes of length; bytes have no encoding."""
_SHORT_STRINGS = frozenset("zZ")
_DIGIT_BITS = 15
_END = object()
"""End of a dict."""


def load(data: bytes) -> Any:
    """Decode one value.

    Raises:
        ValueError: the bytes are no plain data, or are truncated.
    """
    reader = _Reader(data)
    try:
        value = reader.read(0)
    except (struct.error, IndexError, TypeError, OverflowError) as error:
        raise ValueError(f"malformed data at byte {reader.position}") from error
    if value is _END:
        raise ValueError("no value")
    return value


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.position = 0
        self._data = data
        self._references: list[Any] = []

    def read(self, depth: int) -> Any:
        """Read a value, or `_END`; containers of a depth are nested in so many others."""
        if depth > MAX_DEPTH:
            raise ValueError("data is nested too deeply")
        code = self._take(1)[0]
        kind = chr(code & ~_REFERENCE_FLAG)
        if kind == "r":
            value = self._references[self._length()]
            if value is _END:
                raise ValueError("a value contains itself")
            return value
        index = len(self._references)
        if code & _REFERENCE_FLAG:
            self._references.append(_END)
        value = self._read_kind(kind, depth)
        if code & _REFERENCE_FLAG:
            self._references[index] = value
        return value

    def _read_kind(self, kind: str, depth: int) -> Any:
        if kind == "0":
            return _END
        if kind in _CONSTANTS:
            return _CONSTANTS[kind]
        if kind == "i":
            return struct.unpack("<i", self._take(4))[0]
        if kind == "g":
            return struct.unpack("<d", self._take(8))[0]
        if kind == "f":
            return float(self._take(self._take(1)[0]))
        if kind == "l":
            return self._read_long()
        if kind in _LONG_STRINGS:
            content, encoding = self._take(self._length()), _LONG_STRINGS[kind]
            return content if encoding is None else content.decode(encoding, "replace")
        if kind in _SHORT_STRINGS:
            return self._take(self._take(1)[0]).decode("latin-1")
        if kind in {")", "(", "["}:
            count = self._take(1)[0] if kind == ")" else self._length()
            if count > len(self._data) - self.position:
                raise ValueError("a sequence is longer than the data")
            items = [self._read_value(depth + 1) for _ in range(count)]
            return items if kind == "[" else tuple(items)
        if kind == "{":
            return self._read_dict(depth)
        raise ValueError(f"unknown type {kind!r}")

    def _read_value(self, depth: int) -> Any:
        value = self.read(depth)
        if value is _END:
            raise ValueError("a value is missing")
        return value

    def _read_dict(self, depth: int) -> dict[Any, Any]:
        values: dict[Any, Any] = {}
        while (key := self.read(depth + 1)) is not _END:
            values[key] = self._read_value(depth + 1)
        return values

    def _read_long(self) -> int:
        (count,) = struct.unpack("<i", self._take(4))
        digits = struct.unpack(f"<{abs(count)}H", self._take(2 * abs(count)))
        value: int = sum(digit << (_DIGIT_BITS * index) for index, digit in enumerate(digits))
        return -value if count < 0 else value

    def _length(self) -> int:
        (length,) = struct.unpack("<i", self._take(4))
        if length < 0:
            raise ValueError("a length is negative")
        return int(length)

    def _take(self, count: int) -> bytes:
        content = self._data[self.position : self.position + count]
        if len(content) < count:
            raise ValueError("the data is truncated")
        self.position += count
        return content
