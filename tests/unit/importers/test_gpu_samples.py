"""Samples of GPUs in logs of nvidia-smi and fields of DCGM."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from stepscope.cli import root
from stepscope.errors import UnreadableTraceError
from stepscope.importers.gpu_samples import GpuSamplesImporter
from stepscope.store import open_run
from stepscope.testing.importer_contract import ImporterContract

NVIDIA_SMI = """\
timestamp, index, name, utilization.gpu [%], memory.used [MiB], memory.total [MiB], power.draw [W]
2026/01/15 10:23:45.250, 0, NVIDIA H100, 97 %, 1024 MiB, 81559 MiB, 512.25 W
2026/01/15 10:23:45.251, 1, NVIDIA H100, 3 %, 2 MiB, 81559 MiB, [N/A]
2026/01/15 10:23:45.750, 0, NVIDIA H100, 98 %, 1025 MiB, 81559 MiB, 513.00 W
2026/01/15 10:23:45.751, 1, NVIDIA H100, [Unknown Error], 2 MiB, 81559 MiB, 70.5 W
"""
DCGM = """\
timestamp,gpu,UUID,modelName,DCGM_FI_DEV_GPU_UTIL,DCGM_FI_PROF_DRAM_ACTIVE,DCGM_FI_DEV_FB_USED
1768472625.5,0,GPU-a,NVIDIA A100,40,0.25,100
1768472625.5,1,GPU-b,NVIDIA A100,,0.5,200
"""


def moment(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000) * 1_000_000


def imported(tmp_path: Path, content: str, name: str = "gpus.csv") -> Any:
    (tmp_path / name).write_text(content)
    run = str(tmp_path / "run")
    root.main(["import", str(tmp_path / name), "-o", run], standalone_mode=False)
    return open_run(run)


def rows(reader: Any) -> list[tuple[Any, ...]]:
    columns = reader.table("metrics", ["t_ns", "device", "metric", "value"])
    return sorted(zip(*(values.tolist() for values in columns.values()), strict=True))


class TestNvidiaSmi(ImporterContract):
    importer = GpuSamplesImporter

    def write(self, directory: Path) -> Path:
        path = directory / "gpus.csv"
        path.write_text(NVIDIA_SMI)
        return path


class TestDcgm(TestNvidiaSmi):
    def write(self, directory: Path) -> Path:
        path = directory / "gpus.csv"
        path.write_text(DCGM)
        return path


@pytest.mark.parametrize("units", ["with", "without"])
def test_cells_of_nvidia_smi(tmp_path: Path, units: str) -> None:
    text = NVIDIA_SMI
    if units == "without":
        head, _, body = text.partition("\n")
        text = head + "\n" + body.replace(" %", "").replace(" MiB", "").replace(" W", "")
    reader = imported(tmp_path, text)
    first, second = moment("2026-01-15T10:23:45.250"), moment("2026-01-15T10:23:45.750")
    ms, mib = 1_000_000, 1 << 20
    assert rows(reader) == [
        (first, "0", "gpu_busy_ratio", 0.97),
        (first, "0", "gpu_memory_used_bytes", 1024 * mib),
        (first, "0", "gpu_power_watt", 512.25),
        (first + ms, "1", "gpu_busy_ratio", 0.03),
        (first + ms, "1", "gpu_memory_used_bytes", 2 * mib),
        (second, "0", "gpu_busy_ratio", 0.98),
        (second, "0", "gpu_memory_used_bytes", 1025 * mib),
        (second, "0", "gpu_power_watt", 513.0),
        (second + ms, "1", "gpu_memory_used_bytes", 2 * mib),
        (second + ms, "1", "gpu_power_watt", 70.5),
    ]
    (node,) = reader.nodes().values()
    gpu = {"name": "NVIDIA H100", "memory_bytes": 81559 * mib}
    assert node.gpus == [{"index": 0, **gpu}, {"index": 1, **gpu}]


def test_fields_of_dcgm(tmp_path: Path) -> None:
    reader = imported(tmp_path, DCGM)
    t_ns, mib = 1_768_472_625_500_000_000, 1 << 20
    assert rows(reader) == [
        (t_ns, "0", "gpu_busy_ratio", 0.4),
        (t_ns, "0", "gpu_memory_busy_ratio", 0.25),
        (t_ns, "0", "gpu_memory_used_bytes", 100 * mib),
        (t_ns, "1", "gpu_memory_busy_ratio", 0.5),
        (t_ns, "1", "gpu_memory_used_bytes", 200 * mib),
    ]
    (node,) = reader.nodes().values()
    assert [gpu["uuid"] for gpu in node.gpus] == ["GPU-a", "GPU-b"]


def test_the_view_shows_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    imported(tmp_path, NVIDIA_SMI)
    output = capsys.readouterr().out
    assert "1 file with samples of GPUs, 10 samples in" in output
    assert "system" in output
    root.main(["show", str(tmp_path / "run"), "system"], standalone_mode=False)
    assert "NVIDIA H100" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("# Entity  GPUTL\nGPU 0  98\n", "is the output of dcgmi dmon, whose rows have no times"),
        ("# gpu    pwr\n# Idx      W\n    0   43\n", "is the output of nvidia-smi dmon"),
        ("timestamp, pstate\n2026/01/15 10:23:45.250, P0\n", "has no samples of GPUs"),
        (
            "timestamp, utilization.gpu [%]\n" + 2 * "2026/01/15 10:23:45.250, 1 %\n",
            "it has several GPUs, but neither their index nor their uuid",
        ),
        ("gpu,DCGM_FI_DEV_GPU_UTIL\n0,4\n", "it has no column with the time of the samples"),
        ("timestamp,gpu,DCGM_FI_DEV_GPU_UTIL\n0,0,4\n1e300,0,4\n,0,4\n", "has no samples of GPUs"),
    ],
)
def test_logs_without_samples_are_refused(tmp_path: Path, content: str, reason: str) -> None:
    with pytest.raises(UnreadableTraceError, match=reason):
        imported(tmp_path, content)


def test_damaged_rows_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reader = imported(tmp_path, NVIDIA_SMI + "2026/01/15 10:23:46.250, 0, NVID")
    assert len(rows(reader)) == 10
    assert "1 damaged row" in capsys.readouterr().err


def test_impossible_values_are_no_samples(tmp_path: Path) -> None:
    text = "timestamp,gpu,DCGM_FI_DEV_GPU_UTIL,DCGM_FI_DEV_FB_USED\n" + "".join(
        f"176847262{n},0,{busy},{used}\n"
        for n, (busy, used) in enumerate([(101, 5), (100, -1), (-1, 9223372036854775794)])
    )
    assert [row[2:] for row in rows(imported(tmp_path, text))] == [
        ("gpu_memory_used_bytes", 5 * (1 << 20)),
        ("gpu_busy_ratio", 1.0),
    ]


def test_a_metric_has_the_samples_of_one_column(tmp_path: Path) -> None:
    reader = imported(
        tmp_path,
        "timestamp,gpu,DCGM_FI_PROF_GR_ENGINE_ACTIVE,DCGM_FI_DEV_GPU_UTIL\n1768472625,0,0.25,40\n",
    )
    busy = pytest.approx(0.4)
    assert rows(reader) == [(1_768_472_625_000_000_000, "0", "gpu_busy_ratio", busy)]


def test_impossible_numbers_of_gpus(tmp_path: Path) -> None:
    index = "9" * 30
    row = f"1768472625, {index}, 1e400 MiB, 40 %"
    reader = imported(tmp_path, f"timestamp, index, memory.total, utilization.gpu\n{row}\n")
    (node,) = reader.nodes().values()
    assert node.gpus == [{"index": 0}]
