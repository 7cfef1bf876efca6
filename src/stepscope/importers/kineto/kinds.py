"""Which table an event belongs to: by its phase and category alone.

An event is device work by its category, never by having a stream; a `gpu_user_annotation` is the
shadow of a host range and no range of its own. Categories differ between recorder versions in
case and in spelling; all known spellings are here.
"""

from __future__ import annotations

import enum


class Kind(enum.IntEnum):
    """What an event is."""

    OPERATOR = 0
    ANNOTATION = 1
    DEVICE_ANNOTATION = 2
    RUNTIME = 3
    DRIVER = 4
    KERNEL = 5
    MEMCPY = 6
    MEMSET = 7
    PYTHON = 8
    MEMORY = 9
    LAUNCH_FLOW = 10
    FLOW = 11
    COUNTER = 12
    METADATA = 13
    OTHER = 14
    BEGIN = 15
    END = 16


_RANGES = {
    "cpu_op": Kind.OPERATOR,
    "operator": Kind.OPERATOR,
    "user_annotation": Kind.ANNOTATION,
    "gpu_user_annotation": Kind.DEVICE_ANNOTATION,
    "runtime": Kind.RUNTIME,
    "cuda_runtime": Kind.RUNTIME,
    "hip_runtime": Kind.RUNTIME,
    "glow_runtime": Kind.RUNTIME,
    "mtia_runtime": Kind.RUNTIME,
    "xpu_runtime": Kind.RUNTIME,
    "privateuse1_runtime": Kind.RUNTIME,
    "cuda_driver": Kind.DRIVER,
    "xpu_driver": Kind.DRIVER,
    "privateuse1_driver": Kind.DRIVER,
    "kernel": Kind.KERNEL,
    "gpu_memcpy": Kind.MEMCPY,
    "memcpy": Kind.MEMCPY,
    "gpu_memset": Kind.MEMSET,
    "memset": Kind.MEMSET,
    "python_function": Kind.PYTHON,
}
_LAUNCH_FLOWS = frozenset({"ac2g", "async_cpu_to_gpu", "async_gpu", "async"})
"""Arrows from a runtime call to what it launched; the correlation says the same."""


MEMORY_NAME = "[memory]"
"""Name of the instants that are allocations and releases."""


def kind_of(phase: str, category: str, name: str) -> Kind:
    """The kind of an event.

    Args:
        phase: its `ph`.
        category: its `cat`, empty when it has none.
        name: its name, which matters for instants only.
    """
    match phase:
        case "X":
            return _RANGES.get(category.lower(), Kind.OTHER)
        case "s" | "t" | "f":
            return Kind.LAUNCH_FLOW if category.lower() in _LAUNCH_FLOWS else Kind.FLOW
        case "i" | "I" if name == MEMORY_NAME:
            return Kind.MEMORY
        case "C":
            return Kind.COUNTER
        case "M":
            return Kind.METADATA
        case "B":
            return Kind.BEGIN
        case "E":
            return Kind.END
        case _:
            return Kind.OTHER
