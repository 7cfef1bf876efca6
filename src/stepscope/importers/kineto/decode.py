"""Decode one block of text into columns, kind by kind.

    text of a block
      │ compiled scanner: usual events as rows of numbers (`_scan`), others one by one;
      │ falls through where it is not built, or does not understand the block
      │ known categories: every event into the struct of its category, arguments included
      │ (`categories`); falls through when an event does not fit
      │ any categories: every event into `Event`, arguments as raw text
      │ malformed JSON: event by event, repaired where that is safe (`repair`)
      ▼
    events, grouped by kind                  `_group`; kinds are told by phase and category
      │ raw arguments: joined over all events of a kind, into the struct of the kind
      │ (`arguments`), or one by one when some do not fit
      ▼
    columns of each kind                     `columns.ChunkBuilder`, by `schema.EVENT_KINDS`

Decoding arguments as text first costs less than building a dict per event, and unknown arguments
are noticed instead of lost.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import schema
from stepscope.importers.content import InexactTimeError
from stepscope.importers.kineto import repair
from stepscope.importers.kineto._scan import ScannedBlock, Scanner, load_scanner
from stepscope.importers.kineto.arguments import Kind, compact, instant_kind, kind_of
from stepscope.importers.kineto.blocks import Block
from stepscope.importers.kineto.categories import Event, KnownCategories, NoEvent, RawEvent
from stepscope.importers.kineto.columns import Chunk, ChunkBuilder, Columns, Int, Interner, codes_of
from stepscope.importers.kineto.gather import STRING_COLUMNS, absent

_decode_events = msgspec.json.Decoder(list[Event]).decode
_decode_no_events = msgspec.json.Decoder(list[NoEvent]).decode
_decode_raw = msgspec.json.Decoder(list[RawEvent]).decode
_decode_any = msgspec.json.Decoder().decode
_categories = KnownCategories()
"""State of this process; it changes how fast blocks are decoded, never the result."""
_python_lock = threading.Lock()
"""Held while Python decodes a block: threads share the state, and run one at a time anyway."""


def decode_block(block: Block, *, complete: bool = False) -> Chunk:
    """Decode a block; unreadable events are counted and raise nothing.

    Args:
        block: the block.
        complete: no event of the block continues in another one; it leaves no fragments.
    """
    text = block.read()
    chunk = scan_block(text, _decode_odd)
    if chunk is None:
        with _python_lock:
            chunk = _decode_by_python(text, complete=complete)
    if not (complete or chunk.event_count or chunk.lost_events or any(chunk.fragments)):
        chunk.fragments = (bytes(text), b"")  # perhaps a list after that of the events
    chunk.gap = block.gap
    return chunk


def _decode_by_python(text: bytes | bytearray | memoryview, *, complete: bool) -> Chunk:
    array = b"".join((b"[", text, b"]"))
    chunk = _decode_known(array)
    if chunk is None:
        chunk = Chunk()
        try:
            events = _with_phase(_decode_events(array)) if _has_phases(array) else []
        except schema.MALFORMED_JSON:
            repaired = repair.read_events(bytes(text), _decode_any_event, complete=complete)
            events = repaired.events
            chunk.repaired, chunk.lost_bytes = repaired.repaired, repaired.lost_bytes
            chunk.lost_events, chunk.fragments = repaired.lost, repaired.fragments
        groups = _group(events)
        irregular = _fill(chunk, events, groups)
        _categories.learn(groups.categories, irregular)
    return chunk


def _decode_odd(text: bytes) -> Chunk | None:
    """Decode events that the compiled scanner does not understand; None if one is malformed."""
    try:
        return chunk_of(_decode_events(b"[" + text + b"]"))
    except schema.MALFORMED_JSON:
        return None


def chunk_of(events: Sequence[Event]) -> Chunk:
    """Return the columns of decoded events."""
    chunk = Chunk()
    _fill(chunk, events, _group(events))
    return chunk


def _decode_known(array: bytes) -> Chunk | None:
    """Decode a block of known categories; None for any other block."""
    objects = _categories.decode(array)
    if objects is None:
        return None
    events = _with_phase(objects)
    groups = _group(events)
    if not _categories.includes(groups.categories):
        return None
    chunk = Chunk()
    try:
        _fill(chunk, events, groups)
    except InexactTimeError:
        _categories.keep_times_as_text()
        return None
    return chunk


def _has_phases(array: bytes) -> bool:
    """Return False for objects without any phase: as structs of events they would take memory."""
    if b'"ph"' in array or b"\\u" in array:
        return True
    _decode_no_events(array)
    return False


def _with_phase(objects: Sequence[Any]) -> list[Any]:
    """Return the events among decoded objects: some recorders end their list with `{}`."""
    return [event for event in objects if event.ph]


def _decode_any_event(array: bytes) -> list[Event]:
    """Decode events whose names, threads and so on may be of any type."""
    try:
        return _decode_events(array)
    except msgspec.ValidationError:
        return list(map(_plain_event, _decode_raw(array)))


def _plain_event(raw: RawEvent) -> Event:
    event = Event(ts=raw.ts, dur=raw.dur, args=raw.args)
    for key in ("ph", "cat", "name"):
        if text := bytes(getattr(raw, key)):
            setattr(event, key, compact(text))
    for key in ("pid", "tid", "id"):
        if text := bytes(getattr(raw, key)):
            setattr(event, key, _identifier(text))
    return event


def _identifier(text: bytes) -> int | str | None:
    value = _decode_any(text)
    is_plain = isinstance(value, int | str) and not isinstance(value, bool)
    return value if value is None or is_plain else compact(text)


class _Groups(msgspec.Struct):
    """Events of a block by kind."""

    parts: dict[Kind, list[Int]] = msgspec.field(default_factory=dict)
    """Indices of the events of a kind, in one or more parts."""
    categories: set[tuple[str, Kind]] = msgspec.field(default_factory=set)
    """Categories and kinds of events whose struct does not tell their kind."""


def _group(events: Sequence[Any]) -> _Groups:
    groups = _Groups()
    structs = Interner()
    codes = np.frombuffer(bytes(map(structs.__getitem__, map(type, events))), dtype=np.uint8)
    for code, struct in enumerate(structs):
        indices = np.flatnonzero(codes == code)
        if struct.kind is not None:
            groups.parts.setdefault(struct.kind, []).append(indices)
            continue
        pairs = Interner()
        members = [events[index] for index in indices.tolist()]
        pair_codes = codes_of(pairs, [(event.ph, event.cat) for event in members])
        for pair, (phase, category) in enumerate(pairs):
            for kind, part in _split_by_kind(phase, category, indices[pair_codes == pair], events):
                groups.parts.setdefault(kind, []).append(part)
                groups.categories.add((category, kind))
    return groups


def _split_by_kind(
    phase: str, category: str, indices: Int, events: Sequence[Event]
) -> Iterator[tuple[Kind, Int]]:
    """Split events of one phase and category by kind; only instants differ by their names."""
    if phase not in {"i", "I"}:
        yield kind_of(phase, category), indices
        return
    kinds = Interner()
    codes = codes_of(kinds, [instant_kind(events[index].name) for index in indices.tolist()])
    for code, kind in enumerate(kinds):
        yield kind, indices[codes == code]


def _fill(chunk: Chunk, events: Sequence[Any], groups: _Groups) -> set[Kind]:
    """Fill a chunk with events.

    Returns:
        Kinds of which some events do not fit the struct of their arguments.

    Raises:
        InexactTimeError: the chunk is not usable.
    """
    builder = ChunkBuilder(chunk)
    orders = {
        kind: np.sort(np.concatenate(parts)) if len(parts) > 1 else parts[0]
        for kind, parts in groups.parts.items()
    }
    # By the first event of each, so that tracks have the same numbers however a block is decoded.
    for kind, order in sorted(orders.items(), key=lambda item: int(item[1][0])):
        builder.add(kind, [events[index] for index in order.tolist()], order)
    builder.finish(len(events))
    return builder.irregular


_BLOCK_RULE_KEYS: dict[Kind, set[bytes]] = {
    kind: {f'"{key}"'.encode() for a in kind.arguments for key in (a.older_key, a.only_with) if key}
    for kind in schema.EVENT_KINDS
}
"""Keys that change how a block's other events of a kind are read."""
_scanners = threading.local()
"""`.scanner` is that of the running thread, from its first block on; None where there is none."""


def scan_block(
    text: bytes | bytearray | memoryview, decode_odd: Callable[[bytes], Chunk | None]
) -> Chunk | None:
    """Scan a block.

    Args:
        text: events separated by commas.
        decode_odd: decodes the events that the scanner does not understand; None when one of them
            is malformed.

    Returns:
        None when the whole block is left to Python.
    """
    block = _scan(text)
    if block is None:
        return None
    if not block.odd_extents:
        return _complete(block, Chunk())
    odd_text = b",".join([text[start:end] for start, end in block.odd_extents])
    odd = decode_odd(odd_text)
    if odd is None or _have_block_rules(block, odd, odd_text):
        return None
    return _complete(block, odd)


def _have_block_rules(block: ScannedBlock, odd: Chunk, odd_text: bytes) -> bool:
    """Return True if events of one part of a block may change how those of the other are read."""
    if not block.block_rule_kinds.isdisjoint(odd.columns):
        return True
    keys = set[bytes]().union(*(_BLOCK_RULE_KEYS.get(kind, ()) for kind in odd.columns))
    return any(key in odd_text for key in keys) or (bool(keys) and b"\\u" in odd_text)


def is_scannable(text: bytes | bytearray | memoryview) -> bool:
    """Return True if the compiled scanner is in use and understands most events of a block."""
    return _scan(text) is not None


def _scan(text: bytes | bytearray | memoryview) -> ScannedBlock | None:
    try:
        scanner: Scanner | None = _scanners.scanner
    except AttributeError:
        scanner = _scanners.scanner = load_scanner()
    return None if scanner is None else scanner.scan(text)


def _complete(block: ScannedBlock, odd: Chunk) -> Chunk:
    """Return all events of a block as one chunk, as if they had been decoded together."""
    strings, tracks = len(block.strings), len(block.tracks)
    columns: dict[Kind, Columns] = dict(block.columns)
    for kind, added in odd.columns.items():
        added["order"] = block.odd_order[added["order"]]
        for name, values in added.items():
            if name in STRING_COLUMNS:
                added[name] = np.where(values >= 0, values + strings, values).astype(np.int32)
        added["track"] = added["track"] + np.int32(tracks)
        columns[kind] = _merge(columns[kind], added) if kind in columns else added
    chunk = Chunk(
        columns=dict(sorted(columns.items(), key=lambda item: int(item[1]["order"][0]))),
        strings=block.strings + odd.strings,
        tracks=block.tracks + odd.tracks,
        metadata=odd.metadata,
        event_count=block.event_count,
        flow_counts=(
            block.flow_counts[0] + odd.flow_counts[0],
            block.flow_counts[1] + odd.flow_counts[1],
        ),
    )
    _renumber_tracks(chunk)
    return chunk


def _merge(scanned: Columns, odd: Columns) -> Columns:
    """Merge events of one kind in the order of the file."""
    order = np.argsort(np.concatenate([scanned["order"], odd["order"]]))
    counts = len(scanned["order"]), len(odd["order"])
    return {
        name: np.concatenate(
            [
                part[name] if name in part else absent(name, count)
                for part, count in zip((scanned, odd), counts, strict=True)
            ]
        )[order]
        for name in dict.fromkeys([*scanned, *odd])
    }


def _renumber_tracks(chunk: Chunk) -> None:
    """Number tracks in the order in which the events of one kind after the other have them."""
    renumbered: dict[tuple[int | str, int | str], int] = {}
    first: NDArray[np.int64] = np.empty(len(chunk.tracks), dtype=np.int64)
    for columns in chunk.columns.values():
        track = columns["track"]
        first.fill(-1)
        first[track[::-1]] = np.arange(len(track) - 1, -1, -1)
        present = np.flatnonzero(first >= 0)
        for number in present[np.argsort(first[present])].tolist():
            renumbered.setdefault(chunk.tracks[number], len(renumbered))
    codes = np.array([renumbered.get(track, -1) for track in chunk.tracks], dtype=np.int32)
    for columns in chunk.columns.values():
        columns["track"] = codes[columns["track"]]
    chunk.tracks = list(renumbered)
