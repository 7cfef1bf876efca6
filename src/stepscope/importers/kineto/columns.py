"""Columns of one block, kind by kind.

A reader per argument of `schema.EVENT_KINDS` takes one field of all events of a kind at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

import msgspec
import numpy as np
from msgspec import Raw
from numpy.typing import NDArray

from stepscope import schema
from stepscope.importers.content import parse_times, read_times
from stepscope.importers.kineto.arguments import (
    ABSENT,
    EMPTY,
    CollectiveArgs,
    DecodedArguments,
    Kind,
    OtherKind,
    check_nesting,
    compact,
    decode_arguments,
    field_name,
    int64,
)

Columns = dict[str, NDArray[Any]]
Int = NDArray[np.int64]
Codes = NDArray[np.int32]

_decode_any = msgspec.json.Decoder().decode


class Chunk(msgspec.Struct):
    """Events of one block.

    Strings are indices into `strings`, -1 for none; tracks are indices into `tracks`. Every kind
    has the columns `order` (index in the block), `track`, `name`, `start` and, for ranges,
    `duration`; times are relative to the base of the file.
    """

    columns: dict[Kind, Columns] = msgspec.field(default_factory=dict)
    strings: list[str] = msgspec.field(default_factory=list)
    tracks: list[tuple[int | str, int | str]] = msgspec.field(default_factory=list)
    metadata: list[tuple[str, int | str, int | str, Any]] = msgspec.field(default_factory=list)
    """Name, pid, tid and value of `M` events, which describe processes and threads."""
    event_count: int = 0
    flow_counts: tuple[int, int] = (0, 0)
    """Starts and ends of arrows from launches."""
    repaired: int = 0
    lost_bytes: int = 0
    lost_events: int = 0
    fragments: tuple[bytes, bytes] = (b"", b"")
    """Unreadable text at the start and the end of the block, which may have been cut at the wrong
    position."""
    gap: bytes = b""
    """Text between the previous block and this one."""


class Interner(dict[Any, int]):
    """Index of each key; a new key gets the next one."""

    def __missing__(self, key: Any) -> int:
        index = self[key] = len(self)
        return index


def codes_of(indices: Mapping[Any, int], keys: Sequence[Any]) -> Codes:
    """Return the index of each key."""
    return np.fromiter(map(indices.__getitem__, keys), dtype=np.int32, count=len(keys))


class ChunkBuilder:
    """Fills a chunk with events, one kind at a time."""

    def __init__(self, chunk: Chunk) -> None:
        self._chunk = chunk
        self._strings = Interner()
        self._tracks = Interner()
        self.irregular: set[Kind] = set()
        """Kinds of which some events do not fit the struct of their arguments."""

    def finish(self, event_count: int) -> None:
        """Complete the chunk."""
        self._chunk.event_count = event_count
        self._chunk.strings = list(self._strings)
        self._chunk.tracks = list(self._tracks)

    def add(self, kind: Kind, events: list[Any], order: Int) -> None:
        """Add all events of a kind.

        Args:
            kind: their kind.
            events: the events.
            order: their indices in the block.
        """
        if kind is OtherKind.METADATA:
            self._chunk.metadata = [_metadata(event) for event in events]
            return
        if kind is OtherKind.LAUNCH_FLOW:
            starts = [event.ph for event in events].count("s")
            self._chunk.flow_counts = (starts, len(events) - starts)
            return
        columns: Columns = {
            "order": order,
            "track": self._track([event.pid for event in events], [event.tid for event in events]),
            "name": codes_of(self._strings, [event.name for event in events]),
            "start": _times([event.ts for event in events]),
        }
        if isinstance(kind, schema.EventKind):
            if kind.is_range:
                columns["duration"] = _times([event.dur for event in events])
            self._add_arguments(kind, events, columns)
        else:
            self._add_other(kind, events, columns)
        self._chunk.columns[kind] = columns

    def _add_arguments(self, kind: schema.EventKind, events: list[Any], columns: Columns) -> None:
        args = [event.args for event in events]
        if isinstance(args[0], msgspec.Struct):
            decoded = DecodedArguments(args)
        else:
            decoded = decode_arguments(kind, args)
        for read in _READERS[kind]:
            read(self, columns, decoded.structs)
        if decoded.rest is not None:
            self.irregular.add(kind)
            columns["args"] = self._merge_args(columns.get("args"), decoded.rest)
        if decoded.collectives:
            self._add_collectives(columns, decoded.collectives)

    def _merge_args(self, codes: Codes | None, rest: list[str | None]) -> Codes:
        """Merge the JSON objects of known and of unknown arguments."""
        if codes is None:
            return self.texts(rest)
        strings = list(self._strings)
        merged = []
        for code, text in zip(codes.tolist(), rest, strict=True):
            args = strings[code] if code >= 0 else None
            merged.append(args[:-1] + "," + text[1:] if args and text else args or text)
        return self.texts(merged)

    def _add_collectives(
        self, columns: Columns, collectives: list[tuple[int, CollectiveArgs]]
    ) -> None:
        rows = np.array([row for row, _ in collectives], dtype=np.int64)
        columns["collective"] = np.full(len(columns["order"]), -1, dtype=np.int32)
        texts = [msgspec.json.encode(args).decode() for _, args in collectives]
        columns["collective"][rows] = self.texts(texts)

    def _add_other(self, kind: OtherKind, events: list[Any], columns: Columns) -> None:
        columns["phase"] = self.texts([event.ph for event in events])
        if kind is OtherKind.FLOW:
            columns["category"] = self.texts([event.cat for event in events])
            ids = [event.id if isinstance(event.id, int) else _number(event.id) for event in events]
            columns["flow"] = int64(ids)
            return
        columns["category"] = self.texts([event.cat or None for event in events])
        columns["duration"] = parse_times([event.dur or b"-1e-3" for event in events])
        columns["has_duration"] = np.array([bool(event.dur) for event in events], dtype=np.int8)
        columns["args"] = self.json_texts([event.args for event in events])

    def _track(self, pids: list[int | str], tids: list[int | str]) -> Codes:
        if len(set(pids)) > 1:
            return codes_of(self._tracks, list(zip(pids, tids, strict=True)))
        # A pair per event would cost more than everything else here.
        indices = {tid: self._tracks[pids[0], tid] for tid in dict.fromkeys(tids)}
        return codes_of(indices, tids)

    def texts(self, texts: Sequence[str | None]) -> Codes:
        """Return the codes of strings."""
        codes = [-1 if text is None else self._strings[text] for text in texts]
        return np.array(codes, dtype=np.int32)

    def json_texts(self, raws: list[Raw]) -> Codes:
        """Return the codes of JSON texts without whitespace."""
        return self.distinct_texts(
            list(map(bytes, raws)), lambda raw: compact(raw) if raw else None
        )

    def distinct_texts(self, keys: list[Any], text: Callable[[Any], str | None]) -> Codes:
        """Return the codes of the text of each key; equal keys share one call of `text`."""
        distinct = Interner()
        codes = codes_of(distinct, keys)
        return self.texts([text(key) for key in distinct])[codes] if len(codes) else codes


# --- readers of arguments ------------------------------------------------------------------------

Getter = Callable[[list[Any]], list[Any]]
Reader = Callable[[ChunkBuilder, Columns, list[Any]], None]
"""Adds the columns of one argument, or of several; columns without any value are left out."""


def _getter(kind: schema.EventKind, *keys: str) -> Getter:
    """Compile a comprehension that reads one key, or a tuple of keys, of many structs.

    Nothing else reads a field as fast: `attrgetter` takes twice as long.
    """
    fields = [f"struct.{field_name(kind, key)}" for key in keys]
    value = fields[0] if len(fields) == 1 else f"({', '.join(fields)})"
    getter: Getter = eval(f"lambda structs: [{value} for struct in structs]")  # noqa: S307
    return getter


def _read_integers(kind: schema.EventKind, argument: schema.Argument) -> Reader:
    get = _getter(kind, argument.key)
    get_older = _getter(kind, argument.older_key) if argument.older_key else None

    def read(_: ChunkBuilder, columns: Columns, args: list[Any]) -> None:
        numbers = get(args)
        if argument.nullable:
            numbers = [ABSENT if number is None else number for number in numbers]
        values = int64(numbers)
        if get_older is not None and not _has_values(values):
            values = int64(get_older(args))
        if argument.zero_is_absent:
            values[values <= 0] = ABSENT
        if argument.default != ABSENT or _has_values(values):
            columns[argument.column] = values

    return read


def _has_values(values: Int) -> bool:
    return bool(values[0] != ABSENT or (values != ABSENT).any())


def _read_numbers(kind: schema.EventKind, argument: schema.Argument) -> Reader:
    get = _getter(kind, argument.key)

    def read(_: ChunkBuilder, columns: Columns, args: list[Any]) -> None:
        values = np.fromiter(get(args), dtype=np.float64, count=len(args))
        if not np.isnan(values).all():
            columns[argument.column] = values

    return read


def _read_strings(kind: schema.EventKind, argument: schema.Argument) -> Reader:
    get = _getter(kind, argument.key)

    def read(builder: ChunkBuilder, columns: Columns, args: list[Any]) -> None:
        texts = [text or None for text in get(args)]
        if any(texts):
            columns[argument.column] = builder.texts(texts)

    return read


def _read_json(kind: schema.EventKind, argument: schema.Argument) -> Reader:
    get = _getter(kind, argument.key)

    def read(builder: ChunkBuilder, columns: Columns, args: list[Any]) -> None:
        raws = get(args)
        if raws.count(EMPTY) < len(raws):  # a third of the cost of `any`
            columns[argument.column] = builder.json_texts(raws)

    return read


def _read_sizes(kind: schema.EventKind, argument: schema.Argument) -> Reader:
    get = _getter(kind, argument.key)

    def read(_: ChunkBuilder, columns: Columns, args: list[Any]) -> None:
        sizes = get(args)
        if any(sizes):
            columns[argument.column] = _sizes(sizes)

    return read


_BY_TYPE: dict[str, Callable[[schema.EventKind, schema.Argument], Reader]] = {
    "integer": _read_integers,
    "number": _read_numbers,
    "string": _read_strings,
    "json": _read_json,
    "sizes": _read_sizes,
}


def _read_args(kind: schema.EventKind) -> list[Reader]:
    """Return the reader of the column `args`, if the kind has arguments for it."""
    arguments = [argument for argument in kind.arguments if argument.column == "args"]
    if not arguments:
        return []
    usual = [argument for argument in arguments if not argument.only_with]
    indicators = dict.fromkeys(a.only_with for a in arguments if a.only_with)
    get_indicators = [_getter(kind, key) for key in indicators]
    encode_usual, encode_all = _object_encoder(kind, usual), _object_encoder(kind, arguments)

    def read(builder: ChunkBuilder, columns: Columns, args: list[Any]) -> None:
        has_indicator = any(get(args).count(EMPTY) < len(args) for get in get_indicators)
        columns["args"] = (encode_all if has_indicator else encode_usual)(builder, args)

    return [read]


def _object_encoder(
    kind: schema.EventKind, arguments: Sequence[schema.Argument]
) -> Callable[[ChunkBuilder, list[Any]], Codes]:
    """Return a function that encodes some arguments of each event as one JSON object."""
    get = _getter(kind, *(argument.key for argument in arguments))
    has_raw = any(argument.type == "json" for argument in arguments)

    def text(values: Any) -> str | None:
        values = (values,) if len(arguments) == 1 else values
        items = {
            argument.key: Raw(value) if argument.type == "json" else value
            for argument, value in zip(arguments, values, strict=True)
            if _is_present(argument, value)
        }
        if not items:
            return None
        content = msgspec.json.encode(items)
        return compact(content) if has_raw else content.decode()

    def encode(builder: ChunkBuilder, args: list[Any]) -> Codes:
        keys = get(args)
        if has_raw:
            keys = [tuple(bytes(v) if isinstance(v, Raw) else v for v in key) for key in keys]
        return builder.distinct_texts(keys, text)

    return encode


def _is_present(argument: schema.Argument, value: Any) -> bool:
    if argument.type == "integer":
        return bool(value > 0 if argument.zero_is_absent else value != ABSENT)
    return bool(value)


_READERS: dict[schema.EventKind, list[Reader]] = {
    kind: [
        *(_BY_TYPE[argument.type](kind, argument) for argument in kind.stored_arguments),
        *_read_args(kind),
    ]
    for kind in schema.EVENT_KINDS
}


# --- values --------------------------------------------------------------------------------------


def _times(values: Sequence[Any]) -> Int:
    """Return the times of one struct, which are all text or all numbers."""
    return parse_times(values) if isinstance(values[0], Raw) else read_times(values)


def _sizes(sizes: list[list[int]]) -> NDArray[np.int32]:
    """Return a row of three sizes per event; impossible values are absent."""
    rows = sizes if set(map(len, sizes)) == {3} else map(_three_sizes, sizes)
    flat = int64(list(chain.from_iterable(rows)))
    return np.where((flat < -1) | (flat >= 2**31), ABSENT, flat).astype(np.int32).reshape(-1, 3)


def _three_sizes(sizes: list[int]) -> tuple[int, int, int]:
    if not sizes:
        return (ABSENT, ABSENT, ABSENT)
    x, y, z = (*sizes, 1, 1)[:3]
    return (x, y, z)


def _number(text: str | None) -> int:
    try:
        return int(text or "", 0)
    except ValueError:
        return ABSENT


def _metadata(event: Any) -> tuple[str, int | str, int | str, Any]:
    try:
        check_nesting(event.args)
        args = _decode_any(event.args)
    except schema.MALFORMED_JSON:
        args = {}
    value = next(iter(args.values()), None) if isinstance(args, dict) else None
    return event.name, event.pid or 0, event.tid or 0, value
