"""Threads that compute beside the main thread and have no core: real ones, and the arithmetic."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from stepscope.monitor.samplers.processes import MAX_THREADS, JobTree, ThreadSampler
from tests.support.waiting import wait_until

S = 1_000_000_000
MAIN = 1
"""Process id, and so the id of the main thread, of the fake process."""
COMPUTING = """
import hashlib, os, threading
os.sched_setaffinity(0, [{core}])
data = bytes(1 << 20)
def compute():
    while True:
        hashlib.sha256(data)  # without the interpreter's lock
threading.Thread(target=threading.Event().wait).start()
for _ in range(2):
    threading.Thread(target=compute).start()
compute()
"""


def no_pids() -> Iterable[int]:
    return ()


def test_two_of_three_threads_wait_for_their_one_core(
    start: Callable[[str], subprocess.Popen[bytes]],
) -> None:
    root = start(COMPUTING.format(core=min(os.sched_getaffinity(0))))
    tree = JobTree(root.pid, no_pids, no_pids)
    if tree.runqueue_missing is not None:
        pytest.skip(tree.runqueue_missing)
    wait_until(lambda: len(list(Path(f"/proc/{root.pid}/task").iterdir())) == 4)
    sampler = ThreadSampler(tree)
    clock = [0]
    waiting: list[float] = []

    def has_waited() -> bool:
        clock[0] += 1
        waiting.extend(s.value for s in sampler.sample(clock[0]) if s.device == str(root.pid))
        return sum(waiting) > S / 4

    wait_until(has_waited, timeout_s=10)


class FakeProcess:
    """Process with threads whose scheduler statistics are set by a test."""

    def __init__(self, path: Path) -> None:
        self.path = path
        for directory in ("self", str(MAIN)):
            (path / directory).mkdir()
            (path / directory / "schedstat").write_text("1000 5 3\n")
        fields = " ".join(["0"] * 17 + [str(1 << 60), "0", "0"])
        (path / str(MAIN) / "stat").write_text(f"{MAIN} (python) R 0 {fields}\n")
        self.sampler = ThreadSampler(
            JobTree(MAIN, no_pids, no_pids, proc=str(path)), proc=str(path)
        )
        self.now_ns = 0

    def sample(self, threads: dict[int, tuple[float, float]]) -> list[float]:
        """Sample a second later; running and waiting seconds of each thread since its start."""
        for thread, (running_s, waiting_s) in threads.items():
            directory = self.path / str(MAIN) / "task" / str(thread)
            directory.mkdir(parents=True, exist_ok=True)
            (directory / "schedstat").write_text(f"{running_s * S:.0f} {waiting_s * S:.0f} 1\n")
        self.now_ns += S
        samples = list(self.sampler.sample(self.now_ns))
        assert {s.metric for s in samples} <= {"process_waiting_threads"}
        return [s.value for s in samples]


@pytest.fixture
def process(tmp_path: Path) -> FakeProcess:
    return FakeProcess(tmp_path)


def test_waiting_of_the_computing_threads_adds_up(process: FakeProcess) -> None:
    idle = (5.0, 9.0)
    assert process.sample({MAIN: (3, 1), 2: (4, 2), 3: (4, 2), 4: idle}) == []
    # Thread 4 ran 0.05 s while the busiest one ran 0.8 s: it does not compute with the others.
    later = {MAIN: (3.8, 1.9), 2: (4.5, 2.4), 3: (4.6, 2.3), 4: (5.05, 9.7)}
    assert process.sample(later) == [pytest.approx(0.4 + 0.3)]


def test_a_process_of_one_thread_has_no_value(process: FakeProcess) -> None:
    assert process.sample({MAIN: (1, 0)}) == []
    assert process.sample({MAIN: (2, 0)}) == []


def test_a_new_thread_counts_from_its_second_sample(process: FakeProcess) -> None:
    process.sample({MAIN: (1, 0), 2: (1, 0)})
    assert process.sample({MAIN: (2, 0), 2: (2, 0), 3: (0.5, 0.5)}) == [0]
    assert process.sample({MAIN: (3, 0), 2: (3, 0), 3: (1.25, 0.75)}) == [pytest.approx(0.25)]


def test_only_the_first_threads_are_read(process: FakeProcess) -> None:
    threads = range(MAIN, MAIN + 2 * MAX_THREADS)
    process.sample(dict.fromkeys(threads, (0, 0)))
    (waiting,) = process.sample(dict.fromkeys(threads, (0.5, 0.5)))
    assert waiting == pytest.approx(0.5 * (MAX_THREADS - 1))
