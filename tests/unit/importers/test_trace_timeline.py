"""Levels of detail hold every range once, in however many slices they were made."""

from __future__ import annotations

import pytest

from kineto_files import Event, Tables, imported, kernel, launch, op, python, trace
from stepscope.importers import trace_file


def steps(count: int) -> list[Event]:
    """Nested calls and a kernel every 50 microseconds."""
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
    """Events and their time, by level."""
    sums: dict[int, tuple[int, int]] = {}
    for row in tables.rows("timeline"):
        count, busy = sums.get(row["level"], (0, 0))
        sums[row["level"]] = (count + row["count"], busy + row["busy_ns"])
    return sums


@pytest.mark.parametrize("slice_rows", [600_000, 3_000, 700])
def test_every_level_holds_all_ranges(slice_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_file, "TIMELINE_EVENTS", 1)
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


def test_a_small_trace_is_drawn_from_its_events() -> None:
    assert not imported(trace(*steps(20))).rows("timeline")
