"""Cores: a fake /proc/stat for the arithmetic, a busy process for a real one."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from stepscope.monitor.samplers.base import Unavailable
from stepscope.monitor.samplers.machine import CpuSampler
from stepscope.monitor.samplers.processes import JobTree
from tests.support.waiting import wait_until

S = 1_000_000_000

Start = Callable[[str], "subprocess.Popen[bytes]"]


def stat(*cores: tuple[int, ...]) -> str:
    """Columns: user nice system idle iowait irq softirq steal guest guest_nice."""
    total = [sum(column) for column in zip(*cores, strict=True)]
    lines = ["cpu  " + " ".join(map(str, total))]
    lines += [f"cpu{i} " + " ".join(map(str, core)) for i, core in enumerate(cores)]
    return "\n".join([*lines, "intr 1 2 3", "ctxt 9", "cpufreq 1"]) + "\n"


def values(sampler: CpuSampler, now_ns: int) -> dict[tuple[str, str], float]:
    return {(metric, device): value for metric, device, value in sampler.sample(now_ns)}


def idle_tree() -> JobTree:
    return JobTree(os.getpid(), lambda: (), lambda: ())


def test_busy_and_iowait_of_each_core_and_of_the_jobs_mean(tmp_path: Path, start: Start) -> None:
    core = min(os.sched_getaffinity(0))
    child = start("import sys; sys.stdin.readline()")
    os.sched_setaffinity(child.pid, [core])
    zero = (0,) * 10
    (tmp_path / "stat").write_text(stat(*[zero] * (core + 2)))
    sampler = CpuSampler(JobTree(child.pid, lambda: (), lambda: ()), proc=str(tmp_path))
    assert values(sampler, 0) == {}
    #       user nice sys idle iowait irq softirq steal guest guest_nice
    job_core = (20, 10, 5, 30, 20, 5, 5, 5, 20, 10)  # user includes guest
    free_core = (80, 0, 0, 20, 0, 0, 0, 0, 0, 0)
    (tmp_path / "stat").write_text(stat(*[zero] * core, job_core, free_core))
    samples = values(sampler, S)
    assert samples["core_busy_ratio", str(core)] == pytest.approx(0.5)
    assert samples["core_iowait_ratio", str(core)] == pytest.approx(0.2)
    assert samples["core_busy_ratio", str(core + 1)] == 0.8
    # The job may use one of the two cores: mean and maximum are of that core.
    assert samples["cpu_busy_ratio", ""] == pytest.approx(0.5)
    assert samples["cpu_iowait_ratio", ""] == pytest.approx(0.2)
    assert samples["cpu_busy_max_ratio", ""] == samples["core_busy_ratio", str(core)]
    assert samples["cpu_iowait_max_ratio", ""] == samples["core_iowait_ratio", str(core)]
    assert samples["outside_cpu_cores", ""] == pytest.approx(1.3, abs=0.05)
    assert samples["stolen_cpu_cores", ""] == pytest.approx(0.05)


def test_mean_and_maximum_are_of_the_jobs_cores(tmp_path: Path) -> None:
    cores = sorted(os.sched_getaffinity(0))
    count = cores[-1] + 1
    (tmp_path / "stat").write_text(stat(*[(0,) * 10] * count))
    sampler = CpuSampler(idle_tree(), proc=str(tmp_path))
    values(sampler, 0)
    ticks = [(5 + core, 0, 0, 80, 7 * core, 0, 0, 0, 0, 0) for core in range(count)]
    (tmp_path / "stat").write_text(stat(*ticks))
    samples = values(sampler, S)
    for metric in ("busy", "iowait"):
        shares = [samples[f"core_{metric}_ratio", str(core)] for core in cores]
        assert samples[f"cpu_{metric}_ratio", ""] == pytest.approx(sum(shares) / len(shares))
        assert samples[f"cpu_{metric}_max_ratio", ""] == max(shares)


def test_cores_that_are_added_or_removed_and_iowait_that_decreases(tmp_path: Path) -> None:
    path = tmp_path / "stat"
    path.write_text(stat((0, 0, 0, 0, 50, 0, 0, 0), (0, 0, 0, 0, 0, 0, 0, 0)))
    sampler = CpuSampler(idle_tree(), proc=str(tmp_path))
    values(sampler, 0)
    path.write_text(stat((25, 0, 0, 75, 40, 0, 0, 0)))
    samples = values(sampler, S)
    assert samples["core_busy_ratio", "0"] == 0.25
    assert samples["core_iowait_ratio", "0"] == 0.0
    assert ("core_busy_ratio", "1") not in samples
    path.write_text(stat((50, 0, 0, 150, 40, 0, 0, 0), (9, 0, 0, 1, 0, 0, 0, 0)))
    assert ("core_busy_ratio", "1") not in values(sampler, 2 * S)


def test_cores_without_ticks_have_no_shares(tmp_path: Path) -> None:
    (tmp_path / "stat").write_text(stat((0,) * 10))
    sampler = CpuSampler(idle_tree(), proc=str(tmp_path))
    values(sampler, 0)
    assert {metric for metric, _ in values(sampler, S)} == {"job_cpu_cores", "own_cpu_cores"}


def test_missing_cores_are_a_reason(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="cannot be read"):
        CpuSampler(idle_tree(), proc=str(tmp_path))
    (tmp_path / "stat").write_text("ctxt 5\n")
    with pytest.raises(Unavailable, match="lists no cores"):
        CpuSampler(idle_tree(), proc=str(tmp_path))


def test_cores_used_by_the_job_by_stepscope_and_by_others(start: Start) -> None:
    """One busy process is part of the job, of stepscope, or of neither."""
    busy, idle = start("while True: pass"), start("import sys; sys.stdin.readline()")
    trees = {
        "job_cpu_cores": JobTree(busy.pid, lambda: (), lambda: ()),
        "own_cpu_cores": JobTree(idle.pid, lambda: (), lambda: [busy.pid]),
        "outside_cpu_cores": JobTree(idle.pid, lambda: (), lambda: ()),
    }
    samplers = {name: CpuSampler(tree) for name, tree in trees.items()}
    for sampler in samplers.values():
        values(sampler, 0)
    # Starts last and ends first, so that every sampler has measured at least as much.
    reference = JobTree(busy.pid, lambda: (), lambda: ())
    tick = 0

    def used_s() -> float:
        nonlocal tick
        tick += 1
        reference.refresh(tick)
        return reference.cpu_seconds

    wait_until(lambda: used_s() >= 0.2)
    # For the samplers one second has passed, so cores are CPU seconds.
    samples = {name: values(sampler, S) for name, sampler in samplers.items()}
    for name in ("job_cpu_cores", "own_cpu_cores"):
        # A difference of sums of clock ticks may be 0.19999999999999998.
        assert 0.2 <= round(samples[name][name, ""], 6) < 0.2 + 5
    assert samples["job_cpu_cores"]["own_cpu_cores", ""] == 0
    assert samples["own_cpu_cores"]["job_cpu_cores", ""] <= 0.1
    assert samples["outside_cpu_cores"]["job_cpu_cores", ""] <= 0.1
    # Shares of cores, unlike CPU seconds, do not depend on that second.
    assert samples["outside_cpu_cores"]["outside_cpu_cores", ""] > 0.2
    ratios = [
        value for (metric, _), value in samples["job_cpu_cores"].items() if metric.endswith("ratio")
    ]
    assert len(ratios) >= 4
    assert all(0 <= ratio <= 1 for ratio in ratios)
