"""Settings that slow a job down, on drawn jobs: debug switches, threads, algorithms."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stepscope.diagnosis import diagnose
from stepscope.diagnosis.shares.debug_switches import RUN_EAGERLY, VARIABLES, list_debug_switches
from stepscope.job_environment import DEBUG_VARIABLES
from stepscope.testing import RunBuilder
from tests.support.cause_runs import SETTINGS, draw_anomaly_detection

SWITCH_STEP = "wait 5 | forward 30 | backward 45 | optimizer 20"


def list_switches(run: RunBuilder, *settings: dict[str, Any]) -> list[str]:
    """Diagnose a job whose settings were recorded one after the other."""
    rank = run.rank().draw(SWITCH_STEP, 60)
    for number, changes in enumerate(settings):
        rank.fact("settings", **{**SETTINGS, "step_count": 10**number, **changes})
    return [note for note in diagnose(run.open()).notes if "profiler window" not in note]


@pytest.mark.parametrize("settings", [[], [{}], [{"variables": {"OMP_NUM_THREADS": "1"}}]])
def test_nothing_is_noted_without_a_switch(
    new_run: Callable[..., RunBuilder], settings: list[dict[str, Any]]
) -> None:
    assert list_switches(new_run(), *settings) == []


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
    for note, text in zip(list_switches(new_run(), changes), expected, strict=True):
        assert text in note


def test_harmless_values_are_not_noted(new_run: Callable[..., RunBuilder]) -> None:
    variables = {"CUDA_LAUNCH_BLOCKING": "0", "NCCL_DEBUG": "WARN", "PYTHONMALLOC": "pymalloc"}
    assert list_switches(new_run(), {"variables": variables}) == []


def test_variables_that_are_on_with_any_value(new_run: Callable[..., RunBuilder]) -> None:
    variables = {"PYTHONDEVMODE": "0", "PYTORCH_NO_CUDA_MEMORY_CACHING": "0"}
    assert len(list_switches(new_run(), {"variables": variables})) == 2


def test_the_last_settings_count(new_run: Callable[..., RunBuilder]) -> None:
    """A script may check its first steps only."""
    assert list_switches(new_run(), {"anomaly_detection": True}, {}) == []


@pytest.mark.parametrize(("off_after", "is_listed"), [(20, False), (30, False), (40, True)])
def test_a_switch_counts_that_was_on_in_half_of_the_measured_steps(
    new_run: Callable[..., RunBuilder], off_after: int, is_listed: bool
) -> None:
    """54 of 60 steps are measured, from the seventh on."""
    run = new_run()
    rank = run.rank().draw(SWITCH_STEP, 60)
    rank.fact("settings", **{**SETTINGS, "profiles_operators": True})
    rank.fact("settings", **{**SETTINGS, "profiles_operators": False, "step_count": off_after})
    assert bool(list_debug_switches(run.open())) == is_listed
    assert is_listed == (off_after - 6 >= 54 / 2)


def test_steps_of_another_thread_count_for_the_settings(new_run: Callable[..., RunBuilder]) -> None:
    """30 steps of a thread under a profiler, then those of the training thread without it."""
    run = new_run()
    rank = run.rank().draw("wait 3000").draw(SWITCH_STEP, 60)
    rank.thread().draw(SWITCH_STEP, 30)
    rank.fact("settings", **{**SETTINGS, "profiles_operators": True})
    rank.fact("settings", **{**SETTINGS, "profiles_operators": False, "step_count": 40})
    opened = run.open()
    assert [len(rank.steps) for rank in opened.ranks] == [60]
    assert list_debug_switches(opened) == []


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
    rank.fact("settings", **{**SETTINGS, **changes})
    verdict = diagnose(run.open())
    assert (verdict.suspect, verdict.cause) == ("framework_overhead", cause)
    if cause == "debug_switch":
        assert verdict.fixes[0].prediction is None
        switch = "tool.call" if "profile_function" in changes else "PYTHONMALLOC"
        assert verdict.fixes[0].title == f"Turn the debug switch off: {switch}"


def test_the_cost_of_anomaly_detection(new_run: Callable[..., RunBuilder]) -> None:
    """50 nodes capture stacks of 0.4 ms and check 0.2 ms each: 30 of 60 ms."""
    run = new_run()
    draw_anomaly_detection(run)
    verdict = diagnose(run.open())
    assert (verdict.suspect, verdict.cause) == ("framework_overhead", "debug_switch")
    assert verdict.stages[0].share_ratio == pytest.approx(30 / 60)
    prediction = verdict.fixes[0].prediction
    assert prediction.step_ns == pytest.approx(30e6)


def test_anomaly_detection_without_a_price_lowers_the_confidence(tmp_path: Path) -> None:
    confidence = []
    for is_on in (False, True):
        run = RunBuilder(tmp_path / str(is_on))
        settings = {**SETTINGS, "anomaly_detection": is_on}
        run.rank().draw(SWITCH_STEP, 60).fact("settings", **settings)
        confidence.append(diagnose(run.open()).confidence_ratio)
    assert confidence[1] == pytest.approx(confidence[0] / 2, abs=0.001)


def test_every_recorded_debug_variable_is_described() -> None:
    """tracemalloc is recorded by its effect: scripts start it too."""
    assert {*VARIABLES, "PYTHONTRACEMALLOC"} == set(DEBUG_VARIABLES)


RunMaker = Callable[..., RunBuilder]
STEP = "forward 40 | backward 50 | optimizer 10"


def list_notes(
    run: RunBuilder,
    *,
    step: str = STEP,
    device: str = "cpu",
    job_cores: float = 1.0,
    **settings: object,
) -> list[str]:
    process = run.rank().draw(step, 30)
    process.fact(
        "settings", **{**SETTINGS, "cudnn_benchmark": True, "intra_op_threads": 8, **settings}
    )
    process.fact("optimizer", name="SGD", parameter_count=9, tensor_count=1, devices=[device])
    process.fact("model", model=1, parameter_count=9, tensor_count=1, module_types=["Conv2d"])
    run.metric("job_cpu_cores", job_cores).metric("outside_cpu_cores", 0.0)
    return diagnose(run.open()).notes


def test_one_thread_beside_idle_cores(new_run: RunMaker) -> None:
    notes = list_notes(new_run(cores=8), intra_op_threads=1)
    assert any("7 cores of 8 stayed idle" in n and "intra_op_threads=8" in n for n in notes)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"intra_op_threads": 8}, id="threads"),
        pytest.param({"intra_op_threads": 1, "job_cores": 8.0}, id="no idle core"),
        pytest.param({"intra_op_threads": 1, "device": "cuda"}, id="a GPU computes"),
        pytest.param(
            {"intra_op_threads": 1, "step": "wait 80 | forward 20 | optimizer 5"}, id="waits"
        ),
    ],
)
def test_threads_are_not_noted_elsewhere(new_run: RunMaker, changes: dict[str, object]) -> None:
    assert not any("one thread" in n for n in list_notes(new_run(cores=8), **changes))


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_convolutions_on_a_gpu_without_a_search(new_run: RunMaker, device: str) -> None:
    notes = list_notes(new_run(cores=8), device=device, cudnn_benchmark=False)
    assert any("cuDNN" in note for note in notes) == (device == "cuda")


def test_deterministic_algorithms(new_run: RunMaker) -> None:
    notes = list_notes(new_run(cores=8), deterministic_algorithms=True)
    assert any("Deterministic algorithms are on" in note for note in notes)


@pytest.mark.parametrize("flags", [[True], [False, True], [True, False], []])
def test_eager_steps_of_keras_are_a_switch(
    new_run: Callable[..., RunBuilder], flags: list[bool]
) -> None:
    run = new_run()
    rank = run.rank().draw(SMALL_STEP, 30).draw(f"window ( {SMALL_WINDOW} )").draw(SMALL_STEP, 30)
    for run_eagerly in flags:
        rank.fact("keras_settings", run_eagerly=run_eagerly)
    is_on, opened = flags[-1:] == [True], run.open()
    assert list_debug_switches(opened) == [RUN_EAGERLY] * is_on
    assert diagnose(opened).cause == ("debug_switch" if is_on else "tiny_operators")
