"""Incarnations of a job on one and on several nodes, as their monitors count them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from stepscope.monitor.host import node_info
from stepscope.monitor.incarnations import START_SPREAD_NS, IncarnationCounter
from stepscope.monitor.process_logs import ProcessLogs
from stepscope.schema import LauncherInfo, ProcessInfo
from tests.support.shared_runs import SharedJob

SECOND_NS = 1_000_000_000


class Node:
    """A node of a job, whose processes a test starts and ends."""

    def __init__(self, path: Path, launcher: LauncherInfo | None, clock_ns: int = 0) -> None:
        self.path = path
        self.launcher = launcher
        name = "alone" if launcher is None else launcher.node
        info = node_info(sample_interval_ns=1, spool="", launcher=launcher)
        self.info = msgspec.structs.replace(
            info, node=name, clock_anchor_monotonic_ns=0, clock_anchor_epoch_ns=clock_ns
        )
        self.counter = self.make_counter()
        self.processes: list[_Process] = []

    def make_counter(self, stored: tuple[ProcessInfo, ...] = ()) -> IncarnationCounter:
        return IncarnationCounter(str(self.path), self.info, self.launcher, stored)

    def start(
        self, t_s: float, pid: int, rank: int | None, world_size: int = 4, parent: int = 1
    ) -> _Process:
        """Start a process at a time; it is assigned with the next `flush`."""
        process = _Process(f"{pid}-{round(100 * t_s)}-0@{self.info.node}", self.path)
        process.description = {
            "parent_pid": parent,
            "started_monotonic_ns": round(t_s * SECOND_NS),
            **({} if rank is None else {"rank": rank, "world_size": world_size}),
        }
        self.processes.append(process)
        return process

    def flush(self) -> list[int]:
        """Assign the new processes, and return the incarnations of all."""
        self.counter.assign(self.processes)
        return [self.counter.of(process) for process in self.processes]

    def end(self) -> None:
        for process in self.processes:
            process.alive = False


class _Process(ProcessLogs):
    alive = True

    def is_alive(self) -> bool:
        return self.alive


@pytest.fixture
def job(tmp_path: Path) -> SharedJob:
    return SharedJob(tmp_path / "run")


@pytest.fixture
def nodes(job: SharedJob) -> list[Node]:
    return [Node(job.path, job.add(name)) for name in "ab"]


@pytest.mark.parametrize("first", [0, 1])
def test_a_restart_begins_the_next_on_all_nodes(nodes: list[Node], first: int) -> None:
    """Whichever monitor sees its processes first."""
    for start_s, expected in ((10, [1, 1]), (100, [1, 1, 2, 2]), (200, [1, 1, 2, 2, 3, 3])):
        for number, node in enumerate(nodes):
            for local in range(2):
                node.start(start_s + local / 10, 100 + local, rank=2 * number + local)
        for number in (first, 1 - first):
            assert nodes[number].flush() == expected
            nodes[number].end()


def test_ranks_may_move_between_nodes(nodes: list[Node]) -> None:
    for start_s, ranks in ((10, (0, 1)), (100, (1, 0)), (200, (0, 1))):
        for node, rank in zip(nodes, ranks, strict=True):
            node.start(start_s, 100, rank, world_size=2)
    # Both restarts were over before any monitor wrote.
    for node in nodes:
        node.end()
        assert node.flush() == [1, 2, 3]


def test_a_late_monitor_finds_the_incarnation_by_the_start(nodes: list[Node]) -> None:
    """One has seen two starts before the other sees any process."""
    for start_s in (10, 100):
        nodes[0].start(start_s, 100, rank=0, world_size=2)
        nodes[1].start(start_s + 1, 100, rank=1, world_size=2)
    nodes[0].end()
    assert nodes[0].flush() == [1, 2]
    nodes[1].end()
    assert nodes[1].flush() == [1, 2]


@pytest.mark.parametrize("ahead_s", [365 * 86400, -365 * 86400])
def test_clocks_a_year_apart(job: SharedJob, ahead_s: int) -> None:
    here = Node(job.path, job.add("a"), clock_ns=2 * 365 * 86400 * SECOND_NS)
    there = Node(job.path, job.add("b"), clock_ns=here.info.epoch_offset_ns + ahead_s * SECOND_NS)
    for start_s, expected in ((10, [1]), (100, [1, 2]), (200, [1, 2, 3])):
        for rank, node in enumerate((here, there)):
            node.start(start_s, 100, rank, world_size=2)
            assert node.flush() == expected
            node.end()


def test_a_node_that_leaves_and_one_that_comes(job: SharedJob, nodes: list[Node]) -> None:
    for rank, node in enumerate(nodes):
        node.start(10, 100, rank, world_size=2)
        assert node.flush() == [1]
        node.end()
    nodes[0].start(100, 101, 0, world_size=1)  # the job shrinks to one node
    assert nodes[0].flush() == [1, 2]
    nodes[0].end()
    third = Node(job.path, job.add("c"))
    third.start(200, 100, 1, world_size=2)  # and grows again: the new rank is seen first
    assert third.flush() == [3]
    nodes[0].start(200.1, 102, 0, world_size=2)
    assert nodes[0].flush() == [1, 2, 3]
    assert nodes[0].counter.latest == 3


def test_children_and_workers_are_of_the_incarnation_of_their_parent(nodes: list[Node]) -> None:
    node = nodes[0]
    node.start(10, 100, 0)
    node.start(11, 200, 0, parent=100)  # a subprocess inherits RANK
    assert node.flush() == [1, 1]
    node.end()
    node.start(100, 101, 0)
    node.start(101, 201, 0, parent=101)
    assert node.flush() == [1, 1, 2, 2]
    assert node.counter.notes == []


def test_a_rank_twice_on_one_node_is_named(nodes: list[Node]) -> None:
    node = nodes[0]
    node.start(10, 100, 0)
    assert node.flush() == [1]
    node.start(20, 200, 0)
    assert node.flush() == [1, 1]
    assert node.counter.notes == [
        "rank 0 is recorded twice on a: by process 100 and by process 200, which run at the same "
        "time"
    ]


def test_a_monitor_that_is_started_again_keeps_the_numbers(nodes: list[Node]) -> None:
    node = nodes[0]
    for start_s in (10, 100):
        node.end()
        node.start(start_s, 100, 0, world_size=1)
    assert node.flush() == [1, 2]
    stored = tuple(
        ProcessInfo(
            process=process.name,
            node="a",
            pid=100,
            parent_pid=1,
            role="main",
            started_ns=0,
            incarnation=number,
        )
        for number, process in enumerate(node.processes, 1)
    )
    node.counter = node.make_counter(stored)
    assert node.counter.latest == 2
    assert node.flush() == [1, 2]


def test_one_launcher_counts_in_memory(tmp_path: Path) -> None:
    node = Node(tmp_path, None)
    for start_s, expected in ((10, [1]), (100, [1, 2])):
        node.start(start_s, 100, 0, world_size=1)
        assert node.flush() == expected
        node.end()
    node.start(200, 300, None)  # a process without a rank
    assert node.flush() == [1, 2, 1]
    assert list(tmp_path.iterdir()) == []


def test_starts_of_one_incarnation_are_close(nodes: list[Node]) -> None:
    """A later start is another incarnation only if its rank or its world size says so."""
    nodes[0].start(10, 100, 0, world_size=2)
    assert nodes[0].flush() == [1]
    nodes[1].start(10 + 100 * START_SPREAD_NS / SECOND_NS, 100, 1, world_size=2)
    assert nodes[1].flush() == [1]
