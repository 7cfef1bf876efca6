"""Memory leaks: time between the phases that grows together with the memory of the process."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import analysis
from stepscope.diagnosis.verdict import Evidence
from stepscope.quantities import count_of, duration, memory
from stepscope.run import Rank, Run

LEAK_RATIO = 0.5
"""Work that has grown since the first steps is a leak when it makes up this much of the share …"""
STEADY_RATIO = 0.85
"""… and in this share of the pairs of sections of the run the later section took longer …"""
MIN_LEAKED_BYTES = 4_000_000
"""… while the memory of the process has grown by this; an allocator's own caches are smaller."""


class MemoryLeak(msgspec.Struct, frozen=True, kw_only=True):
    """Time between the phases that grows steadily, more than the work of the steps does, together
    with the memory of the process."""

    time: analysis.Growth
    """Nanoseconds per step."""
    is_at_equal_work: bool
    """True where the time is scaled to the mean work of a step."""
    memory: analysis.Growth
    """Bytes."""
    step_count: int

    @property
    def excess_ns(self) -> float:
        """Mean step time beyond that at the start of the run."""
        return max(0.0, self.time.excess)


def find_memory_leak(run: Run) -> MemoryLeak | None:
    """Find the memory leak of the rank with the largest excess; None where nothing grows."""
    leaks = [leak for rank in run.ranks if (leak := _find_rank_leak(rank)) is not None]
    return max(leaks, key=lambda leak: leak.excess_ns, default=None)


def _find_rank_leak(rank: Rank) -> MemoryLeak | None:
    is_measured = rank.steps.measured()
    work = [amount[is_measured] for amount in analysis.measure_work(rank.spans, rank.steps)]
    time, is_at_equal_work = analysis.measure_growth_at_equal_work(
        rank.steps.phase_ns["other"][is_measured], work
    )
    if time is None or time.steady_ratio < STEADY_RATIO:
        return None
    memory_growth = analysis.measure_growth(_load_process_memory(rank, is_measured))
    if memory_growth is None or memory_growth.last - memory_growth.first < MIN_LEAKED_BYTES:
        return None
    return MemoryLeak(
        time=time,
        is_at_equal_work=is_at_equal_work,
        memory=memory_growth,
        step_count=int(is_measured.sum()),
    )


def _load_process_memory(rank: Rank, is_measured: NDArray[np.bool_]) -> NDArray[np.float64]:
    metrics = rank.run.metrics.get(rank.process.node)
    rows = np.flatnonzero(is_measured)
    if metrics is None or not len(rows):
        return np.empty(0)
    during = metrics.between(int(rank.steps.start[rows[0]]), int(rank.steps.end[rows[-1]]))
    return during.series("process_memory_bytes", str(rank.process.pid))


def describe_leak(leak: MemoryLeak) -> list[Evidence]:
    """Describe the growth of the time and of the memory."""
    growth_bytes = leak.memory.last - leak.memory.first
    return [
        Evidence(
            text=f"The time between the phases grows from {duration(leak.time.first)} to "
            f"{duration(leak.time.last)} per step{' of equal work' * leak.is_at_equal_work}.",
            value=leak.time.last - leak.time.first,
            unit="ns",
            source="steps",
        ),
        Evidence(
            text=f"The memory of the process grows by {memory(growth_bytes)} over the same "
            f"{count_of(leak.step_count, 'step')}.",
            value=growth_bytes,
            unit="bytes",
            source="system",
        ),
    ]
