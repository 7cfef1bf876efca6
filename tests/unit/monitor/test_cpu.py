"""Cores: a fake /proc/stat for the arithmetic, a busy process for the real one."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from stepscope.monitor.samplers.base import Unavailable
from stepscope.monitor.samplers.cpu import CpuSampler
from stepscope.monitor.samplers.processes import JobTree

S = 1_000_000_000

Start = Callable[[str], "subprocess.Popen[bytes]"]
WaitFor = Callable[[Callable[[], object]], None]


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
    mine = (20, 10, 5, 30, 20, 5, 5, 5, 20, 10)  # guest is within user
    other = (80, 0, 0, 20, 0, 0, 0, 0, 0, 0)
    (tmp_path / "stat").write_text(stat(*[zero] * core, mine, other))
    seen = values(sampler, S)
    assert seen["core_busy_ratio", str(core)] == pytest.approx(0.5)
    assert seen["core_iowait_ratio", str(core)] == pytest.approx(0.2)
    assert seen["core_busy_ratio", str(core + 1)] == 0.8
    # The job may use one of the two cores: mean and maximum are that one's.
    assert seen["cpu_busy_ratio", ""] == pytest.approx(0.5)
    assert seen["cpu_iowait_ratio", ""] == pytest.approx(0.2)
    assert seen["cpu_busy_max_ratio", ""] == seen["core_busy_ratio", str(core)]
    assert seen["cpu_iowait_max_ratio", ""] == seen["core_iowait_ratio", str(core)]
    assert seen["outside_cpu_cores", ""] == pytest.approx(1.3, abs=0.05)
    assert seen["stolen_cpu_cores", ""] == pytest.approx(0.05)


def test_mean_and_maximum_are_of_the_jobs_cores(tmp_path: Path) -> None:
    mine = sorted(os.sched_getaffinity(0))
    count = mine[-1] + 1
    (tmp_path / "stat").write_text(stat(*[(0,) * 10] * count))
    sampler = CpuSampler(idle_tree(), proc=str(tmp_path))
    values(sampler, 0)
    ticks = [(5 + core, 0, 0, 80, 7 * core, 0, 0, 0, 0, 0) for core in range(count)]
    (tmp_path / "stat").write_text(stat(*ticks))
    seen = values(sampler, S)
    for what in ("busy", "iowait"):
        each = [seen[f"core_{what}_ratio", str(core)] for core in mine]
        assert seen[f"cpu_{what}_ratio", ""] == pytest.approx(sum(each) / len(each))
        assert seen[f"cpu_{what}_max_ratio", ""] == max(each)


def test_cores_that_come_and_go_and_iowait_taken_back(tmp_path: Path) -> None:
    path = tmp_path / "stat"
    path.write_text(stat((0, 0, 0, 0, 50, 0, 0, 0), (0, 0, 0, 0, 0, 0, 0, 0)))
    sampler = CpuSampler(idle_tree(), proc=str(tmp_path))
    values(sampler, 0)
    path.write_text(stat((25, 0, 0, 75, 40, 0, 0, 0)))
    seen = values(sampler, S)
    assert seen["core_busy_ratio", "0"] == 0.25
    assert seen["core_iowait_ratio", "0"] == 0.0
    assert ("core_busy_ratio", "1") not in seen
    path.write_text(stat((50, 0, 0, 150, 40, 0, 0, 0), (9, 0, 0, 1, 0, 0, 0, 0)))
    assert ("core_busy_ratio", "1") not in values(sampler, 2 * S)


def test_a_clock_of_cores_that_stands_still_tells_no_share(tmp_path: Path) -> None:
    (tmp_path / "stat").write_text(stat((0,) * 10))
    sampler = CpuSampler(idle_tree(), proc=str(tmp_path))
    values(sampler, 0)
    assert {metric for metric, _ in values(sampler, S)} == {"job_cpu_cores", "own_cpu_cores"}


def test_no_cores_is_a_reason(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="cannot be read"):
        CpuSampler(idle_tree(), proc=str(tmp_path))
    (tmp_path / "stat").write_text("ctxt 5\n")
    with pytest.raises(Unavailable, match="names no core"):
        CpuSampler(idle_tree(), proc=str(tmp_path))


def test_who_keeps_the_cores_busy(start: Start, wait_for: WaitFor) -> None:
    """The same busy process is the job's, then stepscope's, then somebody else's."""
    busy, idle = start("while True: pass"), start("import sys; sys.stdin.readline()")
    trees = {
        "job_cpu_cores": JobTree(busy.pid, lambda: (), lambda: ()),
        "own_cpu_cores": JobTree(idle.pid, lambda: (), lambda: [busy.pid]),
        "outside_cpu_cores": JobTree(idle.pid, lambda: (), lambda: ()),
    }
    samplers = {name: CpuSampler(tree) for name, tree in trees.items()}
    for sampler in samplers.values():
        values(sampler, 0)
    # Begins last and ends first, so that no sampler has seen less.
    reference = JobTree(busy.pid, lambda: (), lambda: ())
    tick = 0

    def used_s() -> float:
        nonlocal tick
        tick += 1
        reference.refresh(tick)
        return reference.cpu_seconds

    wait_for(lambda: used_s() >= 0.2)
    # The samplers are told that one second has passed, so cores are CPU seconds.
    seen = {name: values(sampler, S) for name, sampler in samplers.items()}
    for name in ("job_cpu_cores", "own_cpu_cores"):
        # A difference of sums of clock ticks may be 0.19999999999999998.
        assert 0.2 <= round(seen[name][name, ""], 6) < 0.2 + 5
    assert seen["job_cpu_cores"]["own_cpu_cores", ""] == 0
    assert seen["own_cpu_cores"]["job_cpu_cores", ""] <= 0.1
    assert seen["outside_cpu_cores"]["job_cpu_cores", ""] <= 0.1
    # Shares of cores, unlike CPU seconds, do not believe the told second.
    assert seen["outside_cpu_cores"]["outside_cpu_cores", ""] > 0.2
    ratios = [v for (metric, _), v in seen["job_cpu_cores"].items() if metric.endswith("ratio")]
    assert len(ratios) >= 4
    assert all(0 <= ratio <= 1 for ratio in ratios)
