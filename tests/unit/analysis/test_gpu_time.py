"""GPU time, compared with its definitions nanosecond by nanosecond."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given, strategies as st

from stepscope.analysis.gpu_time import GpuTime, measure_gpu_time, measure_gpu_time_by_device
from tests.support.device_columns import Event, work_of

EVENTS = st.lists(
    st.builds(
        lambda kind, start, duration, stream, device: Event(
            kind, start, start + duration, stream=stream, device=device
        ),
        st.sampled_from(["kernel", "comm", "memcpy", "memset"]),
        st.integers(0, 60),
        st.integers(0, 20),
        st.integers(0, 2),
        st.integers(0, 1),
    ),
    min_size=1,
    max_size=14,
)


def brute_force(events: list[Event]) -> dict[str, int]:
    """Apply the definitions to each nanosecond."""
    ticks = range(min(e.start for e in events), max(e.end for e in events))

    def running(tick: int, *kinds: str) -> bool:
        return any(e.start <= tick < e.end for e in events if e.kind in kinds)

    compute = {t for t in ticks if running(t, "kernel", "memset")}
    comm = {t for t in ticks if running(t, "comm")}
    memcpy = {t for t in ticks if running(t, "memcpy")}
    ordered = sorted(events, key=lambda e: (e.start, e.end))
    overlaps = [
        i
        for i, event in enumerate(ordered)
        if any(e.stream == event.stream and e.end > event.start for e in ordered[:i])
    ]
    return {
        "total_ns": len(ticks),
        "busy_ns": len(compute | comm | memcpy),
        "idle_ns": len(ticks) - len(compute | comm | memcpy),
        "compute_ns": len(compute),
        "memset_ns": sum(running(t, "memset") for t in ticks),
        "comm_ns": len(comm),
        "exposed_comm_ns": len(comm - compute),
        "exposed_memcpy_ns": len(memcpy - compute - comm),
        "same_stream_overlap_count": len(overlaps),
        "gpu_event_count": len(events),
    }


@given(events=EVENTS)
def test_breakdown_equals_brute_force(events: list[Event]) -> None:
    time = measure_gpu_time(work_of(*events))
    assert time is not None
    assert asdict(time) == brute_force(events)


@given(events=EVENTS)
def test_each_device_is_broken_down_separately(events: list[Event]) -> None:
    times = measure_gpu_time_by_device(work_of(*events))
    assert set(times) == {event.device for event in events}
    for device, time in times.items():
        assert asdict(time) == brute_force([e for e in events if e.device == device])


@given(events=EVENTS, offset=st.integers(-(2**40), 2**60))
def test_breakdown_is_invariant_under_shift(events: list[Event], offset: int) -> None:
    moved = [e._replace(start=e.start + offset, end=e.end + offset) for e in events]
    assert measure_gpu_time(work_of(*moved)) == measure_gpu_time(work_of(*events))


def test_no_work_has_no_time() -> None:
    assert measure_gpu_time(work_of()) is None
    assert measure_gpu_time_by_device(work_of()) == {}


def test_inconsistent_figures_are_rejected() -> None:
    with pytest.raises(ArithmeticError, match="not conserved"):
        GpuTime(**dict.fromkeys(GpuTime.__dataclass_fields__, 1))


def test_inputs_are_not_modified() -> None:
    work = work_of(Event("kernel", 5, 9), Event("memcpy", 0, 7))
    before = {name: getattr(work, name).copy() for name in work.__dataclass_fields__}
    measure_gpu_time(work)
    for name, values in before.items():
        assert np.array_equal(getattr(work, name), values)
