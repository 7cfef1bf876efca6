"""Sampling of one node, as much of it as the budget of the monitor allows.

Reduction of the monitor's work to its CPU budget:

    above the budget for two periods       next level, and another one for each further period
    well below it for several periods      previous level, which is tried again later and later if
                                           it turns out to cost too much

The first levels double the time between samples and between writes of the run, the last ones leave
out sources whose cost grows with the number of processes.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

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
    SamplerThread,
    build_samplers,
)
from stepscope.monitor.samplers.processes import TreeSampler
from stepscope.quantities import duration, percent

PERIOD_NS = 20_000_000_000
"""Time over which CPU time is measured; the first one is that of the start, and is not judged."""
ROOM_SHARE = 0.4
"""Share of the budget below which there is room for the previous level, which costs at most about
twice as much: less than a half, so that it does not exceed the budget at once."""
MIN_ROOM_PERIODS = 3
"""Number of periods in a row with room, after which the monitor returns to the previous level."""
MAX_ROOM_PERIODS = 180
"""The same after it has failed to stay there several times: an hour."""
MAX_INTERVAL_NS = 5_000_000_000
"""Longest time between samples that the budget leads to."""
MAX_FLUSH_S = 30.0
"""Longest time between writes of the run that the budget leads to."""
OPTIONAL_SOURCES = {
    "threads": "threads of processes",
    "cpu_counters": "processor counters of processes",
    "processes": "use of resources by process",
}
"""Groups of samplers that can be left out, the least important first, as the run names them."""


class Level(NamedTuple):
    """Amount of work of the monitor."""

    factor: int
    """Of the time between samples and between writes of the run."""
    omitted: tuple[str, ...]
    """Groups of samplers that are left out."""

    def does_at_least(self, level: Level) -> bool:
        """Return True if it leaves out no more than another level."""
        return self.factor <= level.factor and set(self.omitted) <= set(level.omitted)


class Reduction(msgspec.Struct, frozen=True, kw_only=True):
    """State of a throttle, with which the next monitor of the job continues."""

    level: Level
    max_level: Level
    reduced_ns: int | None
    restored_ns: int | None


class Throttle:
    """The level of the monitor, adapted to the CPU time that it takes.

    Args:
        max_ratio: the budget, as a share of one core.
        interval_ns: configured sampling interval.
        flush_s: configured time between writes of the run.
        groups: groups of the samplers of this node.
        now_ns: monotonic time.
        cpu_ns: CPU time of this process.
    """

    def __init__(
        self,
        max_ratio: float,
        *,
        interval_ns: int,
        flush_s: float,
        groups: Collection[str],
        now_ns: int,
        cpu_ns: int,
    ) -> None:
        self._max_ratio = max_ratio
        self._flush_s = flush_s
        self._groups = groups
        self._period_ns, self._cpu_ns = now_ns, cpu_ns
        self._is_starting = True
        self._room_periods = 0
        self._needed_periods = MIN_ROOM_PERIODS
        self._has_returned = False
        self._over_periods = 0
        self._kept_periods = 0
        """Periods within the budget since the last return to a previous level."""
        self._levels = [Level(1, ())]
        self._number = self._max_number = 0
        self._ratio = 0.0
        self._reduced_ns: int | None = None
        """Time after the start of the job at which the first reduction began."""
        self._restored_ns: int | None = None
        """The same of the end of the last one; None while one lasts."""
        self.configure(interval_ns)

    def configure(self, interval_ns: int) -> None:
        """Apply a configured sampling interval; the level stays the same where it exists, or else
        is the last one before it."""
        reduction = self.reduction
        self._interval_ns, self._levels = interval_ns, list(list_levels(interval_ns, self._groups))
        self.resume(reduction)

    @property
    def reduction(self) -> Reduction:
        """The present state."""
        return Reduction(
            level=self.level,
            max_level=self._levels[self._max_number],
            reduced_ns=self._reduced_ns,
            restored_ns=self._restored_ns,
        )

    def resume(self, reduction: Reduction) -> None:
        """Continue with an earlier state; a level that does not exist is the last one before it."""
        self._number, self._max_number = (
            max(index for index, level in enumerate(self._levels) if level.does_at_least(old))
            for old in (reduction.level, reduction.max_level)
        )
        self._reduced_ns, self._restored_ns = reduction.reduced_ns, reduction.restored_ns

    @property
    def level(self) -> Level:
        """The present level."""
        return self._levels[self._number]

    @property
    def interval_ns(self) -> int:
        """The present sampling interval."""
        return self._interval_ns * self.level.factor

    @property
    def flush_s(self) -> float:
        """The present time between writes of the run."""
        return self._stretch_flush(self.level)

    @property
    def reason(self) -> str:
        """Measurement that led to the last change of the level, as one clause."""
        return (
            f"the monitor took {percent(self._ratio, 1)} of a core; its budget is "
            f"{percent(self._max_ratio, 1)}"
        )

    def update(self, now_ns: int, cpu_ns: int, elapsed_ns: int) -> bool:
        """Measure and adapt the level at the end of a period; return True then.

        Args:
            now_ns: monotonic time.
            cpu_ns: CPU time of this process.
            elapsed_ns: time since the start of the job, for the notes.
        """
        period_ns = now_ns - self._period_ns
        if period_ns < PERIOD_NS:
            return False
        ratio = (cpu_ns - self._cpu_ns) / period_ns
        self._period_ns, self._cpu_ns = now_ns, cpu_ns
        if self._is_starting:
            self._is_starting = False
            return True
        self._ratio = ratio
        if ratio <= self._max_ratio:
            self._over_periods = 0
            self._restore(elapsed_ns)
        elif self._over_periods:
            self._reduce(elapsed_ns)
        else:  # a merge of files, for example, takes one period
            self._over_periods, self._room_periods = 1, 0
        return True

    def _reduce(self, elapsed_ns: int) -> None:
        self._room_periods = 0
        if self._has_returned:
            self._needed_periods = min(2 * self._needed_periods, MAX_ROOM_PERIODS)
            self._has_returned = False
        self._number = min(self._number + 1, len(self._levels) - 1)
        self._max_number = max(self._max_number, self._number)
        if self._number:
            self._reduced_ns = elapsed_ns if self._reduced_ns is None else self._reduced_ns
            self._restored_ns = None

    def _restore(self, elapsed_ns: int) -> None:
        self._kept_periods += 1
        if self._has_returned and self._kept_periods >= self._needed_periods:
            self._has_returned, self._needed_periods = False, MIN_ROOM_PERIODS
        has_room = self._ratio < ROOM_SHARE * self._max_ratio
        self._room_periods = self._room_periods + 1 if has_room else 0
        if self._number and self._room_periods >= self._needed_periods:
            self._number -= 1
            self._room_periods = 0
            self._has_returned, self._kept_periods = True, 0
            if not self._number:
                self._restored_ns = elapsed_ns

    @property
    def notes(self) -> list[str]:
        """Clauses that say what is or was reduced, and why; at most two."""
        notes, budget = [], f"its budget of {percent(self._max_ratio, 1)} of a core"
        if self._reduced_ns is not None:
            start = duration(self._reduced_ns)
            if self._restored_ns is None:
                notes.append(
                    f"the monitor has recorded less since {start} after the start of the job "
                    f"({self._describe(self.level)}), to keep {budget}"
                )
            else:
                notes.append(
                    f"the monitor recorded less between {start} and "
                    f"{duration(self._restored_ns)} after the start of the job (down to "
                    f"{self._describe(self._levels[self._max_number])}), to keep {budget}"
                )
        if self._number == len(self._levels) - 1 and self._ratio > self._max_ratio:
            notes.append(
                f"the monitor takes {percent(self._ratio, 1)} of a core although it records as "
                f"little as it can; {budget} cannot be kept"
            )
        return notes

    def _describe(self, level: Level) -> str:
        parts = []
        if level.factor > 1:
            parts = [
                f"a sample every {duration(self._interval_ns * level.factor)} instead of "
                f"{duration(self._interval_ns)}",
                f"the run written every {duration(1e9 * self._stretch_flush(level))} instead of "
                f"{duration(1e9 * self._flush_s)}",
            ]
        parts += [f"no {OPTIONAL_SOURCES[group]}" for group in level.omitted]
        return ", ".join(parts)

    def _stretch_flush(self, level: Level) -> float:
        return max(self._flush_s, min(self._flush_s * level.factor, MAX_FLUSH_S))


def list_levels(interval_ns: int, groups: Collection[str]) -> Iterator[Level]:
    """Yield the levels for a configured interval and the groups of a node, the highest first."""
    factor = 1
    yield Level(factor, ())
    # Powers of two have a common divisor, by which readers weigh samples.
    while 2 * factor * interval_ns <= MAX_INTERVAL_NS:
        factor *= 2
        yield Level(factor, ())
    optional = [group for group in OPTIONAL_SOURCES if group in groups]
    for count in range(1, len(optional) + 1):
        yield Level(factor, tuple(optional[:count]))


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
        self._thread = SamplerThread()
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
        for group, result in self._thread.read(samplers, now_ns):
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
