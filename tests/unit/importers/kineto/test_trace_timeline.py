"""Levels of detail hold every range once, for any number of slices."""

from __future__ import annotations

import pytest

from stepscope.importers.kineto import timeline, trace_file
from tests.support.kineto_files import (
    BASE_NS,
    Event,
    Tables,
    imported,
    kernel,
    launch,
    op,
    python,
    trace,
)


def steps(count: int) -> list[Event]:
    """Return nested calls and a kernel every 50 microseconds."""
    events = []
    for n in range(count):
        at = 50_000 * n
        events += [
            python("f", at, 40_000, 2 * n),
            python("g", at + 1_000, 35_000, 2 * n + 1, 2 * n),
            op("outer", at + 2_000, 30_000),
            op("inner", at + 3_000, 10_000 + n % 7),
            launch(at + 4_000, 2_000, n + 1),
            kernel(at + 20_000, 9_000 + n % 5, n + 1),
        ]
    return events


def totals(tables: Tables) -> dict[int, tuple[int, int]]:
    """Return the count and total duration of events by level."""
    sums: dict[int, tuple[int, int]] = {}
    for (_, level), (count, busy) in tables.levels().items():
        total = sums.get(level, (0, 0))
        sums[level] = (total[0] + count, total[1] + busy)
    return sums


@pytest.mark.parametrize("slice_rows", [600_000, 3_000, 700])
def test_every_level_holds_all_ranges(slice_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "SMALL_EVENTS", 1)
    monkeypatch.setattr(trace_file, "SLICE_ROWS", slice_rows)
    monkeypatch.setattr(trace_file, "MIN_SLICE_ROWS", slice_rows)
    events = steps(2_000)
    tables = imported(trace(*events))
    lengths = [row["duration_ns"] for table in ("operators", "python_functions", "kernels",
               "runtime_calls") for row in tables.rows(table)]  # fmt: skip
    levels = totals(tables)
    assert levels
    assert set(levels.values()) == {(len(events), sum(lengths))}
    assert sorted(levels) == list(range(min(levels), max(levels) + 1))
    depths = {row["depth"] for row in tables.rows("timeline")}
    assert depths == {0, 1, 2, 3, 4}


@pytest.mark.parametrize("slice_rows", [600_000, 700])
def test_long_events_are_summed_up_at_no_level(
    slice_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeline, "SMALL_EVENTS", 1)
    monkeypatch.setattr(trace_file, "SLICE_ROWS", slice_rows)
    monkeypatch.setattr(trace_file, "MIN_SLICE_ROWS", slice_rows)
    long = [op("long", 1_000, 60_000_000), op("longer", 70_000_000, 20_000_000)]
    tables = imported(trace(op("first", 0, 10), *steps(2_000), *long))
    alone = {row["longest_name"]: row for row in tables.rows("timeline") if row["id"] is not None}
    ids = {row["name"]: row["id"] for row in tables.rows("operators")}
    for event, (start, duration) in {
        "long": (1_000, 60_000_000),
        "longer": (70_000_000, 20_000_000),
    }.items():
        row = alone[event]
        assert (row["start_ns"] - BASE_NS, row["duration_ns"]) == (start, duration)
        assert (row["id"], row["count"]) == (ids[event], 1)
        assert 4 ** row["level"] * 1_000 <= duration
    finest = min(row["level"] for row in tables.rows("timeline"))
    for row in tables.rows("timeline"):
        if row["id"] is None:
            assert row["longest_ns"] < 4 ** row["level"] * 1_000
            assert row["duration_ns"] < 2 * 4 ** row["level"] * 1_000
            assert row["busy_ns"] <= row["duration_ns"]
        else:
            assert row["duration_ns"] >= 4**finest * 1_000 or row["depth"] > 0


def test_overlapping_work_gets_a_separate_row() -> None:
    tables = imported(trace(op("f", 0, 10), kernel(100, 100, None), kernel(150, 100, None)))
    (moved,) = (row for row in tables.rows("timeline") if row["id"] is not None)
    assert (moved["id"], moved["depth"], moved["start_ns"]) == (2, 1, BASE_NS + 150)


def test_a_small_trace_has_one_level() -> None:
    rows = imported(trace(*steps(200))).rows("timeline")
    assert len({row["level"] for row in rows}) == 1
    assert len(rows) <= 256 * 5
