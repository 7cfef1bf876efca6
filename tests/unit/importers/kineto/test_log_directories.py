"""Log directories of torch.profiler's `tensorboard_trace_handler`."""

from __future__ import annotations

import gzip
import socket
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from stepscope.schema import parse_trace_name
from stepscope.views import VIEWS
from tests.support.imported_runs import import_into
from tests.support.kineto_files import op, trace

MS = 1_623_143_089_861
"""2021-06-08 09:04:49.861 UTC, by `date -u -d @1623143089`."""

RECORD = """
import os, sys, torch
from torch.profiler import profile, schedule, tensorboard_trace_handler
with profile(
    schedule=schedule(wait=0, warmup=1, active=1, repeat=2),
    on_trace_ready=tensorboard_trace_handler(sys.argv[1], use_gzip=sys.argv[2] == "gz"),
) as recorder:
    for _ in range(4):
        torch.ones(8) + 1
        recorder.step()
print(os.getpid())
"""


@pytest.mark.seed("PTP-01", "PTP-02")
@pytest.mark.slow("records with PyTorch in a process of its own")
@pytest.mark.parametrize(
    "form", ["gz", pytest.param("plain", marks=pytest.mark.extended("the other form is shown"))]
)
def test_files_of_the_handler_itself(tmp_path: Path, form: str) -> None:
    """Two spans of one process: windows 1 and 2 on this host."""
    command = [sys.executable, "-c", RECORD, str(tmp_path / "log"), form]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    worker = f"{socket.gethostname()}_{done.stdout.split()[-1]}"
    first, second = import_into(tmp_path / "run", tmp_path / "log").traces
    assert [first.window, second.window] == [1, 2]
    assert {first.node, second.node} == {socket.gethostname()}
    assert first.start_ns < second.start_ns
    assert first.name != second.name
    for recorded in (first, second):
        assert recorded.name.startswith(worker)


@pytest.mark.parametrize(
    ("name", "worker", "host", "pid", "written_ns"),
    [
        (f"node3_47.{MS}.pt.trace.json.gz", "node3_47", "node3", 47, MS * 10**6),
        (f"node3_47.{MS}861233.pt.trace.json", "node3_47", "node3", 47, MS * 10**6 + 861_233),
        (f"a.b.example_9.{MS}.pt.trace.json", "a.b.example_9", "a.b.example", 9, MS * 10**6),
        ("worker0.pt.trace.json", "worker0", None, None, None),
        (f"rank_3.{MS}.pt.trace.json", "rank_3", None, None, MS * 10**6),
        ("v1.2.pt.trace.json", "v1.2", None, None, None),
    ],
)
def test_parts_of_a_name(
    name: str, worker: str, host: str | None, pid: int | None, written_ns: int | None
) -> None:
    parts = parse_trace_name(name)
    assert parts is not None
    assert (parts.worker, parts.host, parts.pid, parts.written_ns) == (
        worker,
        host,
        pid,
        written_ns,
    )


@pytest.mark.parametrize("name", ["trace.json", ".pt.trace.json", "a.1.pt.trace.jsonl"])
def test_names_of_another_form(name: str) -> None:
    assert parse_trace_name(name) is None


def write(directory: Path, name: str, *, start: int = 0, **header: object) -> None:
    content = trace(op("aten::mm", start, 900, pid=47), **header)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)


def test_ranks_of_one_span_are_named_by_worker(tmp_path: Path) -> None:
    """The rank is that in the file, or else that in its name; a number of a worker is none."""
    log = tmp_path / "log"
    write(log, f"rank-7.{MS}.pt.trace.json.gz")
    write(log, f"rank-8.{MS + 1}.pt.trace.json", distributedInfo={"rank": 2, "world_size": 8})
    write(log, f"worker5.{MS + 2}.pt.trace.json")
    traces = {t.name: t for t in import_into(tmp_path / "run", log).traces}
    assert {name: t.rank for name, t in traces.items()} == {
        "rank-7": 7,
        "rank-8": 2,
        "worker5": None,
    }
    assert {t.window for t in traces.values()} == {None}
    assert {t.node for t in traces.values()} == {None}


def test_a_host_is_believed_if_the_trace_is_of_the_process(tmp_path: Path) -> None:
    write(tmp_path / "log", f"node3_47.{MS}.pt.trace.json")
    write(tmp_path / "log", f"batch_64.{MS}.pt.trace.json")
    traces = {t.name: t.node for t in import_into(tmp_path / "run", tmp_path / "log").traces}
    assert traces == {"node3_47": "node3", "batch_64": None}


@pytest.mark.seed("PTP-02")
def test_spans_are_windows_of_all_ranks(tmp_path: Path) -> None:
    """Rank 1 lacks the second span."""
    for rank, times in enumerate([(MS * 10**6 + 90, MS * 10**6 + 10**10), (MS * 10**6 + 95,)]):
        for number, time in enumerate(times):
            write(tmp_path / "log", f"rank{rank}.{time}.pt.trace.json", start=number * 10**10)
    run = import_into(tmp_path / "run", tmp_path / "log")
    second = datetime.fromtimestamp(MS // 1000, UTC)
    assert f"{second:%Y-%m-%d %H:%M:%S}" == "2021-06-08 09:04:49"
    assert [(t.rank, t.window, t.name) for t in run.traces] == [
        (0, 1, "rank0 2021-06-08 09:04:49"),
        (0, 2, "rank0 2021-06-08 09:04:59"),
        (1, 1, "rank1 2021-06-08 09:04:49"),
    ]
    windows = VIEWS["distributed"](run).windows  # type: ignore[attr-defined]
    assert [(w.name, [rank.rank for rank in w.ranks]) for w in windows] == [
        ("window 1", [0, 1]),
        ("window 2", [0]),
    ]


def test_names_stay_unique(tmp_path: Path) -> None:
    """Two spans in one second, and two directories with files of one name."""
    for start, directory in enumerate(("a", "b")):
        for time in (MS, MS + 1):
            write(tmp_path / "log" / directory, f"w.{time}.pt.trace.json", start=start)
    names = [t.name for t in import_into(tmp_path / "run", tmp_path / "log").traces]
    assert len(set(names)) == 4
    assert f"a/w.{MS}.pt.trace.json" in names
