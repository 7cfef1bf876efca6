"""Launch statistics and queue depth."""

from __future__ import annotations

import numpy as np
from hypothesis import given, strategies as st

from stepscope.analysis.buckets import cut_into_buckets
from stepscope.analysis.launches import (
    LaunchThresholds,
    find_launches,
    measure_queue_depths,
    summarize_launches,
)
from tests.support.device_columns import Event, calls_of, work_of

US = 1_000


def test_statistics_of_launches() -> None:
    work = work_of(
        Event("kernel", 20 * US, 25 * US, launch=1),  # shorter than its call
        Event("kernel", 30 * US, 90 * US, launch=2),
        Event("memcpy", 300 * US, 310 * US, launch=3),  # long call, long delay
        Event("kernel", 400 * US, 410 * US),  # no launch
    )
    calls = calls_of((1, 0, 10 * US), (2, 10 * US, 31 * US), (3, 100 * US, 160 * US))
    launches = find_launches(work, calls)
    assert launches.delay_ns.tolist() == [
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
    assert launches.delay_ns.tolist() == [50]
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
