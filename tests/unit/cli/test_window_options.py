"""Options that plan windows: what they mean, and one sentence for what they cannot mean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from stepscope.cli.capture import command as capture
from stepscope.cli.window_options import schedule
from stepscope.errors import StepscopeError, UsageError
from stepscope.monitor import WindowSchedule
from stepscope.run.window_requests import WindowContents, choose_contents
from stepscope.spool import StepSchedule
from stepscope.spool.plan import OPTIONS
from tests.support.command import run_command

WHAT = WindowContents(depth="full", options=[])
NOTHING: dict[str, Any] = dict.fromkeys(
    ("start_step", "num_steps", "start_time", "duration", "repeat_interval", "cycles")
)


def flags(*planned: str) -> dict[str, bool]:
    return {name: name in planned for name in OPTIONS}


def test_a_window_by_steps_and_one_by_time() -> None:
    by_steps = schedule(
        **{**NOTHING, "start_step": 0, "num_steps": 5, "repeat_interval": 9}, contents=WHAT
    )
    assert by_steps is not None
    assert (by_steps.first_step, by_steps.step_count, by_steps.interval) == (0, 5, 9)
    by_time = schedule(**{**NOTHING, "start_time": 3.0, "duration": 0.5}, contents=WHAT)
    assert by_time is not None
    assert (by_time.first_step, by_time.start_s, by_time.duration_s) == (None, 3.0, 0.5)
    assert schedule(**NOTHING, contents=WHAT) is None


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"start_step": 1, "start_time": 1.0}, "conflicts with"),
        ({"start_step": 1}, "--start-step requires --num-steps"),
        ({"start_step": 1, "num_steps": 1, "duration": 1.0}, "--start-step requires"),
        ({"start_time": 1.0}, "--start-time requires --duration"),
        ({"num_steps": 4}, "Set the start of the window"),
        ({"repeat_interval": 4}, "Set the start of the window"),
        ({"start_step": 1, "num_steps": 5, "repeat_interval": 5}, "would overlap"),
    ],
)
def test_what_cannot_be(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        schedule(**{**NOTHING, **options}, contents=WHAT)


def test_cycles_of_steps() -> None:
    cycles = StepSchedule(wait=5, warmup=2, active=10, repeat=3, skip_first=20)
    planned = schedule(**{**NOTHING, "cycles": cycles}, contents=WHAT)
    assert planned == WindowSchedule(
        first_step=27, step_count=10, warmup_count=2, interval=17, repeat_count=3
    )
    for option in ("start_step", "num_steps", "start_time", "duration", "repeat_interval"):
        with pytest.raises(UsageError, match="--schedule conflicts with"):
            schedule(**{**NOTHING, "cycles": cycles, option: 3}, contents=WHAT)


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
    with pytest.raises(UsageError, match="no operators"):
        choose_contents(full=False, **flags("shapes"))


def test_a_light_window_that_nothing_opens() -> None:
    with pytest.raises(UsageError, match="Set the start of the window"):
        schedule(**NOTHING, contents=choose_contents(full=False, **flags()))


@pytest.mark.parametrize("length", [(), ("--steps", "3", "--seconds", "1")])
def test_capture_wants_one_length(length: tuple[str, ...]) -> None:
    result = CliRunner().invoke(capture, ["somewhere", *length])
    assert isinstance(result.exception, StepscopeError)
    assert "Set the length" in str(result.exception)
