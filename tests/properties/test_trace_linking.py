"""Links compared with brute force over all pairs, in one slice of time or in many."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st

from stepscope.importers.kineto import gather, times, trace_file
from tests.support.drawn_programs import programs
from tests.support.kineto_files import Event, Row, Tables, imported, trace
from tests.support.linked_by_hand import Program


def select_columns(rows: dict[int, Row], template: dict[int, Row]) -> dict[int, Row]:
    """Select the columns that the template rows have."""
    names = next(iter(template.values()), {})
    return {key: {name: row[name] for name in names} for key, row in rows.items()}


def assert_linked(tables: Tables, program: Program) -> None:
    work = tables.by_id("kernels") | tables.by_id("copies")
    for actual, expected in (
        (tables.by_id("operators"), program.operator_rows()),
        (tables.by_id("runtime_calls"), program.call_rows()),
        (work, program.work_rows()),
        (tables.by_id("python_functions"), program.python_rows()),
        (tables.by_id("memory_events"), program.memory_rows()),
        (tables.by_id("annotations"), program.annotation_rows()),
    ):
        assert actual.keys() == expected.keys()
        for number, row in select_columns(actual, expected).items():
            assert row == expected[number]


@pytest.mark.slow("imports drawn traces")
@given(events=programs() | programs(untidy=True))
@settings(max_examples=80)
def test_links_are_those_found_by_looking_at_every_pair(events: list[Event]) -> None:
    assert_linked(imported(trace(*events)), Program(events))


@pytest.mark.slow("imports drawn traces")
@given(
    events=programs() | programs(untidy=True),
    rows=st.integers(1, 12),
    memory_bytes=st.sampled_from([0, 200, 1 << 20]),
)
@settings(max_examples=80)
def test_many_slices_give_the_rows_of_one(
    events: list[Event], rows: int, memory_bytes: int
) -> None:
    program = Program(events)
    callers = [(program.named_caller(call), call) for call in program.python]
    # A finished caller may be in a slice that has been released.
    assume(all(caller is None or caller.end >= call.start for caller, call in callers))
    unsliced = imported(trace(*events))
    with (
        mock.patch.object(trace_file, "SLICE_ROWS", rows),
        mock.patch.object(trace_file, "MIN_SLICE_ROWS", rows),
        mock.patch.object(gather, "MEMORY_BYTES", memory_bytes),
    ):
        sliced = imported(trace(*events))
    assert sliced == unsliced


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2), st.integers(0, 20), st.integers(0, 60_000), st.booleans()
        ),
        max_size=12,
    )
)  # fmt: skip
def test_work_is_cut_where_the_next_of_its_stream_starts(
    work: list[tuple[int, int, int, bool]],
) -> None:
    work = [(stream, 5_000 * start, duration, graph) for stream, start, duration, graph in work]
    too_long = []
    gaps = []
    for stream, start, duration, in_graph in work:
        later = [row[1] - start for row in work if row[0] == stream and row[1] > start]
        gaps.append(min(later, default=duration))
        too_long.append(not in_graph and duration > gaps[-1] + times.MAX_OVERLAP_NS)
    expected = []
    for (stream, _, duration, _), gap, is_too_long in zip(work, gaps, too_long, strict=True):
        same = [t for row, t in zip(work, too_long, strict=True) if row[0] == stream]
        is_queue = sum(same) > times.MAX_OVERFLOWING_SHARE * len(same)
        expected.append(gap if is_too_long and not is_queue else duration)
    streams, starts, durations, in_graph = (
        np.array([row[column] for row in work], dtype=np.int64) for column in range(4)
    )
    longest = times.longest_durations(streams, starts, durations, in_graph.astype(np.bool_))
    assert longest.tolist() == expected


@given(st.integers(0, 300), st.lists(st.tuples(st.integers(0, 6_000), st.booleans()), max_size=8))
def test_an_end_is_credible_while_others_end_before(
    last: int, ranges: list[tuple[int, bool]]
) -> None:
    """The smallest of all limits after which nothing ends in time."""
    last, ranges = 10_000_000 * last, [(10_000_000 * end, device) for end, device in ranges]
    limits = [
        limit
        for limit in sorted({last, *(end for end, _ in ranges if end > last)})
        if not any(
            0 < end - limit <= (max(limit, 10**8) if device else max(10 * limit, 10**10))
            for end, device in ranges
        )
    ]
    ends, on_device = (np.array([row[n] for row in ranges], dtype=np.int64) for n in range(2))
    limit = times.last_credible_end(0, last, ends, on_device.astype(np.bool_))
    assert limit == limits[0]


@given(
    st.lists(
        st.tuples(st.integers(0, 10), st.integers(0, 5), st.integers(0, 2)),
        unique_by=lambda row: row[0],
        max_size=12,
    )
)
def test_a_clock_is_set_back_where_the_next_number_starts_early(
    rows: list[tuple[int, int, int]],
) -> None:
    unit = times.SETBACK_TOLERANCE_NS
    rows = [(number, unit * at, unit * length) for number, at, length in rows]
    expected = []
    for number, start, _ in rows:
        before = max((row for row in rows if row[0] < number), default=None)
        back = before[1] + before[2] - start if before else 0
        expected.append(back if back > unit else 0)
    number, start, length = (
        np.array([row[column] for row in rows], dtype=np.int64) for column in range(3)
    )
    assert times.measure_setbacks(number, start, start + length).tolist() == expected


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 60), st.integers(0, 40)), max_size=20),
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 30)), max_size=6),
)
def test_work_that_goes_on_after_a_wait_for_it(
    work: list[tuple[int, int, int]], waits: list[tuple[int, int]]
) -> None:
    """A wait is for one of the devices: that with the least work launched before."""
    expected = []
    for start, length in waits:
        ends = [
            [at + more for one, at, more in work if one == device and at < start]
            for device in {device for device, _, _ in work}
        ]
        if ends and all(ends):
            expected.append(min(map(max, ends)) - start - length)
    device, launched, more = np.array(work, dtype=np.int64).reshape(-1, 3).T
    start, length = np.array(waits, dtype=np.int64).reshape(-1, 2).T
    late = times.measure_lateness(device, launched, launched + more, start, start + length)
    assert late.tolist() == expected


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 20), st.integers(0, 30)), min_size=1))
def test_works_that_a_stream_has_at_once(work: list[tuple[int, int, int]]) -> None:
    """The mean over the instants between its first and its last start."""
    stream, start, duration = np.array(work, dtype=np.int64).T
    crowds = times.measure_crowds(stream, start, duration)
    for (of_stream, _, _), crowd in zip(work, crowds.tolist(), strict=True):
        starts = [at for one, at, _ in work if one == of_stream]
        instants = range(min(starts), max(starts))
        running = [
            sum(one == of_stream and at <= now < at + length for one, at, length in work)
            for now in instants
        ]
        assert crowd == pytest.approx(sum(running) / max(len(instants), 1))
