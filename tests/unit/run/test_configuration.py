"""Sentences about the configuration of a job."""

from __future__ import annotations

import pytest

from stepscope.run import describe_changes, describe_schedule
from stepscope.schema import JobConfiguration, RuleSelection, WindowSchedule

pytestmark = pytest.mark.seed("DBP-10")


@pytest.mark.parametrize(
    ("schedule", "text"),
    [
        (WindowSchedule(first_step=7, step_count=1), "step 7"),
        (
            WindowSchedule(
                first_step=27, step_count=10, interval=17, repeat_count=3, warmup_count=2
            ),
            "steps 27 to 36 every 17 steps 3 times after 2 warm-up steps",
        ),
        (WindowSchedule(start_s=60.0, duration_s=0.5), "500 ms from 60 s after the start"),
        (
            WindowSchedule(start_s=1.5, duration_s=2, interval=30, options=["stacks", "shapes"]),
            "2 s from 1.5 s after the start every 30 s with shapes and stacks",
        ),
        (
            WindowSchedule(first_step=0, step_count=2, depth="light"),
            "steps 0 to 1 without operators",
        ),
    ],
)
def test_schedules(schedule: WindowSchedule, text: str) -> None:
    assert describe_schedule(schedule) == text


def test_changes_are_listed_setting_by_setting() -> None:
    window = WindowSchedule(first_step=7, step_count=1)
    before = JobConfiguration(
        interval_ms=500,
        window="auto",
        schedules=[window],
        rules=RuleSelection(assignments=["A.x=1", "A.y=2"]),
    )
    after = JobConfiguration(
        interval_ms=1000,
        window="asked",
        schedules=[],
        rules=RuleSelection(without=["B"], assignments=["A.x=3"]),
    )
    assert [(c.setting, c.before, c.after) for c in describe_changes(before, after)] == [
        ("sampling interval", "500 ms", "1 s"),
        ("automatic windows", "on", "off"),
        ("scheduled window", "step 7", "none"),
        ("rules", "all", "all but B"),
        ("A.x", "1", "3"),
        ("A.y", "2", "default"),
    ]
    assert list(describe_changes(before, before)) == []
