"""Device work nanosecond by nanosecond: GPU time, idle time and launches."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st
from msgspec.structs import asdict

from stepscope.analysis.arrays.histograms import cut_into_buckets
from stepscope.analysis.devices.gpu_time import (
    KERNEL_WAIT_BELOW_NS,
    GpuTime,
    measure_gpu_time,
    measure_gpu_time_by_device,
    measure_stream_idle,
)
from stepscope.analysis.devices.launches import (
    LaunchThresholds,
    find_launches,
    measure_queue_depths,
    summarize_launches,
)
from tests.support.device_columns import Event, calls_of, work_of

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
        GpuTime(**dict.fromkeys(GpuTime.__struct_fields__, 1))


def test_inputs_are_not_modified() -> None:
    work = work_of(Event("kernel", 5, 9), Event("memcpy", 0, 7))
    before = {name: getattr(work, name).copy() for name in work.__struct_fields__}
    measure_gpu_time(work)
    for name, values in before.items():
        assert np.array_equal(getattr(work, name), values)


US = 1_000


def test_the_three_causes() -> None:
    work = work_of(
        Event("kernel", 0, 10 * US, launch=1),
        Event("kernel", 15 * US, 20 * US, launch=2),  # queued before the gap: the device's own
        Event("kernel", 70 * US, 80 * US, launch=3),  # launched into the gap
        Event("kernel", 180 * US, 190 * US, launch=4),  # queued, but waited for something
        Event("memcpy", 300 * US, 310 * US),  # its launch is unknown
    )
    calls = calls_of(
        (1, -5 * US, -2 * US), (2, 1 * US, 3 * US), (3, 60 * US, 65 * US), (4, 66 * US, 69 * US)
    )
    (stream,) = measure_stream_idle(work, calls, streams={7: 7})
    assert (stream.stream, stream.work_count, stream.span_ns) == (7, 5, 310 * US)
    assert (stream.kernel_wait_ns, stream.kernel_wait_count) == (5 * US, 1)
    assert (stream.host_wait_ns, stream.host_wait_count) == (50 * US, 1)
    assert (stream.other_ns, stream.other_count) == (100 * US + 110 * US, 2)
    assert stream.longest_host_wait_ns == 50 * US
    assert stream.busy_ns + stream.idle_ns == stream.span_ns


def test_the_threshold_is_exclusive_and_an_argument() -> None:
    gap = KERNEL_WAIT_BELOW_NS
    work = work_of(Event("kernel", 0, 10, launch=1), Event("kernel", 10 + gap, 20 + gap, launch=1))
    calls = calls_of((1, -2, -1))
    (stream,) = measure_stream_idle(work, calls)
    assert (stream.kernel_wait_ns, stream.other_ns) == (0, gap)
    (stream,) = measure_stream_idle(work, calls, kernel_wait_below_ns=gap + 1)
    assert (stream.kernel_wait_ns, stream.other_ns) == (gap, 0)


def test_launch_at_the_end_of_earlier_work_is_not_a_host_wait() -> None:
    work = work_of(Event("kernel", 0, 10), Event("kernel", 15, 20, launch=1))
    assert measure_stream_idle(work, calls_of((1, 10, 12)))[0].host_wait_count == 0
    assert measure_stream_idle(work, calls_of((1, 11, 12)))[0].host_wait_count == 1


def test_streams_are_measured_separately() -> None:
    work = work_of(
        Event("kernel", 0, 10, stream=7),
        Event("comm", 5, 50, stream=20),
        Event("kernel", 30, 40, stream=7),
    )
    idle_times = measure_stream_idle(work, calls_of(), streams={7: 7, 20: 20})
    assert {idle.stream: idle.idle_ns for idle in idle_times} == {7: 20, 20: 0}
    assert measure_stream_idle(work_of(), calls_of()) == []


@given(
    events=st.lists(
        st.tuples(st.integers(0, 200), st.integers(0, 30), st.integers(0, 2), st.integers(-1, 5)),
        min_size=1,
        max_size=20,
    ),
    calls=st.lists(st.tuples(st.integers(-20, 200), st.integers(0, 9)), min_size=6, max_size=6),
)
def test_time_is_conserved(
    events: list[tuple[int, int, int, int]], calls: list[tuple[int, int]]
) -> None:
    drawn = [
        Event("kernel", start, start + duration, stream, launch)
        for start, duration, stream, launch in events
    ]
    runtime_calls = calls_of(
        *((i, start, start + duration) for i, (start, duration) in enumerate(calls))
    )
    streams = {stream: stream for stream in range(3)}
    for idle in measure_stream_idle(
        work_of(*drawn), runtime_calls, streams=streams, kernel_wait_below_ns=10
    ):
        stream_events = [e for e in drawn if e.stream == idle.stream]
        covered = {t for e in stream_events for t in range(e.start, e.end)}
        span = max(e.end for e in stream_events) - min(e.start for e in stream_events)
        assert (idle.span_ns, idle.busy_ns, idle.idle_ns) == (
            span,
            len(covered),
            span - len(covered),
        )
        assert min(idle.host_wait_ns, idle.kernel_wait_ns, idle.other_ns) >= 0


def test_statistics_of_launches() -> None:
    work = work_of(
        Event("kernel", 20 * US, 25 * US, launch=1),  # shorter than its call
        Event("kernel", 30 * US, 90 * US, launch=2),
        Event("memcpy", 300 * US, 310 * US, launch=3),  # long call, long delay
        Event("kernel", 400 * US, 410 * US),  # no launch
    )
    calls = calls_of((1, 0, 10 * US), (2, 10 * US, 31 * US), (3, 100 * US, 160 * US))
    launches = find_launches(work, calls)
    assert launches.known_delays_ns(np.ones(len(launches), dtype=np.bool_)).tolist() == [
        10 * US,
        0,  # it started while the call was still running
        140 * US,
    ]
    statistics = summarize_launches("all", launches, np.ones(3, dtype=np.bool_))
    assert (statistics.launch_count, statistics.work_count) == (3, 3)
    assert (statistics.short_count, statistics.long_call_count, statistics.long_delay_count) == (
        2,
        1,
        1,
    )
    assert (statistics.delay_p50_ns, statistics.delay_max_ns) == (10 * US, 140 * US)
    assert measure_queue_depths(find_launches(work_of(), calls), None) == []
    assert (
        summarize_launches("all", find_launches(work_of(), calls), np.ones(0, dtype=np.bool_))
        is None
    )


def test_limits_are_exclusive() -> None:
    work = work_of(Event("kernel", 150 * US, 200 * US, launch=1))
    statistics = summarize_launches(
        "all", find_launches(work, calls_of((1, 0, 50 * US))), np.ones(1, dtype=np.bool_)
    )
    assert (statistics.short_count, statistics.long_call_count, statistics.long_delay_count) == (
        0,
        0,
        0,
    )


def test_a_replayed_graph_is_one_launch() -> None:
    replay = [Event("kernel", 100 + 10 * i, 108 + 10 * i, launch=1) for i in range(400)]
    launches = find_launches(work_of(*replay), calls_of((1, 0, 50)))
    assert launches.work_count.tolist() == [400]
    assert launches.known_delays_ns(np.ones(len(launches), dtype=np.bool_)).tolist() == [50]
    assert launches.device_ns.tolist() == [400 * 8]
    (queue,) = measure_queue_depths(launches, None)
    assert (queue.largest_depth, queue.span_ns) == (1, 100)


def test_queue_that_fills_and_blocks() -> None:
    work = work_of(*(Event("kernel", 100 + 10 * i, 110 + 10 * i, launch=i) for i in range(5)))
    calls = calls_of(*((i, 10 * i, 10 * i + 1) for i in range(5)))
    launches = find_launches(work, calls)
    (queue,) = measure_queue_depths(
        launches, cut_into_buckets(0, 200, 20), LaunchThresholds(blocked_count=4)
    )
    assert (queue.launch_count, queue.largest_depth) == (5, 5)
    assert queue.span_ns == 140
    # One after the other for 40, all five queued for 60, and away again one after the other.
    assert queue.mean_depth == (10 * (1 + 2 + 3 + 4) + 60 * 5 + 10 * (4 + 3 + 2 + 1)) / 140
    assert queue.blocked_ns == 10 + 60 + 10
    assert queue.depth_curve == [2, 4, 5, 5, 5, 4, 2, 0, 0, 0]


def test_work_that_starts_before_its_launch_by_another_clock() -> None:
    launches = find_launches(work_of(Event("kernel", 95, 120, launch=1)), calls_of((1, 100, 105)))
    (queue,) = measure_queue_depths(launches, None)
    assert (queue.largest_depth, queue.span_ns, queue.mean_depth, queue.blocked_ns) == (1, 0, 0, 0)


@given(
    pairs=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 30)), min_size=1, max_size=15),
    width=st.integers(1, 90),
)
def test_depth_equals_a_count_at_each_time(pairs: list[tuple[int, int]], width: int) -> None:
    calls = calls_of(*((i, start, start + 1) for i, (start, _) in enumerate(pairs)))
    work = work_of(
        *(
            Event("kernel", start + wait, start + wait + 1, launch=i)
            for i, (start, wait) in enumerate(pairs)
        )
    )
    cut = cut_into_buckets(0, 90, width)
    (queue,) = measure_queue_depths(
        find_launches(work, calls), cut, LaunchThresholds(blocked_count=3)
    )
    depth = [sum(start <= t < start + wait for start, wait in pairs) for t in range(90)]
    first, last = min(start for start, _ in pairs), max(start + wait for start, wait in pairs)
    during = depth[first:last]
    assert queue.span_ns == len(during)
    assert queue.mean_depth == (sum(during) / len(during) if during else 0)
    assert queue.blocked_ns == sum(d >= 3 for d in during)
    edges = cut.edges.tolist()
    for i, peak in enumerate(queue.depth_curve):
        # Work that starts at the time of its launch is in the queue for no time.
        assert peak >= max(depth[edges[i] : edges[i + 1]])
        launched = sum(edges[i] <= start < edges[i + 1] for start, _ in pairs)
        assert peak <= (depth[edges[i] - 1] if edges[i] else 0) + launched
