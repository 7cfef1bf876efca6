"""Python profiles, as rows of `python_profiles`.

A profile covers the time in the name of its folder, and is a file of cProfile (`python_stats`, the
format of `pstats`) or of pyinstrument (`python_stats.json`, a tree of calls).

Reader of plain data in Python's marshal format, which files of cProfile have. The `marshal` module
of Python may crash on hostile bytes, and it builds code objects. This reader builds numbers,
strings, tuples, lists and dicts only, never runs code, and raises ValueError for everything else.
The format is that of versions 0 to 4 (Python/marshal.c of CPython).
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from stepscope import schema, store
from stepscope.importers.smdebug.events import split_recorder

_MOMENT = r"[a-z]+-(?:\d+|\*)-[a-z]+"
_FOLDER = re.compile(
    rf"(?P<start_at>{_MOMENT})-(?P<start_us>\d+)(?:\.\d+)?_(?P<end_at>{_MOMENT})-(?P<end_us>\d+)"
    r"(?:\.\d+)?"
)
_OLD_FOLDER = re.compile(r"(?P<start_us>\d+)_(?P<end_us>\d+)_(?P<recorder>.+)_(?P<step>\d+|\*)")
_OWN_TIME = "[self]"
"""Function of frames that later versions of pyinstrument write for the time of their caller."""
MAX_FRAMES = 1_000_000
MAX_SECONDS = 1e9


class FunctionSum(msgspec.Struct, frozen=True, kw_only=True):
    """Time and calls of one function in a profile."""

    function: str
    file: str
    line: int
    own_ns: int
    total_ns: int
    calls: int | None = None
    primitive_calls: int | None = None


class PythonProfile(msgspec.Struct, frozen=True, kw_only=True):
    """One profile."""

    pid: int | None
    host: str | None
    profiler: str
    start_ns: int
    end_ns: int
    start_at: str
    end_at: str
    functions: list[FunctionSum]


def read_profile(path: Path) -> PythonProfile:
    """Read a profile.

    Raises:
        ValueError: the folder does not state the time, or the file is no profile. The message
            completes a sentence about the file.
        OSError: the file cannot be read.
    """
    folder = _FOLDER.fullmatch(path.parent.name)
    old_folder = _OLD_FOLDER.fullmatch(path.parent.name)
    match = folder or old_folder
    if match is None:
        raise ValueError("the name of its folder does not state the time of the profile")
    recorder = path.parents[1].name if old_folder is None else old_folder["recorder"]
    step = f"step-{old_folder['step']}" if old_folder is not None else ""
    pid, host = split_recorder(recorder)
    is_tree = path.suffix == ".json"
    return PythonProfile(
        pid=pid,
        host=host,
        profiler="pyinstrument" if is_tree else "cprofile",
        start_ns=int(match["start_us"]) * 1000,
        end_ns=int(match["end_us"]) * 1000,
        start_at=folder["start_at"] if folder else step,
        end_at=folder["end_at"] if folder else step,
        functions=(_sum_tree if is_tree else _read_stats)(path.read_bytes()),
    )


def columns_of(
    profile: PythonProfile, *, node: str, process: str, first_row: int
) -> Mapping[str, Any]:
    """Return the columns of `python_profiles`."""
    functions = profile.functions
    count = len(functions)
    constants = {
        "node": node,
        "process": process,
        "log": f"{profile.pid or 0}p",
        "profiler": profile.profiler,
        "start_at": profile.start_at,
        "end_at": profile.end_at,
    }
    return {
        **{name: store.DictColumn.constant(value, count) for name, value in constants.items()},
        "seq": np.arange(first_row, first_row + count, dtype=np.int64),
        "start_ns": np.full(count, profile.start_ns, dtype=np.int64),
        "end_ns": np.full(count, profile.end_ns, dtype=np.int64),
        "function": store.DictColumn.encode(f.function for f in functions),
        "file": store.DictColumn.encode(f.file for f in functions),
        "library": store.DictColumn.encode(schema.library_of(f.file) for f in functions),
        **{
            name: np.array([getattr(f, name) for f in functions], dtype=np.int64)
            for name in ("line", "own_ns", "total_ns")
        },
        **{
            name: _optional([getattr(f, name) for f in functions])
            for name in ("calls", "primitive_calls")
        },
    }


def _optional(values: Sequence[int | None]) -> Any:
    return np.ma.MaskedArray(
        np.array([value or 0 for value in values], dtype=np.int64),
        mask=[value is None for value in values],
    )


# --- cProfile ------------------------------------------------------------------------------------


def _read_stats(data: bytes) -> list[FunctionSum]:
    """Read the functions of a file of `pstats`: a dict of (file, line, function) to (primitive
    calls, calls, own seconds, total seconds, callers)."""
    stats = load(data)
    if not isinstance(stats, dict):
        raise ValueError("it is no file of cProfile")
    try:
        return [
            _function_sum(*map(_text, (key[2], key[0])), line=key[1], figures=value[:4])
            for key, value in stats.items()
        ]
    except (TypeError, IndexError, ValueError) as error:
        raise ValueError("it is no file of cProfile") from error


def _function_sum(function: str, file: str, *, line: object, figures: object) -> FunctionSum:
    if not isinstance(figures, tuple) or not isinstance(line, int):
        raise TypeError
    primitive_calls, calls, own_s, total_s = figures
    if not isinstance(calls, int) or not isinstance(primitive_calls, int):
        raise TypeError
    return FunctionSum(
        function=function,
        file="" if file == "~" else file,
        line=line,
        own_ns=_nanoseconds(own_s),
        total_ns=_nanoseconds(total_s),
        calls=calls,
        primitive_calls=primitive_calls,
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _nanoseconds(seconds: object) -> int:
    if not isinstance(seconds, int | float) or not math.isfinite(seconds):
        raise ValueError("a time is no number")
    if abs(seconds) > MAX_SECONDS:
        raise ValueError("a time is too long")
    return round(seconds * 1e9)


# --- pyinstrument --------------------------------------------------------------------------------


class _CallFrame(msgspec.Struct, gc=False):
    function: str
    time: float
    file_path: str | None = None
    file_path_short: str | None = None
    line_no: int | None = None
    children: list[Any] = []


class _Session(msgspec.Struct):
    root_frame: Any


_Key = tuple[str, str, int]
"""Function, file and line."""


def _sum_tree(data: bytes) -> list[FunctionSum]:
    """Sum the frames of a tree by function; a function counts once in each path of calls."""
    own_ns: dict[_Key, int] = {}
    total_ns: dict[_Key, int] = {}
    try:
        root = msgspec.json.decode(data, type=_Session).root_frame
        for key, self_ns, all_ns in _walk(root):
            own_ns[key] = own_ns.get(key, 0) + self_ns
            total_ns[key] = total_ns.get(key, 0) + all_ns
    except schema.MALFORMED_JSON as error:
        raise ValueError("it is no file of pyinstrument") from error
    return [
        FunctionSum(
            function=key[0], file=key[1], line=key[2], own_ns=self_ns, total_ns=total_ns[key]
        )
        for key, self_ns in own_ns.items()
    ]


def _walk(root: Any) -> Iterator[tuple[_Key, int, int]]:
    """Yield function, own time and total time of each frame; the total is 0 inside a frame of the
    same function."""
    pending: list[tuple[Any, _Key | None, frozenset[_Key]]] = [(root, None, frozenset())]
    frame_count = 0
    while pending:
        raw, caller, callers = pending.pop()
        frame = msgspec.convert(raw, _CallFrame)
        frame_count += 1
        if frame_count > MAX_FRAMES:
            raise ValueError("it has too many frames")
        key = (frame.function, frame.file_path or frame.file_path_short or "", frame.line_no or 0)
        if frame.function == _OWN_TIME and caller is not None:
            key = caller
        children = [msgspec.convert(child, _CallFrame).time for child in frame.children]
        total_ns = _nanoseconds(frame.time)
        self_ns = max(0, total_ns - sum(map(_nanoseconds, children)))
        yield key, self_ns, 0 if key in callers else total_ns
        pending += [(child, key, callers | {key}) for child in frame.children]


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
