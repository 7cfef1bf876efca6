"""Sentences about scheduled windows that are missing or differ from their plans."""

from __future__ import annotations

from typing import Any

import pytest

from stepscope.monitor.windows.schedules import describe_scheduled, name_windows
from stepscope.schema import ProcessInfo, WindowSchedule

BY_STEPS = WindowSchedule(first_step=100, step_count=20)
BY_TIME = WindowSchedule(start_s=30.0, duration_s=2.0)


def process(*facts: dict[str, Any]) -> ProcessInfo:
    return ProcessInfo(
        process="1-1-0", node="n", pid=1, parent_pid=0, role="main", started_ns=1, facts=list(facts)
    )


def window(first: int, count: int, deviation: str | None, **fields: Any) -> dict[str, Any]:
    kind = {"fact": "window", "number": 0, "reason": "scheduled", "depth": "full", "options": []}
    plan = {"planned_first_step": 100, "planned_step_count": 20}
    steps = {"first_step": first, "step_count": count, "deviation": deviation}
    return kind | plan | steps | fields


MISSED = {"fact": "window_missed", "reason": "scheduled", "first_step": 100, "why": "it was busy"}


@pytest.mark.parametrize(
    ("schedule", "facts", "last_step", "note"),
    [
        (BY_STEPS, [window(100, 20, None)], 200, None),
        (
            *(BY_STEPS, [window(360, 20, "libkineto did not respond in time")], 700),
            "the window scheduled for steps 100 to 119 was recorded at steps 360 to 379: "
            "libkineto did not respond in time",
        ),
        (
            *(BY_STEPS, [window(100, 7, "the job ended")], 106),
            "the window scheduled for steps 100 to 119 ends after step 106: the job ended",
        ),
        (
            *(BY_STEPS, [window(100, 0, "the job ended")], 100),
            "the window scheduled for steps 100 to 119 has no complete step: the job ended",
        ),
        (
            *(BY_STEPS, [], 59),
            "the window scheduled for steps 100 to 119 was not recorded: the job ended in step 59",
        ),
        (
            *(WindowSchedule(first_step=100, step_count=1), [], 0),
            "the window scheduled for step 100 was not recorded: the job ended before it could "
            "start",
        ),
        (
            *(BY_STEPS, [MISSED], 200),
            "the window scheduled for steps 100 to 119 was not recorded: it was busy",
        ),
        (
            *(BY_TIME, [], 59),
            "the window scheduled for 30 s after the start was not recorded: the job ended before "
            "it could start",
        ),
        (
            BY_STEPS,
            [window(100, 20, None), {**window(9, 1, "late"), "reason": "requested"}],
            9,
            None,
        ),
    ],
)
def test_every_deviation_has_its_sentence(
    schedule: WindowSchedule, facts: list[dict[str, Any]], last_step: int, note: str | None
) -> None:
    ranks = [process(*facts), process(*facts)]  # equal ones are reported once
    assert describe_scheduled([schedule], ranks, last_step) == ([] if note is None else [note])


def test_every_window_is_reported() -> None:
    second = window(200, 3, "the job ended", planned_first_step=200)
    notes = describe_scheduled([BY_STEPS], [process(MISSED, second)], 202)
    assert notes == [
        "the window scheduled for steps 200 to 219 ends after step 202: the job ended",
        "the window scheduled for steps 100 to 119 was not recorded: it was busy",
    ]


def test_each_schedule_has_its_sentences() -> None:
    """Windows belong to a schedule by their step or name; one of a removed schedule to none."""
    later = WindowSchedule(first_step=500, step_count=2, interval=100, min_start=650)
    absent = WindowSchedule(start_s=90.0, duration_s=1.0)
    name = f"{name_windows(BY_TIME)}1"
    facts = [
        window(100, 20, None),
        window(40, 3, "the steps took too long", request=name, planned_first_step=30),
        window(61, 1, "the job ended", planned_first_step=60, planned_step_count=1),
        {**MISSED, "first_step": 700},
    ]
    notes = describe_scheduled([BY_STEPS, BY_TIME, later, absent], [process(*facts)], 720)
    assert notes == [
        "the window scheduled for 30 s after the start was recorded at steps 40 to 42: the steps "
        "took too long",
        "the window scheduled for step 60 was recorded at step 61: the job ended",
        "the window scheduled for steps 700 to 701 was not recorded: it was busy",
        "the window scheduled for 90 s after the start was not recorded: the job ended before "
        "it could start",
    ]
    (note,) = describe_scheduled([later], [], 620)
    assert note.startswith("the window scheduled for steps 700 to 701 was not recorded")
