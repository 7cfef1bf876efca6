"""NVML sampler with a stub library; the formulas are those of `stub/nvml.c`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stepscope.monitor.samplers.gpu import AmdSampler
from stepscope.schema.tables.metrics import METRIC_TYPES

GIB = 1 << 30
MIB = 1 << 20

PRELUDE = """
import ctypes, json
from stepscope.monitor.samplers.gpu import NvmlSampler, gpu_facts
from stepscope.monitor.samplers.base import Unavailable
UTILIZATION, MEMORY_V2, MEMORY_V1, POWER, CLOCK, TEMPERATURE, THROTTLE, PCIE = range(8)
NOT_SUPPORTED, UNKNOWN = 3, 999
S = 10**9

def tick(sampler, seconds):
    values = {}
    for metric, device, value in sampler.sample(seconds * S):
        assert (metric, device) not in values.keys()
        values.setdefault(device, {})[metric] = value
    return values

def output(*values):
    print(json.dumps(values))
"""
STUB = 'stub = ctypes.CDLL("libnvidia-ml.so.1")\n'


def run(script: str, *, libraries: Path, gpus: int = 1) -> list[Any]:
    """Run *script* in a process that loads NVML from *libraries*; returns its output."""
    if "stub." in script:
        script = STUB + script
    environment = {**os.environ, "STUB_GPUS": str(gpus), "LD_LIBRARY_PATH": str(libraries)}
    result = subprocess.run(
        [sys.executable, "-c", PRELUDE + script], env=environment, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    values: list[Any] = json.loads(result.stdout)
    return values


def expected(i: int) -> dict[str, float]:
    """Return all metrics of GPU *i* except those of PCIe."""
    return {
        "gpu_busy_ratio": 10 * (i + 1) / 100,
        "gpu_memory_busy_ratio": 5 * (i + 1) / 100,
        "gpu_memory_used_bytes": (i + 1) * GIB,
        "gpu_power_watt": 100 + i,
        "gpu_sm_clock_megahertz": 1000 + 100 * i,
        "gpu_memory_clock_megahertz": 2000 + 100 * i,
        "gpu_temperature_celsius": 40 + i,
        "gpu_throttle_reasons": ((1 << i) | 4) & ~1,
    }


ONLY_IMPORTED = {"gpu_memory_used_ratio"}
"""Metrics of SageMaker Debugger, which has shares but no bytes."""


def pcie(i: int) -> dict[str, float]:
    return {
        "gpu_pcie_received_bytes_per_s": 200_000 * (i + 1),
        "gpu_pcie_sent_bytes_per_s": 100_000 * (i + 1),
    }


@pytest.mark.seed("SMP-29")
def test_one_gpu_yields_every_gpu_metric_of_the_schema(nvml_directory: Path) -> None:
    [values] = run("output(tick(NvmlSampler(), 0))", libraries=nvml_directory)
    assert values == {"0": expected(0) | pcie(0)}
    schema_metrics = {name for name in METRIC_TYPES if name.startswith("gpu_")}
    assert set(values["0"]) == schema_metrics - ONLY_IMPORTED


def test_one_gpu_per_tick_makes_the_slow_pcie_calls(nvml_directory: Path) -> None:
    script = """
sampler = NvmlSampler()
output(*(tick(sampler, second) for second in range(7)))
"""
    ticks = run(script, libraries=nvml_directory, gpus=3)
    #      from second 0: one GPU per tick, the same GPU again after 5 s
    turns = [0, 1, 2, None, None, 0, 1]
    for turn, values in zip(turns, ticks, strict=True):
        for i in range(3):
            assert values[str(i)] == expected(i) | (pcie(i) if i == turn else {})


def test_an_unsupported_field_is_left_out_and_not_read_again(nvml_directory: Path) -> None:
    script = """
stub.stub_fail(1, POWER, NOT_SUPPORTED)
stub.stub_fail(1, UTILIZATION, NOT_SUPPORTED)
sampler = NvmlSampler()
ticks = [tick(sampler, second) for second in (0, 1, 2)]
output(ticks[2], [[stub.stub_calls(i, f) for f in (POWER, UTILIZATION)] for i in (0, 1)])
"""
    values, calls = run(script, libraries=nvml_directory, gpus=2)
    missing = {"gpu_power_watt", "gpu_busy_ratio", "gpu_memory_busy_ratio"}
    assert values["0"] == expected(0)
    assert values["1"] == {k: v for k, v in expected(1).items() if k not in missing}
    assert calls == [[3, 3], [1, 1]]


def test_a_temporary_failure_and_an_old_driver(nvml_directory: Path) -> None:
    """The failure costs one value only; the driver reports memory with the reserved part."""
    script = """
sampler = NvmlSampler()
stub.stub_fail(0, POWER, UNKNOWN)
during = tick(sampler, 0)
stub.stub_fail(0, POWER, 0)
after = tick(sampler, 1)
calls = stub.stub_calls(0, MEMORY_V2)
stub.stub_fail(0, MEMORY_V2, NOT_SUPPORTED)
sampler = NvmlSampler()
used = [tick(sampler, s)["0"]["gpu_memory_used_bytes"] for s in (0, 1)]
output("gpu_power_watt" in during["0"], after, used, stub.stub_calls(0, MEMORY_V2) - calls)
"""
    has_power, after, used, calls = run(script, libraries=nvml_directory)
    assert has_power is False
    assert after["0"] == expected(0)
    assert used == [GIB + 512 * MIB] * 2
    assert calls == 1


def test_a_lost_gpu_has_no_samples_until_it_is_back(nvml_directory: Path) -> None:
    script = """
sampler = NvmlSampler()
tick(sampler, 0)
stub.stub_lose(0, 1)
lost = [tick(sampler, second) for second in (1, 2, 12)]
calls = stub.stub_calls(0, UTILIZATION)
stub.stub_lose(0, 0)
later = tick(sampler, 13), tick(sampler, 23)
stub.stub_lose(0, 1)
output(lost, calls, *later, tick(NvmlSampler(), 0), gpu_facts())
"""
    lost, calls, too_early, back, beside, [facts, _] = run(script, libraries=nvml_directory, gpus=2)
    assert [list(values) for values in lost] == [["1"]] * 3
    assert lost[1]["1"]["gpu_busy_ratio"] == expected(1)["gpu_busy_ratio"]
    assert calls == 2  # before and at the loss; afterwards only the handle is requested
    assert list(too_early) == ["1"]
    assert back["0"].items() >= expected(0).items()
    # One that is lost from the start does not hide the others.
    assert beside == {"1": expected(1) | pcie(1)}
    assert facts[0] == {"index": 0}
    assert facts[1]["name"] == "Stub 1"


def test_a_reloaded_driver_is_opened_again(nvml_directory: Path) -> None:
    script = """
sampler = NvmlSampler()
before = tick(sampler, 0)
stub.stub_unload(1)
down = [tick(sampler, second) for second in (1, 5, 11)]
stub.stub_unload(0)
output(before, down, tick(sampler, 12), tick(sampler, 21))
"""
    before, down, too_early, back = run(script, libraries=nvml_directory, gpus=2)
    assert set(before) == {"0", "1"}
    assert down == [{}, {}, {}]
    assert too_early == {}
    assert back["0"].items() >= expected(0).items()
    assert back["1"].items() >= expected(1).items()


@pytest.mark.seed("SMP-07")
def test_facts_of_each_gpu_and_the_driver(nvml_directory: Path) -> None:
    facts, version = run("output(*gpu_facts())", libraries=nvml_directory, gpus=2)
    assert version == "550.54.15"
    # The stub has no compute capability, so that it is left out.
    assert facts == [
        {
            "index": i,
            "name": f"Stub {i}",
            "uuid": f"GPU-stub-{i}",
            "memory_bytes": 80 * GIB,
            "power_limit_watt": 700 + i,
            "sm_clock_max_megahertz": 1900 + 100 * i,
            "memory_clock_max_megahertz": 2900 + 100 * i,
        }
        for i in range(2)
    ]


OPEN = """
try:
    NvmlSampler()
except Unavailable as reason:
    output(str(reason), *gpu_facts())
"""


def test_no_driver_is_a_reason_not_an_error(tmp_path: Path) -> None:
    # An invalid library hides the real one of a machine that has a GPU.
    (tmp_path / "libnvidia-ml.so.1").write_bytes(b"")
    reason, facts, version = run(OPEN, libraries=tmp_path)
    assert reason == "no NVIDIA driver: libnvidia-ml.so.1 cannot be loaded"
    assert (facts, version) == ([], None)


@pytest.mark.parametrize(
    ("setup", "gpus", "reason"),
    [
        ("stub.stub_unload(1)", 1, "the NVIDIA driver cannot be opened"),
        ("", 0, "the NVIDIA driver finds no GPU"),
    ],
)
def test_a_driver_without_gpus_is_a_reason(
    nvml_directory: Path, setup: str, gpus: int, reason: str
) -> None:
    [message, facts, _] = run(setup + OPEN, libraries=nvml_directory, gpus=gpus)
    assert message.startswith(reason)
    assert facts == []


class AmdError(Exception):
    """Stub of the base exception of amdsmi."""


def amd(**calls: Any) -> Any:
    """Create a stub of the module `amdsmi` with one GPU, with the types of its documentation."""

    def temperature(handle: object, kind: str, metric: str) -> int:
        if kind == "edge":
            raise AmdError
        return 51

    attributes: dict[str, Any] = {
        "AmdSmiException": AmdError,
        "AmdSmiMemoryType": SimpleNamespace(VRAM="vram"),
        "AmdSmiTemperatureType": SimpleNamespace(EDGE="edge", HOTSPOT="hotspot"),
        "AmdSmiTemperatureMetric": SimpleNamespace(CURRENT="current"),
        "amdsmi_get_processor_handles": lambda: ["gpu"],
        "amdsmi_get_gpu_activity": lambda _: {"gfx_activity": 25, "umc_activity": 5},
        "amdsmi_get_gpu_memory_usage": lambda _, __: 3 * GIB,
        "amdsmi_get_power_info": lambda _: {
            "current_socket_power": "N/A",
            "average_socket_power": 140,
        },
        "amdsmi_get_temp_metric": temperature,
    }
    return SimpleNamespace(**{**attributes, **calls})


def test_amd_gpu_with_a_hotspot_sensor_and_average_power() -> None:
    assert {tuple(sample) for sample in AmdSampler(amd()).sample(0)} == {
        ("gpu_busy_ratio", "0", 0.25),
        ("gpu_memory_used_bytes", "0", 3 * GIB),
        ("gpu_power_watt", "0", 140),
        ("gpu_temperature_celsius", "0", 51),
    }


def test_unsupported_values_of_an_amd_gpu_are_left_out() -> None:
    def refuse(handle: object) -> None:
        raise AmdError

    smi = amd(
        amdsmi_get_gpu_activity=lambda _: {"gfx_activity": "N/A"}, amdsmi_get_power_info=refuse
    )
    metrics = {sample.metric for sample in AmdSampler(smi).sample(0)}
    assert metrics == {"gpu_memory_used_bytes", "gpu_temperature_celsius"}
