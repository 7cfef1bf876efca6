"""Cycles of steps, against torch's own schedule."""

from __future__ import annotations

import warnings

import pytest
from hypothesis import given, settings, strategies as st

from stepscope.spool import StepSchedule, parse_step_schedule

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
