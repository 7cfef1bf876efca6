"""Arguments of events: one struct per kind, made from `schema.EVENT_KINDS`, and their decoding.

The fields of a struct are in the order in which Kineto writes the keys, so each is found at the
first look. Keys without a field make the arguments of that event take the slow path, and are kept
in the column `args`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import Raw

from stepscope.importers.kineto import repair
from stepscope.importers.kineto.cells import ABSENT
from stepscope.importers.kineto.collectives import COLLECTIVE_KEYS, CollectiveArgs
from stepscope.importers.kineto.kinds import EventKind
from stepscope.importers.kineto.nesting import check_nesting
from stepscope.schema import EVENT_KINDS, MALFORMED_JSON, Argument

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


def _field(argument: Argument) -> tuple[Any, Any]:
    field_type, default = _FIELDS[argument.type]
    if argument.type == "integer":
        default = argument.default
    return (field_type | None if argument.nullable else field_type), default


STRUCTS = {kind: _make_struct(kind) for kind in EVENT_KINDS}
_DECODERS = {
    kind: msgspec.json.Decoder(list[struct], strict=False).decode  # type: ignore[valid-type]
    for kind, struct in STRUCTS.items()
}
_KNOWN_KEYS = {kind: frozenset(_keys(kind)) for kind in EVENT_KINDS}
_decode_raw = msgspec.json.Decoder(list[dict[str, Raw]]).decode
_decode_any = msgspec.json.Decoder().decode
_decode_collective = msgspec.json.Decoder(CollectiveArgs, strict=False).decode


@dataclass(slots=True)
class DecodedArguments:
    """Arguments of the events of one kind."""

    structs: list[Any]
    rest: list[str | None] | None = None
    """Per event, a JSON object of what its struct does not hold; None when all hold everything."""
    collectives: list[tuple[int, CollectiveArgs]] = field(default_factory=list)
    """Rows of events that describe a collective, with the description."""


def decode_arguments(kind: EventKind, raws: Sequence[Raw]) -> DecodedArguments:
    """Decode the arguments of events of one kind: all at once if possible, else one by one."""
    try:
        return DecodedArguments(
            _DECODERS[kind](b"[" + b",".join(raw or b"{}" for raw in raws) + b"]")
        )
    except MALFORMED_JSON:
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
        except MALFORMED_JSON:
            pass
        try:
            items = _decode_raw(b"[" + bytes(raw) + b"]")[0]
        except MALFORMED_JSON:
            structs.append(STRUCTS[kind]())
            unreadable = {"unreadable": bytes(raw).decode(errors="replace")}
            rest.append(msgspec.json.encode(unreadable).decode())
            continue
        if kind.has_collectives and "Collective name" in items:
            try:
                check_nesting(raw)
                collectives.append((row, _decode_collective(msgspec.json.encode(items))))
                items = {key: value for key, value in items.items() if key not in COLLECTIVE_KEYS}
            except MALFORMED_JSON:
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
    except MALFORMED_JSON:
        pass
    for key, value in list(usable.items()):
        try:
            decode(b"[" + msgspec.json.encode({key: value}) + b"]")
        except MALFORMED_JSON:
            remaining[key] = usable.pop(key)
    return decode(b"[" + msgspec.json.encode(usable) + b"]")[0], remaining


def compact(raw: bytes) -> str:
    """Return JSON text without whitespace; a JSON string without its quotes."""
    try:
        if raw[:1] == b'"':
            return str(_decode_any(raw))
        check_nesting(raw)
        return msgspec.json.format(raw, indent=-1).decode()
    except MALFORMED_JSON:
        return repair.repair_object(raw).strip(b'"').decode()
