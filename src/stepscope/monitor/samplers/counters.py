"""Cycles, instructions, cache misses and iTLB misses of every process of the job.

A counter is opened for each thread that a process has when it is found. New threads inherit the
counters of the thread that starts them, so a process that is found early costs one file descriptor
per event, however many threads it starts. The values of a process are the sums of its counters.

    no CPU time since the last sample                   0
    CPU time, but the event was never counted in it     missing
    counted for a part of the CPU time                  scaled to all of it

Counters of the processor for single threads, through `perf_event_open(2)`. Only user space is
counted, which the kernel allows every user by default (`kernel.perf_event_paranoid` up to 2). A
counter includes all threads that its thread starts later, and no processes that it forks.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import resource
import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from stepscope.monitor.samplers.base import Sample, Unavailable, read_bytes
from stepscope.monitor.samplers.processes import JobProcess, JobTree, list_names

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


EVENTS = {
    "cycles": CYCLES,
    "instructions": INSTRUCTIONS,
    "cache_misses": CACHE_MISSES,
    "itlb_misses": ITLB_MISSES,
}
"""Events by their names in metrics."""
MAX_DESCRIPTOR_SHARE = 0.5
"""Share of the open files of the monitor that may be counters."""
_NS_PER_S = 1_000_000_000
_ENDED = {errno.ESRCH, errno.ENOENT}


class _Process(msgspec.Struct):
    """Counters of one process."""

    start_ticks: int
    previous_ns: int
    """Time of the last sample."""
    descriptors: dict[str, list[int]] = msgspec.field(default_factory=dict)
    """By event."""
    readings: dict[str, Reading] = msgspec.field(default_factory=dict)
    """Last sums by event."""

    @property
    def descriptor_count(self) -> int:
        return sum(map(len, self.descriptors.values()))

    def close(self) -> None:
        for descriptors in self.descriptors.values():
            for descriptor in descriptors:
                os.close(descriptor)
        self.descriptors.clear()


class CounterSampler:
    """Sampler of the processor's counters for every process of the job."""

    group = "cpu_counters"

    def __init__(
        self, job: JobTree, events: Mapping[str, Event] = EVENTS, *, proc: str = "/proc"
    ) -> None:
        """Find the events that can be counted here.

        Raises:
            Unavailable: none can.
        """
        self._job = job
        self._proc = proc
        self._processes: dict[int, _Process] = {}
        self._uncounted: dict[int, int] = {}
        """Start ticks by pid of processes without counters."""
        self._events: dict[str, Event] = {}
        self.missing: dict[str, str] = {}
        """Events that cannot be counted, with the reason."""
        for name, event in events.items():
            try:
                os.close(open_counter(event, 0))
            except OSError as error:
                self.missing[f"process_{name}"] = (
                    f"the processor cannot count them: {error.strerror}"
                )
                refusal = error
            else:
                self._events[name] = event
        if not self._events:
            raise Unavailable(explain_refusal(refusal, proc=proc))

    def sample(self, now_ns: int) -> Iterator[Sample]:
        """Sample every process; see `Sampler.sample`.

        Raises:
            OSError: after all samples, if processes found since the last call cannot be counted.
        """
        self._job.refresh(now_ns)
        running = self._job.processes
        for pid in self._processes.keys() - running.keys():
            self._processes.pop(pid).close()
        problem = None
        for pid, process in running.items():
            counted = self._processes.get(pid)
            if counted is not None and counted.start_ticks == process.start_ticks:
                yield from _sample_process(str(pid), counted, now_ns)
            elif self._uncounted.get(pid) != process.start_ticks:
                problem = self._add(process, now_ns) or problem
        if problem is not None:
            raise problem

    def _add(self, process: JobProcess, now_ns: int) -> OSError | None:
        """Open the counters of a process; the reason if that fails, unless it has ended."""
        earlier = self._processes.pop(process.pid, None)
        if earlier is not None:  # its pid is used again
            earlier.close()
        added = _Process(process.start_ticks, now_ns)
        try:
            self._open(process.pid, added)
        except OSError as error:
            added.close()
            self._uncounted[process.pid] = process.start_ticks
            if error.errno in _ENDED:
                return None
            return OSError(error.errno, f"process {process.pid}: {error.strerror}")
        self._processes[process.pid] = added
        return None

    def _open(self, pid: int, process: _Process) -> None:
        threads = sorted(map(int, list_names(f"{self._proc}/{pid}/task")))
        used = sum(counted.descriptor_count for counted in self._processes.values())
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        needed = len(threads) * len(self._events)
        if limit != resource.RLIM_INFINITY and used + needed > MAX_DESCRIPTOR_SHARE * limit:
            raise OSError(
                errno.EMFILE,
                f"its {len(threads)} threads need {needed} open files; raise `ulimit -n`",
            )
        for name, event in self._events.items():
            opened = process.descriptors.setdefault(name, [])
            for thread in threads:
                opened.append(open_counter(event, thread))
            process.readings[name] = read_counters(opened)


def _sample_process(device: str, process: _Process, now_ns: int) -> Iterator[Sample]:
    """Read the counters of one process: events per second, and their ratios."""
    elapsed_s = (now_ns - process.previous_ns) / _NS_PER_S
    process.previous_ns = now_ns
    counts: dict[str, float] = {}
    for name, descriptors in process.descriptors.items():
        reading = read_counters(descriptors)
        estimate = reading.since(process.readings[name]).estimate
        process.readings[name] = reading
        if estimate is not None:
            counts[name] = estimate
    if elapsed_s <= 0:
        return
    for name, value in counts.items():
        yield Sample(f"process_{name}_per_s", device, value / elapsed_s)
    instructions = counts.get("instructions")
    if not instructions:
        return
    if cycles := counts.get("cycles"):
        yield Sample("process_instructions_per_cycle", device, instructions / cycles)
    for name in ("cache_misses", "itlb_misses"):
        if name in counts:
            metric = f"process_{name}_per_1000_instructions"
            yield Sample(metric, device, 1000 * counts[name] / instructions)
