"""Replay of the history of an allocator, against an allocator that knows its blocks."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from stepscope.analysis import AllocatorReplay, measure_fragmentation
from stepscope.importers import import_files
from stepscope.run import MemorySnapshot, Run, read_memory_snapshots
from stepscope.store import open_run
from stepscope.testing import RunBuilder
from tests.support.memory_snapshots import ROUNDING, Allocator, frame, train


def read(tmp_path: Path, allocator: Allocator) -> MemorySnapshot:
    run = RunBuilder(tmp_path / "run").write()
    (tmp_path / "s.pickle").write_bytes(allocator.dump())
    import_files([tmp_path / "s.pickle"], run, "n")
    (snapshot,) = read_memory_snapshots(Run(open_run(run)))
    return snapshot


@pytest.mark.parametrize("max_entries", [10_000, 200, 1])
def test_a_replay_knows_the_blocks_at_any_time(tmp_path: Path, max_entries: int) -> None:
    """Blocks whose allocation the ring has lost are known by the blocks of the snapshot, or not at
    all if they were released meanwhile."""
    allocator = train(Allocator(max_entries), 400)
    replay = AllocatorReplay(read(tmp_path, allocator).memory)
    states = [allocator.before, *allocator.owners]
    assert replay.allocated_bytes.tolist() == [
        sum(owner.size for owner in owners.values()) for owners, _ in states
    ]
    assert replay.reserved_bytes.tolist() == [reserved for _, reserved in states]
    assert replay.is_consistent
    at_end = allocator.owners[-1][0]
    recorded: set[int] = set()
    for index, (owners, _) in enumerate(states):
        action = allocator.history[index - 1] if index else None
        if action is not None and action["action"] == "alloc":
            recorded.add(action["addr"])
        expected: Counter[str | None] = Counter()
        for address, owner in owners.items():
            is_known = address in recorded or at_end.get(address) == owner
            expected[owner.function if is_known else None] += owner.size
        holders = replay.explain(index - 1, top=0).holders
        assert sum(holder.held_bytes for holder in holders) == sum(expected.values())
        if max_entries == 10_000:
            assert {holder.function: holder.held_bytes for holder in holders} == expected
            assert sum(holder.block_count for holder in holders) == len(owners)
    peak = replay.find_peak(top=1)
    assert peak.allocated_bytes == max(sum(o.size for o in owners.values()) for owners, _ in states)


def test_fragmentation_is_that_of_the_blocks(tmp_path: Path) -> None:
    allocator = train(Allocator(segment_bytes=400_000), 100, seed=1)
    fragmentation = measure_fragmentation(read(tmp_path, allocator).memory)
    blocks = [block for segment in allocator.segments for block in segment["blocks"]]
    free = [block["size"] for block in blocks if block["state"] == "inactive"]
    owners = allocator.owners[-1][0].values()
    assert fragmentation.reserved_bytes == allocator.reserved_bytes
    assert fragmentation.allocated_bytes == sum(owner.size for owner in owners)
    assert fragmentation.rounding_bytes == sum(-owner.size % ROUNDING for owner in owners)
    assert (fragmentation.free_bytes, fragmentation.free_block_count) == (sum(free), len(free))
    assert fragmentation.largest_free_bytes == max(free)
    assert fragmentation.fragmentation_ratio == pytest.approx(1 - max(free) / sum(free))
    awaiting = [block["size"] for block in blocks if block["state"] == "active_awaiting_free"]
    assert fragmentation.awaiting_bytes == sum(awaiting) > 0


def test_failed_allocations_are_listed_with_their_lines(tmp_path: Path) -> None:
    allocator = Allocator()
    allocator.allocate(3000, "load")
    allocator.fail(5000, "forward")
    allocator.allocate(1000, "forward")
    allocator.fail(7000, "backward")
    last, first = AllocatorReplay(read(tmp_path, allocator).memory).list_failures(top=1)
    assert [(f.requested_bytes, f.device_free_bytes) for f in (first, last)] == [
        (5000, 4096),
        (7000, 4096),
    ]
    assert (first.function, first.line, first.is_last) == ("forward", 12, False)
    assert (last.function, last.is_last, last.moment.allocated_bytes) == ("backward", True, 4000)
    (holder,) = last.moment.holders
    assert (holder.function, holder.held_ratio) == ("load", 0.75)


@pytest.mark.parametrize(
    ("frames", "function"),
    [
        ([frame("inner", 1, "/env/lib/python3.12/site-packages/torch/x.py")], "inner"),
        ([frame("open", 1, "/usr/lib/python3.11/io.py"), frame("mine", 2, "/a/job.py")], "mine"),
        ([frame("at::empty", 0, "??"), frame("main", 0, "a.cpp")], "at::empty"),
        ([], None),
    ],
)
def test_the_innermost_frame_of_the_job_holds_memory(
    tmp_path: Path, frames: list[dict[str, object]], function: str | None
) -> None:
    allocator = Allocator()
    allocator.allocate(100)
    for entry in allocator.history:
        entry["frames"] = frames
    allocator.segments[0]["blocks"][0]["frames"] = frames
    (holder,) = AllocatorReplay(read(tmp_path, allocator).memory).find_peak(top=0).holders
    assert holder.function == function


def test_curves_keep_their_extremes(tmp_path: Path) -> None:
    replay = AllocatorReplay(read(tmp_path, train(Allocator(), 400)).memory)
    curve = replay.downsample(60)
    assert len(curve.allocated_bytes) <= 80
    assert curve.allocated_bytes.max() == replay.allocated_bytes.max()
    assert curve.reserved_bytes.max() == replay.reserved_bytes.max()
    assert curve.t_ns is not None
    assert len(curve.t_ns) == len(curve.allocated_bytes)
