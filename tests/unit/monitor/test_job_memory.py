"""Memory of a job by kind, of real processes; its limits in fake trees of control groups."""

from __future__ import annotations

import itertools
import mmap
import os
import resource
from pathlib import Path
from typing import Any

import pytest

from stepscope.monitor.samplers import JobTree, Unavailable, job_memory
from stepscope.monitor.samplers.cgroup import count_memory_kills, read_memory_stall_us
from stepscope.monitor.samplers.job_memory import (
    JobMemorySampler,
    ProcessPages,
    read_process_memory,
    read_process_pages,
)
from tests.unit.monitor.test_cgroup import Start, v1, v2

S = 1_000_000_000
MIB = 1 << 20
HOLDER = """
import mmap, os, sys
held = bytearray(64 << 20)
file = mmap.mmap(os.open(PATH, os.O_RDONLY), 0, prot=mmap.PROT_READ)
pages = sum(file[::4096])
children = []
def answer(text):
    print(text, flush=True)
    return sys.stdin.readline().strip()
command = answer("ready")
while command:
    if command == "fork":
        ends = os.pipe(), os.pipe()
        pid = os.fork()
        if not pid:
            os.read(ends[0][0], 1)
            for i in range(0, 32 << 20, 4096):
                held[i] = 1  # half of the pages become its own
            os.write(ends[1][1], b"x")
            os.read(ends[0][0], 1)
            os._exit(0)
        result = pid
    elif command == "write":
        os.write(ends[0][1], b"x")
        os.read(ends[1][0], 1)
        result = "written"
    elif command == "end":
        os.write(ends[0][1], b"x")
        os.waitpid(pid, 0)
        result = "ended"
    command = answer(result)
"""


def ask(job: Any, command: str) -> str:
    job.stdin.write(f"{command}\n".encode())
    job.stdin.flush()
    return str(job.stdout.readline().decode().strip())


@pytest.fixture
def mapped(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    path.write_bytes(bytes(16 * MIB))
    return path


def test_kinds_of_memory_of_a_process_and_the_sum_of_a_job(start: Start, mapped: Path) -> None:
    job = start(f"PATH = {str(mapped)!r}{HOLDER}")
    assert job.stdout.readline().strip() == b"ready"
    alone = read_process_memory(job.pid)
    assert alone is not None
    assert 64 * MIB < alone.anonymous < 96 * MIB
    assert alone.file > 16 * MIB  # the mapped file, and libraries
    tree = JobTree(job.pid, lambda: (), lambda: ())
    sampler = JobMemorySampler(tree)
    first = by_metric(sampler, 1)
    base = first["job_memory_bytes", ""]
    sampled = first["process_anonymous_bytes", str(job.pid)]
    assert sampled == pytest.approx(alone.anonymous, abs=MIB)  # the process goes on
    assert first["job_process_count", ""] == 1

    child = int(ask(job, "fork"))
    forked = by_metric(sampler, 2)
    assert forked["job_process_count", ""] == 2
    # Pages that are shared count once, before and after they are counted.
    assert forked["job_memory_bytes", ""] == pytest.approx(base, abs=8 * MIB)
    counted = by_metric(sampler, 20)
    assert counted["job_memory_bytes", ""] == pytest.approx(base, abs=8 * MIB)
    assert counted["process_shared_bytes", str(child)] > 64 * MIB

    ask(job, "write")
    written = by_metric(sampler, 40)
    pages = read_process_pages(child)
    assert pages is not None
    assert pages.private > 32 * MIB
    assert written["process_private_bytes", str(child)] == pytest.approx(pages.private, abs=MIB)
    assert written["job_memory_bytes", ""] == pytest.approx(base + 32 * MIB, abs=8 * MIB)
    ask(job, "end")
    assert by_metric(sampler, 60)["job_memory_bytes", ""] == pytest.approx(base, abs=8 * MIB)
    assert read_process_memory(child) is None
    assert read_process_pages(child) is None


def by_metric(sampler: JobMemorySampler, at_s: int) -> dict[tuple[str, str], float]:
    return {(one.metric, one.device): one.value for one in sampler.sample(at_s * S)}


def test_new_files_in_shared_memory_count() -> None:
    sampler = JobMemorySampler(JobTree(os.getpid(), lambda: (), lambda: ()))

    def sample(at_s: int) -> tuple[float, float]:
        """Return the files in shared memory, and memory of the job that is in no process."""
        values = by_metric(sampler, at_s)
        processes = [v for (name, _), v in values.items() if name == "process_anonymous_bytes"]
        in_files = values["job_memory_bytes", ""] - sum(processes)
        return values["shared_memory_used_bytes", ""], in_files

    before, in_files = sample(1)
    assert in_files <= 0  # files that were there are of others; forks share pages
    path = Path("/dev/shm") / f"stepscope-test-{os.getpid()}"  # noqa: S108 - it is about this place
    try:
        path.write_bytes(bytes(8 * MIB))
        after, with_new = sample(2)
    finally:
        path.unlink()
    assert after - before >= 8 * MIB - mmap.PAGESIZE
    assert with_new - in_files >= 8 * MIB - mmap.PAGESIZE - 4 * MIB  # pages of forks, meanwhile


def test_the_address_space_counts_where_it_is_limited(start: Start, mapped: Path) -> None:
    job = start(f"PATH = {str(mapped)!r}{HOLDER}")
    job.stdout.readline()
    sampler = JobMemorySampler(JobTree(job.pid, lambda: (), lambda: ()))
    assert ("address_space_free_bytes", "") not in by_metric(sampler, 1)
    memory = read_process_memory(job.pid)
    assert memory is not None
    limit = memory.address_space + 100 * MIB
    resource.prlimit(job.pid, resource.RLIMIT_AS, (limit, limit))
    limited = by_metric(sampler, 2)
    assert limited["address_space_free_bytes", ""] == 100 * MIB
    assert limited["address_space_limit_bytes", ""] == limit


def test_counters_are_read_less_often_later(start: Start, mapped: Path) -> None:
    job = start(f"PATH = {str(mapped)!r}{HOLDER}")
    job.stdout.readline()
    sampler = JobMemorySampler(JobTree(job.pid, lambda: (), lambda: ()))
    ticks = [at for at in range(240) if list(sampler.sample(at * S // 2 + S))]
    assert ticks[:10] == list(range(10))
    assert {later - earlier for earlier, later in zip(ticks[-9:], ticks[-8:], strict=False)} == {4}


def test_a_kernel_that_does_not_count_by_kind_is_unavailable(tmp_path: Path) -> None:
    status = tmp_path / "self" / "status"
    status.parent.mkdir()
    status.write_text("VmRSS:\t 100 kB\n")
    job = JobTree(os.getpid(), lambda: (), lambda: ())
    with pytest.raises(Unavailable, match="this kernel does not count memory by kind"):
        JobMemorySampler(job, proc=str(tmp_path))
    with pytest.raises(Unavailable, match="cannot be read: No such file"):
        JobMemorySampler(job, proc=str(tmp_path / "none"))


def test_processes_that_the_kernel_ended_and_time_without_memory(tmp_path: Path) -> None:
    files = {
        "a/memory.events": "low 0\noom 3\noom_kill 2\noom_group_kill 0",
        "a/memory.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=1234\n"
        "full avg10=0.00 avg60=0.00 avg300=0.00 total=99",
    }
    root = v2(tmp_path / "v2", files, path="/a")
    assert count_memory_kills(root) == 2
    assert read_memory_stall_us(root) == 1234
    version_1 = v1(
        tmp_path / "v1",
        {"memory/a/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 5"},
        path="/a",
    )
    assert count_memory_kills(version_1) == 5
    assert read_memory_stall_us(version_1) is None
    assert count_memory_kills(tmp_path) is None


def test_pages_that_were_counted_longest_ago_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, counted = itertools.count(), list[int]()
    monkeypatch.setattr(job_memory.time, "thread_time_ns", lambda: next(clock))

    def read(pid: int, _: str) -> ProcessPages:
        counted.append(pid)
        return ProcessPages(MIB, MIB, MIB // 4)

    monkeypatch.setattr(job_memory, "read_process_pages", read)
    sampler = JobMemorySampler(JobTree(os.getpid(), lambda: (), lambda: ()))
    sampler._first_bytes = {4: MIB}  # a fork: those that follow are like it until they are counted
    for now_ns, pids in ((1, [1, 2, 3]), (2, [1, 2, 3]), (3, [1, 2, 3, 4])):
        list(sampler._sample_pages(pids, now_ns, allowed_ns=2 * now_ns - 1))  # time for two
    assert counted == [1, 2, 3, 1, 4, 2]
    assert sampler._shared_ratio == 0.25
