"""Options that plan windows: what they mean, and one sentence for what they cannot mean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from stepscope.cli.capture import command as capture
from stepscope.cli.configure import command as configure
from stepscope.cli.window_options import ScheduleOptions
from stepscope.errors import StepscopeError, UsageError
from stepscope.run.window_requests import choose_contents
from stepscope.schema import WindowSchedule
from stepscope.spool.plan import OPTIONS
from tests.support.command import run_command

NOTHING: dict[str, Any] = dict.fromkeys(
    ("start_steps", "num_steps", "start_times", "durations", "repeat_intervals", "schedules"), ()
)


def flags(*planned: str) -> dict[str, bool]:
    return {name: name in planned for name in OPTIONS}


def plan(*contents: str, full: bool = True, **options: tuple[Any, ...]) -> list[WindowSchedule]:
    values = NOTHING | options
    return ScheduleOptions(**values, full=full, **flags(*contents)).planned


def parse(*texts: str) -> tuple[WindowSchedule, ...]:
    """Parse values of `--schedule`."""
    arguments = [word for text in texts for word in ("--schedule", text)]
    context = configure.make_context("configure", ["somewhere", *arguments])
    schedules: tuple[WindowSchedule, ...] = context.params["schedules"]
    return schedules


def test_a_window_by_steps_and_one_by_time() -> None:
    (by_steps,) = plan(start_steps=(0,), num_steps=(5,), repeat_intervals=(9,))
    assert by_steps == WindowSchedule(first_step=0, step_count=5, interval=9)
    (by_time,) = plan("shapes", start_times=(3.0,), durations=(0.5,))
    assert by_time == WindowSchedule(start_s=3.0, duration_s=0.5, options=["shapes"])
    assert plan() == []


@pytest.mark.seed("DBP-09")
def test_a_window_of_one_step_needs_no_length() -> None:
    (single,) = plan(start_steps=(7,))
    assert single == WindowSchedule(first_step=7, step_count=1)


@pytest.mark.seed("DBP-03", "DBP-10")
def test_several_schedules() -> None:
    planned = plan(
        start_steps=(10, 100),
        num_steps=(5, 20),
        schedules=parse("start_step=300,num_steps=2,every=50", "start_time=60,duration=1.5"),
    )
    assert planned == [
        WindowSchedule(first_step=10, step_count=5),
        WindowSchedule(first_step=100, step_count=20),
        WindowSchedule(first_step=300, step_count=2, interval=50),
        WindowSchedule(start_s=60, duration_s=1.5),
    ]


@pytest.mark.seed("DBP-09")
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"start_steps": (1,), "start_times": (1.0,)}, "--start-step conflicts with --start-time"),
        ({"start_steps": (1,), "num_steps": (1,), "durations": (1.0,)}, "requires --start-time"),
        ({"start_times": (1.0,)}, "--start-time requires --duration"),
        ({"num_steps": (4,)}, "--num-steps requires --start-step"),
        ({"repeat_intervals": (4,)}, "--every requires --start-step or --start-time"),
        (
            {"start_steps": (1,), "num_steps": (5,), "repeat_intervals": (5,)},
            "would overlap at --every 5",
        ),
        (
            {"start_steps": (1, 50), "num_steps": (5,)},
            "times; set both equally often",
        ),
        ({"start_steps": (1, 5), "num_steps": (4, 4)}, "which these do not have at step 5"),
        ({"start_times": (1, 5), "durations": (4, 4)}, "do not have at 5 s after the start"),
    ],
)
def test_what_cannot_be(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        plan(**options)


def test_cycles_of_steps() -> None:
    planned = plan(schedules=parse("wait=5,warmup=2,active=10,repeat=3,skip_first=20"))
    assert planned == [
        WindowSchedule(first_step=27, step_count=10, warmup_count=2, interval=17, repeat_count=3)
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "'' is none of wait, warmup, active"),
        ("wait=1,warmup=1", "active must be set"),
        ("active=1", "wait and warmup must be set"),
        ("wait=1,warmup=1,active=0", "active=0 must be a whole number of at least 1"),
        ("wait=-1,warmup=1,active=1", "'wait=-1' is not wait=N"),
        ("wait=1.5,warmup=1,active=1", "'wait=1.5' is not wait=N"),
        ("wait=1,wait=2,warmup=1,active=1", "wait is set twice"),
        ("wait=1,pause=2", "'pause' is none of"),
        ("wait=0,warmup=0,active=5", "windows need a gap"),
        ("start_step=1.5", "'start_step=1.5' is not start_step=N"),
        ("start_step=1,duration=2", "'duration' is none of start_step, num_steps, every"),
        ("start_step=1,num_steps=0", "'num_steps=0' is too small or too large"),
        ("start_step=1,start_step=2", "start_step is set twice"),
        ("start_time=nan,duration=1", "'start_time=nan' is too small or too large"),
        ("start_time=1", "start_time requires duration"),
        ("start_step=1,num_steps=5,every=5", "would overlap"),
    ],
)
def test_no_cycles(tmp_path: Path, text: str, says: str) -> None:
    done = run_command(tmp_path, "run", "--schedule", text, "--", "true")
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


def test_contents() -> None:
    assert choose_contents(full=True, **flags("stacks", "shapes")).options == ["shapes", "stacks"]
    assert choose_contents(full=False, **flags()).depth == "light"
    with pytest.raises(UsageError, match="a light window has no operators"):
        choose_contents(full=False, **flags("shapes"))


def test_a_light_window_that_nothing_opens() -> None:
    with pytest.raises(UsageError, match="Set the start of the window"):
        plan(full=False)


@pytest.mark.parametrize("length", [(), ("--steps", "3", "--seconds", "1")])
def test_capture_wants_one_length(length: tuple[str, ...]) -> None:
    result = CliRunner().invoke(capture, ["somewhere", *length])
    assert isinstance(result.exception, StepscopeError)
    assert "Set the length of the window with --steps N" in str(result.exception)
