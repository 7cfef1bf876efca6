"""Sampling of one node, as much of it as the budget of the monitor allows."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import msgspec

from stepscope.budget import MemoryLimit
from stepscope.monitor.config import MonitorConfig
from stepscope.monitor.samplers import (
    Failure,
    GuardedSampler,
    JobTree,
    Sample,
    SamplerError,
    SamplerFailures,
    build_samplers,
    read_samplers,
)
from stepscope.monitor.samplers.processes import TreeSampler
from stepscope.monitor.throttle import Reduction, Throttle

STATE_FILE = "sampling.json"


class SamplingState(msgspec.Struct, frozen=True):
    """State for the next monitor of the job: sources that failed, and those that are left out."""

    failures: dict[str, Failure]
    reduction: Reduction


class Sampling:
    """Samplers of this node, each of which may fail, and the level at which they are read.

    Args:
        job: processes of the job.
        config: configuration of the monitor.
        proc: mount point of procfs.
    """

    def __init__(self, job: JobTree, config: MonitorConfig, *, proc: str) -> None:
        self._state_path = Path(config.spool, STATE_FILE)
        self._stored_state = b""
        samplers, self.missing = build_samplers(job, proc=proc)
        self._samplers = [GuardedSampler(sampler) for sampler in samplers]
        self._tree_sampler = GuardedSampler(TreeSampler(job))
        self._failures = SamplerFailures()
        self._memory = MemoryLimit("the monitor", config.budget.memory_bytes)
        self.throttle = Throttle(
            config.budget.cpu_ratio,
            interval_ns=config.interval_ms * 1_000_000,
            flush_s=config.flush_s,
            groups={sampler.group for sampler in samplers},
            now_ns=time.monotonic_ns(),
            cpu_ns=time.process_time_ns(),
        )

    def resume(self, interval_ns: int) -> None:
        """Apply a configured sampling interval, and continue where an earlier monitor of the job
        has left off."""
        self.throttle.configure(interval_ns)
        with suppress(OSError, msgspec.MsgspecError):  # there is none, or its disk was full
            state = msgspec.json.decode(self._state_path.read_bytes(), type=SamplingState)
            self._failures.by_group.update(state.failures)
            self.throttle.resume(state.reduction)

    def store(self) -> None:
        """Store the state in the spool, for a monitor that replaces this one; without it, as in a
        full spool, that one starts from the beginning."""
        state = SamplingState(self._failures.by_group, self.throttle.reduction)
        encoded = msgspec.json.encode(state)
        if encoded == self._stored_state:
            return
        new_path = self._state_path.with_suffix(".new")
        with suppress(OSError):
            new_path.write_bytes(encoded)
            new_path.replace(self._state_path)
            self._stored_state = encoded

    def keep_budget(self, elapsed_ns: int) -> bool:
        """Measure this process at the end of a period; return True then. Times since the start of
        the job are for the notes."""
        if not self.throttle.update(time.monotonic_ns(), time.process_time_ns(), elapsed_ns):
            return False
        self._memory.check()
        return True

    def refresh_job(self, now_ns: int, elapsed_ns: int) -> None:
        """Refresh the processes of the job."""
        self._read([self._tree_sampler], now_ns, elapsed_ns)

    def read(self, now_ns: int, elapsed_ns: int) -> list[Sample]:
        """Read the samplers of the present level, and note which of them fail."""
        omitted = self.throttle.level.omitted
        for group in omitted:
            self._failures.end(group, elapsed_ns)
        samplers = [sampler for sampler in self._samplers if sampler.group not in omitted]
        return self._read(samplers, now_ns, elapsed_ns)

    def _read(self, samplers: list[GuardedSampler], now_ns: int, elapsed_ns: int) -> list[Sample]:
        samples: list[Sample] = []
        for group, result in read_samplers(samplers, now_ns):
            if isinstance(result, SamplerError):
                self._failures.add(group, str(result), elapsed_ns)
            else:
                self._failures.end(group, elapsed_ns)
                samples += result
        return samples

    @property
    def notes(self) -> list[str]:
        """One clause for each source that failed, and for the budget."""
        memory = [] if self._memory.note is None else [self._memory.note]
        return [*self._failures.notes, *self.throttle.notes, *memory]
