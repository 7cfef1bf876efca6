"""Phase times on the device, polled without synchronization, and copies from the host.

Each phase records a timing event at its start and at its end, on the current stream. At step
boundaries the completed events are read; the rest stay queued. Device times are converted to the
host clock through an anchor event. Device work never starts before the host launches it, so every
launch is a lower bound of the anchor's host time, and the bound is tight whenever the device was
idle at a launch. If the device clock runs fast, that bound drifts over hours, so an upper bound
limits it: a phase that was observed to be complete ended before the observation.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import torch

from stepscope.capture.frameworks.progress import progress
from stepscope.capture.frameworks.pytorch.patching import is_compiling, patch
from stepscope.capture.guard import Probe
from stepscope.spool import Kind

MAX_PENDING = 4096
REANCHOR_NS = 10_000_000_000
"""Elapsed times are single-precision milliseconds: their resolution is 1 us after ten seconds."""

_probe = Probe("device times", coarse=True)
_now = time.monotonic_ns


class OpenPhase:
    """A phase whose end event is not recorded yet."""

    __slots__ = ("end", "host_ns", "name", "start")

    def __init__(self, name: str, start: Any, host_ns: int) -> None:
        self.name = name
        self.start = start
        self.end: Any = None
        self.host_ns = host_ns


class DeviceClock:
    """Converter of pairs of device events to intervals on the host clock."""

    def __init__(self, cuda: Any) -> None:
        self._cuda = cuda
        self._free: list[Any] = []
        self._pending: deque[OpenPhase] = deque()
        self._anchor: Any = None
        self._anchor_ns = 0

    def start(self, name: str) -> OpenPhase | None:
        """Record the start of a phase; None if that is not possible."""
        cuda = self._cuda
        if not cuda.is_initialized() or cuda.is_current_stream_capturing():
            return None
        if len(self._pending) >= MAX_PENDING:
            return None
        return OpenPhase(name, self._record(), _now())

    def end(self, phase: OpenPhase) -> None:
        """Record the end of a phase."""
        if not self._cuda.is_current_stream_capturing():
            phase.end = self._record()
            self._pending.append(phase)

    def poll(self) -> None:
        """Write the phases that the device has finished."""
        while self._pending and self._pending[0].end.query():
            phase = self._pending.popleft()
            observed_ns = _now()
            duration_ns = round(phase.start.elapsed_time(phase.end) * 1e6)
            start_ns = self._to_host_clock(phase, observed_ns - duration_ns)
            _probe.write(Kind.DEVICE, phase.name, start_ns, start_ns + duration_ns)
            if phase.start is not self._anchor:
                self._free.append(phase.start)
            self._free.append(phase.end)

    def _record(self) -> Any:
        event = self._free.pop() if self._free else self._cuda.Event(enable_timing=True)
        event.record()
        return event

    def _to_host_clock(self, phase: OpenPhase, latest_ns: int) -> int:
        """Return the host time of the start of a phase, which is *latest_ns* at the latest."""
        if self._anchor is None:
            self._anchor, self._anchor_ns = phase.start, phase.host_ns
            return phase.host_ns
        elapsed_ns = round(self._anchor.elapsed_time(phase.start) * 1e6)
        self._anchor_ns = max(self._anchor_ns, phase.host_ns - elapsed_ns)
        self._anchor_ns = min(self._anchor_ns, latest_ns - elapsed_ns)
        start_ns: int = self._anchor_ns + elapsed_ns
        if elapsed_ns > REANCHOR_NS:
            self._free.append(self._anchor)
            self._anchor, self._anchor_ns = phase.start, start_ns
        return start_ns


clock: DeviceClock | None = None
"""None without a device. Callers test it: a call would only cost time."""


def install() -> None:
    """Start the clock on a machine with a device."""
    global clock
    if device_driver_present():
        clock = DeviceClock(torch.cuda)
        progress.is_plain = False
        progress.on_boundary(_probe.protect(clock.poll))


def is_capturing() -> bool:
    """Return True while the current stream is captured into a CUDA graph: whatever is launched then
    becomes a part of the graph, and asking for an event ends the capture with an error."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def start(name: str) -> OpenPhase | None:
    """Start a phase on the device; None if that is not possible. Never raises."""
    if clock is None or not _probe.alive:
        return None
    try:
        return clock.start(name)
    except RuntimeError as error:
        _probe.fail(error)
        return None


def end(phase: OpenPhase) -> None:
    """End a phase that `start` returned. Never raises."""
    if clock is not None:
        try:
            clock.end(phase)
        except RuntimeError as error:
            _probe.fail(error)


_copy_probe = Probe("host-to-device copies", coarse=True)


def device_driver_present() -> bool:
    """Return True if a GPU driver is loaded that this torch was built for, without calling it.

    A call of CUDA would initialise it, and the job could not fork after that.
    """
    version = torch.version
    nvidia = version.cuda is not None and os.path.exists("/proc/driver/nvidia/version")
    return nvidia or (version.hip is not None and os.path.exists("/dev/kfd"))


def install_copies() -> None:
    """Patch the copying methods; does nothing on a machine without a device."""
    if device_driver_present():
        patch(torch.Tensor, "to", _timed_to)
        patch(torch.Tensor, "cuda", _timed_cuda)


def _timed_to(original: Callable[..., Any]) -> Callable[..., Any]:
    return _timed(original, is_copy_to_device)


def _timed_cuda(original: Callable[..., Any]) -> Callable[..., Any]:
    return _timed(original, lambda args, kwargs: True)


def _timed(
    original: Callable[..., Any], is_copy: Callable[[tuple[Any, ...], dict[str, Any]], bool]
) -> Callable[..., Any]:
    def timed(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if is_compiling() or not self.is_cpu or not is_copy(args, kwargs):
            return original(self, *args, **kwargs)
        kind, size = _describe(self)
        span = _copy_probe.start(Kind.H2D, kind, size)
        try:
            return original(self, *args, **kwargs)
        finally:
            _copy_probe.end(span)

    return timed


def is_copy_to_device(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return True if a call of `to` copies to a device; most calls only change the type."""
    target = kwargs.get("device", kwargs.get("other", args[0] if args else None))
    if isinstance(target, torch.Tensor):
        return not target.is_cpu
    if isinstance(target, torch.dtype) or target is None:
        return False
    return not str(target).startswith(("cpu", "meta"))


def _describe(tensor: torch.Tensor) -> tuple[str, int]:
    """Return the kind of memory of a tensor, pinned or pageable, and its size in bytes."""
    try:
        pinned = torch.cuda.is_initialized() and tensor.is_pinned()
        return "pinned" if pinned else "pageable", tensor.numel() * tensor.element_size()
    except (RuntimeError, NotImplementedError, TypeError):  # sparse, nested, a subclass
        return "pageable", 0
