"""Limits of control groups, in fake trees."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stepscope.monitor.samplers.base import Unavailable
from stepscope.monitor.samplers.cgroup import ThrottleSampler, cores_available, memory_limit_bytes

Start = Callable[..., Any]

GIB = 1 << 30
MS = 1_000_000
MANY = 64
"""Affinity mask larger than the limits of the tests."""


def mounts(*lines: str) -> str:
    return "".join(f"{40 + i} 30 0:{i} {line}\n" for i, line in enumerate(lines))


V2_MOUNT = "/ /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate"
V1_MOUNTS = (
    "/ /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct",
    "/ /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset",
    "/ /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory",
)


def tree(root: Path, files: dict[str, str], *, group: str, mountinfo: str) -> Path:
    """Create a root directory: /proc/self and the files of /sys/fs/cgroup."""
    for name, text in {"proc/self/cgroup": group, "proc/self/mountinfo": mountinfo}.items():
        files = {**files, name: text}
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text if text.endswith("\n") else text + "\n")
    return root


def v2(root: Path, files: dict[str, str], *, path: str) -> Path:
    files = {f"sys/fs/cgroup/{name}": text for name, text in files.items()}
    return tree(root, files, group=f"0::{path}\n", mountinfo=mounts(V2_MOUNT))


def v1(root: Path, files: dict[str, str], *, path: str) -> Path:
    files = {f"sys/fs/cgroup/{name}": text for name, text in files.items()}
    group = f"5:cpuset:{path}\n4:memory:{path}\n3:cpu,cpuacct:{path}\n1:name=systemd:/init\n"
    return tree(root, files, group=group, mountinfo=mounts(*V1_MOUNTS))


def test_without_any_cgroup_the_affinity_mask_is_the_limit(tmp_path: Path) -> None:
    assert cores_available(tmp_path) == len(os.sched_getaffinity(0))
    assert memory_limit_bytes(tmp_path) is None


MOVES = """
import os, sys
cores = os.sched_getaffinity(0)
for core in (min(cores), max(cores)):
    os.sched_setaffinity(0, [core])
    print(flush=True)
    sys.stdin.readline()
"""


def test_a_job_on_one_core_has_one(tmp_path: Path, start: Start) -> None:
    job = start(MOVES)
    job.stdout.readline()
    assert cores_available(tmp_path, pid=job.pid) == 1


def test_a_job_that_queries_its_cores_one_by_one_has_all_of_them(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Importing PyTorch does so; the job moves to its next core while the monitor waits."""
    job = start(MOVES)
    job.stdout.readline()

    def move(_: float) -> None:
        job.stdin.write(b"\n")
        job.stdin.flush()
        job.stdout.readline()

    monkeypatch.setattr("stepscope.monitor.samplers.cgroup.time.sleep", move)
    cores = os.sched_getaffinity(0)
    assert cores_available(tmp_path, pid=job.pid) == len({min(cores), max(cores)})


def test_v2_quota_below_the_mask(tmp_path: Path) -> None:
    root = v2(tmp_path, {"job/cpu.max": "250000 100000"}, path="/job")
    assert cores_available(root, affinity=MANY) == 2.5
    assert cores_available(root, affinity=2) == 2.0


def test_v2_the_smallest_nested_limit_applies(tmp_path: Path) -> None:
    root = v2(
        tmp_path,
        {
            "slice/cpu.max": "150000 50000",  # 3 cores
            "slice/memory.max": str(8 * GIB),
            "slice/pod/cpu.max": "400000 100000",  # 4 cores
            "slice/pod/memory.max": "max",
            "slice/pod/job/cpu.max": "max 100000",
            "slice/pod/job/memory.max": str(16 * GIB),
            "other/cpu.max": "1000 100000",
            "other/memory.max": "4096",
        },
        path="/slice/pod/job",
    )
    assert cores_available(root, affinity=MANY) == 3.0
    assert memory_limit_bytes(root) == 8 * GIB


def test_v2_cpuset_is_counted(tmp_path: Path) -> None:
    files = {"job/cpuset.cpus.effective": "0-3,8,10-11", "cpuset.cpus.effective": "0-15"}
    root = v2(tmp_path, files, path="/job")
    assert cores_available(root, affinity=MANY) == 7.0


@pytest.mark.parametrize("path", ["/kubepods/pod1/abc", "/../../elsewhere"])
def test_a_path_that_is_not_visible_in_the_container_is_the_mount(
    tmp_path: Path, path: str
) -> None:
    (tmp_path / "elsewhere").mkdir()
    root = v2(tmp_path, {"cpu.max": "50000 100000", "memory.max": str(GIB)}, path=path)
    assert cores_available(root, affinity=MANY) == 0.5
    assert memory_limit_bytes(root) == GIB


def test_a_mount_that_exports_the_containers_own_group(tmp_path: Path) -> None:
    mount = "/docker/abc /sys/fs/cgroup rw - cgroup2 cgroup2 rw"
    root = tree(
        tmp_path,
        {
            "sys/fs/cgroup/cpu.max": "400000 100000",
            "sys/fs/cgroup/inner/cpu.max": "100000 100000",
        },
        group="0::/docker/abc/inner\n",
        mountinfo=mounts(mount),
    )
    assert cores_available(root, affinity=MANY) == 1.0


def test_v1_quota_cpuset_and_memory(tmp_path: Path) -> None:
    root = v1(
        tmp_path,
        {
            "cpu,cpuacct/job/cpu.cfs_quota_us": "-1",
            "cpu,cpuacct/job/cpu.cfs_period_us": "100000",
            "cpu,cpuacct/cpu.cfs_quota_us": "600000",
            "cpu,cpuacct/cpu.cfs_period_us": "100000",
            "cpuset/job/cpuset.cpus": "0,2,4,6,8",
            "memory/job/memory.limit_in_bytes": str(2 * GIB),
            "memory/memory.limit_in_bytes": "9223372036854771712",
        },
        path="/job",
    )
    assert cores_available(root, affinity=MANY) == 5.0
    assert memory_limit_bytes(root) == 2 * GIB


def test_v1_without_limits(tmp_path: Path) -> None:
    root = v1(
        tmp_path,
        {
            "cpu,cpuacct/job/cpu.cfs_quota_us": "-1",
            "cpu,cpuacct/job/cpu.cfs_period_us": "100000",
            "memory/job/memory.limit_in_bytes": "9223372036854771712",
        },
        path="/job",
    )
    assert cores_available(root, affinity=MANY) == MANY
    assert memory_limit_bytes(root) is None
    with pytest.raises(Unavailable, match="no CPU quota"):
        ThrottleSampler(root=root)


def test_hybrid_reads_every_controller_in_its_own_version(tmp_path: Path) -> None:
    """Memory in version 1, CPU in version 2."""
    root = tree(
        tmp_path,
        {
            "sys/fs/cgroup/memory/job/memory.limit_in_bytes": str(3 * GIB),
            "sys/fs/cgroup/unified/job/cpu.max": "150000 100000",
            "sys/fs/cgroup/unified/job/memory.max": str(GIB),  # not of this controller
        },
        group="4:memory:/job\n1:name=systemd:/job\n0::/job\n",
        mountinfo=mounts(V1_MOUNTS[2], "/ /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw"),
    )
    assert cores_available(root, affinity=MANY) == 1.5
    assert memory_limit_bytes(root) == 3 * GIB


def test_another_process_is_looked_up_by_its_pid(tmp_path: Path) -> None:
    root = v2(
        tmp_path,
        {"a/cpu.max": "100000 100000", "b/cpu.max": "300000 100000"},
        path="/a",
    )
    (root / "proc/77").mkdir()
    (root / "proc/77/cgroup").write_text("0::/b\n")
    assert cores_available(root, affinity=MANY) == 1.0
    assert cores_available(root, affinity=MANY, pid=77) == 3.0


def ratio(sampler: ThrottleSampler, now_ns: int) -> float | None:
    samples = list(sampler.sample(now_ns))
    assert all(s.metric == "cgroup_throttled_ratio" and s.device == "" for s in samples)
    return samples[0].value if samples else None


def test_v2_throttling_of_one_core(tmp_path: Path) -> None:
    """Half a core of quota, one busy thread: it is throttled for half of every period."""
    root = v2(tmp_path, {"job/cpu.max": "50000 100000"}, path="/job")
    stat = root / "sys/fs/cgroup/job/cpu.stat"
    stat.write_text("usage_usec 1\nnr_periods 10\nnr_throttled 5\nthrottled_usec 250000\n")
    sampler = ThrottleSampler(root=root)
    assert ratio(sampler, 0) is None
    stat.write_text("usage_usec 2\nnr_periods 20\nnr_throttled 15\nthrottled_usec 750000\n")
    assert ratio(sampler, 1000 * MS) == pytest.approx(0.5)
    assert ratio(sampler, 2000 * MS) == 0.0


def test_throttling_of_many_cores_is_wall_time_not_their_sum(tmp_path: Path) -> None:
    """Four cores of quota, eight busy threads: they run 50 of 100 ms, and wait 50 ms."""
    files = {"cpu,cpuacct/job/cpu.cfs_quota_us": "400000"}
    files["cpu,cpuacct/job/cpu.cfs_period_us"] = "100000"
    root = v1(tmp_path, files, path="/job")
    stat = root / "sys/fs/cgroup/cpu,cpuacct/job/cpu.stat"
    stat.write_text("nr_periods 0\nnr_throttled 0\nthrottled_time 0\n")
    sampler = ThrottleSampler(root=root)
    assert ratio(sampler, 0) is None
    stat.write_text(f"nr_periods 10\nnr_throttled 10\nthrottled_time {10 * 8 * 50 * MS}\n")
    assert ratio(sampler, 1000 * MS) == pytest.approx(0.5)


def test_a_group_throttled_late_in_its_period_is_throttled_for_less_time(tmp_path: Path) -> None:
    root = v2(tmp_path, {"job/cpu.max": "50000 100000"}, path="/job")
    stat = root / "sys/fs/cgroup/job/cpu.stat"
    stat.write_text("nr_throttled 0\nthrottled_usec 0\n")
    sampler = ThrottleSampler(root=root)
    ratio(sampler, 0)
    stat.write_text("nr_throttled 1\nthrottled_usec 10000\n")
    assert ratio(sampler, 100 * MS) == pytest.approx(0.1)


def test_the_most_throttled_level_is_reported(tmp_path: Path) -> None:
    root = v2(tmp_path, {"a/cpu.max": "50000 100000", "a/b/cpu.max": "80000 100000"}, path="/a/b")
    outer, inner = (root / "sys/fs/cgroup" / name / "cpu.stat" for name in ("a", "a/b"))
    for stat in (outer, inner):
        stat.write_text("nr_throttled 0\nthrottled_usec 0\n")
    sampler = ThrottleSampler(root=root)
    ratio(sampler, 0)
    outer.write_text("nr_throttled 10\nthrottled_usec 500000\n")
    inner.write_text("nr_throttled 1\nthrottled_usec 20000\n")
    assert ratio(sampler, 1000 * MS) == pytest.approx(0.5)
    outer.unlink()  # a removed group is left out
    assert ratio(sampler, 2000 * MS) == 0.0
