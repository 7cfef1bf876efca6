"""Compilations, from the events that JAX reports through `jax.monitoring`.

A new function, or an old one for new shapes, types or static arguments, is traced, lowered and
compiled, one after the other; each reports its duration when it ends. The three are one interval.
"""

from __future__ import annotations

import time
from typing import Any

import jax

from stepscope.capture.guard import Probe
from stepscope.spool import Kind

PREPARING = (
    "/jax/core/compile/jaxpr_trace_duration",
    "/jax/core/compile/jaxpr_to_mlir_module_duration",
)
COMPILING = "/jax/core/compile/backend_compile_duration"
CACHE_HIT = "/jax/compilation_cache/cache_hits"
MAX_GAP_NS = 10_000_000
"""Maximum time between tracing, lowering and compiling one function."""

_probe = Probe("compilations of JAX", coarse=True)


class Counter:
    """Compilations of the process."""

    def __init__(self) -> None:
        self.count = 0
        self._by_name: dict[str, int] = {}
        self._start_ns = 0
        """Start of what is being prepared."""
        self._end_ns = 0
        """End of the last preparation."""
        self._is_cached = False

    def note_duration(self, event: str, duration_s: float, name: str, now_ns: int) -> None:
        """Note the end of a part of a compilation.

        Args:
            event: name of JAX's event.
            duration_s: seconds that it took.
            name: name of the function.
            now_ns: monotonic time.
        """
        start_ns = now_ns - round(1e9 * duration_s)
        if start_ns - self._end_ns < MAX_GAP_NS:  # traces of inner functions are inside
            start_ns = min(start_ns, self._start_ns)
        if event in PREPARING:
            self._start_ns, self._end_ns = start_ns, now_ns
        elif event == COMPILING:
            earlier = self._by_name.get(name, 0)
            self._by_name[name] = earlier + 1
            self.count += 1
            label = f"{name} from the compilation cache" if self._is_cached else name
            self._is_cached, self._end_ns = False, 0
            _probe.write(Kind.COMPILE, label, start_ns, now_ns, earlier)

    def note_event(self, event: str) -> None:
        """Note an event without a duration."""
        if event == CACHE_HIT:
            self._is_cached = True


counter = Counter()


@_probe.protect
def install() -> None:
    """Register listeners."""
    jax.monitoring.register_event_duration_secs_listener(_note_duration)
    jax.monitoring.register_event_listener(_note_event)


@_probe.protect
def _note_duration(event: str, duration_s: float, **details: Any) -> None:
    name = str(details.get("fun_name", "function"))
    counter.note_duration(event, duration_s, name, time.monotonic_ns())


@_probe.protect
def _note_event(event: str, **_: Any) -> None:
    counter.note_event(event)
