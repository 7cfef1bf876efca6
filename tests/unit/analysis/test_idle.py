"""Why streams were idle."""

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
        Event("memcpy", 300 * US, 310 * US),  # nobody knows who launched it
    )
    calls = calls_of(
        (1, -5 * US, -2 * US),
        (2, 1 * US, 3 * US),
        (3, 60 * US, 65 * US),
        (4, 66 * US, 69 * US),
    )
    (found,) = measure_stream_idle(work, calls)
    assert (found.track, found.work_count, found.span_ns) == (7, 5, 310 * US)
    assert (found.kernel_wait_ns, found.kernel_wait_count) == (5 * US, 1)
    assert (found.host_wait_ns, found.host_wait_count) == (50 * US, 1)
    assert (found.other_ns, found.other_count) == (100 * US + 110 * US, 2)
    assert found.longest_host_wait_ns == 50 * US
    assert found.busy_ns + found.idle_ns == found.span_ns


def test_the_threshold_is_exclusive_and_an_argument() -> None:
    gap = KERNEL_WAIT_BELOW_NS
    work = work_of(Event("kernel", 0, 10, launch=1), Event("kernel", 10 + gap, 20 + gap, launch=1))
    calls = calls_of((1, -2, -1))
    (found,) = measure_stream_idle(work, calls)
    assert (found.kernel_wait_ns, found.other_ns) == (0, gap)
    (found,) = measure_stream_idle(work, calls, kernel_wait_below_ns=gap + 1)
    assert (found.kernel_wait_ns, found.other_ns) == (gap, 0)


def test_a_launch_at_the_very_end_of_the_work_before_is_no_host_wait() -> None:
    work = work_of(Event("kernel", 0, 10), Event("kernel", 15, 20, launch=1))
    assert measure_stream_idle(work, calls_of((1, 10, 12)))[0].host_wait_count == 0
    assert measure_stream_idle(work, calls_of((1, 11, 12)))[0].host_wait_count == 1


def test_overlap_on_one_stream_makes_no_negative_gap() -> None:
    work = work_of(Event("kernel", 0, 100), Event("kernel", 40, 60), Event("kernel", 110, 120))
    (found,) = measure_stream_idle(work, calls_of())
    assert (found.busy_ns, found.idle_ns, found.kernel_wait_ns) == (110, 10, 10)


def test_streams_are_looked_at_one_by_one() -> None:
    work = work_of(
        Event("kernel", 0, 10, stream=7),
        Event("comm", 5, 50, stream=20),
        Event("kernel", 30, 40, stream=7),
    )
    found = {one.track: one for one in measure_stream_idle(work, calls_of())}
    assert {track: one.idle_ns for track, one in found.items()} == {7: 20, 20: 0}
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
        Event("kernel", at, at + lasts, stream, launch) for at, lasts, stream, launch in events
    ]
    made = calls_of(*((i, at, at + lasts) for i, (at, lasts) in enumerate(calls)))
    for one in measure_stream_idle(work_of(*drawn), made, kernel_wait_below_ns=10):
        own = [e for e in drawn if e.stream == one.track]
        covered = {t for e in own for t in range(e.start, e.end)}
        span = max(e.end for e in own) - min(e.start for e in own)
        assert (one.span_ns, one.busy_ns, one.idle_ns) == (span, len(covered), span - len(covered))
        assert min(one.host_wait_ns, one.kernel_wait_ns, one.other_ns) >= 0
