"""Cycles, instructions, cache misses and iTLB misses of every process of the job.

A counter is opened for each thread that a process has when it is found. New threads inherit the
counters of the thread that starts them, so a process that is found early costs one file descriptor
per event, however many threads it starts. The values of a process are the sums of its counters.

    no CPU time since the last sample                   0
    CPU time, but the event was never counted in it     missing
    counted for a part of the CPU time                  scaled to all of it
"""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from stepscope.monitor.samplers.base import Sample, Unavailable
from stepscope.monitor.samplers.perf_event import (
    CACHE_MISSES,
    CYCLES,
    INSTRUCTIONS,
    ITLB_MISSES,
    Event,
    Reading,
    explain_refusal,
    open_counter,
    read_counters,
)
from stepscope.monitor.samplers.processes import JobProcess, JobTree, list_names

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


@dataclass(slots=True)
class _Process:
    """Counters of one process."""

    start_ticks: int
    previous_ns: int
    """Time of the last sample."""
    descriptors: dict[str, list[int]] = field(default_factory=dict)
    """By event."""
    readings: dict[str, Reading] = field(default_factory=dict)
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
