"""One block of text becomes columns, kind by kind.

Events come with their arguments where their category is known (see `categories`). Otherwise the
arguments are decoded twice: once as raw text with the event, then, joined over all events of a
kind, into the struct of that kind. That costs less than building a dict per event, and arguments
nobody knows are noticed instead of lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import msgspec
import numpy as np
from msgspec import Raw
from numpy.typing import NDArray

from stepscope.importers.kineto import repair
from stepscope.importers.kineto.blocks import Block
from stepscope.importers.kineto.categories import ARGS, MALFORMED, Categories, Event
from stepscope.importers.kineto.fields import (
    ABSENT,
    COLLECTIVE_KEYS,
    EMPTY,
    AnnotationArgs,
    CollectiveArgs,
    DeviceArgs,
    MemoryArgs,
    OperatorArgs,
    PythonArgs,
    RuntimeArgs,
)
from stepscope.importers.kineto.kinds import MEMORY_NAME, Kind, kind_of
from stepscope.importers.times import InexactTimeError, parse_times, read_times

Columns = dict[str, NDArray[Any]]
Int = NDArray[np.int64]
Codes = NDArray[np.int32]


@dataclass(slots=True)
class Chunk:
    """The events of one block.

    Strings are places in `strings`, -1 for none; tracks are places in `tracks`. Every kind has
    the columns `order` (place in the block), `track`, `name`, `start` and, for ranges,
    `duration`; times are relative to the base of the file.
    """

    columns: dict[Kind, Columns] = field(default_factory=dict)
    strings: list[str] = field(default_factory=list)
    tracks: list[tuple[int | str, int | str]] = field(default_factory=list)
    metadata: list[tuple[str, int | str, int | str, Any]] = field(default_factory=list)
    """Name, pid, tid and value of what `M` events say of processes and threads."""
    event_count: int = 0
    flow_counts: tuple[int, int] = (0, 0)
    """Starts and ends of arrows from launches."""
    repaired: int = 0
    lost_bytes: int = 0
    lost_events: int = 0
    fragments: tuple[bytes, bytes] = (b"", b"")
    """Unreadable text at the beginning and the end of the block: it may have been cut in the wrong
    place."""
    gap: bytes = b""
    """Text between the block before it and this one."""


class _Places(dict[Any, int]):
    """Gives each new key the next place."""

    def __missing__(self, key: Any) -> int:
        place = self[key] = len(self)
        return place


_decode_events = msgspec.json.Decoder(list[Event]).decode
_decode_raw = msgspec.json.Decoder(list[dict[str, Raw]]).decode
_decode_any = msgspec.json.Decoder().decode
_DECODERS = {
    kind: msgspec.json.Decoder(list[struct], strict=False).decode  # type: ignore[valid-type]
    for kind, struct in ARGS.items()
}
_KNOWN = {kind: frozenset(struct.__struct_encode_fields__) for kind, struct in ARGS.items()}
_COLLECTIVE_KINDS = (Kind.OPERATOR, Kind.KERNEL)
_COLLECTIVE = msgspec.json.Decoder(CollectiveArgs, strict=False).decode
_categories = Categories()
"""What this process has met; it changes how fast blocks are decoded, never what comes out."""


def decode_block(block: Block, *, complete: bool = False) -> Chunk:
    """Columns of a block; events that cannot be read are counted, never an error.

    Args:
        block: the block.
        complete: nothing of what is in it goes on in another; it leaves no fragments.
    """
    chunk = Chunk(gap=block.gap)
    array = block.in_brackets()
    known = _categories.decode(array)
    if known is not None:
        groups = _grouped(known)
        if _categories.know(groups.met):
            try:
                _Filler(chunk).fill(known, groups)
            except InexactTimeError:
                _categories.keep_times_as_text()
                chunk = Chunk(gap=block.gap)
            else:
                return chunk
    try:
        events = _decode_events(array)
    except MALFORMED:
        mended = repair.read_events(bytes(array[1:-1]), _decode_any_event, complete=complete)
        events = mended.events
        chunk.repaired, chunk.lost_bytes = mended.repaired, mended.lost_bytes
        chunk.lost_events, chunk.fragments = mended.lost, mended.fragments
    groups = _grouped(events)
    uneven = _Filler(chunk).fill(events, groups)
    _categories.learn(groups.met, uneven)
    return chunk


def chunk_of(events: Sequence[Event]) -> Chunk:
    """Columns of events that were read otherwise."""
    chunk = Chunk()
    _Filler(chunk).fill(events, _grouped(events))
    return chunk


def _decode_any_event(array: bytes) -> list[Event]:
    """Events whose names, threads and so on may be of any type."""
    try:
        return _decode_events(array)
    except msgspec.ValidationError:
        return [_plain_event(held) for held in _decode_raw(array)]


def _plain_event(held: dict[str, Raw]) -> Event:
    event = Event()
    for key, raw in held.items():
        if key in {"ph", "cat", "name"}:
            setattr(event, key, _compact(bytes(raw)))
        elif key in {"pid", "tid", "id"}:
            setattr(event, key, _identifier(raw))
        elif key in {"ts", "dur", "args"}:
            setattr(event, key, raw)
    return event


def _identifier(raw: Raw) -> int | str | None:
    value = _decode_any(raw)
    plain = isinstance(value, int | str) and not isinstance(value, bool)
    return value if value is None or plain else _compact(bytes(raw))


@dataclass(slots=True)
class _Groups:
    """The events of a block by kind."""

    parts: dict[Kind, list[Int]] = field(default_factory=dict)
    """Places of the events of a kind, in one or more parts."""
    met: set[tuple[str, Kind]] = field(default_factory=set)
    """Categories and kinds of events whose struct did not tell their kind."""


def _grouped(events: Sequence[Any]) -> _Groups:
    groups = _Groups()
    structs = _Places()
    codes = np.frombuffer(bytes(map(structs.__getitem__, map(type, events))), dtype=np.uint8)
    for code, struct in enumerate(structs):
        places = np.flatnonzero(codes == code)
        if struct.kind is not None:
            groups.parts.setdefault(struct.kind, []).append(places)
            continue
        pairs = _Places()
        chosen = [events[place] for place in places.tolist()]
        of_pair = _codes(pairs, [(event.ph, event.cat) for event in chosen])
        for pair, (phase, category) in enumerate(pairs):
            for kind, part in _kinds(phase, category, places[of_pair == pair], events):
                groups.parts.setdefault(kind, []).append(part)
                groups.met.add((category, kind))
    return groups


class _Filler:
    """Fills a chunk."""

    def __init__(self, chunk: Chunk) -> None:
        self._chunk = chunk
        self._strings = _Places()
        self._tracks = _Places()
        self._uneven: set[Kind] = set()

    def fill(self, events: Sequence[Any], groups: _Groups) -> set[Kind]:
        """Adds the events, all of one kind at a time.

        Returns:
            Kinds whose struct of arguments does not hold what some events say.
        """
        for kind, parts in groups.parts.items():
            order = np.sort(np.concatenate(parts)) if len(parts) > 1 else parts[0]
            self._add(kind, [events[place] for place in order.tolist()], order)
        self._chunk.event_count = len(events)
        self._chunk.strings = list(self._strings)
        self._chunk.tracks = list(self._tracks)
        return self._uneven

    def _add(self, kind: Kind, events: list[Any], order: Int) -> None:
        match kind:
            case Kind.METADATA:
                self._chunk.metadata = [_metadata(event) for event in events]
                return
            case Kind.LAUNCH_FLOW:
                starts = [event.ph for event in events].count("s")
                self._chunk.flow_counts = (starts, len(events) - starts)
                return
        columns: Columns = {
            "order": order,
            "track": self._track([event.pid for event in events], [event.tid for event in events]),
            "name": _codes(self._strings, [event.name for event in events]),
            "start": _times([event.ts for event in events]),
        }
        if kind in ARGS and kind is not Kind.MEMORY:
            columns["duration"] = _times([event.dur for event in events])
        if kind in ARGS:
            self._add_args(kind, events, columns)
        else:
            self._add_other(kind, events, columns)
        self._chunk.columns[kind] = columns

    def _add_args(self, kind: Kind, events: list[Any], columns: Columns) -> None:
        args = [event.args for event in events]
        rest: list[str | None] | None = None
        collective: list[tuple[int, CollectiveArgs]] = []
        if not isinstance(args[0], msgspec.Struct):
            try:
                args = _decode_together(kind, args)
            except MALFORMED:
                args, rest, collective = _decode_one_by_one(kind, args)
                self._uneven.add(kind)
        _FILLERS[kind](self, columns, args)
        if rest is not None:
            minor = columns.get("args")
            texts = self._text(rest)
            if minor is not None:  # minor fields too: one object of both
                texts = self._merged(minor, rest)
            columns["args"] = texts
        if collective:
            self._add_collective(columns, collective)

    def _merged(self, minor: Codes, rest: list[str | None]) -> Codes:
        names = list(self._strings)
        merged = []
        for code, text in zip(minor.tolist(), rest, strict=True):
            own = names[code] if code >= 0 else None
            merged.append(own[:-1] + "," + text[1:] if own and text else own or text)
        return self._text(merged)

    def _add_collective(self, columns: Columns, found: list[tuple[int, CollectiveArgs]]) -> None:
        rows = np.array([row for row, _ in found], dtype=np.int64)
        columns["collective"] = np.full(len(columns["order"]), -1, dtype=np.int32)
        texts = [msgspec.json.encode(args).decode() for _, args in found]
        columns["collective"][rows] = self._text(texts)

    def _add_other(self, kind: Kind, events: list[Any], columns: Columns) -> None:
        columns["phase"] = self._text([event.ph for event in events])
        if kind is Kind.FLOW:
            columns["category"] = self._text([event.cat for event in events])
            ids = [event.id if isinstance(event.id, int) else _number(event.id) for event in events]
            columns["flow"] = int64(ids)
            return
        columns["category"] = self._text([event.cat or None for event in events])
        columns["duration"] = parse_times([event.dur or b"-1e-3" for event in events])
        columns["has_duration"] = np.array([bool(event.dur) for event in events], dtype=np.int8)
        columns["args"] = self._raw_text([event.args for event in events])

    # --- columns of one kind: comprehensions, for they cost half of what `attrgetter` does -------

    def operators(self, columns: Columns, args: list[OperatorArgs]) -> None:
        columns["external"] = int64([each.external_id for each in args])
        columns["sequence"] = int64([each.sequence for each in args])
        columns["forward_thread"] = int64([each.forward_thread for each in args])
        columns["record_function"] = int64([each.record_function for each in args])
        texts = {
            "input_dims": [each.input_dims for each in args],
            "input_types": [each.input_types for each in args],
            "input_strides": [each.input_strides for each in args],
            "concrete_inputs": [each.concrete_inputs for each in args],
            "call_stack": [each.call_stack for each in args],
        }
        for name, raws in texts.items():
            if raws.count(EMPTY) < len(raws):  # a third of what `any` takes
                columns[name] = self._raw_text(raws)

    def annotations(self, columns: Columns, args: list[AnnotationArgs]) -> None:
        columns["external"] = int64([each.external_id for each in args])
        columns["args"] = self._minor([each.record_function for each in args], _record_function)

    def runtime(self, columns: Columns, args: list[RuntimeArgs]) -> None:
        columns["external"] = int64([each.external_id for each in args])
        if (columns["external"] == ABSENT).all():
            columns["external"] = int64([each.old_external_id for each in args])
        columns["correlation"] = int64([each.correlation for each in args])
        if any(each.hip_call for each in args):
            said = [tuple(bytes(getattr(each, name)) for name, _ in _HIP_CALL) for each in args]
            columns["args"] = self._minor(said, _hip_call)
        else:
            columns["args"] = self._minor([each.callback for each in args], _callback)

    def device(self, columns: Columns, args: list[DeviceArgs]) -> None:
        columns["correlation"] = int64([each.correlation for each in args])
        columns["device"] = int64([each.device for each in args])
        columns["stream"] = int64([each.stream for each in args])
        minor = [(each.context, each.queued, each.kind) for each in args]
        columns["args"] = self._minor(minor, _device_minor)
        graph = int64([each.graph for each in args])
        if (graph != ABSENT).any():
            columns["graph"] = np.where(graph > 0, graph, ABSENT)  # 0: of no graph
            columns["graph_node"] = int64([each.graph_node for each in args])
        grids = [each.grid for each in args]
        if any(grids):
            columns["grid"] = _sizes(grids)
            columns["block"] = _sizes([each.block for each in args])
        registers = int64([each.registers for each in args])
        if (registers != ABSENT).any():
            columns["registers"] = registers
            columns["shared_memory"] = int64([each.shared_memory for each in args])
            columns["blocks"] = np.array([each.blocks for each in args], dtype=np.float64)
            columns["warps"] = np.array([each.warps for each in args], dtype=np.float64)
            columns["occupancy"] = np.array([each.occupancy for each in args], dtype=np.float64)
        size = int64([each.size for each in args])
        if (size != ABSENT).any():
            columns["size"] = size

    def python(self, columns: Columns, args: list[PythonArgs]) -> None:
        columns["python_id"] = int64([each.python_id for each in args])
        parents = [ABSENT if each.python_parent is None else each.python_parent for each in args]
        columns["python_parent"] = int64(parents)
        columns["module_id"] = int64([each.module_id for each in args])

    def memory(self, columns: Columns, args: list[MemoryArgs]) -> None:
        columns["device_type"] = int64([each.device_type for each in args])
        columns["device"] = int64([each.device for each in args])
        columns["address"] = int64([each.address for each in args])
        columns["size"] = int64([each.size for each in args])
        columns["allocated"] = int64([each.allocated for each in args])
        columns["reserved"] = int64([each.reserved for each in args])

    # --- strings and tracks --------------------------------------------------------------------

    def _track(self, pids: list[int | str], tids: list[int | str]) -> Codes:
        if len(set(pids)) > 1:
            return _codes(self._tracks, list(zip(pids, tids, strict=True)))
        # A pair per event would cost more than all else here.
        places = {tid: self._tracks[pids[0], tid] for tid in dict.fromkeys(tids)}
        return _codes(places, tids)

    def _text(self, texts: Sequence[str | None]) -> Codes:
        places = [-1 if text is None else self._strings[text] for text in texts]
        return np.array(places, dtype=np.int32)

    def _raw_text(self, raws: list[Raw]) -> Codes:
        """JSON text without blanks; each distinct text is looked at once."""
        return self._minor(list(map(bytes, raws)), lambda raw: _compact(raw) if raw else None)

    def _minor(self, keys: list[Any], text: Callable[[Any], str | None]) -> Codes:
        """The text of each key, made once for all that are equal."""
        distinct = _Places()
        codes = _codes(distinct, keys)
        return self._text([text(key) for key in distinct])[codes] if len(codes) else codes


_FILLERS: dict[Kind, Callable[[_Filler, Columns, list[Any]], None]] = {
    Kind.OPERATOR: _Filler.operators,
    Kind.ANNOTATION: _Filler.annotations,
    Kind.DEVICE_ANNOTATION: _Filler.annotations,
    Kind.RUNTIME: _Filler.runtime,
    Kind.DRIVER: _Filler.runtime,
    Kind.KERNEL: _Filler.device,
    Kind.MEMCPY: _Filler.device,
    Kind.MEMSET: _Filler.device,
    Kind.PYTHON: _Filler.python,
    Kind.MEMORY: _Filler.memory,
}


def _kinds(
    phase: str, category: str, places: NDArray[np.int64], events: Sequence[Event]
) -> Iterator[tuple[Kind, NDArray[np.int64]]]:
    """Events of one phase and category by kind; only instants need a look at their names."""
    if phase not in {"i", "I"}:
        yield kind_of(phase, category, ""), places
        return
    memory = np.array([events[p].name == MEMORY_NAME for p in places.tolist()], dtype=np.bool_)
    for chosen, name in ((memory, MEMORY_NAME), (~memory, "")):
        if chosen.any():
            yield kind_of(phase, category, name), places[chosen]


def _decode_together(kind: Kind, raws: Sequence[Raw]) -> list[Any]:
    found: list[Any] = _DECODERS[kind](b"[" + b",".join(raw or b"{}" for raw in raws) + b"]")
    return found


def _decode_one_by_one(
    kind: Kind, raws: Sequence[Raw]
) -> tuple[list[Any], list[str | None], list[tuple[int, CollectiveArgs]]]:
    """Arguments where some hold keys that their kind does not list, or values of a wrong type.

    Returns:
        The struct of each event; the text of an object of what the struct does not hold; and
        what some say of a collective.
    """
    known, decoder, empty = _KNOWN[kind], _DECODERS[kind], ARGS[kind]()
    args: list[Any] = []
    rest: list[str | None] = []
    collective: list[tuple[int, CollectiveArgs]] = []
    for row, raw in enumerate(raw or Raw(b"{}") for raw in raws):
        try:
            args.append(decoder(b"[" + bytes(raw) + b"]")[0])
            rest.append(None)
            continue
        except MALFORMED:
            pass
        try:
            held = _decode_raw(b"[" + bytes(raw) + b"]")[0]
        except MALFORMED:
            args.append(empty)
            rest.append(
                msgspec.json.encode({"unreadable": bytes(raw).decode(errors="replace")}).decode()
            )
            continue
        if kind in _COLLECTIVE_KINDS and "Collective name" in held:
            try:
                collective.append((row, _COLLECTIVE(msgspec.json.encode(held))))
                held = {key: value for key, value in held.items() if key not in COLLECTIVE_KEYS}
            except MALFORMED:
                pass
        struct, others = _read_known(kind, held, known)
        args.append(struct)
        rest.append(_compact(msgspec.json.encode(others)) if others else None)
    return args, rest, collective


def _read_known(
    kind: Kind, held: dict[str, Raw], known: frozenset[str]
) -> tuple[Any, dict[str, Raw]]:
    """The struct of known keys with usable values, and everything else."""
    usable = {key: value for key, value in held.items() if key in known}
    others = {key: value for key, value in held.items() if key not in known}
    try:
        return _DECODERS[kind](b"[" + msgspec.json.encode(usable) + b"]")[0], others
    except MALFORMED:
        pass
    for key, value in list(usable.items()):
        try:
            _DECODERS[kind](b"[" + msgspec.json.encode({key: value}) + b"]")
        except MALFORMED:
            others[key] = usable.pop(key)
    return _DECODERS[kind](b"[" + msgspec.json.encode(usable) + b"]")[0], others


def _metadata(event: Event) -> tuple[str, int | str, int | str, Any]:
    try:
        args = _decode_any(event.args)
    except MALFORMED:
        args = {}
    value = next(iter(args.values()), None) if isinstance(args, dict) else None
    return event.name, event.pid or 0, event.tid or 0, value


def _codes(places: Mapping[Any, int], keys: Sequence[Any]) -> Codes:
    return np.fromiter(map(places.__getitem__, keys), dtype=np.int32, count=len(keys))


def _times(values: Sequence[Any]) -> Int:
    """Times of one struct: all are text, or all are numbers."""
    return parse_times(values) if isinstance(values[0], Raw) else read_times(values)


def int64(values: list[int]) -> NDArray[np.int64]:
    """Integers of any size; what does not fit is absent."""
    try:
        return np.fromiter(values, dtype=np.int64, count=len(values))
    except OverflowError:  # unsigned 64 bits, such as an address or a wrapped size
        held = [value % 2**64 if -(2**63) <= value < 2**64 else ABSENT % 2**64 for value in values]
        return np.array(held, dtype=np.uint64).view(np.int64)


def _sizes(sizes: list[list[int]]) -> NDArray[np.int32]:
    """One row per three sizes; what no device can have is absent."""
    three = sizes if set(map(len, sizes)) == {3} else map(_three, sizes)
    flat = int64(list(chain.from_iterable(three)))
    return np.where((flat < -1) | (flat >= 2**31), ABSENT, flat).astype(np.int32).reshape(-1, 3)


def _number(text: str | None) -> int:
    try:
        return int(text or "", 0)
    except ValueError:
        return ABSENT


def _three(sizes: list[int]) -> tuple[int, int, int]:
    if not sizes:
        return (ABSENT, ABSENT, ABSENT)
    x, y, z = (*sizes, 1, 1)[:3]
    return (x, y, z)


def _callback(callback: int) -> str | None:
    return None if callback == ABSENT else f'{{"cbid":{callback}}}'


_HIP_CALL = (
    ("hip_call", "cid"),
    ("kernel", "kernel"),
    ("grid", "grid"),
    ("block", "block"),
    ("shared_memory", "shared memory"),
    ("stream", "stream"),
    ("kind", "kind"),
    ("size", "size"),
    ("bytes", "bytes"),
)
"""What calls of HIP say besides their links: field and key."""


def _hip_call(values: tuple[bytes, ...]) -> str | None:
    held = {key: Raw(value) for (_, key), value in zip(_HIP_CALL, values, strict=True) if value}
    return _compact(msgspec.json.encode(held)) if held else None


def _record_function(number: int) -> str | None:
    return f'{{"Record function id":{number}}}' if number > 0 else None


def _device_minor(key: tuple[int, int, str]) -> str | None:
    context, queued, kind = key
    held: dict[str, Any] = {"context": context} if context > 0 else {}
    held |= {"queued": queued} if queued > 0 else {}
    held |= {"kind": kind} if kind else {}
    return msgspec.json.encode(held).decode() if held else None


def _compact(raw: bytes) -> str:
    """JSON text without blanks; a JSON string is taken out of its quotes."""
    try:
        if raw[:1] == b'"':
            return str(_decode_any(raw))
        return msgspec.json.format(raw, indent=-1).decode()
    except MALFORMED:
        mended = repair.mended_object(raw)
        return mended.strip(b'"').decode()
