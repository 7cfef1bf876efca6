"""Logs of NCCL Inspector: every line a row, ranks of the job, and what a log does not tell."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from stepscope.importers import Recorded, Refused, import_files
from stepscope.importers.nccl_inspector import NcclInspectorImporter
from stepscope.run import Run, read_recorded_collectives
from stepscope.store import open_run
from stepscope.testing import RunBuilder
from stepscope.testing.importer_contract import ImporterContract

US = 1_748_030_377_000_000


def make_line(
    number: int,
    *,
    rank: int,
    pid: int,
    group: str = "0x7f",
    size: int = 2,
    kind: str = "AllReduce",
    is_verbose: bool = False,
    version: str = "v4.0",
) -> str:
    """Make a line as the README of the plugin shows it."""
    start_us = US + 1000 * number + rank
    performance: dict[str, Any] = {
        "coll": kind,
        "coll_sn": number,
        "coll_msg_size_bytes": 4096,
        "coll_exec_time_us": 70,
        "coll_timing_source": "kernel_gpu",
        "coll_algobw_gbs": 277.210914,
        "coll_busbw_gbs": 485.119099,
    }
    if is_verbose:
        kernels = [
            {"channel_id": n, "kernel_start_ts": start_us + 10 + n, "kernel_stop_ts": start_us + 50}
            for n in range(2)
        ]
        times = {"coll_start_ts": start_us, "coll_stop_ts": start_us + 5, "kernel_events": kernels}
        performance["event_trace_ts"] = times
    record = {
        "header": {"id": group, "rank": rank, "n_ranks": size, "nnodes": 1},
        "metadata": {
            "inspector_output_format_version": version,
            "git_rev": "",
            "rec_mechanism": "profiler_plugin",
            "dump_timestamp_us": start_us + 100,
            "hostname": "gpu01",
            "pid": pid,
        },
        "coll_perf": performance,
    }
    return json.dumps(record)


def import_logs(tmp_path: Path, logs: dict[str, list[str]]) -> tuple[Path, list[Any]]:
    run = RunBuilder(tmp_path / "run").write()
    paths = []
    for name, lines in logs.items():
        paths.append(tmp_path / name)
        paths[-1].write_text("\n".join(lines) + "\n")
    return run, import_files(paths, run, "imported")


def read(run: Path, *names: str) -> list[tuple[Any, ...]]:
    """Read columns of the rows, in the order of rank, group and number."""
    columns = open_run(run).table(
        "collective_calls", tuple(dict.fromkeys(("rank", "group", "number", *names)))
    )
    index = list(columns)
    rows = sorted(zip(*(column.tolist() for column in columns.values()), strict=True), key=str)
    return [tuple(row[index.index(name)] for name in names) for row in rows]


@pytest.mark.parametrize("is_verbose", [False, True])
def test_lines_become_rows(tmp_path: Path, *, is_verbose: bool) -> None:
    logs = {
        f"gpu01-pid{40 + rank}.log": [
            make_line(number, rank=rank, pid=40 + rank, is_verbose=is_verbose) for number in (1, 2)
        ]
        for rank in (0, 1)
    }
    run, results = import_logs(tmp_path, logs)
    assert [(r.form, r.event_count, r.lost) for r in results] == [("NCCL Inspector", 2, None)] * 2
    names = ("rank", "number", "kind", "backend", "input_sizes", "group_ranks", "t_ns", "ended_ns")
    log = "inspector" if is_verbose else "inspector-untimed"
    expected = []
    for rank in (0, 1):
        for number in (1, 2):
            start_us = US + 1000 * number + rank
            t_us = start_us if is_verbose else start_us + 100 - 70
            ended_ns = 1000 * (start_us + 50) if is_verbose else None
            row = (rank, number, "all_reduce", "nccl", "4096", "0,1", 1000 * t_us, ended_ns)
            expected.append((*row, log))
    assert read(run, *names, "log") == expected
    calls = read_recorded_collectives(Run(open_run(run)))
    if is_verbose:
        assert not isinstance(calls, str)
        assert (calls.ranks, calls.skipped_count) == ([0, 1], 0)
    else:
        assert calls == (
            "the logs of NCCL Inspector do not have the times of the calls: record them with "
            "NCCL_INSPECTOR_DUMP_VERBOSE=1"
        )


def test_the_rank_is_that_of_the_largest_communicator(tmp_path: Path) -> None:
    """Process 41 is rank 1 of the job and rank 0 of a group, whose other log is missing."""
    lines = [
        make_line(1, rank=0, pid=41, group="pair", size=2, kind="ReduceScatter"),
        make_line(1, rank=1, pid=41, group="world", size=4),
    ]
    run, _ = import_logs(tmp_path, {"one.log": lines})
    assert read(run, "rank", "kind", "group_ranks", "group") == [
        (1, "reduce_scatter", None, "pair"),
        (1, "all_reduce", None, "world"),
    ]


def test_ranks_are_unknown_where_no_communicator_has_all_processes(tmp_path: Path) -> None:
    """Four processes in pairs, two of them at each position of a communicator of two."""
    logs = {
        f"{pid}.log": [
            make_line(1, rank=pid % 2, pid=40 + pid, group=f"tp{pid // 2}", is_verbose=True),
            make_line(1, rank=pid // 2, pid=40 + pid, group=f"dp{pid % 2}", is_verbose=True),
        ]
        for pid in range(4)
    }
    run, results = import_logs(tmp_path, logs)
    sentence = "the ranks are unknown: no communicator of the largest size has all processes"
    assert [result.lost for result in results] == [sentence] * 4
    assert read(run, "rank", "group_ranks") == [(None, None)] * 8
    imported = [p for p in open_run(run).processes() if p.process.startswith("inspector-")]
    assert [process.rank for process in imported] == [None] * 4
    assert {process.pid for process in imported} == {40, 41, 42, 43}
    assert read_recorded_collectives(Run(open_run(run))) == (
        "the ranks of the processes that have called the recorded collectives are unknown"
    )


@pytest.mark.parametrize(
    "positions",
    [
        [("world", 0, 3), ("world", 1, 3), ("pair", 0, 2)],  # the third may be any rank
        [("a", 0, 4), ("a", 1, 4), ("b", 2, 4)],  # of two communicators of one size
        [("a", 0, 2), ("a", 1, 2), ("a", 1, 2)],
    ],
)
def test_no_rank_is_assumed(tmp_path: Path, positions: list[tuple[str, int, int]]) -> None:
    lines = [
        make_line(1, rank=rank, pid=pid, group=group, size=size)
        for pid, (group, rank, size) in enumerate(positions, 40)
    ]
    run, (result,) = import_logs(tmp_path, {"a.log": [*lines, lines[0][:200]]})
    assert result.lost.startswith("1 damaged line; the ranks are unknown: no communicator")
    assert read(run, "rank") == [(None,)] * 3


def test_a_cut_line_is_left_out_and_counted(tmp_path: Path) -> None:
    complete = make_line(1, rank=0, pid=41)
    _, (result,) = import_logs(tmp_path, {"cut.log": [complete, complete[:200]]})
    assert isinstance(result, Recorded)
    assert (result.event_count, result.lost) == (1, "1 damaged line")


@pytest.mark.parametrize(
    "field",
    ["dump_timestamp_us", "coll_sn", "coll_msg_size_bytes", "coll_exec_time_us", "rank", "n_ranks",
     "pid", "coll_start_ts", "kernel_start_ts", "kernel_stop_ts"],
)  # fmt: skip
@pytest.mark.parametrize("value", [10**20, -1, -(10**20)])
def test_a_number_that_the_run_cannot_hold_is_damage(
    tmp_path: Path, field: str, value: int
) -> None:
    complete = make_line(1, rank=0, pid=41, is_verbose=True)
    damaged = re.sub(rf'("{field}": )\d+', rf"\g<1>{value}", complete)
    assert damaged != complete
    run, (result,) = import_logs(tmp_path, {"a.log": [complete, damaged]})
    assert (result.event_count, result.lost) == (1, "1 damaged line")
    assert len(read(run, "number")) == 1


def test_times_at_the_bound_do_not_wrap(tmp_path: Path) -> None:
    limit_us = (2**63 - 1) // 1000
    complete = make_line(1, rank=0, pid=41, is_verbose=True)
    lines = [
        re.sub(r'("(?:coll_start|kernel_start|kernel_stop)_ts": )\d+', rf"\g<1>{value}", complete)
        for value in (limit_us, limit_us + 1)
    ]
    run, (result,) = import_logs(tmp_path, {"a.log": lines})
    assert result.lost == "1 damaged line"
    assert read(run, "t_ns", "started_ns", "ended_ns") == [(1000 * limit_us,) * 3]


@pytest.mark.parametrize("duration_us", [2**52, 2**63 // 1000])
def test_a_start_before_the_epoch_does_not_wrap(tmp_path: Path, duration_us: int) -> None:
    """Of a line without the time of the call, which is then its writing less its duration."""
    complete = make_line(1, rank=0, pid=41)
    line = re.sub(r'("coll_exec_time_us": )\d+', rf"\g<1>{duration_us}", complete)
    line = re.sub(r'("dump_timestamp_us": )\d+', r"\g<1>0", line)
    run, (result,) = import_logs(tmp_path, {"a.log": [complete, line]})
    is_damaged = duration_us > 2**52
    assert result.lost == ("1 damaged line" if is_damaged else None)
    times = [t_ns for (t_ns,) in read(run, "t_ns")]
    assert (min(times) == -1000 * duration_us) == (not is_damaged)


def test_a_process_with_two_logs(tmp_path: Path) -> None:
    logs = {f"{n}.log": [make_line(n, rank=0, pid=41), make_line(n + 1, rank=0, pid=41)]
            for n in (1, 3)}  # fmt: skip
    run, _ = import_logs(tmp_path, logs)
    rows = read(run, "number", "seq", "process")
    assert [(number, seq) for number, seq, _ in rows] == [(1, 0), (2, 1), (3, 2), (4, 3)]
    (process,) = [p for p in open_run(run).processes() if p.process.startswith("inspector-")]
    assert {name for _, _, name in rows} == {process.process}
    assert process.ended_ns is not None
    assert process.ended_ns - process.started_ns == 3_000_000


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (
            make_line(1, rank=0, pid=1, version="v9.0"),
            "it has version v9.0; this version reads v4.x",
        ),
        (make_line(1, rank=0, pid=1)[:-9], "it has no complete line of NCCL Inspector"),
    ],
)
def test_other_versions_and_damaged_logs_are_refused(
    tmp_path: Path, line: str, reason: str
) -> None:
    _, (result,) = import_logs(tmp_path, {"bad.log": [line]})
    assert isinstance(result, Refused)
    assert result.reason == f"{result.path} was not imported: {reason}."


class TestNcclInspector(ImporterContract):
    importer = NcclInspectorImporter

    def write(self, directory: Path) -> Path:
        path = directory / "log"
        lines = [make_line(n, rank=0, pid=10, size=1, is_verbose=True) for n in range(3)]
        path.write_text("\n".join(lines) + "\n")
        return path
