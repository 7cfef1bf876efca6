"""Steps of traces: boundaries, and exposed time by category."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from stepscope.analysis.trace_steps.trace_steps import (
    CATEGORIES,
    HostSteps,
    break_down_steps,
    find_device_categories,
    find_host_steps,
    find_trace_steps,
    is_data_loader,
    is_step,
    make_single_step,
    measure_overlap,
    merge_categories,
)
from stepscope.intervals import Intervals
from tests.support.device_columns import Event, calls_of, work_of


def ranges(*pairs: tuple[int, int]) -> Intervals:
    both = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return Intervals(both[:, 0], both[:, 1])


def marks(*pairs: tuple[int, int]) -> HostSteps:
    return HostSteps(names=[str(i) for i in range(len(pairs))], extent=ranges(*pairs))


def extents(host: HostSteps, events: list[Event], *calls: tuple[int, int, int]) -> list[list[int]]:
    steps = find_trace_steps(host, work_of(*events), calls_of(*calls))
    return [list(pair) for pair in zip(*(part.tolist() for part in steps.extent), strict=True)]


def test_a_step_of_every_category() -> None:
    # 400 us: 180 of an exposed loader, 70 of host work of which 35 are hidden, and so on.
    step = ranges((0, 400))
    parts = {
        "kernel": ranges((300, 315)),
        "memcpy": ranges((290, 302)),  # the last 2 behind the kernel
        "memset": ranges((315, 320)),
        "runtime": ranges((200, 220), (310, 330)),  # half of the second behind device work
        "data_loader": ranges((0, 100), (60, 180)),
        "cpu_exec": ranges((170, 235), (225, 235)),
    }
    category_ns = {name: int(times[0]) for name, times in break_down_steps(step, parts).items()}
    assert category_ns == {
        "kernel": 15,
        "memcpy": 10,
        "memset": 5,
        "communication": 0,
        "runtime": 30,
        "data_loader": 180,
        "cpu_exec": 35,
        "other": 125,
    }


@given(
    steps=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), min_size=1, max_size=4),
    drawn=st.lists(
        st.tuples(st.sampled_from(CATEGORIES[:-1]), st.integers(0, 80), st.integers(0, 15)),
        max_size=14,
    ),
)
def test_first_active_category_gets_each_instant(
    steps: list[tuple[int, int]], drawn: list[tuple[str, int, int]]
) -> None:
    extent = ranges(*((start, start + duration) for start, duration in steps))
    parts = {
        name: ranges(
            *((start, start + duration) for kind, start, duration in drawn if kind == name)
        )
        for name in CATEGORIES[:-1]
    }
    times = break_down_steps(extent, parts)
    assert sum(times.values()).tolist() == [duration for _, duration in steps]
    for i, (start, duration) in enumerate(steps):
        owners = [
            next(
                (n for n in CATEGORIES[:-1] for k, a, d in drawn if k == n and a <= t < a + d),
                "other",
            )
            for t in range(start, start + duration)
        ]
        assert {name: int(times[name][i]) for name in CATEGORIES} == {
            name: owners.count(name) for name in CATEGORIES
        }


# --- boundaries ----------------------------------------------------------------------------------


FIRST, SECOND = Event("kernel", 50, 130, launch=1), Event("kernel", 150, 260, launch=2)
LAUNCHED = Event("kernel", 60, 90, launch=1)
CALL = (1, 10, 15)


@pytest.mark.parametrize(
    ("host", "events", "calls", "expected"),
    [
        # Steps extend to the end of their device work; one in between has none.
        (((0, 100), (100, 200)), [FIRST, SECOND], [CALL, (2, 110, 115)], [[0, 130], [130, 260]]),
        (
            ((0, 100), (100, 110), (110, 200)),
            [FIRST, SECOND],
            [CALL, (2, 120, 125)],
            [[0, 130], [130, 130], [130, 260]],
        ),
        # The first step starts after earlier work, but not after work that ends later than its own
        # first work starts.
        (((0, 100),), [Event("kernel", -20, 40), LAUNCHED], [CALL], [[40, 100]]),
        (((0, 100),), [Event("kernel", -20, 70, stream=9), LAUNCHED], [CALL], [[0, 100]]),
        (((0, 100), (120, 200)), [], [], [[0, 100], [120, 200]]),
    ],
)
def test_boundaries_of_steps(host: Any, events: Any, calls: Any, expected: list[list[int]]) -> None:
    assert extents(marks(*host), events, *calls) == expected


def test_call_across_the_end_of_a_step_is_in_neither() -> None:
    host = marks((0, 100), (100, 200))
    work = [Event("kernel", 20, 30, launch=1), Event("kernel", 300, 400, launch=2)]
    steps = find_trace_steps(host, work_of(*work), calls_of((1, 5, 100), (2, 95, 105)))
    assert steps.device_work_count.tolist() == [1]
    assert steps.cut_off == ["1"]


@pytest.mark.parametrize(
    ("counts", "complete_count"),
    [
        ([10, 10, 8], 3),
        ([10, 10, 7], 2),
        ([10, 10, 0, 0], 2),
        ([10, 7, 0], 1),
        ([10, 7, 4], 2),
        ([3], 1),
        ([0, 5], 2),
    ],
)
def test_cut_off_steps_are_removed(counts: list[int], complete_count: int) -> None:
    host = marks(*((1000 * i, 1000 * i + 1000) for i in range(len(counts))))
    numbers = iter(range(1000))
    work, calls = [], []
    for step, count in enumerate(counts):
        for i in range(count):
            number = next(numbers)
            at = 1000 * step + 20 * i
            work.append(Event("kernel", at + 5, at + 15, launch=number))
            calls.append((number, at, at + 1))
    steps = find_trace_steps(host, work_of(*work), calls_of(*calls))
    assert steps.names == host.names[:complete_count]
    assert steps.cut_off == host.names[complete_count:]


# --- names ---------------------------------------------------------------------------------------


def test_steps_by_name() -> None:
    names = ["ProfilerStep#8", "aten::add", "ProfilerStep#7", "ProfilerStep#8", "ProfilerStep#x"]
    steps = find_host_steps(names, np.array([50, 0, 10, 40, 0]), np.array([60, 1, 20, 49, 1]))
    assert steps.names == ["7", "8"]
    assert [part.tolist() for part in steps.extent] == [[10, 50], [20, 60]]
    twice = find_host_steps(["ProfilerStep#8"] * 2, np.array([4, 5]), np.array([9, 7]))
    assert [part.tolist() for part in twice.extent] == [[4], [9]]
    assert find_host_steps(["aten::add"], np.array([0]), np.array([1])) is None
    assert make_single_step(3, 9).names == ["0"]
    assert not is_step("ProfilerStep#")


def test_loaders_by_name() -> None:
    assert is_data_loader("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__")
    assert is_data_loader("enumerate(DataPipe)#Mapper")
    assert not is_data_loader("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__init__")


# --- communication -------------------------------------------------------------------------------


def test_two_ranks_that_communicate() -> None:
    """One step of 235: the first rank's kernels, collectives by their kernels alone."""
    work = work_of(
        Event("comm", 16, 32, stream=20),
        Event("comm", 162, 1718, stream=20),
        Event("kernel", 130, 291),
    )
    step = ranges((0, 235))
    overlap = measure_overlap(step, work)
    computing, sending = int(overlap.computation_ns[0]), int(overlap.communication_ns[0])
    both = int(overlap.overlap_ns[0])
    assert (computing, sending, both) == (105, 89, 73)
    bars = (computing - both, both, sending - both, 235 - computing - sending + both)
    assert bars == (32, 73, 16, 114)
    parts = break_down_steps(step, find_device_categories(work))
    assert (int(parts["kernel"][0]), int(parts["communication"][0])) == (105, 16)


def test_memory_sets_are_not_computation() -> None:
    work = work_of(Event("memset", 0, 10), Event("comm", 5, 20, stream=20))
    overlap = measure_overlap(ranges((0, 30)), work)
    assert (int(overlap.computation_ns[0]), int(overlap.overlap_ns[0])) == (0, 0)


def test_communication_of_host_and_devices_is_one_category() -> None:
    one = find_device_categories(work_of(Event("comm", 0, 10)))
    merged = merge_categories(one, {"communication": ranges((5, 25))})
    assert [part.tolist() for part in merged["communication"]] == [[0], [25]]
    assert set(merged) == set(one)
