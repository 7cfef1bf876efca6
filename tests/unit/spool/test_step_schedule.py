"""Cycles of steps, against torch's own schedule, and the windows that follow from them."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from stepscope.spool import ScheduledWindows, StepSchedule, parse_step_schedule

STEPS = 120
SMALL = st.integers(0, 6)


@given(wait=SMALL, warmup=SMALL, active=st.integers(1, 6), repeat=SMALL, skip_first=SMALL,
       skip_first_wait=st.integers(0, 1))  # fmt: skip
@settings(deadline=None)
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


def test_scheduled_windows_are_read_from_the_spool(tmp_path: Path) -> None:
    assert ScheduledWindows.read(str(tmp_path)) is None
    written = ScheduledWindows(first_step=2, step_count=7, warmup_count=1, options=("shapes",))
    written.write(str(tmp_path))
    windows = ScheduledWindows.read(str(tmp_path))
    assert windows is not None
    plan = windows.plan(3, 2, "profiler", 10e9)
    assert (plan.number, plan.reason, plan.first_step, plan.steps) == (3, "scheduled", 2, 7)
    assert (plan.warmup_steps, plan.options) == (1, ("shapes",))
    assert plan.longest_ns == 5 * 7 * 10e9
    (tmp_path / "schedule.json").write_text('{"first_step": 2}')
    assert ScheduledWindows.read(str(tmp_path)) is None
