"""Figures, sentences and charts of the report, on runs that are drawn for a section each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from stepscope.report import display
from stepscope.report.display import make_chart_table
from stepscope.run import Run
from stepscope.schema import RuleStatus
from stepscope.store import open_run
from stepscope.testing import RunBuilder
from stepscope.views.profiling_report import Report, Section, choose_report_rules, make_report
from stepscope.views.profiling_report.blocks import (
    BarChart,
    Boxes,
    Check,
    Histogram,
    Lines,
    Listing,
    Pie,
    Table,
    Text,
)
from tests.support.known_statistics import step_durations
from tests.support.report_runs import FIRST_STEP_S, JOB_S, RunFiles

STEP = "wait=0 40 | forward 10 | backward 45 | optimizer 5"


def sections_of(path: Path) -> dict[str, Section]:
    return sections_by_id(make_report(Run(open_run(path)), choose_report_rules()))


def sections_by_id(report: Report) -> dict[str, Section]:

    def walk(sections: list[Section]) -> Iterator[Section]:
        for section in sections:
            yield section
            yield from walk(section.sections)

    return {section.id: section for section in walk(report.sections)}


def pies_of(section: Section) -> dict[str, dict[str, float]]:
    pies = [block for block in section.blocks if isinstance(block, Pie)]
    return {pie.title: {part.name: part.share_ratio for part in pie.slices} for pie in pies}


def tables_of(section: Section) -> list[Table]:
    return [block for block in section.blocks if isinstance(block, Table)]


def warnings_of(section: Section) -> list[str]:
    texts = [block for block in section.blocks if isinstance(block, Text)]
    return [text.text for text in texts if text.tone == "warning"]


@pytest.fixture(scope="module")
def known_sections(known_report: Report) -> dict[str, Section]:
    return sections_by_id(known_report)


@pytest.mark.seed("DBR-04")
def test_times_of_the_job(known_sections: dict[str, Section]) -> None:
    training_s = step_durations().sum()
    end_s = JOB_S - FIRST_STEP_S - training_s
    (table,) = tables_of(known_sections["job"])
    rows = dict(table.rows)
    assert rows["Start time"] == "2021-12-26 02:26:57 UTC"
    assert rows["End time"] == "2021-12-26 02:56:59 UTC"
    assert rows["Training loop start"] == "2021-12-26 02:28:37 UTC"
    seconds = {
        "Job duration (s)": JOB_S,
        "Training loop duration (s)": training_s,
        "Initialization time (s)": FIRST_STEP_S,
        "Finalization time (s)": end_s,
        "Initialization (%)": 100 * FIRST_STEP_S / JOB_S,
        "Training loop (%)": 100 * training_s / JOB_S,
        "Finalization (%)": 100 * end_s / JOB_S,
    }
    for name, value in seconds.items():
        assert float(str(rows[name]).replace(",", "")) == pytest.approx(value, abs=0.005)
    assert set(rows) == {*seconds, "Start time", "End time", "Training loop start",
                         "Training loop end"}  # fmt: skip
    assert pies_of(known_sections["job"])["Job duration by part"] == pytest.approx(
        {
            "Initialization": FIRST_STEP_S / JOB_S,
            "Training loop": training_s / JOB_S,
            "Finalization": end_s / JOB_S,
        },
        abs=1e-4,
    )


@pytest.mark.seed("DBR-04")
def test_classes_of_the_job_sum_to_it(known_sections: dict[str, Section]) -> None:
    training_s = step_durations().sum()
    before_s, after_s = FIRST_STEP_S, JOB_S - FIRST_STEP_S - training_s
    (table,) = tables_of(known_sections["job-time"])
    seconds = {name: time_s for name, time_s, *_ in table.rows}
    # Steps adjoin, and no stack was sampled before them.
    expected = {"not seen": before_s, "steps": training_s, "after the last step": after_s}
    assert seconds == pytest.approx(expected, abs=1e-2)
    shares = {name: time_s / JOB_S for name, time_s in expected.items()}
    assert {name: share / 100 for name, _, share, _ in table.rows} == pytest.approx(
        shares, abs=1e-4
    )
    (chart,) = [b for b in known_sections["job-time"].blocks if isinstance(b, BarChart)]
    assert dict(zip(chart.names, chart.values, strict=True)) == pytest.approx(shares, abs=1e-4)


@pytest.mark.seed("DBR-09")
def test_phases_of_outliers(known_sections: dict[str, Section]) -> None:
    """Every step of this job is 30% forward, 60% backward and 10% optimizer."""
    pies = pies_of(known_sections["steps"])
    assert pies["During outliers: TRAIN and others"]["TRAIN"] == pytest.approx(1)
    assert pies["During outliers: forward and backward"] == pytest.approx(
        {"forward": 1 / 3, "backward": 2 / 3}, abs=1e-4
    )
    phases = {"backward": 0.6, "forward": 0.3, "optimizer": 0.1}
    assert pies["During outliers: general framework operations"] == pytest.approx(phases, abs=1e-4)


@pytest.mark.seed("DBR-05")
@pytest.mark.parametrize(
    ("gpu", "cpu", "sentence"),
    [
        ([0.13], 0.24, "is underutilized: p95 of GPU utilization 13.0%, of CPU utilization 24.0%."),
        ([0.3], 0.9, "may have a CPU bottleneck: p95 of GPU utilization 30.0%, of CPU "),
        ([0.9], 0.5, "is well utilized: median GPU utilization 90.0%."),
        ([0.5, 0.5, 0.8], 0.2, "median GPU utilization 50.0%, median CPU utilization 20.0%."),
    ],
)
def test_a_node_in_a_sentence(tmp_path: Path, gpu: list[float], cpu: float, sentence: str) -> None:
    run = RunFiles(tmp_path / "run")
    run.node("a", cores=2, seconds=300, gpus=1)
    busy = np.resize(gpu, 600)
    samples = {("gpu_busy_ratio", "0"): busy, ("gpu_memory_used_bytes", "0"): np.full(600, 40.0)}
    run.samples("a", {**samples, ("cpu_busy_ratio", ""): np.full(600, cpu)})
    system = sections_of(tmp_path / "run")["system"]
    (listing,) = [block for block in system.blocks if isinstance(block, Listing)]
    (item,) = listing.items
    assert item.startswith("a")
    assert sentence in item
    (table,) = tables_of(system)
    rows = {row[1]: row[3:] for row in table.rows}
    shares = (1, 0.99, 0.95, 0.5, 0)
    assert rows["GPU"] == pytest.approx([100 * np.quantile(busy, share) for share in shares])
    assert rows["GPU memory"] == pytest.approx([40.0] * 5)  # of 100 bytes
    assert rows["CPU"] == pytest.approx([100 * cpu] * 5)


@pytest.mark.seed("DBR-06", "DBR-07")
def test_framework_metrics(tmp_path: Path) -> None:
    """Fifty steps of 100 ms, one of them with a second of evaluation, and a window."""
    run = RunBuilder(tmp_path / "run")
    rank = run.rank().draw(STEP, 25).evaluation(100, "predict 10").draw(STEP, 25)
    rank.draw(
        "window ( forward 30 ( op:linear 20 | op:relu 10 ) | backward 40 ( kernel:gemm 15 "
        "| kernel:relu_kernel 5 | kernel:ncclDevKernel_AllReduce 8 ) )"
    )
    run.metric("cpu_busy_ratio", 0.5)
    sections = sections_of(run.write())
    framework = sections["framework"]
    pies = pies_of(framework)
    total_ms = 50 * 100 + 1000
    assert pies["TRAIN, EVAL and others"] == pytest.approx(
        {"TRAIN": 50 * 60 / total_ms, "EVAL": 1000 / total_ms, "others": 50 * 40 / total_ms},
        abs=1e-3,
    )
    assert pies["Forward and backward"] == pytest.approx(
        {"backward": 45 / 55, "forward": 10 / 55}, abs=1e-3
    )
    assert pies["General framework operations"] == pytest.approx(
        {"backward": 0.45, "data wait": 0.4, "forward": 0.1, "optimizer": 0.05}, abs=1e-3
    )
    assert pies["Operators on the CPU and kernels on GPUs"] == pytest.approx(
        {"CPU operators": 30 / 50, "GPU kernels": 20 / 50}, abs=1e-3
    )
    assert warnings_of(framework) == [
        "Others take 33% of the steps, more than 25%: the chart of framework operations shows the "
        "phases.",
        "The backward pass takes 82% of both passes, more than 70%.",
    ]
    expected = {
        "cpu-operators": [(66.67, 20_000, "linear"), (33.33, 10_000, "relu")],
        "gpu-operators": [(75.0, 15_000, "gemm"), (25.0, 5_000, "relu_kernel")],
        "collectives": [(100.0, 8_000, "ncclDevKernel_AllReduce")],
    }
    for name, rows in expected.items():
        (table,) = tables_of(sections[name])
        assert [tuple(row[1:]) for row in table.rows] == rows
        (pie,) = pies_of(sections[name]).values()
        assert pie == pytest.approx({row[2]: row[0] / 100 for row in rows}, abs=1e-4)
    assert sections["gpu-operators"].blocks[0] == Text(
        text="The most expensive GPU kernel was gemm with 75%."
    )


@pytest.mark.seed("DBR-14", "DBR-15")
def test_waits_for_io_and_gpu_memory(tmp_path: Path) -> None:
    """Of 2,000 snapshots, 1,200 have a low GPU and a core that waits, 300 more a low GPU."""
    run = RunFiles(tmp_path / "run")
    run.node("a", cores=1, seconds=1000, gpus=1)
    index = np.arange(2000)
    waits = np.where(index < 1200, 0.6, 0.1)
    run.samples(
        "a",
        {
            ("core_iowait_ratio", "0"): waits,
            ("cpu_iowait_max_ratio", ""): waits,
            ("cpu_busy_ratio", ""): np.full(2000, 0.2),
            ("gpu_busy_ratio", "0"): np.where(index < 1500, 0.05, 0.8),
            ("gpu_memory_used_bytes", "0"): np.where(index < 1000, 20.0, 60.0),
        },
    )
    sections = sections_of(tmp_path / "run")
    assert pies_of(sections["io-bottlenecks"])["GPUs in all snapshots"] == pytest.approx(
        {
            "a GPU below 10.0%, I/O the cause": 0.6,
            "every GPU at 10.0% or above": 0.25,
            "a GPU below 10.0%, I/O not the cause": 0.15,
        }
    )
    (chart,) = [block for block in sections["gpu-memory"].blocks if isinstance(block, Boxes)]
    assert chart.title == "GPU memory of a"
    box = chart.boxes["GPU 0"]
    assert (box.min, box.p25, box.p75, box.max) == (20, 20, 60, 60)
    (check,) = [block for block in sections["gpu-memory"].blocks if isinstance(block, Check)]
    assert (check.status, check.datapoints) == (RuleStatus.ISSUES_FOUND, 2000)
    texts = [block.text for block in sections["gpu-memory"].blocks if isinstance(block, Text)]
    assert "40" in " ".join(texts)  # the rise in percentage points


def test_no_time_of_a_fast_loop_reads_as_zero(tmp_path: Path) -> None:
    """The job starts within 3 ms, and its steps take 50 us."""
    run = RunBuilder(tmp_path / "run")
    run.rank().draw("do 3").draw("step 0.05 ( forward 0.02 | backward 0.02 )", 2000)
    sections = sections_of(run.metric("cpu_busy_ratio", 0.5).write())
    (table,) = tables_of(sections["job"])
    assert dict(table.rows)["Initialization time (s)"] == "0.003"
    charts = [block for block in sections["steps"].blocks if isinstance(block, Lines | Histogram)]
    assert len(charts) >= 2
    for chart in charts:
        assert "<td>0.00</td>" not in display._render_table(make_chart_table(chart))
