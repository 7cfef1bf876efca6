"""Parts of the budget, and the limit of the memory."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import pytest

from stepscope import budget
from stepscope.budget import Budget, MemoryLimit, read_own_memory_bytes, release_memory

MIB = 1 << 20


def test_the_parts_add_up() -> None:
    budget_of_both = Budget(cpu_ratio=0.03, memory_bytes=99_999_999)
    monitor, watch = budget_of_both.divide()
    assert monitor.cpu_ratio + watch.cpu_ratio == pytest.approx(budget_of_both.cpu_ratio)
    assert monitor.memory_bytes + watch.memory_bytes == budget_of_both.memory_bytes


def test_the_memory_is_the_sum_over_all_mappings() -> None:
    lines = Path("/proc/self/smaps").read_text().splitlines()
    total = sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    # Each mapping is rounded down to KiB; other processes map and unmap shared pages meanwhile.
    assert read_own_memory_bytes() == pytest.approx(total, rel=0.1)


def test_code_that_has_run_is_released_and_runs_again() -> None:
    def run() -> object:
        with duckdb.connect() as connection:
            return connection.execute("SELECT sum(i) FROM range(9) AS rows(i)").fetchone()

    def code_bytes() -> int:
        parts = re.findall(
            r" r-xp .*/_duckdb\..*\n(?:\w+: .*\n)*?Rss: +(\d+) kB",
            Path("/proc/self/smaps").read_text(),
        )
        return 1024 * sum(map(int, parts))

    assert run() == (36,)
    mapped_bytes = code_bytes()
    release_memory()
    assert code_bytes() < mapped_bytes / 2
    assert run() == (36,)


class Memory:
    """Memory of a process, of which a part can be freed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, used: int, free: int) -> None:
        self.used, self.free, self.returns = used * MIB, free * MIB, 0
        monkeypatch.setattr(budget, "release_memory", self._return)

    def _return(self) -> None:
        self.used, self.free, self.returns = self.used - self.free, 0, self.returns + 1

    def read(self) -> int:
        return self.used


def test_free_memory_is_returned_before_anything_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Memory(monkeypatch, used=120, free=30)
    limit = MemoryLimit("the monitor", 100 * MIB, memory.read)
    limit.check()
    assert limit.note is None
    assert memory.returns == 1


def test_a_base_above_the_budget_is_said_and_not_freed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    memory = Memory(monkeypatch, used=120, free=0)
    limit = MemoryLimit("the monitor", 100 * MIB, memory.read)
    for _ in range(10):
        limit.check()
    assert memory.returns == 1
    assert limit.note == (
        "the monitor takes 120 MiB of memory, more than its budget of 100 MiB, and cannot free any"
    )
    memory.used += 30 * MIB
    limit.check()
    assert memory.returns == 2
    memory.used = 90 * MIB
    limit.check()
    assert limit.note is None


def test_an_unknown_size_is_no_excess() -> None:
    limit = MemoryLimit("the monitor", 1, lambda: None)
    limit.check()
    assert limit.note is None
