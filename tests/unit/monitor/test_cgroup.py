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


V1_CPU = "cpu,cpuacct/"
V2_PATHS = ("/kubepods/pod1/abc", "/../../elsewhere")
"""Paths that are not visible in the container: the mount itself counts."""
LIMITS: dict[str, tuple[Callable[..., Path], str, dict[str, str], float, int | None]] = {
    "quota": (v2, "/job", {"job/cpu.max": "250000 100000"}, 2.5, None),
    "the smallest nested limit": (
        v2,
        "/slice/pod/job",
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
        3.0,
        8 * GIB,
    ),
    "cpuset": (
        *(v2, "/job"),
        {"job/cpuset.cpus.effective": "0-3,8,10-11", "cpuset.cpus.effective": "0-15"},
        *(7.0, None),
    ),
    **{
        path: (v2, path, {"cpu.max": "50000 100000", "memory.max": str(GIB)}, 0.5, GIB)
        for path in V2_PATHS
    },
    "version 1": (
        v1,
        "/job",
        {
            f"{V1_CPU}job/cpu.cfs_quota_us": "-1",
            f"{V1_CPU}job/cpu.cfs_period_us": "100000",
            f"{V1_CPU}cpu.cfs_quota_us": "600000",
            f"{V1_CPU}cpu.cfs_period_us": "100000",
            "cpuset/job/cpuset.cpus": "0,2,4,6,8",
            "memory/job/memory.limit_in_bytes": str(2 * GIB),
            "memory/memory.limit_in_bytes": "9223372036854771712",
        },
        5.0,
        2 * GIB,
    ),
}
"""Maker of the tree, path of the group, files; cores and memory that are left."""


@pytest.mark.parametrize("name", LIMITS)
def test_limits(tmp_path: Path, name: str) -> None:
    make, path, files, cores, memory_bytes = LIMITS[name]
    (tmp_path / "elsewhere").mkdir()
    root = make(tmp_path, files, path=path)
    assert cores_available(root, affinity=MANY) == cores
    assert cores_available(root, affinity=2) == min(2, cores)
    assert memory_limit_bytes(root) == memory_bytes


def test_a_mount_that_exports_the_containers_own_group(tmp_path: Path) -> None:
    mount = "/docker/abc /sys/fs/cgroup rw - cgroup2 cgroup2 rw"
    quotas = {"cpu.max": "400000 100000", "inner/cpu.max": "100000 100000"}
    root = tree(
        tmp_path,
        {f"sys/fs/cgroup/{name}": text for name, text in quotas.items()},
        group="0::/docker/abc/inner\n",
        mountinfo=mounts(mount),
    )
    assert cores_available(root, affinity=MANY) == 1.0


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
    root = v2(tmp_path, {"a/cpu.max": "100000 100000", "b/cpu.max": "300000 100000"}, path="/a")
    (root / "proc/77").mkdir()
    (root / "proc/77/cgroup").write_text("0::/b\n")
    assert cores_available(root, affinity=MANY) == 1.0
    assert cores_available(root, affinity=MANY, pid=77) == 3.0


def ratio(sampler: ThrottleSampler, now_ns: int) -> float | None:
    samples = list(sampler.sample(now_ns))
    assert all(s.metric == "cgroup_throttled_ratio" and s.device == "" for s in samples)
    return samples[0].value if samples else None


THROTTLED = {
    # Half a core of quota, one busy thread: it is throttled for half of every period.
    "one core": (v2, "50000", 10, 500_000, 0.5),
    # Four cores of quota, eight busy threads: they run 50 of 100 ms, and wait 50 ms.
    "many cores: wall time, not their sum": (v1, "400000", 10, 10 * 8 * 50_000, 0.5),
    "late in its period": (v2, "50000", 1, 10_000, 0.01),
}
"""Maker of the tree and quota; throttled periods and microseconds of a second; their share."""


@pytest.mark.parametrize("name", THROTTLED)
def test_throttling(tmp_path: Path, name: str) -> None:
    make, quota, period_count, throttled_us, share = THROTTLED[name]
    files = {"job/cpu.max": f"{quota} 100000"}
    if make is v1:
        files = {f"{V1_CPU}job/cpu.cfs_quota_us": quota, f"{V1_CPU}job/cpu.cfs_period_us": "100000"}
    root = make(tmp_path, files, path="/job")
    stat = (root / "sys/fs/cgroup" / next(iter(files))).with_name("cpu.stat")
    unit, factor = ("throttled_time", 1000) if make is v1 else ("throttled_usec", 1)
    stat.write_text(f"usage_usec 1\nnr_periods 9\nnr_throttled 5\n{unit} {7 * factor}\n")
    sampler = ThrottleSampler(root=root)
    assert ratio(sampler, 0) is None
    stat.write_text(
        f"usage_usec 2\nnr_periods 19\nnr_throttled {5 + period_count}\n"
        f"{unit} {(7 + throttled_us) * factor}\n"
    )
    assert ratio(sampler, 1000 * MS) == pytest.approx(share)
    assert ratio(sampler, 2000 * MS) == 0.0


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
