"""Memory snapshots of a job whose allocations fail, with CUDA's part of torch faked."""

from __future__ import annotations

import importlib.util
import pickle
import time
from pathlib import Path

import pytest

from stepscope.monitor.config import WindowSettings
from stepscope.monitor.windows.service import WindowService
from stepscope.run import Run, read_memory_snapshots
from stepscope.spool import MEMORY_HISTORY_VARIABLE, SpoolTree
from stepscope.store import open_run
from stepscope.testing import RunBuilder
from stepscope.views.devices.memory_snapshot import show_memory_snapshots
from tests.conftest import Spool
from tests.support.memory_snapshots import Allocator

if importlib.util.find_spec("torch") is None:  # importing it would take seconds
    pytest.skip("needs PyTorch", allow_module_level=True)

JOB = """
import pickle, sys
import torch

settings, observers = [], []
torch._C._cuda_record_memory_history = lambda *arguments: settings.append(arguments)
torch._C._cuda_memorySnapshot = lambda _: pickle.load(open(sys.argv[1], "rb"))
torch._C._cuda_attach_out_of_memory_observer = observers.append

before = len(settings)
is_asked = len(torch.cuda._queued_calls) > int(sys.argv[2])
if is_asked:
    torch.cuda._queued_calls[-1][0]()  # as torch.cuda.init() does
for _ in range(int(sys.argv[3])):
    for observe in observers:
        observe(0, 5000, 1 << 30, 4096)

model = torch.nn.Linear(2, 1)
for _ in range(3):
    model(torch.ones(1, 2)).sum().backward()
print(before, is_asked, [arguments[:4] for arguments in settings])
"""


def count_queued(spool: Spool) -> int:
    """Count the calls that torch itself makes when CUDA is initialised."""
    done = spool.run_torch("import torch; print(len(torch.cuda._queued_calls))")
    return int(done.stdout)


def snapshot_file(directory: Path) -> Path:
    allocator = Allocator()
    allocator.allocate(3000, "load")
    allocator.fail(5000, "forward")
    path = directory / "content.pickle"
    path.write_bytes(allocator.dump())
    return path


def import_spool(spool: Spool, run: Path) -> WindowService:
    service = WindowService(
        WindowSettings(enabled=False),
        SpoolTree(str(spool.path), spool.limit_bytes),
        run=str(run),
        node="n0",
        peer=None,
        job_pid=0,
        started_ns=time.monotonic_ns(),
    )
    assert service.finish() == 0
    return service


@pytest.mark.parametrize(("failures", "expected"), [(1, 1), (6, 4)])
def test_a_failed_allocation_leaves_a_snapshot(
    spool: Spool, tmp_path: Path, failures: int, expected: int
) -> None:
    content, queued = snapshot_file(tmp_path), count_queued(spool)
    arguments = (str(content), str(queued), str(failures))
    done = spool.run_torch(JOB, *arguments, **{MEMORY_HISTORY_VARIABLE: "500"})
    assert done.stdout == "0 True [('all', 'alloc', 'python', 500)]\n"
    files = sorted(spool.path.glob("*/memory-*.pickle"))
    assert [file.name for file in files] == [f"memory-{n}.pickle" for n in range(expected)]
    assert pickle.loads(files[0].read_bytes()) == pickle.loads(content.read_bytes())  # noqa: S301
    run = RunBuilder(tmp_path / "run").write()
    assert import_spool(spool, run).notes == []
    assert not list(spool.path.glob("*/memory-*"))
    opened = Run(open_run(run))
    process = files[0].parent.name.removeprefix("p-")
    assert [(s.name, s.process) for s in read_memory_snapshots(opened)] == [
        (f"{process}, memory snapshot {n}", process) for n in range(expected)
    ]
    first = show_memory_snapshots(opened).snapshots[0]
    assert first.lines[1].startswith("Out of memory: 4.88 KiB requested by forward ")


def test_nothing_is_asked_without_the_option(spool: Spool, tmp_path: Path) -> None:
    arguments = (str(snapshot_file(tmp_path)), str(count_queued(spool)), "1")
    assert spool.run_torch(JOB, *arguments).stdout == "0 False []\n"
    assert not list(spool.path.glob("*/memory-*"))


def test_a_full_spool_costs_the_snapshot_only(spool: Spool, tmp_path: Path) -> None:
    content = tmp_path / "large.pickle"
    large = {**Allocator().snapshot(), "filler": "x" * spool.limit_bytes}
    content.write_bytes(pickle.dumps(large))
    arguments = (str(content), str(count_queued(spool)), "2")
    spool.run_torch(JOB, *arguments, **{MEMORY_HISTORY_VARIABLE: "500"})
    assert not list(spool.path.glob("*/memory-*"))
    notes = spool.drain().notes
    assert len(notes) == 2
    assert all(note.startswith("a memory snapshot of ") for note in notes)
    assert "has reached its limit" in notes[0]


def test_a_damaged_snapshot_is_kept_and_noted(spool: Spool, tmp_path: Path) -> None:
    spool.run_torch("import torch; torch.nn.Linear(1, 1)(torch.ones(1)).backward()")
    (directory,) = {path.parent for path in spool.path.glob("*/journal.jsonl")}
    (directory / "memory-0.pickle").write_bytes(b"\x80\x04")
    run = RunBuilder(tmp_path / "run").write()
    (note,) = import_spool(spool, run).notes
    assert note.startswith("memory snapshot 0 of process ")
    assert "cannot be read and is kept in raw/: it is cut or damaged" in note
    assert [path.name for path in (run / "raw").iterdir()] == [
        f"{directory.name.removeprefix('p-')}-memory-0.pickle"
    ]
