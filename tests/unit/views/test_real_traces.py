"""Figures that others published or measured, on recordings of real training."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from stepscope.run import Run
from stepscope.views import ViewOptions
from stepscope.views.devices.gpu_metrics import show_gpu_metrics
from stepscope.views.devices.gpu_time import show_gpu_time
from stepscope.views.steps.steps import RecordedStep, show_steps
from tests.support.imported_runs import REAL_TRACES

Real = Callable[[str], Run]
EXPECTED = REAL_TRACES / "expected_gpu_time.json"
GPU_TIMES: dict[str, dict[str, int]] = (
    json.loads(EXPECTED.read_text())["traces"] if EXPECTED.is_file() else {}
)


@pytest.mark.parametrize("name", GPU_TIMES or ["expected_gpu_time.json"])
def test_gpu_time_to_the_nanosecond(real: Real, name: str) -> None:
    if not GPU_TIMES:
        pytest.skip("../shared/traces/expected_gpu_time.json is not here")
    view = show_gpu_time(real(name), ViewOptions(communication="narrow"))
    (payload,) = view.traces
    assert "published" in view.communication_of
    assert {key: getattr(payload, key) for key in GPU_TIMES[name]} == GPU_TIMES[name]
    # These jobs only communicate with NCCL and RCCL.
    assert show_gpu_time(real(name)).traces == [payload]


def test_without_what_was_launched_before_the_window(real: Real) -> None:
    """TraceLens leaves that out: 34.89 ms instead of 49.65 ms, 509 of 1707 events."""
    builder = real("qwen_0_5b.h100.json.gz")
    (payload,) = show_gpu_time(builder, ViewOptions(carry_over="drop")).traces
    assert payload.gpu_event_count == 1707 - 509
    assert payload.total_ns == pytest.approx(34.89e6, abs=0.005e6)
    (doubt,) = (note for note in payload.quality if note.check == "carry_over")
    assert (doubt.count, doubt.of_count) == (509, 1707)


def in_us(one: RecordedStep) -> dict[str, float]:
    figures: dict[str, Any] = fields_of(one)
    return {key: value / 1e3 for key, value in figures.items() if key.endswith("_ns")}


def fields_of(one: RecordedStep) -> dict[str, Any]:
    return {name: getattr(one, name) for name in one.__struct_fields__}


NO_WORKERS = "resnet50_num_workers_0.v100.json.gz"
FOUR_WORKERS = "resnet50_num_workers_4.v100.json.gz"


@pytest.mark.seed("PTP-03")
@pytest.mark.parametrize(
    ("name", "step_us", "parts"),
    [
        (
            NO_WORKERS,
            177592,
            {
                "kernel": 98589,
                "memcpy": 1915,
                "memset": 89,
                "runtime": 2908,
                "data_loader": 59262,
                "cpu_exec": 13674,
                "other": 1156,
            },
        ),
        (
            FOUR_WORKERS,
            141068,
            {"kernel": 99145, "runtime": 10564, "data_loader": 1186, "cpu_exec": 22665},
        ),
    ],
)
def test_the_mean_step(real: Real, name: str, step_us: int, parts: dict[str, int]) -> None:
    """Of the TensorBoard plugin 0.4.3, which prints whole microseconds."""
    (payload,) = show_steps(real(name)).traces
    assert payload.step_count == 6
    assert payload.mean_step_ns / 1e3 == pytest.approx(step_us, abs=1)
    means = {one.category: (one.mean_ns or 0) / 1e3 for one in payload.categories}
    for category, mean in parts.items():
        assert means[category] == pytest.approx(mean, abs=1)
    assert sum(means.values()) == pytest.approx(payload.mean_step_ns / 1e3)


def test_a_single_step(real: Real) -> None:
    (payload,) = show_steps(real(NO_WORKERS)).traces
    assert payload.steps[0].step == "5"
    assert in_us(payload.steps[0]) == {
        "wall_ns": 187948,
        "kernel_ns": 98598,
        "memcpy_ns": 1941,
        "memset_ns": 90,
        "communication_ns": 0,
        "runtime_ns": 2796,
        "data_loader_ns": 69317,
        "cpu_exec_ns": 14091,
        "other_ns": 1115,
    }


@pytest.mark.seed("PTP-15")
@pytest.mark.parametrize(
    ("name", "utilization", "efficiency", "mean_with_zeros"),
    [
        (NO_WORKERS, 55.51, 54.68, 49.13),
        (FOUR_WORKERS, 70.27, 69.22, 48.91),
        ("ddp_2ranks_nccl.a100.json.gz", 23.26, 16.87, 35.31),
    ],
)
def test_gpu_metrics(
    real: Real, name: str, utilization: float, efficiency: float, mean_with_zeros: float
) -> None:
    """Of the TensorBoard plugin 0.4.3, which prints two decimals.

    It averages the zeros of kernels whose occupancy Kineto could not estimate.
    """
    (payload,) = show_gpu_metrics(real(name)).traces
    (device,) = payload.devices
    covered = 1 - device.unknown_occupancy_ratio
    estimates = (device.est_sm_efficiency_ratio, device.est_achieved_occupancy_ratio * covered)
    assert 100 * device.utilization_ratio == pytest.approx(utilization, abs=0.006)
    assert [100 * one for one in estimates] == pytest.approx(
        [efficiency, mean_with_zeros], abs=0.006
    )


def test_occupancy_without_zeros_that_were_not_estimated(real: Real) -> None:
    """241 matrix products of Qwen, 28% of kernel time, fill all SMs and have an occupancy of 0."""
    (payload,) = show_gpu_metrics(real("qwen_0_5b.h100.json.gz")).traces
    (device,) = payload.devices
    assert 100 * device.est_achieved_occupancy_ratio == pytest.approx(88.9, abs=0.5)
    assert 100 * device.unknown_occupancy_ratio == pytest.approx(28.2, abs=0.5)


def test_buckets_of_a_real_recording(real: Real) -> None:
    """The plugin draws 11 samples at 100 ms, the last a closing zero."""
    (payload,) = show_gpu_metrics(real(NO_WORKERS)).traces
    assert payload.bucket_ns == 100_000_000
    assert len(payload.devices[0].utilization_curve_ratio) == 10


def test_communication_of_each_host_step(real: Real) -> None:
    (payload,) = show_steps(real("ddp_2ranks_nccl.a100.json.gz")).traces
    assert [(one.step, one.host_ns) for one in payload.host_steps] == [
        ("4", 222_442_191),
        ("5", 219_726_905),
        ("6", 224_936_243),
    ]
    figures = [
        [one.computation_ns / 1e3, one.communication_ns / 1e3, one.overlap_ns / 1e3]
        for one in payload.host_steps
    ]
    expected = [[38506.4, 11989.0, 1825.3], [38429.4, 12300.0, 1760.4], [38720.0, 22587.4, 3731.3]]
    for row, values in zip(figures, expected, strict=True):
        assert row == pytest.approx(values, abs=0.051)


def test_amd_without_grids(real: Real) -> None:
    builder = real("minitoy.mi250.json.gz")
    (payload,) = show_gpu_metrics(builder).traces
    (device,) = payload.devices
    assert device.kernel_count == 14
    assert (device.est_sm_efficiency_ratio, device.est_achieved_occupancy_ratio) == (None, None)
    (recorded,) = show_steps(builder).traces
    assert (recorded.step_count, recorded.cut_off) == (1, ["2"])


def test_the_steps_of_a_recording_sum_to_their_time(real: Real) -> None:
    for path in sorted(REAL_TRACES.glob("*.json.gz")) or [REAL_TRACES / "any trace"]:
        (payload,) = show_steps(real(path.name)).traces
        for one in payload.steps:
            parts = {k: v for k, v in fields_of(one).items() if k.endswith("_ns")}
            wall = parts.pop("wall_ns")
            assert sum(value or 0 for value in parts.values()) == wall
