"""Counters of the processor for single threads, through `perf_event_open(2)`.

Only user space is counted, which the kernel allows every user by default
(`kernel.perf_event_paranoid` up to 2). A counter includes all threads that its thread starts later,
and no processes that it forks.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Iterable
from typing import NamedTuple

from stepscope.monitor.samplers.base import read_bytes

_SYSCALL_NUMBERS = {"x86_64": 298, "aarch64": 241, "ppc64le": 319, "riscv64": 241, "s390x": 331}
_ATTRIBUTES = struct.Struct("=IIQQQQQ24x")
"""`struct perf_event_attr` in its first version: type, size, config, sample_period, sample_type,
read_format, flags."""
_TIMES = 0b11
"""Read format: the value, the time enabled and the time running."""
_INHERIT, _EXCLUDE_KERNEL, _EXCLUDE_HYPERVISOR, _INHERIT_THREAD = 1 << 1, 1 << 5, 1 << 6, 1 << 35
_FLAGS = _INHERIT | _EXCLUDE_KERNEL | _EXCLUDE_HYPERVISOR
_CLOSE_ON_EXEC = 8
_READING = struct.Struct("=QQQ")
_MAX_PARANOID_LEVEL = 2
"""Higher values of `kernel.perf_event_paranoid`, of Debian and Ubuntu, forbid all counters."""
_FILTERED = b"2"
"""Mode of a process with a seccomp filter, in `/proc/self/status`."""


class Event(NamedTuple):
    """Event that can be counted: type and config of `struct perf_event_attr`."""

    type: int
    config: int


CYCLES = Event(0, 0)
INSTRUCTIONS = Event(0, 1)
CACHE_MISSES = Event(0, 3)
ITLB_MISSES = Event(3, 4 | 1 << 16)
"""Misses of reads of the instruction TLB."""


class Reading(NamedTuple):
    """State of a counter since it was opened."""

    value: int
    enabled_ns: int
    """CPU time of the threads that it counts."""
    running_ns: int
    """Part of that time in which it was counted: more events than the processor has counters for
    take turns."""

    def since(self, earlier: Reading) -> Reading:
        """Return what was added since an earlier reading."""
        return Reading(*(new - old for new, old in zip(self, earlier, strict=True)))

    @property
    def estimate(self) -> float | None:
        """The value, scaled to all of the CPU time; None if it never ran in that time."""
        if not self.enabled_ns:
            return 0.0
        return self.value * self.enabled_ns / self.running_ns if self.running_ns else None


def open_counter(event: Event, thread: int) -> int:
    """Start a counter of a thread, 0 for the calling one, and return its file descriptor.

    Raises:
        OSError: the kernel refuses, or the thread has ended.
    """
    try:
        return _open(event, thread, _FLAGS | _INHERIT_THREAD)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    os.close(_open(event, thread, _FLAGS))
    raise OSError(errno.EOPNOTSUPP, "counters that new threads inherit need Linux 5.13 or later")


def read_counters(descriptors: Iterable[int]) -> Reading:
    """Read counters, with those of all threads that inherited them, and return their sum."""
    readings = [_READING.unpack(os.read(d, _READING.size)) for d in descriptors]
    return Reading(*map(sum, zip(*readings, strict=True)))


def explain_refusal(error: OSError, *, proc: str = "/proc") -> str:
    """Explain in one sentence why the kernel refuses to count, and what to change."""
    if error.errno in {errno.ENOENT, errno.ENODEV}:
        return _explain_no_unit(proc)
    if error.errno in {errno.EPERM, errno.ENOSYS} and _is_filtered(proc):
        return (
            "the container's seccomp filter blocks perf_event_open; start the container with "
            "--cap-add PERFMON, or with a seccomp profile that allows the call"
        )
    if error.errno == errno.ENOSYS:
        return "this kernel has no perf_event_open; use one with CONFIG_PERF_EVENTS=y"
    text = _read(f"{proc}/sys/kernel/perf_event_paranoid").strip()
    level = int(text) if text.removeprefix(b"-").isdigit() else 0
    if error.errno in {errno.EPERM, errno.EACCES} and level > _MAX_PARANOID_LEVEL:
        return (
            f"kernel.perf_event_paranoid is {level}, which forbids counters; run "
            f"`sudo sysctl kernel.perf_event_paranoid={_MAX_PARANOID_LEVEL}`"
        )
    return f"perf_event_open failed: {error.strerror}"


def _open(event: Event, thread: int, flags: int) -> int:
    number = _SYSCALL_NUMBERS.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOTSUP, f"not supported on {platform.machine()}")
    attributes = _ATTRIBUTES.pack(
        *(event.type, _ATTRIBUTES.size, event.config), 0, 0, _TIMES, flags
    )
    any_core, no_group = -1, -1
    descriptor = _call_kernel(number, attributes, thread, any_core, no_group, _CLOSE_ON_EXEC)
    if descriptor < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return descriptor


_library = ctypes.CDLL(None, use_errno=True)
_library.syscall.restype = ctypes.c_long


def _call_kernel(number: int, attributes: bytes, *arguments: int) -> int:
    """Call `perf_event_open`; negative on failure, with the reason in ctypes' errno."""
    words = (ctypes.c_long(argument) for argument in arguments)
    return int(_library.syscall(ctypes.c_long(number), attributes, *words))


def _explain_no_unit(proc: str) -> str:
    subject = "the processor's performance monitoring unit (PMU) is not visible"
    hypervisor = "in the hypervisor (QEMU: -cpu host,pmu=on), or use a bare-metal machine"
    if _has_hypervisor(proc):
        return f"{subject} in this virtual machine; enable it {hypervisor}"
    return f"{subject}; enable it in the firmware or, in a virtual machine, {hypervisor}"


def _has_hypervisor(proc: str) -> bool:
    """Return True if the processor says so, which those of x86 do."""
    _, _, rest = _read(f"{proc}/cpuinfo").partition(b"\nflags")
    return b"hypervisor" in rest.partition(b"\n")[0].split()


def _is_filtered(proc: str) -> bool:
    for line in _read(f"{proc}/self/status").splitlines():
        if line.startswith(b"Seccomp:"):
            return line.split()[1:] == [_FILTERED]
    return False


def _read(path: str) -> bytes:
    try:
        return read_bytes(path)
    except OSError:
        return b""
