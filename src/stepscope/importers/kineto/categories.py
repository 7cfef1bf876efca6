"""How events are decoded.

An event of a category that was met before is decoded together with its arguments, into a struct
of that category: in one pass, and without what nobody asks. Which categories a file has, and of
what kind their events are, is learned from blocks that were decoded the long way: arguments as
raw text first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import or_
from typing import Any, ClassVar, Literal

import msgspec
from msgspec import Raw, field

from stepscope.importers.kineto.fields import (
    ABSENT,
    EMPTY,
    AnnotationArgs,
    DeviceArgs,
    MemoryArgs,
    OperatorArgs,
    PythonArgs,
    RuntimeArgs,
)
from stepscope.importers.kineto.kinds import Kind

ARGS: dict[Kind, type[msgspec.Struct]] = {
    Kind.OPERATOR: OperatorArgs,
    Kind.ANNOTATION: AnnotationArgs,
    Kind.DEVICE_ANNOTATION: AnnotationArgs,
    Kind.RUNTIME: RuntimeArgs,
    Kind.DRIVER: RuntimeArgs,
    Kind.KERNEL: DeviceArgs,
    Kind.MEMCPY: DeviceArgs,
    Kind.MEMSET: DeviceArgs,
    Kind.PYTHON: PythonArgs,
    Kind.MEMORY: MemoryArgs,
}
MALFORMED = (msgspec.MsgspecError, UnicodeDecodeError)
_MOST_CATEGORIES = 64
_MOST_REFUSALS = 8


_UNSAID = float("nan")
"""No JSON says this."""


class AnyEvent(msgspec.Struct, gc=False):
    """Any event. Times and arguments stay text."""

    kind: ClassVar[Kind | None] = None
    """What all events of the struct are; None where the phase or the name tells."""

    ph: str = ""
    name: str = ""
    pid: int | str | None = ""
    tid: int | str | None = ""
    ts: Raw = EMPTY
    dur: Raw = EMPTY
    id: int | str | None = ABSENT
    args: Raw = EMPTY


class Event(AnyEvent, gc=False):
    """An event of any category."""

    cat: str = ""


class _Range(msgspec.Struct, gc=False):
    """Its times are numbers, which costs half of what text does; see `keep_times_as_text`."""

    ph: Literal["X"]
    name: str = ""
    pid: int | str | None = ""
    tid: int | str | None = ""
    ts: int | float = _UNSAID
    dur: int | float = _UNSAID


class _Memory(msgspec.Struct, gc=False):
    ph: Literal["i"]
    name: Literal["[memory]"]
    pid: int | str | None = ""
    tid: int | str | None = ""
    ts: int | float = _UNSAID


class _LaunchFlow(msgspec.Struct, gc=False):
    """These are only counted."""

    ph: Literal["s", "t", "f"]


_STRUCTS: dict[Kind, type[msgspec.Struct]] = {
    **dict.fromkeys(ARGS, _Range),
    Kind.MEMORY: _Memory,
    Kind.LAUNCH_FLOW: _LaunchFlow,
}
"""What events of a kind have besides their arguments."""
_WRITTEN_BY_KINETO = {
    ("cpu_op", Kind.OPERATOR),
    ("user_annotation", Kind.ANNOTATION),
    ("gpu_user_annotation", Kind.DEVICE_ANNOTATION),
    ("cuda_runtime", Kind.RUNTIME),
    ("cuda_driver", Kind.DRIVER),
    ("kernel", Kind.KERNEL),
    ("gpu_memcpy", Kind.MEMCPY),
    ("gpu_memset", Kind.MEMSET),
    ("python_function", Kind.PYTHON),
    ("cpu_instant_event", Kind.MEMORY),
    ("ac2g", Kind.LAUNCH_FLOW),
    ("fwdbwd", Kind.FLOW),
    ("Trace", Kind.OTHER),
    ("", Kind.METADATA),
    ("", Kind.OTHER),
}
"""Nearly every file has these: learning them would take each process its first blocks."""


class Categories:
    """Decodes blocks that hold only categories that were met before."""

    def __init__(self) -> None:
        self._met: set[tuple[str, Kind]] = set()
        self._uneven: set[Kind] = set()
        self._decode: Callable[[bytes | bytearray | memoryview], Sequence[Any]] | None = None
        self._refusals = 0
        self._times_as_text = False
        self.learn(_WRITTEN_BY_KINETO, set())

    def decode(self, array: bytes | bytearray | memoryview) -> Sequence[Any] | None:
        """The events of a block; None when one of them is not as its category promises."""
        if self._decode is None:
            return None
        try:
            events = self._decode(array)
        except MALFORMED:
            self._refusals += 1
            if self._refusals >= _MOST_REFUSALS:
                self._decode = None
            return None
        self._refusals = 0
        return events

    def know(self, met: set[tuple[str, Kind]]) -> bool:
        """Whether categories have only kinds that they had before."""
        return met <= self._met

    def learn(self, met: set[tuple[str, Kind]], uneven: set[Kind]) -> None:
        """Takes note of what was found in a block.

        Args:
            met: categories and the kinds of their events.
            uneven: kinds whose struct of arguments does not hold what some events say.
        """
        if met <= self._met and uneven <= self._uneven:
            return
        self._met |= met
        self._uneven |= uneven
        self._build()

    def keep_times_as_text(self) -> None:
        """Times are such that numbers do not hold them exactly: their text is read from now on."""
        self._times_as_text = True
        self._build()

    def _build(self) -> None:
        kinds: dict[str, set[Kind]] = {}
        for category, kind in self._met:
            kinds.setdefault(category, set()).add(kind)
        # A kind is decoded with its arguments everywhere or nowhere.
        self._uneven.update(*(those for those in kinds.values() if len(those) > 1))
        if len(kinds) <= _MOST_CATEGORIES:
            structs = [self._struct(category, those) for category, those in kinds.items()]
            either: Any = reduce(or_, structs)
            self._decode = msgspec.json.Decoder(list[either]).decode

    def _struct(self, category: str, kinds: set[Kind]) -> type[msgspec.Struct]:
        told = next(iter(kinds))
        kind = told if told in _STRUCTS and told not in self._uneven else None
        args = None if kind is None else ARGS.get(kind)
        own: list[tuple[str, Any, Any]] = []
        if args is not None:
            own.append(("args", args, field(default_factory=args)))
            if self._times_as_text:
                own += [("ts", Raw, EMPTY), ("dur", Raw, EMPTY)]
        return msgspec.defstruct(
            "Known",
            own,
            bases=(AnyEvent if kind is None else _STRUCTS[kind],),
            namespace={"kind": kind, "cat": category},
            tag_field="cat",
            tag=category,
            gc=False,
        )
