"""View of memory snapshots: peak, failed allocations and fragmentation in sentences."""

from __future__ import annotations

from pathlib import Path

from stepscope.importers import import_files
from stepscope.run import Run
from stepscope.store import open_run
from stepscope.testing import RunBuilder
from stepscope.views.devices.memory_snapshot import (
    NO_HISTORY,
    NO_SNAPSHOT,
    MemorySnapshotView,
    show_memory_snapshots,
)
from stepscope.views.options import ViewOptions
from tests.support.memory_snapshots import Allocator

MIB = 1 << 20


def show(tmp_path: Path, *allocators: Allocator, rank: int | None = None) -> MemorySnapshotView:
    run = RunBuilder(tmp_path / "run").write()
    paths = [tmp_path / f"snapshot_rank_{number}.pickle" for number in range(len(allocators))]
    for path, allocator in zip(paths, allocators, strict=True):
        path.write_bytes(allocator.dump())
    import_files(paths, run, "n")
    return show_memory_snapshots(Run(open_run(run)), ViewOptions(rank=rank))


def fragmented() -> Allocator:
    """Reserve 10 MiB of which every other MiB is free, then request 3 MiB."""
    allocator = Allocator(segment_bytes=10 * MIB)
    addresses = [allocator.allocate(MIB, f"layer{number % 2}") for number in range(10)]
    for address in addresses[::2]:
        allocator.release(address)
    allocator.fail(3 * MIB, "forward", free=0)
    return allocator


def test_a_failure_is_explained_by_fragmentation(tmp_path: Path) -> None:
    (snapshot,) = show(tmp_path, fragmented()).snapshots
    line = "(/home/u/train.py:12)"
    assert snapshot.lines == [
        f"Peak: 10 MiB allocated, 50% of it by layer0 {line}.",
        f"Out of memory: 3 MiB requested by forward {line}, 5 MiB allocated, "
        f"10 MiB reserved, 0 B free on the device; 100% of it by layer1 {line}.",
        "Reserved: 10 MiB, of which 5 MiB are free; the largest free block has 1 MiB.",
        "Fragmentation: 5 MiB are free, but no free block has the size of the request. Try "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.",
    ]
    (failure,) = snapshot.failures
    assert (failure.requested_bytes, failure.function) == (3 * MIB, "forward")
    assert failure.moment.after_ns == 10_000 * (snapshot.action_count - 1)
    assert snapshot.peak.allocated_bytes == 10 * MIB
    assert [(h.function, h.held_ratio) for h in snapshot.end.holders] == [("layer1", 1.0)]
    assert max(snapshot.allocated_curve_bytes) == 10 * MIB
    assert snapshot.notes == []


def test_snapshots_of_ranks_are_chosen(tmp_path: Path) -> None:
    view = show(tmp_path, fragmented(), fragmented(), rank=1)
    assert [snapshot.rank for snapshot in view.snapshots] == [1]


def test_a_snapshot_without_history_has_its_blocks(tmp_path: Path) -> None:
    allocator = Allocator()
    allocator.allocate(MIB, "load")
    allocator.history.clear()
    (snapshot,) = show(tmp_path, allocator).snapshots
    assert snapshot.notes == [NO_HISTORY]
    assert snapshot.peak.after_ns is None
    assert [(h.function, h.held_bytes) for h in snapshot.peak.holders] == [("load", MIB)]
    assert snapshot.allocated_curve_bytes == [MIB]


def test_a_run_without_snapshots_says_how_to_get_one(tmp_path: Path) -> None:
    assert show(tmp_path).missing == NO_SNAPSHOT
