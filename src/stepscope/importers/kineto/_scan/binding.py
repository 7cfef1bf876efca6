"""Python side of the compiled scanner: what it is told, and what its rows become."""

from __future__ import annotations

import ctypes
import functools
import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import native_library, schema
from stepscope.importers.kineto.arguments import ABSENT, LAUNCH_FLOWS, Kind, OtherKind

LIBRARY = native_library.NativeLibrary(Path(__file__).parent)
SCANNER_VARIABLE = "STEPSCOPE_SCANNER"
"""Environment variable: `python` switches the compiled scanner off, a path names a library."""
_MAX_KINDS, _MAX_ARGUMENTS = 32, 48
_INTEGER, _NUMBER, _STRING, _JSON, _SIZES, _UNUSED = range(6)
_TYPES = {
    "integer": _INTEGER, "number": _NUMBER, "string": _STRING, "json": _JSON, "sizes": _SIZES,
    "unused": _UNUSED,
}  # fmt: skip
_NULLABLE, _ZERO_IS_ABSENT, _IN_ARGS, _CONDITIONAL = 1, 2, 4, 8
_FIELDS = ("order", "track", "name", "start", "duration", "args", "args_all")
_FLOW_FIELDS = ("order", "track", "name", "start", "phase", "category", "flow")
_CODES = frozenset({"track", "name", "args", "args_all", "phase", "category"})
_LAUNCH_FLOW, _FLOW = -2, len(schema.EVENT_KINDS)
"""Numbers of kinds of arrows; events of a kind have their index in `EVENT_KINDS`."""
_NAN_BITS = struct.unpack("<q", struct.pack("<d", float("nan")))[0]
_PYBUF_READ = 0x100
_view_memory = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int)(
    ("PyMemoryView_FromMemory", ctypes.pythonapi)
)
"""https://docs.python.org/3/c-api/memoryview.html"""
_decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_SCANNED, _REFUSED, _NO_MEMORY = range(3)
MIN_SCANNED_SHARE = 0.5
"""Share of the events of a block below which Python decodes all of them: it is faster at that."""


class _Argument(ctypes.Structure):
    _fields_ = (
        ("key", ctypes.c_int32),
        ("type", ctypes.c_int32),
        ("field", ctypes.c_int32),
        ("flags", ctypes.c_int32),
        ("missing", ctypes.c_int64),
    )


class _Kind(ctypes.Structure):
    _fields_ = (
        ("is_range", ctypes.c_int32),
        ("field_count", ctypes.c_int32),
        ("argument_count", ctypes.c_int32),
        ("arguments", _Argument * _MAX_ARGUMENTS),
    )


class _Label(ctypes.Structure):
    _fields_ = (("text", ctypes.c_char_p), ("length", ctypes.c_int32), ("kind", ctypes.c_int32))


class _Result(ctypes.Structure):
    _fields_ = (
        *(
            (name, ctypes.c_int64)
            for name in (
                "event_count", "flow_starts", "flow_ends", "odd_count", "string_count",
                "string_bytes", "track_count", "track_bytes",
            )
        ),
        *((name, ctypes.c_void_p) for name in ("odd", "string_ends", "track_ends")),
        ("strings", ctypes.c_void_p),
        ("tracks", ctypes.c_void_p),
        ("rows", ctypes.c_void_p * _MAX_KINDS),
        ("row_counts", ctypes.c_int64 * _MAX_KINDS),
    )  # fmt: skip


class ScannedBlock(msgspec.Struct):
    """Columns of the events that the scanner understood, and the extents of all others."""

    event_count: int
    """Events of the block, odd ones included."""
    columns: dict[Kind, dict[str, NDArray[Any]]]
    strings: list[str]
    tracks: list[tuple[int | str, int | str]]
    flow_counts: tuple[int, int]
    odd_order: NDArray[np.int64]
    """Indices of the events that are left to Python."""
    odd_extents: list[tuple[int, int]]
    """Their text in the block."""
    block_rule_kinds: set[Kind] = msgspec.field(default_factory=set)
    """Kinds with columns that depend on all events of the block: older keys, or keys that are only
    read beside others (`Argument.older_key`, `only_with`)."""


class _Field(msgspec.Struct):
    """Column of an argument in the rows of its kind."""

    argument: schema.Argument
    index: int
    is_older: bool


class _Layout(msgspec.Struct):
    """Fields of the rows of a kind."""

    fields: list[_Field] = msgspec.field(default_factory=list)
    arguments: list[_Argument] = msgspec.field(default_factory=list)
    field_count: int = len(_FIELDS)


class Scanner:
    """The compiled scanner. Not thread-safe: every thread needs its own."""

    def __init__(self, library: ctypes.CDLL) -> None:
        keys: dict[str, int] = {}
        self._layouts = [_layout(kind, keys) for kind in schema.EVENT_KINDS]
        kinds = (_Kind * (len(schema.EVENT_KINDS) + 1))()
        for number, (kind, layout) in enumerate(
            zip(schema.EVENT_KINDS, self._layouts, strict=True)
        ):
            arguments = (_Argument * _MAX_ARGUMENTS)(*layout.arguments)
            count = len(layout.arguments)
            kinds[number] = _Kind(kind.is_range, layout.field_count, count, arguments)
        kinds[_FLOW] = _Kind(0, len(_FLOW_FIELDS), 0)
        categories = [
            *(
                (text, n)
                for n, k in enumerate(schema.EVENT_KINDS)
                if k.is_range
                for text in k.categories
            ),
            *((text, _LAUNCH_FLOW) for text in sorted(LAUNCH_FLOWS)),
        ]
        instants = [(k.instant_name, n) for n, k in enumerate(schema.EVENT_KINDS) if not k.is_range]
        # The library keeps pointers to these texts.
        self._labels = [_labels(list(pairs)) for pairs in (keys.items(), categories, instants)]
        library.stepscope_scan_create.restype = ctypes.c_void_p
        library.stepscope_scan.argtypes = (
            ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.POINTER(_Result),
        )  # fmt: skip
        library.stepscope_scan_free.argtypes = (ctypes.c_void_p,)
        lists = [argument for labels in self._labels for argument in (labels, len(labels))]
        self._handle = library.stepscope_scan_create(kinds, len(kinds), _FLOW, *lists)
        if not self._handle:
            raise MemoryError
        self._library = library

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._library.stepscope_scan_free(self._handle)

    def scan(self, text: bytes | bytearray | memoryview) -> ScannedBlock | None:
        """Scan a block, events separated by commas.

        Returns:
            None for text that is left to Python as a whole: malformed, or mostly unusual.
        """
        characters = np.frombuffer(text, dtype=np.uint8)
        result = _Result()
        status = self._library.stepscope_scan(
            self._handle, characters.ctypes.data, len(text), ctypes.byref(result)
        )
        if status == _NO_MEMORY:
            raise MemoryError
        if status == _REFUSED or result.odd_count > (1 - MIN_SCANNED_SHARE) * result.event_count:
            return None
        odd = _integers(result.odd, 3 * result.odd_count).reshape(-1, 3)
        block = ScannedBlock(
            event_count=result.event_count,
            columns={},
            strings=_texts(result.strings, result.string_ends, result.string_count),
            tracks=[
                _track(label)
                for label in _texts(result.tracks, result.track_ends, result.track_count)
            ],
            flow_counts=(result.flow_starts, result.flow_ends),
            odd_order=odd[:, 0].copy(),
            odd_extents=[(start, end) for start, end in odd[:, 1:].tolist()],
        )
        for number, layout in enumerate(self._layouts):
            count = result.row_counts[number]
            if count:
                rows = _integers(result.rows[number], count * layout.field_count)
                self._add(block, schema.EVENT_KINDS[number], layout, rows.reshape(count, -1))
        if result.row_counts[_FLOW]:
            rows = _integers(result.rows[_FLOW], result.row_counts[_FLOW] * len(_FLOW_FIELDS))
            rows = rows.reshape(-1, len(_FLOW_FIELDS))
            block.columns[OtherKind.FLOW] = {
                name: _column(rows, index, name) for index, name in enumerate(_FLOW_FIELDS)
            }
        return block

    @staticmethod
    def _add(
        block: ScannedBlock, kind: schema.EventKind, layout: _Layout, rows: NDArray[np.int64]
    ) -> None:
        """Add the columns of a kind; those without any value are left out."""
        columns = {name: _column(rows, index, name) for index, name in enumerate(_FIELDS[:4])}
        if kind.is_range:
            columns["duration"] = rows[:, 4].copy()
        older: dict[str, NDArray[Any]] = {}
        for item in layout.fields:
            values = _argument_column(item, rows)
            if values is not None:
                (older if item.is_older else columns)[item.argument.column] = values
        if older:
            block.block_rule_kinds.add(kind)
        columns = {**older, **columns}  # the older key is only read without any value of the other
        arguments = [a for a in kind.arguments if a.column == "args"]
        if arguments:
            usual, complete = rows[:, 5], rows[:, 6]
            if (usual != complete).any():
                block.block_rule_kinds.add(kind)
                indicators = {a.only_with for a in arguments if a.only_with}
                if _has_indicator(block.strings, complete, indicators):
                    usual = complete
            columns["args"] = usual.astype(np.int32)
        block.columns[kind] = columns


def _has_indicator(strings: Sequence[str], codes: NDArray[np.int64], keys: set[str]) -> bool:
    """Return True if one of some JSON objects has one of some keys."""
    texts = (strings[code] for code in np.unique(codes[codes >= 0]).tolist())
    return any(not keys.isdisjoint(_decode_object(text)) for text in texts)


def _layout(kind: schema.EventKind, keys: dict[str, int]) -> _Layout:
    """Assign fields of a row to the arguments of a kind, and numbers to new keys."""
    layout = _Layout()
    for argument in kind.arguments:
        _add_argument(layout, argument, keys.setdefault(argument.key, len(keys)), is_older=False)
    for argument in kind.arguments:
        if argument.older_key:
            number = keys.setdefault(argument.older_key, len(keys))
            _add_argument(layout, argument, number, is_older=True)
    return layout


def _add_argument(layout: _Layout, argument: schema.Argument, key: int, *, is_older: bool) -> None:
    index = -1
    if argument.column and argument.column != "args":
        index = layout.field_count
        layout.field_count += 3 if argument.type == "sizes" else 1
        layout.fields.append(_Field(argument, index, is_older))
    flags = (
        _NULLABLE * argument.nullable
        + _ZERO_IS_ABSENT * argument.zero_is_absent
        + _IN_ARGS * (argument.column == "args")
        + _CONDITIONAL * bool(argument.only_with)
    )
    missing = {"number": _NAN_BITS, "integer": argument.default}.get(argument.type, ABSENT)
    layout.arguments.append(_Argument(key, _TYPES[argument.type], index, flags, missing))


def _labels(pairs: list[tuple[str, int]]) -> Any:
    return (_Label * len(pairs))(*(_Label(t.encode(), len(t.encode()), n) for t, n in pairs))


def _integers(address: int | None, count: int) -> NDArray[np.int64]:
    """Return integers at an address, not copied."""
    if not count:
        return np.empty(0, dtype=np.int64)
    # An array of ctypes would be a new type for each count, which takes eight times as long.
    return np.frombuffer(_view_memory(address, 8 * count, _PYBUF_READ), dtype=np.int64)


def _column(rows: NDArray[np.int64], index: int, name: str) -> NDArray[Any]:
    return rows[:, index].astype(np.int32 if name in _CODES else np.int64)


def _argument_column(item: _Field, rows: NDArray[np.int64]) -> NDArray[Any] | None:
    """Return the column of an argument; None when no event has a value."""
    values = rows[:, item.index]
    if item.argument.type == "sizes":
        sizes = rows[:, item.index : item.index + 3]
        return sizes.astype(np.int32) if (sizes != ABSENT).any() else None
    if item.argument.type == "number":
        numbers = values.copy().view(np.float64)
        return None if np.isnan(numbers).all() else numbers
    is_empty = values[0] == ABSENT and (values == ABSENT).all()
    if item.argument.type == "integer":
        return None if is_empty and item.argument.default == ABSENT else values.copy()
    return None if is_empty else values.astype(np.int32)


def _texts(address: int | None, ends: int | None, count: int) -> list[str]:
    """Return strings that were stored one after the other."""
    if not count:
        return []
    borders = _integers(ends, count).tolist()
    joined = ctypes.string_at(address or 0, borders[-1]).decode("ascii")
    starts = [0, *borders[:-1]]
    return [joined[start:end] for start, end in zip(starts, borders, strict=True)]


def _track(label: str) -> tuple[int | str, int | str]:
    """Return process and thread; text begins with a quote, and anything else is a number."""
    pid, tid = (part[1:] if part[:1] == '"' else int(part) for part in label.split("\0"))
    return pid, tid


# --- the library -----------------------------------------------------------------------------


def scanner_state() -> tuple[bool, str]:
    """Return True if traces are decoded by the compiled scanner, and a sentence about it."""
    variable = os.environ.get(SCANNER_VARIABLE, "")
    if variable == "python":
        return False, f"by Python: {SCANNER_VARIABLE}=python switches the compiled scanner off"
    library = Path(variable) if variable else LIBRARY.path
    if not library.exists():
        return False, "by Python, slower: stepscope was installed without a C compiler"
    if _open_library(library) is None:
        return False, f"by Python, slower: {library} was built for another machine or version"
    return True, "by the compiled scanner"


def load_scanner() -> Scanner | None:
    """Create a scanner; None where Python decodes everything."""
    if not scanner_state()[0]:
        return None
    library = _open_library(Path(os.environ.get(SCANNER_VARIABLE) or LIBRARY.path))
    return None if library is None else Scanner(library)


@functools.cache
def _open_library(path: Path) -> ctypes.CDLL | None:
    return LIBRARY.open(path)
