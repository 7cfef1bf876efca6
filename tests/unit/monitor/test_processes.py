"""The job's process tree: real processes for finding them, a fake /proc for the arithmetic."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from stepscope.monitor.samplers.processes import JobTree, ProcessSampler

S = 1_000_000_000
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
LATE = 1 << 60
"""A start later than the making of any tree."""

Start = Callable[[str], "subprocess.Popen[bytes]"]
WaitFor = Callable[[Callable[[], object]], None]

FAMILY = """
import subprocess, sys, threading
nap = [sys.executable, "-S", "-c", "import time; time.sleep(60)"]
child = subprocess.Popen(nap)
held = []
thread = threading.Thread(target=lambda: (held.append(subprocess.Popen(nap)), stop.wait()))
stop = threading.Event()
thread.start()
while not held: pass
print(child.pid, held[0].pid, flush=True)
sys.stdin.readline()
child.kill(); child.wait()
print("waited", flush=True)
sys.stdin.readline()
"""


def nobody() -> Iterable[int]:
    return ()


def line(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().decode().strip()


def tell(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.write(b"\n")
    process.stdin.flush()


# ---- real processes ------------------------------------------------------------------------


def test_children_are_found_and_forgotten(start: Start) -> None:
    root = start(FAMILY)
    child, of_thread = map(int, line(root).split())
    tree = JobTree(root.pid, nobody, nobody)
    tree.refresh(0)
    assert set(tree.processes) == {root.pid, child, of_thread}
    assert tree.processes[child].parent_pid == root.pid
    tell(root)
    assert line(root) == "waited"
    tree.refresh(S)
    assert set(tree.processes) == {root.pid, of_thread}


def test_the_parents_list_finds_a_child_before_the_next_scan(start: Start) -> None:
    root = start(
        "import subprocess, sys; sys.stdin.readline();"
        "p = subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(60)']);"
        "print(p.pid, flush=True); p.wait()"
    )
    tree = JobTree(root.pid, nobody, nobody)
    tree.refresh(0)  # scans all of /proc
    tell(root)
    child = int(line(root))
    tree.refresh(1)  # too early for another scan
    assert set(tree.processes) == {root.pid, child}


def test_own_processes_are_not_of_the_job_nor_is_what_they_start(start: Start) -> None:
    root = start(FAMILY)
    child, of_thread = map(int, line(root).split())
    tree = JobTree(os.getpid(), nobody, lambda: [root.pid])
    tree.refresh(0)
    assert os.getpid() in tree.processes
    assert tree.processes.keys().isdisjoint({root.pid, child, of_thread})


def test_daemonised_processes_are_followed_with_their_children(start: Start) -> None:
    root = start("import sys; sys.stdin.readline()")
    daemon = start(FAMILY)  # stands outside the root's tree
    child, of_thread = map(int, line(daemon).split())
    known: list[int] = []
    tree = JobTree(root.pid, lambda: known, nobody)
    tree.refresh(0)
    assert set(tree.processes) == {root.pid}
    known.append(daemon.pid)
    tree.refresh(S)
    tree.refresh(3 * S)
    assert set(tree.processes) == {root.pid, daemon.pid, child, of_thread}


def test_a_busy_process_keeps_about_one_core_busy(start: Start, wait_for: WaitFor) -> None:
    root = start("while True: pass")
    tree = JobTree(root.pid, nobody, nobody)
    sampler = ProcessSampler(tree)
    assert [s.metric for s in sampler.sample(0)] == ["process_memory_bytes"]
    used_before = tree.processes[root.pid].cpu_ticks
    tick = 0

    def used() -> int:
        nonlocal tick
        tick += 1
        tree.refresh(tick)
        return tree.processes[root.pid].cpu_ticks - used_before

    wait_for(lambda: used() >= 10)
    ticks_used = used()
    values = {s.metric: s for s in sampler.sample(S)}
    # The process went on between the two readings, so it used at least what was seen.
    assert ticks_used / TICKS <= values["process_cpu_cores"].value < ticks_used / TICKS + 1
    assert values["process_cpu_cores"].device == str(root.pid)
    assert values["process_memory_bytes"].value > PAGE
    assert tree.cpu_seconds >= ticks_used / TICKS


def test_waiting_for_a_core_shows_as_run_queue_delay(start: Start, wait_for: WaitFor) -> None:
    core = min(os.sched_getaffinity(0))
    code = f"import os; os.sched_setaffinity(0, [{core}])\nwhile True: pass"
    racers = [start(code), start(code)]
    tree = JobTree(racers[0].pid, lambda: [racers[1].pid], nobody)
    if tree.runqueue_missing is not None:
        pytest.skip(tree.runqueue_missing)
    sampler = ProcessSampler(tree)
    list(sampler.sample(0))
    before = {p.pid: p.runqueue_ns or 0 for p in tree.processes.values()}
    tick = 0

    def waited_ns() -> int:
        nonlocal tick
        tick += 1
        tree.refresh(tick)
        return min((p.runqueue_ns or 0) - before[p.pid] for p in tree.processes.values())

    wait_for(lambda: waited_ns() > S // 20)
    waited = {s.device: s.value for s in sampler.sample(S) if s.metric == "process_runqueue_ratio"}
    assert waited.keys() == {str(racer.pid) for racer in racers}
    assert all(0.05 < value <= 1.0 for value in waited.values())


def test_a_finished_job_is_an_empty_tree(start: Start, wait_for: WaitFor) -> None:
    root = start("pass")
    tree = JobTree(root.pid, nobody, nobody)
    sampler = ProcessSampler(tree)
    tick = 0

    def gone() -> bool:
        nonlocal tick
        tick += 1
        return list(sampler.sample(tick)) == []

    wait_for(gone)  # a zombie, as nobody has waited for it
    before = tree.cpu_seconds
    root.wait()
    assert list(sampler.sample(10 * S)) == []
    assert tree.cpu_seconds == before


# ---- arithmetic ----------------------------------------------------------------------------


class FakeProc:
    """A /proc whose processes a test sets one by one."""

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
        # A name as bad as names get.
        (directory / "stat").write_text(
            f"{pid} (a) S 1 (b) R {parent} 1 1 0 -1 4194304 1 1 1 1 {user} {system}"
            f" {children_user} {children_system} 20 0 1 0 {start} 123456 7 18446744073709551615\n"
        )
        (directory / "schedstat").write_text(f"100 {pid * 10} 1\n")

    def end(self, pid: int) -> None:
        shutil.rmtree(self.path / str(pid))

    def tree(self, root: int = 1, **callables: Callable[[], Iterable[int]]) -> JobTree:
        also, own = callables.get("also", nobody), callables.get("own", nobody)
        return JobTree(root, also, own, proc=str(self.path))


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path)


class Clock:
    """Ticks three seconds apart, so that each refresh scans."""

    def __init__(self, tree: JobTree) -> None:
        self.tree = tree
        self.now_ns = 0

    def cpu_ticks(self) -> int:
        """CPU time of the job in clock ticks after one more refresh."""
        self.now_ns += 3 * S
        self.tree.refresh(self.now_ns)
        return round(self.tree.cpu_seconds * TICKS)


def test_fields_of_a_process_with_an_ugly_name(proc: FakeProc) -> None:
    proc.set(1, parent=9, cpu=30, waited=8, start=5)
    tree = proc.tree()
    tree.refresh(0)
    [process] = tree.processes.values()
    assert process == (1, 9, 5, 30, 8, 7 * PAGE, 10, False)


def test_time_from_before_the_tree_is_not_counted(proc: FakeProc) -> None:
    proc.set(1, cpu=500, waited=70, start=1)
    clock = Clock(proc.tree())
    assert clock.cpu_ticks() == 0
    proc.set(1, cpu=520, waited=70, start=1)
    assert clock.cpu_ticks() == 20


def test_a_process_found_late_brings_all_it_used(proc: FakeProc) -> None:
    proc.set(1)
    clock = Clock(proc.tree())
    assert clock.cpu_ticks() == 0
    proc.set(2, parent=1, cpu=40)
    proc.set(3, parent=2, cpu=2, waited=1)
    assert clock.cpu_ticks() == 43


def test_a_child_that_is_waited_for_is_counted_once(proc: FakeProc) -> None:
    proc.set(1)
    proc.set(2, parent=1)
    clock = Clock(proc.tree())
    clock.cpu_ticks()
    proc.set(2, parent=1, cpu=50)
    assert clock.cpu_ticks() == 50
    proc.end(2)
    proc.set(1, cpu=3, waited=55)  # five more before it ended, three of the parent
    assert clock.cpu_ticks() == 58


def test_children_that_lived_between_two_looks_are_counted(proc: FakeProc) -> None:
    proc.set(1)
    clock = Clock(proc.tree())
    clock.cpu_ticks()
    proc.set(1, waited=25)
    assert clock.cpu_ticks() == 25


def test_a_child_nobody_waits_for_does_not_take_its_time_back(proc: FakeProc) -> None:
    proc.set(1)
    proc.set(2, parent=1)
    clock = Clock(proc.tree())
    clock.cpu_ticks()
    proc.set(2, parent=1, cpu=50)
    assert clock.cpu_ticks() == 50
    proc.end(2)
    proc.set(1, cpu=4)
    assert clock.cpu_ticks() == 54


def test_a_whole_branch_that_ends_moves_up_once(proc: FakeProc) -> None:
    proc.set(1)
    proc.set(2, parent=1, cpu=10)
    proc.set(3, parent=2, cpu=20)
    clock = Clock(proc.tree())
    assert clock.cpu_ticks() == 0 + 30 - 0
    proc.end(3)
    proc.end(2)
    proc.set(1, waited=30)
    assert clock.cpu_ticks() == 30


def test_a_reused_pid_is_another_process(proc: FakeProc) -> None:
    proc.set(1)
    proc.set(2, parent=1, cpu=100)
    clock = Clock(proc.tree())
    before = clock.cpu_ticks()
    proc.set(2, parent=77, cpu=5, start=LATE + 9)  # somebody else's
    proc.set(1, waited=100)
    assert clock.cpu_ticks() == before
    assert set(clock.tree.processes) == {1}


def test_a_told_pid_that_ended_is_not_taken_again(proc: FakeProc) -> None:
    proc.set(1)
    proc.set(5, cpu=10)
    clock = Clock(proc.tree(also=lambda: [5]))
    clock.cpu_ticks()
    assert set(clock.tree.processes) == {1, 5}
    proc.end(5)
    clock.cpu_ticks()
    proc.set(5, cpu=900, start=LATE + 9)
    clock.cpu_ticks()
    assert set(clock.tree.processes) == {1}


def test_own_time_is_kept_apart(proc: FakeProc) -> None:
    proc.set(1)
    proc.set(8, parent=1, cpu=100, start=1)
    tree = proc.tree(own=lambda: [8])
    clock = Clock(tree)
    assert clock.cpu_ticks() == 0
    assert tree.own_cpu_seconds == 0
    proc.set(8, parent=1, cpu=103, waited=40, start=1)
    assert clock.cpu_ticks() == 0
    assert round(tree.own_cpu_seconds * TICKS) == 3


def test_between_scans_strangers_are_not_read_again(proc: FakeProc) -> None:
    proc.set(1)
    proc.set(2, parent=77)
    tree = proc.tree()
    tree.refresh(0)
    (proc.path / "2" / "stat").write_text("nonsense that would not parse")
    tree.refresh(3 * S)
    assert set(tree.processes) == {1}


def test_nobody_is_looked_for_until_the_kernel_gave_out_a_pid(proc: FakeProc) -> None:
    proc.set(1)
    loadavg = proc.path / "loadavg"
    loadavg.write_text("0.10 0.20 0.30 1/80 50\n")
    tree = proc.tree()
    tree.refresh(0)
    proc.set(2, parent=1)
    tree.refresh(3 * S)
    assert set(tree.processes) == {1}
    loadavg.write_text("0.10 0.20 0.30 1/80 51\n")
    tree.refresh(3 * S + 1)  # the last scan was at 0: one is due as soon as it is needed
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
