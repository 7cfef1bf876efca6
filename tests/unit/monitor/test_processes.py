"""Process tree of the job: real processes for the search, a fake /proc for the arithmetic."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from stepscope.monitor.samplers.processes import JobTree, ProcessSampler
from tests.support.waiting import wait_until

S = 1_000_000_000
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
LATE = 1 << 60
"""A start later than the creation of any tree."""

Start = Callable[[str], "subprocess.Popen[bytes]"]


FAMILY = """
import subprocess, sys, threading
idle = [sys.executable, "-S", "-c", "import signal; signal.pause()"]
child = subprocess.Popen(idle)
children = []
started, stop = threading.Event(), threading.Event()
def work():
    children.append(subprocess.Popen(idle))
    started.set()
    stop.wait()
threading.Thread(target=work).start()
started.wait()
print(child.pid, children[0].pid, flush=True)
sys.stdin.readline()
child.kill(); child.wait()
print("waited", flush=True)
sys.stdin.readline()
"""


def no_pids() -> Iterable[int]:
    return ()


def read_line(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().decode().strip()


def write_line(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.write(b"\n")
    process.stdin.flush()


# ---- real processes ------------------------------------------------------------------------


def test_children_are_added_and_removed(start: Start) -> None:
    root = start(FAMILY)
    child, of_thread = map(int, read_line(root).split())
    tree = JobTree(root.pid, no_pids, no_pids)
    tree.refresh(0)
    assert set(tree.processes) == {root.pid, child, of_thread}
    assert tree.processes[child].parent_pid == root.pid
    write_line(root)
    assert read_line(root) == "waited"
    tree.refresh(S)
    assert set(tree.processes) == {root.pid, of_thread}


def test_the_parents_list_finds_a_child_before_the_next_scan(start: Start) -> None:
    root = start(
        "import subprocess, sys; sys.stdin.readline();"
        "p = subprocess.Popen([sys.executable, '-S', '-c', 'import signal; signal.pause()']);"
        "print(p.pid, flush=True); p.wait()"
    )
    tree = JobTree(root.pid, no_pids, no_pids)
    tree.refresh(0)  # scans all of /proc
    write_line(root)
    child = int(read_line(root))
    tree.refresh(1)  # too early for another scan
    assert set(tree.processes) == {root.pid, child}


def test_own_processes_and_their_children_are_not_part_of_the_job(start: Start) -> None:
    root = start(FAMILY)
    child, of_thread = map(int, read_line(root).split())
    tree = JobTree(os.getpid(), no_pids, lambda: [root.pid])
    tree.refresh(0)
    assert os.getpid() in tree.processes
    assert tree.processes.keys().isdisjoint({root.pid, child, of_thread})


def test_daemonised_processes_are_followed_with_their_children(start: Start) -> None:
    root = start("import sys; sys.stdin.readline()")
    daemon = start(FAMILY)  # outside the tree of the root
    child, of_thread = map(int, read_line(daemon).split())
    registered: list[int] = []
    tree = JobTree(root.pid, lambda: registered, no_pids)
    tree.refresh(0)
    assert set(tree.processes) == {root.pid}
    registered.append(daemon.pid)
    tree.refresh(S)
    tree.refresh(3 * S)
    assert set(tree.processes) == {root.pid, daemon.pid, child, of_thread}


def test_a_busy_process_uses_about_one_core(start: Start) -> None:
    root = start("while True: pass")
    tree = JobTree(root.pid, no_pids, no_pids)
    sampler = ProcessSampler(tree)
    assert [s.metric for s in sampler.sample(0)] == ["process_memory_bytes"]
    initial_ticks = tree.processes[root.pid].cpu_ticks
    tick = 0

    def used() -> int:
        nonlocal tick
        tick += 1
        tree.refresh(tick)
        return tree.processes[root.pid].cpu_ticks - initial_ticks

    wait_until(lambda: used() >= 10)
    ticks_used = used()
    values = {s.metric: s for s in sampler.sample(S)}
    # The process continued between the two readings, so it has used at least as much.
    assert ticks_used / TICKS <= values["process_cpu_cores"].value < ticks_used / TICKS + 1
    assert values["process_cpu_cores"].device == str(root.pid)
    assert values["process_memory_bytes"].value > PAGE
    assert tree.cpu_seconds >= ticks_used / TICKS


def test_waiting_for_a_core_is_run_queue_delay(start: Start) -> None:
    core = min(os.sched_getaffinity(0))
    code = f"import os; os.sched_setaffinity(0, [{core}])\nwhile True: pass"
    processes = [start(code), start(code)]
    tree = JobTree(processes[0].pid, lambda: [processes[1].pid], no_pids)
    if tree.runqueue_missing is not None:
        pytest.skip(tree.runqueue_missing)
    sampler = ProcessSampler(tree)
    list(sampler.sample(0))
    initial_ns = {p.pid: p.runqueue_ns or 0 for p in tree.processes.values()}
    tick = 0

    def waited_ns() -> int:
        nonlocal tick
        tick += 1
        tree.refresh(tick)
        return min((p.runqueue_ns or 0) - initial_ns[p.pid] for p in tree.processes.values())

    wait_until(lambda: waited_ns() > S // 20)
    samples = [s for s in sampler.sample(S) if s.metric == "process_runqueue_ratio"]
    assert {sample.device for sample in samples} == {str(process.pid) for process in processes}
    assert all(0.05 < sample.value <= 1.0 for sample in samples)


def test_a_finished_job_is_an_empty_tree(start: Start) -> None:
    root = start("pass")
    tree = JobTree(root.pid, no_pids, no_pids)
    sampler = ProcessSampler(tree)
    tick = 0

    def is_empty() -> bool:
        nonlocal tick
        tick += 1
        return list(sampler.sample(tick)) == []

    wait_until(is_empty)  # the process is a zombie now
    cpu_seconds = tree.cpu_seconds
    root.wait()
    assert list(sampler.sample(10 * S)) == []
    assert tree.cpu_seconds == cpu_seconds


# ---- arithmetic ----------------------------------------------------------------------------


class FakeProc:
    """Fake /proc, whose processes are set by a test."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "self").mkdir()
        (path / "self" / "schedstat").write_text("1000 5 3\n")

    def set(
        self, pid: int, parent: int = 0, *, cpu: int = 0, waited: int = 0, start: int = LATE
    ) -> None:
        """Write a process with CPU times in clock ticks."""
        directory = self.path / str(pid)
        directory.mkdir(exist_ok=True)
        user, system = cpu - cpu // 3, cpu // 3
        children_user, children_system = waited // 4, waited - waited // 4
        # A name with blanks and parentheses.
        (directory / "stat").write_text(
            f"{pid} (a) S 1 (b) R {parent} 1 1 0 -1 4194304 1 1 1 1 {user} {system}"
            f" {children_user} {children_system} 20 0 1 0 {start} 123456 7 18446744073709551615\n"
        )
        (directory / "schedstat").write_text(f"100 {pid * 10} 1\n")

    def end(self, pid: int) -> None:
        shutil.rmtree(self.path / str(pid))

    def tree(self, root: int = 1, **callables: Callable[[], Iterable[int]]) -> JobTree:
        registered = callables.get("registered", no_pids)
        own_pids = callables.get("own_pids", no_pids)
        return JobTree(root, registered, own_pids, proc=str(self.path))


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path)


class Clock:
    """Clock with ticks three seconds apart, so that every refresh scans."""

    def __init__(self, tree: JobTree) -> None:
        self.tree = tree
        self.now_ns = 0

    def cpu_ticks(self) -> int:
        """Refresh the tree, and return the CPU time of the job in clock ticks."""
        self.now_ns += 3 * S
        self.tree.refresh(self.now_ns)
        return round(self.tree.cpu_seconds * TICKS)


def test_fields_of_a_process_with_an_unusual_name(proc: FakeProc) -> None:
    proc.set(1, parent=9, cpu=30, waited=8, start=5)
    tree = proc.tree()
    tree.refresh(0)
    [process] = tree.processes.values()
    assert process == (1, 9, 5, 30, 8, 7 * PAGE, 10, False, 1)


HISTORIES: dict[str, list[tuple[dict[int, dict[str, int] | None], int]]] = {
    "time before the tree was made": [
        ({1: {"cpu": 500, "waited": 70, "start": 1}}, 0),
        ({1: {"cpu": 520, "waited": 70, "start": 1}}, 20),
    ],
    "found late": [
        ({1: {}}, 0),
        ({2: {"parent": 1, "cpu": 40}, 3: {"parent": 2, "cpu": 2, "waited": 1}}, 43),
    ],
    "waited for: five more of the child, three of the parent": [
        ({1: {}, 2: {"parent": 1}}, 0),
        ({2: {"parent": 1, "cpu": 50}}, 50),
        ({2: None, 1: {"cpu": 3, "waited": 55}}, 58),
    ],
    "ran between two readings": [({1: {}}, 0), ({1: {"waited": 25}}, 25)],
    "not waited for": [
        ({1: {}, 2: {"parent": 1}}, 0),
        ({2: {"parent": 1, "cpu": 50}}, 50),
        ({2: None, 1: {"cpu": 4}}, 54),
    ],
    "a branch that ends": [
        ({1: {}, 2: {"parent": 1, "cpu": 10}, 3: {"parent": 2, "cpu": 20}}, 30),
        ({3: None, 2: None, 1: {"waited": 30}}, 30),
    ],
}
"""Processes that change (None: end), and the CPU time of the job in ticks, reading by reading."""


@pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES)
def test_every_tick_of_the_job_is_counted_once(proc: FakeProc, history: Any) -> None:
    clock = None
    for changes, expected in history:
        for pid, fields in changes.items():
            proc.end(pid) if fields is None else proc.set(pid, **fields)
        clock = clock or Clock(proc.tree())
        assert clock.cpu_ticks() == expected


def test_a_reused_pid_is_another_process(proc: FakeProc) -> None:
    proc.set(1)
    proc.set(2, parent=1, cpu=100)
    clock = Clock(proc.tree())
    ticks = clock.cpu_ticks()
    proc.set(2, parent=77, cpu=5, start=LATE + 9)  # not a child of the job
    proc.set(1, waited=100)
    assert clock.cpu_ticks() == ticks
    assert set(clock.tree.processes) == {1}


def test_a_registered_pid_that_has_ended_is_not_added_again(proc: FakeProc) -> None:
    proc.set(1)
    proc.set(5, cpu=10)
    clock = Clock(proc.tree(registered=lambda: [5]))
    clock.cpu_ticks()
    assert set(clock.tree.processes) == {1, 5}
    proc.end(5)
    clock.cpu_ticks()
    proc.set(5, cpu=900, start=LATE + 9)
    clock.cpu_ticks()
    assert set(clock.tree.processes) == {1}


def test_own_time_is_separate(proc: FakeProc) -> None:
    proc.set(1)
    proc.set(8, parent=1, cpu=100, start=1)
    tree = proc.tree(own_pids=lambda: [8])
    clock = Clock(tree)
    assert clock.cpu_ticks() == 0
    assert tree.own_cpu_seconds == 0
    proc.set(8, parent=1, cpu=103, waited=40, start=1)
    assert clock.cpu_ticks() == 0
    assert round(tree.own_cpu_seconds * TICKS) == 3


def test_processes_outside_the_job_are_not_read_at_every_scan(proc: FakeProc) -> None:
    proc.set(1)
    proc.set(2, parent=77)
    tree = proc.tree()
    tree.refresh(0)
    (proc.path / "2" / "stat").write_text("nonsense that would not parse")
    tree.refresh(3 * S)
    assert set(tree.processes) == {1}


def test_there_is_no_scan_until_the_kernel_has_assigned_a_pid(proc: FakeProc) -> None:
    proc.set(1)
    loadavg = proc.path / "loadavg"
    loadavg.write_text("0.10 0.20 0.30 1/80 50\n")
    tree = proc.tree()
    tree.refresh(0)
    proc.set(2, parent=1)
    tree.refresh(3 * S)
    assert set(tree.processes) == {1}
    loadavg.write_text("0.10 0.20 0.30 1/80 51\n")
    tree.refresh(3 * S + 1)  # the last scan was at 0, so that the next one may start at once
    assert set(tree.processes) == {1, 2}


def test_one_refresh_per_tick(proc: FakeProc) -> None:
    proc.set(1, cpu=1)
    tree = proc.tree()
    tree.refresh(0)
    proc.set(1, cpu=2)
    tree.refresh(0)
    assert tree.processes[1].cpu_ticks == 1
    tree.refresh(1)
    assert tree.processes[1].cpu_ticks == 2


@pytest.mark.parametrize("schedstat", [None, "0 0 0\n"])
def test_a_kernel_without_scheduler_statistics(proc: FakeProc, schedstat: str | None) -> None:
    path = proc.path / "self" / "schedstat"
    path.unlink() if schedstat is None else path.write_text(schedstat)
    proc.set(1, cpu=1)
    (proc.path / "1" / "schedstat").unlink()
    tree = proc.tree()
    assert tree.runqueue_missing is not None
    assert "scheduler statistics" in tree.runqueue_missing
    sampler = ProcessSampler(tree)
    list(sampler.sample(0))
    metrics = {sample.metric for sample in sampler.sample(S)}
    assert metrics == {"process_memory_bytes", "process_cpu_cores"}
