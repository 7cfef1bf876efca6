"""Kind of an event, by its phase, category and name.

An event is device work by its category, never by having a stream; a `gpu_user_annotation` is the
shadow of a host range. Categories differ between recorder versions in case and in spelling; the
known spellings are in `schema.EVENT_KINDS`.
"""

from __future__ import annotations

import enum

from stepscope.schema import EVENT_KINDS, EventKind, event_kind

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

ANNOTATION = event_kind("annotation")
KERNEL = event_kind("kernel")
MEMCPY = event_kind("memcpy")
MEMORY_EVENT = event_kind("memory_event")
MEMSET = event_kind("memset")
OPERATOR = event_kind("operator")
PYTHON_FUNCTION = event_kind("python_function")
CALL_KINDS = tuple(kind for kind in EVENT_KINDS if kind.linking == "call")
WORK_KINDS = tuple(kind for kind in EVENT_KINDS if kind.linking == "work")
COLLECTIVE_KINDS = tuple(kind for kind in EVENT_KINDS if kind.has_collectives)


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
_RANGES = {spelling: kind for kind in EVENT_KINDS if kind.is_range for spelling in kind.categories}
_INSTANTS = {kind.instant_name: kind for kind in EVENT_KINDS if not kind.is_range}
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
