"""Cycles of steps, against torch's own schedule, and the windows that follow from them."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from stepscope.spool import (
    ScheduledWindows,
    StepSchedule,
    find_overlap,
    next_window,
    parse_step_schedule,
    read_schedules,
    write_schedules,
)

STEPS = 120
SMALL = st.integers(0, 6)


@given(wait=SMALL, warmup=SMALL, active=st.integers(1, 6), repeat=SMALL, skip_first=SMALL,
       skip_first_wait=st.integers(0, 1))  # fmt: skip
def test_windows_are_those_of_torch(**values: int) -> None:
    torch_profiler = pytest.importorskip("torch.profiler")
    action = torch_profiler.ProfilerAction
    if not values["wait"] + values["warmup"] and values["repeat"] != 1:
        with pytest.raises(ValueError, match="need a gap"):
            StepSchedule(**values)
        return
    schedule = StepSchedule(**values)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns without a warm-up
        of_torch = torch_profiler.schedule(**values)
    actions = [of_torch(step) for step in range(STEPS)]
    recorded, warming = set(), set()
    cycle = 0
    while (first := schedule.first_step + cycle * schedule.interval) < STEPS + schedule.warmup:
        if schedule.repeat and cycle >= schedule.repeat:
            break
        recorded |= set(range(first, first + schedule.step_count))
        warming |= set(range(first - schedule.warmup, first))
        cycle += 1
    records = {action.RECORD, action.RECORD_AND_SAVE}
    assert {s for s in range(STEPS) if actions[s] in records} == recorded & set(range(STEPS))
    assert {s for s in range(STEPS) if actions[s] == action.WARMUP} == warming & set(range(STEPS))


def test_text() -> None:
    text = "wait=5, warmup=2, active=10, repeat=3, skip_first=20, skip_first_wait=1"
    schedule = parse_step_schedule(text)
    assert (schedule.first_step, schedule.interval, schedule.repeat) == (22, 17, 3)
    assert parse_step_schedule("wait=1,warmup=0,active=1").settings["repeat_count"] is None


@pytest.mark.parametrize("values", [{"wait": -1}, {"active": 0}, {"repeat": 1.5}])
def test_numbers_out_of_range(values: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must be a whole number of at least"):
        StepSchedule(**{"wait": 1, "warmup": 1, "active": 1, **values})


@given(first=st.integers(0, 20), interval=st.integers(4, 30).map(lambda halves: halves / 2),
       repeat=st.none() | st.integers(1, 5), step=st.integers(0, 80))  # fmt: skip
def test_the_next_window_is_the_first_that_has_not_started(
    first: int, interval: float, repeat: int | None, step: int
) -> None:
    windows = ScheduledWindows(
        first_step=first, step_count=1, interval=interval, repeat_count=repeat
    )
    starts = [first + round(index * interval) for index in range(repeat or 100)]
    expected = next((start for start in starts if start >= step), None)
    assert windows.next_start(step) == expected
    single = ScheduledWindows(first_step=first, step_count=1)
    assert single.next_start(step) == (first if step <= first else None)


@given(
    schedules=st.lists(
        st.builds(
            ScheduledWindows,
            first_step=st.integers(0, 40),
            step_count=st.integers(1, 6),
            interval=st.one_of(st.none(), st.integers(7, 30)),
            repeat_count=st.one_of(st.none(), st.integers(1, 5)),
            warmup_count=st.integers(0, 4),
            min_start=st.integers(0, 50),
        ),
        min_size=2,
        max_size=2,
    )
)
def test_overlaps_are_those_of_the_steps_themselves(schedules: list[ScheduledWindows]) -> None:
    horizon = 2_000  # longer than the common period of any two intervals
    occupied = []
    for schedule in schedules:
        starts = {schedule.next_start(step) for step in range(horizon)} - {None}
        # One step more than its own: the gap.
        spans = ((start, start + schedule.step_count) for start in starts if start is not None)
        occupied.append([(start - schedule.warmup_count, end) for start, end in spans])
    overlaps = any(a <= d and c <= b for a, b in occupied[0] for c, d in occupied[1])
    assert (find_overlap(*schedules) is not None) == overlaps
    assert (find_overlap(*reversed(schedules)) is not None) == overlaps


def test_the_next_window_is_that_of_the_first_schedule_to_start() -> None:
    late = ScheduledWindows(first_step=100, step_count=2)
    often = ScheduledWindows(first_step=10, step_count=2, interval=30, min_start=41)
    assert [next_window([late, often], step) for step in (0, 71, 101)] == [
        (often, 70),
        (late, 100),  # both start there; the first one counts
        (often, 130),
    ]
    assert next_window([late], 101) is None


def test_schedules_are_read_from_the_spool(tmp_path: Path) -> None:
    assert read_schedules(str(tmp_path)) == []
    written = ScheduledWindows(first_step=2, step_count=7, warmup_count=1, options=("shapes",))
    write_schedules(str(tmp_path), [written, ScheduledWindows(first_step=50, step_count=1)])
    windows, second = read_schedules(str(tmp_path))
    assert second.next_start(3) == 50
    plan = windows.plan(3, 2, "profiler", 10e9)
    assert (plan.number, plan.reason, plan.first_step, plan.steps) == (3, "scheduled", 2, 7)
    assert (plan.warmup_steps, plan.options) == (1, ("shapes",))
    assert plan.longest_ns == 5 * 7 * 10e9
    (tmp_path / "schedule.json").write_text('{"first_step": 2}')
    assert read_schedules(str(tmp_path)) == []
