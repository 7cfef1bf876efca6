"""Memory snapshots: segments, blocks and history as rows, and pickles that are refused."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from stepscope.importers import Recorded, Refused, Result, import_files
from stepscope.importers.memory_snapshot import MemorySnapshotImporter
from stepscope.store import open_run
from stepscope.testing import RunBuilder
from stepscope.testing.importer_contract import ImporterContract
from tests.support.memory_snapshots import START_US, Allocator, frame, train


def import_snapshot(
    tmp_path: Path, content: bytes, name: str = "oom_rank_2.pickle"
) -> tuple[Path, Result]:
    run = RunBuilder(tmp_path / "run").write()
    (tmp_path / name).write_bytes(content)
    (result,) = import_files([tmp_path / name], run, "n")
    return run, result


def read(run: Path, table: str, *names: str) -> list[tuple[Any, ...]]:
    columns = open_run(run).table(table, names)
    return list(zip(*(column.tolist() for column in columns.values()), strict=True))


@pytest.mark.parametrize("protocol", range(2, 6))
def test_a_snapshot_becomes_rows(tmp_path: Path, protocol: int) -> None:
    allocator = Allocator(device=1)
    first = allocator.allocate(1000, "forward")
    allocator.allocate(600, "backward")
    allocator.release(first, is_awaited=True)
    allocator.fail(1 << 30, "forward")
    run, result = import_snapshot(tmp_path, allocator.dump(protocol))
    assert result == Recorded(name="oom_rank_2.pickle", form="memory snapshot", event_count=5)
    settings = '{"PYTORCH_CUDA_ALLOC_CONF": "", "expandable_segments": "False"}'
    rows = read(run, "memory_snapshots", "name", "rank", "process", "device", "settings")
    assert rows == [("oom_rank_2.pickle", 2, None, 1, settings)]
    names = ("device", "address", "size_bytes", "stream", "kind", "pool", "is_expandable")
    assert read(run, "memory_segments", *names) == [(1, first, 1 << 20, 0, "large", "0.0", 0)]
    names = ("segment", "address", "size_bytes", "requested_bytes", "state")
    assert read(run, "memory_blocks", *names) == [
        (0, first, 1024, 1000, "active_awaiting_free"),
        (0, first + 1024, 1024, 600, "active_allocated"),
        (0, first + 2048, (1 << 20) - 2048, 0, "inactive"),
    ]
    t_ns = [1000 * (START_US + 10 * number) for number in range(5)]
    names = ("t_ns", "action", "address", "size_bytes", "device_free_bytes")
    assert read(run, "memory_history", *names) == [
        (t_ns[0], "segment_alloc", first, 1 << 20, None),
        (t_ns[1], "alloc", first, 1000, None),
        (t_ns[2], "alloc", first + 1024, 600, None),
        (t_ns[3], "free_requested", first, 1000, None),
        (t_ns[4], "oom", None, 1 << 30, 4096),
    ]
    stacks = [text for (text,) in read(run, "memory_history", "stack")]
    library = "relu|/env/lib/python3.11/site-packages/torch/nn/functional.py|1500"
    assert stacks[1] == f"<module>|/home/u/train.py|40;forward|/home/u/train.py|12;{library}"
    assert read(run, "memory_blocks", "stack")[1] == (stacks[2],)


def test_older_snapshots_are_lists_of_segments(tmp_path: Path) -> None:
    history = [{"addr": 4096, "real_size": 700, "frames": [frame("f", 3, "a;b.py")]}]
    blocks = [
        {"size": 1024, "state": "active_allocated", "history": history},
        {"size": 2048, "state": "inactive"},
    ]
    segment = {"device": 0, "address": 4096, "total_size": 3072, "blocks": blocks}
    run, result = import_snapshot(tmp_path, pickle.dumps([segment], 2))
    assert isinstance(result, Recorded)
    assert result.event_count == 0
    assert read(run, "memory_blocks", "address", "size_bytes", "requested_bytes", "stack") == [
        (4096, 1024, None, "f|a,b.py|3"),
        (5120, 2048, None, None),
    ]


class _Harmful:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("protocol", range(2, 6))
def test_a_pickle_that_builds_objects_is_refused_and_not_run(tmp_path: Path, protocol: int) -> None:
    snapshot = Allocator().snapshot() | {"device_traces": [[_Harmful(tmp_path / "made")]]}
    _, result = import_snapshot(tmp_path, pickle.dumps(snapshot, protocol))
    assert isinstance(result, Refused)
    assert "was not imported: it builds objects (opcode " in result.reason
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("snapshot", "reason"),
    [
        ({"segments": [], "device_traces": [[]]}, "it has no memory: no device was used before"),
        ({"segments": [{"address": -1}]}, "it is no memory snapshot (Expected `int` >= 0"),
        ({"segments": 3}, "it is no memory snapshot (Expected `array`, got `int`"),
    ],
)
def test_what_is_no_snapshot_is_refused(tmp_path: Path, snapshot: object, reason: str) -> None:
    _, result = import_snapshot(tmp_path, pickle.dumps(snapshot))
    assert isinstance(result, Refused)
    assert f"was not imported: {reason}" in result.reason


def test_frames_of_other_types_are_unknown(tmp_path: Path) -> None:
    allocator = Allocator()
    allocator.allocate(10)
    for entry, frames in zip(allocator.history, ([3], [frame("\udc80;|", 2, "f.py")]), strict=True):
        entry["frames"] = frames
    run, _ = import_snapshot(tmp_path, allocator.dump())
    assert read(run, "memory_history", "stack") == [("?||0",), ("?,,|f.py|2",)]


class TestMemorySnapshot(ImporterContract):
    importer = MemorySnapshotImporter
    varying = frozenset({"snapshot"})

    def write(self, directory: Path) -> Path:
        path = directory / "snapshot.pickle"
        path.write_bytes(train(Allocator(), 40).dump())
        return path
