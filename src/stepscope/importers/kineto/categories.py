"""Structs that decode events of known categories in one pass.

An event of a known category is decoded together with its arguments, into a struct of that
category. Which categories a file has, and the kinds of their events, is learned from blocks that
were decoded the slow way: arguments as raw text first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import or_
from typing import Any, ClassVar, Literal

import msgspec
from msgspec import Raw, field

from stepscope import schema
from stepscope.importers.kineto.arguments import ABSENT, EMPTY, STRUCTS, Kind, OtherKind

_MAX_CATEGORIES = 64
_MAX_FAILURES = 8
_NO_TIME = float("nan")
"""Default of a time: JSON cannot express it."""


class AnyEvent(msgspec.Struct, gc=False):
    """Event of any kind. Times and arguments stay text."""

    kind: ClassVar[Kind | None] = None
    """Kind of all events of the struct; None where the phase or the name tells."""

    ph: str = ""
    """Empty for an object that is no event."""
    name: str = ""
    pid: int | str | None = ""
    tid: int | str | None = ""
    ts: Raw = EMPTY
    dur: Raw = EMPTY
    id: int | str | None = ABSENT
    args: Raw = EMPTY


class Event(AnyEvent, gc=False):
    """Event of any category."""

    cat: str = ""


class NoEvent(msgspec.Struct, gc=False):
    """Object without a phase."""


class RawEvent(msgspec.Struct, gc=False):
    """Event whose name, thread and so on may be of any type."""

    ph: Raw = EMPTY
    cat: Raw = EMPTY
    name: Raw = EMPTY
    pid: Raw = EMPTY
    tid: Raw = EMPTY
    ts: Raw = EMPTY
    dur: Raw = EMPTY
    id: Raw = EMPTY
    args: Raw = EMPTY


class _Range(msgspec.Struct, gc=False):
    """Event with numeric times, which cost half of what text does; see `keep_times_as_text`."""

    ph: Literal["X"]
    name: str = ""
    pid: int | str | None = ""
    tid: int | str | None = ""
    ts: int | float = _NO_TIME
    dur: int | float = _NO_TIME


class _LaunchFlow(msgspec.Struct, gc=False):
    """End of an arrow; these are only counted."""

    ph: Literal["s", "t", "f"]


def _struct_of(kind: schema.EventKind) -> type[msgspec.Struct]:
    """Return the struct of a kind's events without their arguments."""
    if kind.is_range:
        return _Range
    fields: list[Any] = [
        ("ph", Literal["i"]),
        ("name", Literal[kind.instant_name]),
        ("pid", int | str | None, ""),
        ("tid", int | str | None, ""),
        ("ts", int | float, _NO_TIME),
    ]
    return msgspec.defstruct("Instant", fields, gc=False)


_EVENT_STRUCTS: dict[Kind, type[msgspec.Struct]] = {
    **{kind: _struct_of(kind) for kind in schema.EVENT_KINDS},
    OtherKind.LAUNCH_FLOW: _LaunchFlow,
}
_WRITTEN_BY_KINETO: set[tuple[str, Kind]] = {
    *((kind.categories[0], kind) for kind in schema.EVENT_KINDS),
    ("ac2g", OtherKind.LAUNCH_FLOW),
    ("fwdbwd", OtherKind.FLOW),
    ("Trace", OtherKind.OTHER),
    ("", OtherKind.METADATA),
    ("", OtherKind.OTHER),
}
"""Categories of nearly every file: learning them would cost each process its first blocks."""


class KnownCategories:
    """Decoder of blocks that hold only known categories."""

    def __init__(self) -> None:
        self._known: set[tuple[str, Kind]] = set()
        self._irregular: set[Kind] = set()
        self._decode: Callable[[bytes | bytearray | memoryview], Sequence[Any]] | None = None
        self._failures = 0
        self._times_as_text = False
        self.learn(_WRITTEN_BY_KINETO, set())

    def decode(self, array: bytes | bytearray | memoryview) -> Sequence[Any] | None:
        """Decode the events of a block; None when one of them does not fit its category."""
        if self._decode is None:
            return None
        try:
            events = self._decode(array)
        except schema.MALFORMED_JSON:
            self._failures += 1
            if self._failures >= _MAX_FAILURES:
                self._decode = None
            return None
        self._failures = 0
        return events

    def includes(self, categories: set[tuple[str, Kind]]) -> bool:
        """Return True if categories have only kinds that they had before."""
        return categories <= self._known

    def learn(self, categories: set[tuple[str, Kind]], irregular: set[Kind]) -> None:
        """Learn from a block that was decoded the slow way.

        Args:
            categories: categories and the kinds of their events.
            irregular: kinds of which some events do not fit the struct of their arguments.
        """
        if categories <= self._known and irregular <= self._irregular:
            return
        self._known |= categories
        self._irregular |= irregular
        self._build()

    def keep_times_as_text(self) -> None:
        """Decode times as text from now on, because floating-point numbers are not exact."""
        self._times_as_text = True
        self._build()

    def _build(self) -> None:
        kinds: dict[str, set[Kind]] = {}
        for category, kind in self._known:
            kinds.setdefault(category, set()).add(kind)
        # A kind is decoded with its arguments everywhere or nowhere.
        ambiguous = (several for several in kinds.values() if len(several) > 1)
        self._irregular.update(*ambiguous)
        if len(kinds) <= _MAX_CATEGORIES:
            structs = [self._struct(category, next(iter(kinds[category]))) for category in kinds]
            union: Any = reduce(or_, structs)
            self._decode = msgspec.json.Decoder(list[union]).decode

    def _struct(self, category: str, kind: Kind) -> type[msgspec.Struct]:
        is_regular = kind in _EVENT_STRUCTS and kind not in self._irregular
        fields: list[tuple[str, Any, Any]] = []
        if is_regular and isinstance(kind, schema.EventKind):
            struct = STRUCTS[kind]
            fields.append(("args", struct, field(default_factory=struct)))
            if self._times_as_text:
                fields += [("ts", Raw, EMPTY), ("dur", Raw, EMPTY)]
        return msgspec.defstruct(
            "Known",
            fields,
            bases=(_EVENT_STRUCTS[kind] if is_regular else AnyEvent,),
            namespace={"kind": kind if is_regular else None, "cat": category},
            tag_field="cat",
            tag=category,
            gc=False,
        )
