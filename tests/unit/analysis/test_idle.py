"""Idle time of streams by reason."""

from __future__ import annotations

from hypothesis import given, strategies as st

from stepscope.analysis.idle import KERNEL_WAIT_BELOW_NS, measure_stream_idle
from tests.support.device_columns import Event, calls_of, work_of

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
        (1, -5 * US, -2 * US),
        (2, 1 * US, 3 * US),
        (3, 60 * US, 65 * US),
        (4, 66 * US, 69 * US),
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
