"""Views of windows that stepscope opened itself. Times are milliseconds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from stepscope.run import Run
from stepscope.testing import RunBuilder
from stepscope.views import VIEWS, ViewOptions
from stepscope.views.job.overview import RecordedWindow, show_overview
from stepscope.views.steps.steps import show_steps
from tests.support.drawn_trace import event, step
from tests.support.printed import print_text

ROUND = "forward 2 ( op:mm 2 ) | backward 3 | optimizer 4 | do 5"
Imported = Callable[..., Run]


def watched(path: Path, **changes: Any) -> Run:
    """Return a job with a window of two steps, the fourth and the fifth."""
    builder = RunBuilder(path)
    rank = builder.rank().draw(ROUND, 3).draw(f"window ( {ROUND} | {ROUND} )").draw(ROUND, 5)
    fact = {
        "number": 0,
        "reason": "requested",
        "recorder": "libkineto",
        "depth": "full",
        "options": ["shapes", "flops"],
        "first_step": 300,
        "step_count": 2,
    }
    rank.fact("window", **(fact | changes))
    return builder.open()


def sentences(run: Run, view: str, **options: Any) -> str:
    return print_text(VIEWS[view](run, ViewOptions(**options)), width=1000)


def test_a_window_has_all_its_steps_by_their_numbers(tmp_path: Path) -> None:
    (payload,) = show_steps(watched(tmp_path / "run")).traces
    assert [one.step for one in payload.steps] == ["300", "301"]
    assert [one.wall_ns / 1e6 for one in payload.steps] == [14, 14]


def test_rounds_of_several_optimizers_are_numbered_as_steps_are(tmp_path: Path) -> None:
    (payload,) = show_steps(watched(tmp_path / "run", step_count=4)).traces
    assert [one.step for one in payload.steps] == ["3", "4"]


def test_the_overview_says_what_a_window_is(tmp_path: Path) -> None:
    run = watched(tmp_path / "run")
    (payload,) = show_overview(run).recordings
    assert payload.window == RecordedWindow(
        reason="requested", depth="full", options=["shapes", "flops"], first_step=300, step_count=2
    )
    assert "requested  300 to 301  full, shapes, flops" in sentences(run, "overview")


def test_advice_names_the_tool_that_made_the_recording(tmp_path: Path, imported: Imported) -> None:
    monitored = watched(tmp_path / "watched")
    foreign = imported(a=[step(1, 0, 9), event("cpu_op", "mm", 1, 5)])
    for view, options, ours, theirs in (
        ("roofline", {}, "capture RUN --shapes", "record_shapes=True"),
        ("operators", {"by": "shape"}, "capture RUN --shapes", "record_shapes=True"),
        ("operators", {"by": "stack"}, "capture RUN --stacks", "with_stack=True"),
        ("memory", {}, "capture RUN --memory", "profile_memory=True"),
        ("modules", {}, "capture RUN --modules", "with_modules=True"),
        ("gpu-time", {}, "when the job uses a GPU", "ProfilerActivity.CUDA"),
    ):
        of_stepscope, of_another = (sentences(run, view, **options) for run in (monitored, foreign))
        assert ours in of_stepscope
        assert theirs not in of_stepscope
        assert theirs in of_another
        assert "stepscope capture" not in of_another


def test_a_light_window_without_device_work_says_why_it_is_empty(tmp_path: Path) -> None:
    run = watched(tmp_path / "run", depth="light", options=[])
    for view in ("steps", "gpu-time", "kernels", "launches", "idle"):
        assert "open one with `stepscope capture RUN --full`" in sentences(run, view), view
