"""Logs of TORCH_TRACE: compilations, their events, and what is damaged."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stepscope.importers import Recorded, Refused, Result, import_files
from stepscope.importers.torch_trace import TorchTraceImporter
from stepscope.store import open_run
from stepscope.testing import RunBuilder
from stepscope.testing.importer_contract import ImporterContract
from tests.support.compiler_logs import (
    BREAK,
    FILE,
    START_US,
    artifact,
    bare_record,
    end,
    failed_guards,
    graph,
    record,
    start,
    training_log,
)

Rows = list[tuple[Any, ...]]


def import_log(tmp_path: Path, content: bytes, name: str = "a.log") -> tuple[Path, Result]:
    run = RunBuilder(tmp_path / "run").write()
    (tmp_path / name).write_bytes(content)
    (result,) = import_files([tmp_path / name], run, "n")
    return run, result


def read(run: Path, table: str, *names: str) -> Rows:
    columns = open_run(run).table(table, names, order_by="seq")
    return list(zip(*(column.tolist() for column in columns.values()), strict=True))


def test_compilations_have_their_times_and_places(tmp_path: Path) -> None:
    run, result = import_log(tmp_path, training_log(), "dedicated_log_torch_trace_rank_3_x.log")
    assert isinstance(result, Recorded)
    assert (result.form, result.event_count, result.lost) == ("TORCH_TRACE", 5, None)
    names = ("compile_id", "direction", "function", "line", "start_ns", "duration_ns", "rank")
    start_ns = 1000 * START_US
    assert read(run, "compilations", *names) == [
        ("0/0", "forward", "f", 5, start_ns, 2_000_000, 3),
        ("0/1", "forward", "f", 5, start_ns + 3_000_000, 4_000_000, 3),
        ("1/0", "forward", "forward", 13, start_ns + 8_000_000, 5_000_000, 3),
        ("1/0", "backward", "forward", 13, start_ns + 14_000_000, 3_000_000, 3),
        ("0/0", "forward", "forward", 13, start_ns + 20_000_000, 500_000, 3),
    ]
    parts = ("backend_ns", "inductor_ns", "codegen_ns", "restart_ns", "earlier_count")
    assert read(run, "compilations", *parts, "guard_count", "operator_count", "file")[1] == (
        *(2_000_000, 1_000_000, 500_000, 1_000_000, 1, 13, 4, FILE),
    )
    (process,) = (p for p in open_run(run).processes() if p.process.startswith("compiler-3-"))
    assert (process.started_ns, process.ended_ns) == (start_ns, start_ns + 20_500_000)


def test_events_belong_to_their_compilations(tmp_path: Path) -> None:
    run, _ = import_log(tmp_path, training_log())
    reason = "Failed to trace builtin operator"
    assert read(run, "compilation_events", "compilation", "kind", "name", "key") == [
        (0, "graph_break", reason, None),
        (0, "cache_miss", "autograd", "a1"),
        (0, "kernel", "triton_poi_fused_add_0", "f1"),
        (0, "cache_miss", "fx_graph", "f1"),
        (0, "restart", reason, None),
        (1, "failed_guard", "n == 4", None),
        (1, "kernel", "triton_poi_fused_add_0", "f2"),
        (1, "cache_miss", "fx_graph", "f2"),
        (2, "kernel", "triton_red_fused_sum_0", "f3"),
        (2, "cache_miss", "fx_graph", "f3"),
        (3, "kernel", "triton_poi_fused_mul_0", "f4"),
        (3, "kernel", "triton_poi_fused_mul_1", "f4"),
        (3, "cache_miss", "fx_graph", "f4"),
        (4, "kernel", "triton_red_fused_sum_0", "f3"),
        (4, "cache_hit", "fx_graph", "f3"),
        (4, "cache_hit", "autograd", "a3"),
    ]
    rows = read(run, "compilation_events", "kind", "detail", "file", "line", "saved_ns")
    details = {row[0]: row[1:] for row in rows}
    attempt = "Encountered graph break when attempting to trace CALL: a call:\n\n"
    assert details["graph_break"] == (attempt + BREAK, FILE, 8, None)
    assert details["restart"] == (BREAK, None, None, None)
    assert details["failed_guard"][1:] == (FILE, 7, None)
    assert details["cache_hit"] == (None, None, None, 7_500_000)


@pytest.mark.parametrize(
    ("payload", "names"),
    [
        ("0/0: n == 4\n1/0: n == 5", ["n == 4", "n == 5"]),
        ('["0/0: L[\'x\'] is 1", "no number"]', ["L['x'] is 1"]),
        ("L['x'] died", ["L['x'] died"]),
        ("", []),
    ],
)  # fmt: skip
def test_failed_guards_are_text_or_a_list(tmp_path: Path, payload: str, names: list[str]) -> None:
    log = start() + artifact("recompile_reasons", payload) + end()
    run, _ = import_log(tmp_path, log)
    assert [name for (name,) in read(run, "compilation_events", "name")] == names


def test_a_guard_of_the_metrics_counts_where_no_other_one_is_logged(tmp_path: Path) -> None:
    reason = {"recompile_reason": "0/0: n == 4"}
    log = start(at="0/1") + end(at="0/1", **reason)
    log += start(at="0/2") + failed_guards("n == 5", at="0/2") + end(at="0/2", **reason)
    run, _ = import_log(tmp_path, log)
    rows = read(run, "compilation_events", "compilation", "name")
    assert rows == [(0, "n == 4"), (1, "n == 5")]


def test_times_of_older_versions_are_those_of_the_events_of_the_compiler(tmp_path: Path) -> None:
    """Without its start, a compilation ended at its latest event; in 2024 times were seconds."""
    event = '{\n"name": "dynamo",\n"ts": 1733527100252271.5\n}'
    older = {"dynamo_cumulative_compile_time_us": 2_000, "co_name": "g"}
    log = record(event, chromium_event={}) + record(compilation_metrics=older)
    log += record(compilation_metrics={"start_time": 1.5, "entire_frame_compile_time_s": 0.25})
    run, _ = import_log(tmp_path, log)
    assert read(run, "compilations", "function", "start_ns", "duration_ns") == [
        ("g", 1_733_527_100_252_271_000 - 2_000_000, 2_000_000),
        ("", 1_500_000_000, 250_000_000),
    ]


def test_a_compilation_without_its_end_is_said(tmp_path: Path) -> None:
    log = training_log() + start("late", 40, at="2/0") + graph("f9", "triton_x", at="2/0")
    run, result = import_log(tmp_path, log)
    assert isinstance(result, Recorded)
    assert result.lost == "the end of 1 compilation"
    names = ("function", "line", "duration_ns", "has_ended")
    assert read(run, "compilations", *names)[-1] == ("late", 40, None, 0)


def test_damaged_lines_and_texts_are_counted(tmp_path: Path) -> None:
    log = training_log()
    damaged = log.replace(b'{"key": "a1"}', b'{"key": "a1"').replace(
        b'"frame_id": 1', b'"frame_id"', 1
    )
    _, result = import_log(tmp_path, damaged + b"stray\n")
    assert isinstance(result, Recorded)
    assert result.event_count == 5
    assert result.lost == "3 damaged lines or texts"


def test_a_log_without_compilations_is_refused(tmp_path: Path) -> None:
    _, result = import_log(tmp_path, bare_record(str=[FILE, 1]))
    assert isinstance(result, Refused)
    assert result.reason.endswith("a.log was not imported: it has no compilation by torch.compile.")


JOB = """
import torch

@torch.compile(backend="aot_eager")
def f(x, n):
    y = x + n
    print("break")
    return y.sum()

for n in (4, 5):
    f(torch.randn(3), n)
"""


@pytest.mark.slow("compiles with torch")
def test_a_log_of_torch_is_read(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(JOB)
    environment = {**os.environ, "TORCH_TRACE": str(tmp_path / "logs")}
    command = [sys.executable, str(tmp_path / "job.py")]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    (log,) = (tmp_path / "logs").iterdir()
    run, result = import_log(tmp_path, log.read_bytes())
    assert isinstance(result, Recorded)
    assert result.lost is None
    rows = read(run, "compilations", "compile_id", "function", "file", "line", "has_ended")
    file, resumed = str(tmp_path / "job.py"), "torch_dynamo_resume_in_f_at_7"
    assert ("0/0", "f", file, 4, 1) in rows
    assert ("0/1", "f", file, 4, 1) in rows
    assert resumed in [row[1] for row in rows]
    events = read(run, "compilation_events", "kind", "name", "line")
    assert ("failed_guard", "n == 4", 6) in events
    assert [event[2] for event in events if event[0] == "graph_break"] == [7, 7]
    assert sum(event[0] == "restart" for event in events) == 2
    times = read(run, "compilations", "duration_ns", "backend_ns")
    assert all(0 < backend < duration for duration, backend in times)


class TestTorchTrace(ImporterContract):
    importer = TorchTraceImporter

    def write(self, directory: Path) -> Path:
        path = directory / "dedicated_log_torch_trace_rank_0_ab.log"
        path.write_bytes(training_log())
        return path
