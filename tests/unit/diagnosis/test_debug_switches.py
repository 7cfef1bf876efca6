"""Notes of verdicts on debug switches: one sentence per switch that was on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stepscope.capture.debug_variables import DEBUG_VARIABLES
from stepscope.diagnosis import diagnose
from stepscope.diagnosis.debug_switches import VARIABLES
from stepscope.testing import RunBuilder
from tests.support.cause_runs import draw_anomaly_detection

STEP = "wait 5 | forward 30 | backward 45 | optimizer 20"
OFF: dict[str, Any] = {
    "anomaly_detection": False,
    "deterministic_algorithms": False,
    "cudnn_benchmark": False,
    "float32_matmul_precision": "highest",
    "intra_op_threads": 2,
    "inter_op_threads": 1,
    "trace_function": None,
    "profile_function": None,
    "traces_allocations": False,
    "variables": {},
}


def list_notes(run: RunBuilder, *settings: dict[str, Any]) -> list[str]:
    """Diagnose a job whose settings were recorded one after the other."""
    rank = run.rank().draw(STEP, 60)
    for number, changes in enumerate(settings):
        rank.fact("settings", step_count=10**number, **{**OFF, **changes})
    return [note for note in diagnose(run.open()).notes if "profiler window" not in note]


@pytest.mark.parametrize("settings", [[], [{}], [{"variables": {"OMP_NUM_THREADS": "1"}}]])
def test_nothing_is_noted_without_a_switch(
    new_run: Callable[..., RunBuilder], settings: list[dict[str, Any]]
) -> None:
    assert list_notes(new_run(), *settings) == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"anomaly_detection": True}, ["torch.autograd.set_detect_anomaly"]),
        ({"trace_function": "debugger.Tracer"}, ["debugger.Tracer is installed with sys.settrace"]),
        ({"profile_function": "tool.call"}, ["tool.call is installed with sys.setprofile"]),
        ({"traces_allocations": True}, ["tracemalloc.stop()"]),
        ({"profiles_operators": True}, ["torch.profiler.schedule"]),
        (
            {"variables": dict.fromkeys(VARIABLES, "DETAIL")},
            [f"{name}=DETAIL is set: {variable.effect}." for name, variable in VARIABLES.items()],
        ),
    ],
)
def test_a_switch_has_a_sentence(
    new_run: Callable[..., RunBuilder], changes: dict[str, Any], expected: list[str]
) -> None:
    for note, text in zip(list_notes(new_run(), changes), expected, strict=True):
        assert text in note


def test_harmless_values_are_not_noted(new_run: Callable[..., RunBuilder]) -> None:
    variables = {"CUDA_LAUNCH_BLOCKING": "0", "NCCL_DEBUG": "WARN", "PYTHONMALLOC": "pymalloc"}
    assert list_notes(new_run(), {"variables": variables}) == []


def test_variables_that_are_on_with_any_value(new_run: Callable[..., RunBuilder]) -> None:
    variables = {"PYTHONDEVMODE": "0", "PYTORCH_NO_CUDA_MEMORY_CACHING": "0"}
    assert len(list_notes(new_run(), {"variables": variables})) == 2


def test_the_last_settings_count(new_run: Callable[..., RunBuilder]) -> None:
    """A script may check its first steps only."""
    assert list_notes(new_run(), {"anomaly_detection": True}, {}) == []


SMALL_STEP = "forward 20 | optimizer 5"
SMALL_WINDOW = "forward 20 ( {} ) | optimizer ( op:step 1 )".format(
    " | ".join(["op:add 0.015"] * 300)
)


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({}, "tiny_operators"),
        ({"profile_function": "tool.call"}, "debug_switch"),
        ({"variables": {"PYTHONMALLOC": "debug"}}, "debug_switch"),
        ({"variables": {"NCCL_DEBUG": "INFO"}}, "tiny_operators"),
    ],
)
def test_a_switch_is_the_cause_where_it_slows_down_what_is_slow(
    new_run: Callable[..., RunBuilder], changes: dict[str, Any], cause: str
) -> None:
    run = new_run()
    rank = run.rank().draw(SMALL_STEP, 30).draw(f"window ( {SMALL_WINDOW} )").draw(SMALL_STEP, 30)
    rank.fact("settings", step_count=1, **{**OFF, **changes})
    verdict = diagnose(run.open())
    assert (verdict.suspect, verdict.cause) == ("framework_overhead", cause)
    if cause == "debug_switch":
        assert verdict.fixes[0].prediction is None


def test_the_cost_of_anomaly_detection(new_run: Callable[..., RunBuilder]) -> None:
    """50 nodes capture stacks of 0.4 ms and check 0.2 ms each: 30 of 60 ms."""
    run = new_run()
    draw_anomaly_detection(run)
    verdict = diagnose(run.open())
    assert (verdict.suspect, verdict.cause) == ("framework_overhead", "debug_switch")
    assert verdict.stages[0].share_ratio == pytest.approx(30 / 60)
    prediction = verdict.fixes[0].prediction
    assert prediction is not None
    assert prediction.step_ns == pytest.approx(30e6)


def test_anomaly_detection_without_a_price_lowers_the_confidence(tmp_path: Path) -> None:
    confidence = []
    for is_on in (False, True):
        run = RunBuilder(tmp_path / str(is_on))
        settings = {**OFF, "anomaly_detection": is_on}
        run.rank().draw(STEP, 60).fact("settings", step_count=1, **settings)
        confidence.append(diagnose(run.open()).confidence_ratio)
    assert confidence[1] == pytest.approx(confidence[0] / 2, abs=0.001)


def test_every_recorded_debug_variable_is_described() -> None:
    """tracemalloc is recorded by its effect: scripts start it too."""
    assert {*VARIABLES, "PYTHONTRACEMALLOC"} == set(DEBUG_VARIABLES)
