"""Arguments of events: one struct per kind, made from `schema.EVENT_KINDS`, and their decoding.

The fields of a struct are in the order in which Kineto writes the keys, so each is found at the
first look. Keys without a field make the arguments of that event take the slow path, and are kept
in the column `args`.

Limit of the nesting of values that are decoded, kept and encoded again. Decoders and encoders
recurse, and fail with the depth that the stack happens to leave them: a value that could be read
might not be written. Far below that depth, either is certain.

Kind of an event, by its phase, category and name. An event is device work by its category, never by
having a stream; a `gpu_user_annotation` is the shadow of a host range. Categories differ between
recorder versions in case and in spelling; the known spellings are in `schema.EVENT_KINDS`.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec import Raw
from numpy.typing import NDArray

from stepscope import schema, store
from stepscope.importers.kineto import repair
from stepscope.schema import EventKind

ABSENT = -1
"""Value of a missing integer in memory."""


def text_of(value: Any) -> str | None:
    """Return text as it is, anything else as JSON."""
    if value is None or isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()


def integers_of(values: Sequence[int | None]) -> Any:
    """Return integers as an array with the missing ones masked."""
    data = np.array([0 if value is None else value for value in values], dtype=np.int64)
    return np.ma.MaskedArray(data, mask=[value is None for value in values])


def int64(values: Sequence[int]) -> NDArray[np.int64]:
    """Return integers of any size as an array; values of more than 64 bits become absent."""
    try:
        return np.fromiter(values, dtype=np.int64, count=len(values))
    except OverflowError:  # unsigned 64 bits, such as an address or a wrapped size
        wrapped = [(value if -(2**63) <= value < 2**64 else ABSENT) % 2**64 for value in values]
        return np.array(wrapped, dtype=np.uint64).view(np.int64)


class CollectiveArgs(msgspec.Struct, gc=False):
    """Description of the collective that an operator or kernel is part of."""

    name: str = msgspec.field(name="Collective name", default="")
    dtype: str | None = None
    in_elements: int = msgspec.field(name="In msg nelems", default=ABSENT)
    out_elements: int = msgspec.field(name="Out msg nelems", default=ABSENT)
    group: str | int | None = msgspec.field(name="Process Group Name", default=None)
    group_id: str | int | None = msgspec.field(name="Process Group ID", default=None)
    group_description: str | None = msgspec.field(name="Process Group Description", default=None)
    group_size: int = msgspec.field(name="Group size", default=ABSENT)
    group_ranks: Any = msgspec.field(name="Process Group Ranks", default=None)
    sequence: int = msgspec.field(name="Seq", default=ABSENT)
    communicator: Any = msgspec.field(name="Comms Id", default=None)
    peer_source: int = msgspec.field(name="Src Rank", default=ABSENT)
    peer_destination: int = msgspec.field(name="Dst Rank", default=ABSENT)
    in_split: Any = msgspec.field(name="In split size", default=None)
    out_split: Any = msgspec.field(name="Out split size", default=None)
    rank: Any = msgspec.field(name="Rank", default=None)
    rank_start: Any = msgspec.field(name="Global rank start", default=None)
    rank_stride: Any = msgspec.field(name="Global rank stride", default=None)


_COLLECTIVE_FIELDS = msgspec.structs.fields(CollectiveArgs)
COLLECTIVE_KEYS = frozenset(field.encode_name for field in _COLLECTIVE_FIELDS)
"""Keys of an operator's or kernel's arguments that describe its collective."""
_NUMBERS = (
    "in_elements", "out_elements", "group_size", "sequence", "peer_source", "peer_destination",
)  # fmt: skip
_TEXTS = ("name", "dtype", "group_description", "group_ranks", "in_split", "out_split")
_REST = ("communicator", "rank", "rank_start", "rank_stride")
_KEYS = {field.name: field.encode_name for field in _COLLECTIVE_FIELDS}


def collective_rows(descriptions: Iterable[tuple[int, bool, str]]) -> Mapping[str, Any]:
    """Return rows of the table `collectives`.

    Args:
        descriptions: id of the event, True for device work, and its `CollectiveArgs` as JSON.
    """
    ids, on_device, texts = zip(*descriptions, strict=True)
    collectives = [msgspec.json.decode(text, type=CollectiveArgs) for text in texts]
    return {
        "id": np.array(ids, dtype=np.int64),
        "on_device": np.array(on_device, dtype=np.int64),
        **{name: int64([getattr(args, name) for args in collectives]) for name in _NUMBERS},
        **{
            name: store.DictColumn.encode(text_of(getattr(args, name)) for args in collectives)
            for name in _TEXTS
        },
        "group": store.DictColumn.encode(
            text_of(args.group_id if args.group is None else args.group) for args in collectives
        ),
        "args": store.DictColumn.encode(map(_rest, collectives)),
    }


def _rest(args: CollectiveArgs) -> str | None:
    items = {_KEYS[name]: getattr(args, name) for name in _REST}
    items = {key: value for key, value in items.items() if value is not None}
    return msgspec.json.encode(items).decode() if items else None


EMPTY = Raw()
_FIELDS: dict[str, tuple[Any, Any]] = {
    "integer": (int, ABSENT),
    "number": (float, float("nan")),
    "string": (str, ""),
    "json": (Raw, EMPTY),
    "sizes": (list[int], []),
    "unused": (Raw, EMPTY),
}
"""Type and default of a field by the type of its argument."""


def field_name(kind: EventKind, key: str) -> str:
    """Return the name of a key's field in the struct of a kind."""
    return f"field{_keys(kind).index(key)}"


def _keys(kind: EventKind) -> list[str]:
    older = [argument.older_key for argument in kind.arguments if argument.older_key]
    return [argument.key for argument in kind.arguments] + older


def _make_struct(kind: EventKind) -> type[msgspec.Struct]:
    older = [argument for argument in kind.arguments if argument.older_key]
    fields = [
        (f"field{index}", *_field(argument))
        for index, argument in enumerate([*kind.arguments, *older])
    ]
    names = {f"field{index}": key for index, key in enumerate(_keys(kind))}
    return msgspec.defstruct(
        f"{kind.name}_arguments", fields, rename=names, gc=False, forbid_unknown_fields=True
    )


def _field(argument: schema.Argument) -> tuple[Any, Any]:
    field_type, default = _FIELDS[argument.type]
    if argument.type == "integer":
        default = argument.default
    return (field_type | None if argument.nullable else field_type), default


STRUCTS = {kind: _make_struct(kind) for kind in schema.EVENT_KINDS}
_DECODERS = {
    kind: msgspec.json.Decoder(list[struct], strict=False).decode  # type: ignore[valid-type]
    for kind, struct in STRUCTS.items()
}
_KNOWN_KEYS = {kind: frozenset(_keys(kind)) for kind in schema.EVENT_KINDS}
_decode_raw = msgspec.json.Decoder(list[dict[str, Raw]]).decode
_decode_any = msgspec.json.Decoder().decode
_decode_collective = msgspec.json.Decoder(CollectiveArgs, strict=False).decode


class DecodedArguments(msgspec.Struct):
    """Arguments of the events of one kind."""

    structs: list[Any]
    rest: list[str | None] | None = None
    """Per event, a JSON object of what its struct does not hold; None when all hold everything."""
    collectives: list[tuple[int, CollectiveArgs]] = msgspec.field(default_factory=list)
    """Rows of events that describe a collective, with the description."""


def decode_arguments(kind: EventKind, raws: Sequence[Raw]) -> DecodedArguments:
    """Decode the arguments of events of one kind: all at once if possible, else one by one."""
    try:
        return DecodedArguments(
            _DECODERS[kind](b"[" + b",".join(raw or b"{}" for raw in raws) + b"]")
        )
    except schema.MALFORMED_JSON:
        return _decode_one_by_one(kind, raws)


def _decode_one_by_one(kind: EventKind, raws: Sequence[Raw]) -> DecodedArguments:
    """Decode arguments of which some hold unknown keys, or values of a wrong type."""
    decode = _DECODERS[kind]
    structs: list[Any] = []
    rest: list[str | None] = []
    collectives: list[tuple[int, CollectiveArgs]] = []
    for row, raw in enumerate(raw or Raw(b"{}") for raw in raws):
        try:
            structs.append(decode(b"[" + bytes(raw) + b"]")[0])
            rest.append(None)
            continue
        except schema.MALFORMED_JSON:
            pass
        try:
            items = _decode_raw(b"[" + bytes(raw) + b"]")[0]
        except schema.MALFORMED_JSON:
            structs.append(STRUCTS[kind]())
            unreadable = {"unreadable": bytes(raw).decode(errors="replace")}
            rest.append(msgspec.json.encode(unreadable).decode())
            continue
        if kind.has_collectives and "Collective name" in items:
            try:
                check_nesting(raw)
                collectives.append((row, _decode_collective(msgspec.json.encode(items))))
                items = {key: value for key, value in items.items() if key not in COLLECTIVE_KEYS}
            except schema.MALFORMED_JSON:
                pass
        struct, remaining = _decode_known_keys(kind, items)
        structs.append(struct)
        rest.append(compact(msgspec.json.encode(remaining)) if remaining else None)
    return DecodedArguments(structs, rest, collectives)


def _decode_known_keys(kind: EventKind, items: dict[str, Raw]) -> tuple[Any, dict[str, Raw]]:
    """Split arguments into the struct of known keys with usable values, and the remaining keys."""
    decode, known_keys = _DECODERS[kind], _KNOWN_KEYS[kind]
    usable = {key: value for key, value in items.items() if key in known_keys}
    remaining = {key: value for key, value in items.items() if key not in known_keys}
    try:
        return decode(b"[" + msgspec.json.encode(usable) + b"]")[0], remaining
    except schema.MALFORMED_JSON:
        pass
    for key, value in list(usable.items()):
        try:
            decode(b"[" + msgspec.json.encode({key: value}) + b"]")
        except schema.MALFORMED_JSON:
            remaining[key] = usable.pop(key)
    return decode(b"[" + msgspec.json.encode(usable) + b"]")[0], remaining


def compact(raw: bytes) -> str:
    """Return JSON text without whitespace; a JSON string without its quotes."""
    try:
        if raw[:1] == b'"':
            return str(_decode_any(raw))
        check_nesting(raw)
        return msgspec.json.format(raw, indent=-1).decode()
    except schema.MALFORMED_JSON:
        return repair.repair_object(raw).strip(b'"').decode()


MAX_NESTING = 200
"""Depth of any value that a recorder writes, many times over."""
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[{}\[\]]', re.DOTALL)


def check_nesting(text: bytes | memoryview) -> None:
    """Check that a JSON text is not nested too deeply.

    Raises:
        msgspec.DecodeError: it is.
    """
    content = bytes(text)
    if content.count(b"[") + content.count(b"{") <= MAX_NESTING:
        return
    depth = 0
    for match in _TOKEN.finditer(content):
        token = match.group()
        if token in {b"{", b"["}:
            depth += 1
            if depth > MAX_NESTING:
                raise msgspec.DecodeError(f"it is nested more than {MAX_NESTING} levels deep")
        elif token in {b"}", b"]"}:
            depth -= 1


ANNOTATION = schema.event_kind("annotation")
KERNEL = schema.event_kind("kernel")
MEMCPY = schema.event_kind("memcpy")
MEMORY_EVENT = schema.event_kind("memory_event")
MEMSET = schema.event_kind("memset")
OPERATOR = schema.event_kind("operator")
PYTHON_FUNCTION = schema.event_kind("python_function")
CALL_KINDS = tuple(kind for kind in schema.EVENT_KINDS if kind.linking == "call")
WORK_KINDS = tuple(kind for kind in schema.EVENT_KINDS if kind.linking == "work")
COLLECTIVE_KINDS = tuple(kind for kind in schema.EVENT_KINDS if kind.has_collectives)


class OtherKind(enum.Enum):
    """Elements of a trace that are not events of a kind with a table of its own."""

    LAUNCH_FLOW = enum.auto()
    """An end of an arrow from a runtime call to its work; the correlation says the same."""
    FLOW = enum.auto()
    """An end of any other arrow."""
    COUNTER = enum.auto()
    METADATA = enum.auto()
    BEGIN = enum.auto()
    """Start of a range that is written as two events."""
    END = enum.auto()
    OTHER = enum.auto()


Kind = EventKind | OtherKind
LAUNCH_FLOWS = frozenset({"ac2g", "async_cpu_to_gpu", "async_gpu", "async"})
_RANGES = {
    spelling: kind for kind in schema.EVENT_KINDS if kind.is_range for spelling in kind.categories
}
_INSTANTS = {kind.instant_name: kind for kind in schema.EVENT_KINDS if not kind.is_range}
_PHASES = {
    "C": OtherKind.COUNTER,
    "M": OtherKind.METADATA,
    "B": OtherKind.BEGIN,
    "E": OtherKind.END,
}


def kind_of(phase: str, category: str, name: str = "") -> Kind:
    """Return the kind of an event.

    Args:
        phase: its `ph`.
        category: its `cat`, empty when it has none.
        name: its name, which matters for instants only.
    """
    match phase:
        case "X":
            return _RANGES.get(category.lower(), OtherKind.OTHER)
        case "s" | "t" | "f":
            is_launch = category.lower() in LAUNCH_FLOWS
            return OtherKind.LAUNCH_FLOW if is_launch else OtherKind.FLOW
        case "i" | "I":
            return instant_kind(name)
        case _:
            return _PHASES.get(phase, OtherKind.OTHER)


def instant_kind(name: str) -> Kind:
    """Return the kind of an instant, which only its name tells."""
    return _INSTANTS.get(name, OtherKind.OTHER)


__all__ = [
    "ANNOTATION",
    "CALL_KINDS",
    "COLLECTIVE_KINDS",
    "KERNEL",
    "LAUNCH_FLOWS",
    "MEMCPY",
    "MEMORY_EVENT",
    "MEMSET",
    "OPERATOR",
    "PYTHON_FUNCTION",
    "WORK_KINDS",
    "EventKind",
    "Kind",
    "OtherKind",
    "instant_kind",
    "kind_of",
]
