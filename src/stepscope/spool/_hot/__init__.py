"""The part of recording that runs at each step, compiled where it could be built.

    stable_abi.h  the part of Python's ABI that all releases share
    hot.c         segments, logs of threads, probes: a record without a frame of Python
    steps.c       step boundaries on which nothing is due
    training.c    the calls of a step of PyTorch that are as those of the step before

Python has all of it as well, in the classes that derive from those here, and does what happens
once. `native` is None, and Python does everything, where the library was not built, on other
interpreters and free-threaded builds, and with STEPSCOPE_NATIVE=0.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Self

NATIVE_VARIABLE = "STEPSCOPE_NATIVE"
_HERE = os.path.dirname(os.path.abspath(__file__))
_UNSUPPORTED_BUILDS = "td"
"""Letters of `sys.abiflags`: free-threaded and debug builds, whose objects have other layouts."""


def load() -> Any:
    """Load the library; None where it cannot be used."""
    flags = getattr(sys, "abiflags", "")
    is_usable = sys.implementation.name == "cpython" and not set(_UNSUPPORTED_BUILDS) & set(flags)
    if not is_usable or os.environ.get(NATIVE_VARIABLE) == "0":
        return None
    try:
        # Of the interpreter itself: `importlib.machinery` would load more.
        from _frozen_importlib import ModuleSpec
        from _frozen_importlib_external import ExtensionFileLoader

        path = os.path.join(_HERE, "_hot.so")
        name = f"{__name__}._hot"
        loader = ExtensionFileLoader(name, path)
        module: Any = loader.create_module(ModuleSpec(name, loader, origin=path))
        loader.exec_module(module)
        return module if module.source_digest == _digest_source() else None
    except (ImportError, OSError, AttributeError):
        return None


def _digest_source() -> str:
    """Return the digest of the source; see `native_library`, which loads more than a job needs."""
    content, names = b"", sorted(os.listdir(_HERE))
    for name in (n for suffix in (".c", ".h") for n in names if n.endswith(suffix)):
        with open(f"{_HERE}/{name}", "rb") as file:
            content += file.read()
    return f"{int.from_bytes(content, 'little') % ((1 << 30) - 35):016x}"


native: Any = load()


class LogBase:
    """Base of the log of a thread."""

    __slots__ = ("cursor",)


class LogsBase:
    """Base of the logs of a thread."""

    __slots__ = ("coarse", "depth", "fine", "generation", "metas")


class ProbeBase:
    """Base of the recorder of one activity."""

    __slots__ = ("_is_coarse", "alive", "name")


class StepsBase:
    """Base of the step counter."""


class OptimizerBase:
    """Base of the state of one optimizer."""


class AnnotationBase:
    """Base of `Annotation`."""

    __slots__ = ("_index", "_key", "_logs", "_nests", "_reopened", "_words")

    @classmethod
    def make(cls, key: Any) -> Self:
        """Make an interval that is not open, of the key of its record."""
        annotation = cls.__new__(cls)
        annotation._key = key
        annotation._logs = None
        return annotation

    @classmethod
    def named(cls, name: object) -> Self:
        """Make an annotation without labels."""
        return cls.make(str(name))

    def __enter__(self) -> Self:
        """Start an interval nested in those of the thread."""
        return self._start(1)

    def __exit__(self, *error: object) -> None:
        """End the interval that this thread started last, else one started by another thread."""
        self._end()

    if TYPE_CHECKING:
        _key: Any
        _logs: Any

        def _start(self, nests: int) -> Self: ...

        def _end(self) -> None: ...


if native is not None and not TYPE_CHECKING:
    LogBase, LogsBase, ProbeBase = native.Log, native.Logs, native.Probe
    StepsBase, OptimizerBase, AnnotationBase = native.Steps, native.Optimizer, native.Annotation


def set_generation(generation: int, live: int) -> None:
    """Let the library know the generation of the session, and the one that records."""
    if native is not None:
        native.set_generation(generation, live)
