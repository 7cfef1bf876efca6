"""Parts of a verdict are no larger than their whole. Times are milliseconds."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings, strategies as st

from stepscope.diagnosis import diagnose
from stepscope.testing import RunBuilder
from tests.support.verdict_stages import check_stages

Phase = tuple[int, int, int]
"""Duration of a phase, of the operator in it, and of the Python after it."""
phases = st.tuples(st.integers(1, 60), st.integers(0, 60), st.integers(0, 40))
steps = st.tuples(phases, phases, phases)


def draw_step(durations: tuple[Phase, Phase, Phase], *, operators: bool) -> str:
    parts = []
    names = ("forward", "backward", "optimizer")
    for name, (duration, work, python) in zip(names, durations, strict=True):
        inside = f" ( op:mm {min(work, duration)} )" if operators and work else ""
        parts.append(f"{name} {duration}{inside} | do {python}")
    return " | ".join(parts)


@settings(max_examples=40)
@given(measured=steps, profiled=steps, wait=st.integers(0, 60))
def test_stages_of_any_steps_and_any_window(
    measured: tuple[Phase, Phase, Phase], profiled: tuple[Phase, Phase, Phase], wait: int
) -> None:
    """A profiler may slow down each phase by another factor."""
    with TemporaryDirectory() as directory:
        run = RunBuilder(Path(directory) / "run")
        step = f"wait {wait} | {draw_step(measured, operators=False)}"
        window = f"window ( {draw_step(profiled, operators=True)} )"
        run.rank().draw(step, 20).draw(window).draw(step, 20)
        check_stages(diagnose(run.open()))


def test_dispatch_in_a_phase_is_no_larger_than_the_phase() -> None:
    """The optimizer takes 31% of the measured steps and, without operators, 60% of the window."""
    with TemporaryDirectory() as directory:
        run = RunBuilder(Path(directory) / "run")
        step = "forward 34 | backward 35 | optimizer 31"
        small = " | ".join(["op:add 0.015"] * 10)
        window = f"window ( forward 20 ( {small} ) | backward 20 ( {small} ) | optimizer 60 )"
        run.rank().draw(step, 20).draw(window).draw(step, 20)
        verdict = diagnose(run.open())
    stages = {stage.name: round(stage.share_ratio, 2) for stage in verdict.stages}
    assert max(stages.values()) == 0.35
    assert [share for name, share in stages.items() if name.endswith("optimizer")] == [0.31]
    check_stages(verdict)
