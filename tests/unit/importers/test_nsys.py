"""Exports of Nsight Systems as runs: work, calls, waits, ranges, processes, damage."""

from __future__ import annotations

import gzip
import json
import random
import shutil
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from stepscope.importers import Imported, Refused, Result, import_files
from stepscope.importers.nsys import NsysImporter
from stepscope.schema import SCHEMA_VERSION, RunInfo
from stepscope.store import RunReader, create_run, open_run
from stepscope.testing.importer_contract import ImporterContract
from tests.support.command import run_command
from tests.support.kineto_files import span, trace
from tests.support.nsys_files import (
    NAMES,
    PID,
    PROCESS,
    START_NS,
    Row,
    call,
    facts,
    kernel,
    nvtx,
    training,
    work,
    write_export,
)

CUPTI = "CUPTI_ACTIVITY_KIND_"
OTHER_PID = 1002
OTHER = 1 << 48 | OTHER_PID << 24


class Run:
    """Run with imported files."""

    def __init__(self, path: Path, *files: Path, step_range: str | None = None) -> None:
        info = RunInfo(
            schema_version=SCHEMA_VERSION,
            run_id="r",
            created_ns=0,
            command=[],
            working_directory="/",
            stepscope_version="0",
        )
        shutil.rmtree(path, ignore_errors=True)
        create_run(path, info)
        self.path = path
        self.results: Sequence[Result] = import_files(files, path, "n", step_range=step_range)
        self.reader: RunReader = open_run(path)

    def rows(self, table: str) -> list[Row]:
        """Return the rows of a table by start, times from the start of the session."""
        if not self.reader.row_count(table):
            return []
        columns = self.reader.table(table)
        values = [column.tolist() for column in columns.values()]
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True)]
        for row in rows:
            if "start_ns" in row:
                row["start"] = row["start_ns"] - START_NS
        return sorted(rows, key=lambda row: (row.get("start", 0), row.get("name") or ""))

    def quality(self) -> dict[str, Row]:
        """Return the quality issues of a single trace."""
        return {row["kind"]: row for row in self.rows("quality")}


def write(directory: Path, rows: dict[str, list[Row]], **more: Any) -> Path:
    path = directory / "report.sqlite"
    path.unlink(missing_ok=True)
    return write_export(path, rows, **more)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Run:
    directory = tmp_path_factory.mktemp("nsys")
    return Run(directory / "run", write(directory, training()))


def test_work_belongs_to_its_calls(trained: Run) -> None:
    calls = {row["id"]: row for row in trained.rows("runtime_calls")}
    kernels = trained.rows("kernels")
    assert [row["name"] for row in kernels] == [NAMES[1], NAMES[1], "CUDA graph 4"] * 3
    launches = ["cudaLaunchKernel", "cuLaunchKernelEx", "cuLaunchKernelEx"]
    assert [calls[row["launch"]]["name"] for row in kernels] == launches * 3
    assert [row["duration_ns"] for row in kernels] == [400_007, 100_000, 100_000] * 3
    assert {row["driver"] for row in calls.values() if row["name"].startswith("cuL")} == {1}
    first, in_graph, graph = kernels[:3]
    assert (first["grid_x"], first["block_x"], first["registers_per_thread"]) == (34, 64, 32)
    assert (first["shared_memory_bytes"], first["graph"]) == (1040, None)
    assert (first["blocks_per_multiprocessor"], first["warps_per_multiprocessor"]) == (0.5, 1.0)
    assert (in_graph["graph"], in_graph["graph_node"], graph["graph"]) == (4, 2, 4)
    copies = [(row["name"], row["bytes"]) for row in trained.rows("copies")]
    assert copies == [("Memcpy HtoD (Pageable -> Device)", 64), ("Memset (Device)", 4)] * 3
    operators = {row["id"]: row for row in trained.rows("operators")}
    assert operators[first["operator"]]["name"] == "aten::mm"


def test_waits_name_the_stream_that_they_wait_for(trained: Run) -> None:
    wait = trained.rows("synchronisations")[1]
    names = ("name", "stream", "waited_stream", "record_correlation", "correlation", "event")
    assert [wait[name] for name in names] == ["Stream Wait Event", 7, 9, 14, 15, 8]


def test_ranges(trained: Run) -> None:
    operators = trained.rows("operators")
    assert [(row["name"], row["sequence"]) for row in operators] == [
        ("aten::mm", step) for step in range(3)
    ]
    assert {row["input_dims"] for row in operators} == {"[[2,3],[]]"}
    annotations = [(row["name"], row["args"]) for row in trained.rows("annotations")]
    of_domain = '{"domain":"NCCL","category":"phase"}'
    assert annotations == [("train_step", None), ("reduce", of_domain)] * 3
    (mark,) = trained.rows("other_events")
    assert (mark["name"], mark["phase"], mark["start"]) == ("epoch 0", "i", 100)


def test_the_machine(trained: Run) -> None:
    (trace,) = trained.rows("traces")
    assert (trace["node"], trace["base_ns"], trace["rank"]) == ("node7", START_NS, None)
    metadata = json.loads(trace["metadata"])
    assert metadata == {"recorder": "Nsight Systems", "nsys_schema_version": "3.24.14"}
    (device,) = trained.rows("devices")
    facts = ("name", "memory_bytes", "multiprocessor_count", "threads_per_multiprocessor")
    assert [device[name] for name in facts] == ["NVIDIA A", 1 << 30, 68, 1536]
    names = {(row["pid"], row["tid"]): row["thread_name"] for row in trained.rows("tracks")}
    assert names[str(PID), str(PID)] == "loader"
    assert names["GPU 0", "stream 9"] == "stream 9"
    message = trained.quality()["recorder_message"]
    assert (message["count"], message["detail"]) == (1, "Not all NVTX events might be there.")


def test_steps(tmp_path: Path) -> None:
    path = write(tmp_path, training())
    for step_range in ("train_step", None):  # the repeated range is found without a name, too
        run = Run(tmp_path / "run", path, step_range=step_range)
        shown = run_command(tmp_path, "show", str(run.path), "steps", "--json").stdout
        names = [step["step"] for step in json.loads(shown)["traces"][0]["steps"]]
        assert names == (["0", "1", "2"] if step_range else ["0", "1"]), step_range
    done = run_command(tmp_path, "import", str(path), "-o", "a", "--step-range", "epoch")
    assert done.returncode == 0
    assert "! No range of the trace is called epoch" in done.stdout


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["step 7", "step 8", "step_9", "steps"], ["7", "8", "9"]),
        (["step", "step", "step"], ["0", "1", "2"]),
        (["step 4", "step 4", "step"], ["0", "1", "2"]),
    ],
)
def test_steps_have_the_number_of_their_range(
    tmp_path: Path, names: list[str], expected: list[str]
) -> None:
    ranges = [nvtx(1_000 * n, 1_000 * n + 900, name) for n, name in enumerate(names, 1)]
    inner = nvtx(1_010, 1_020, "step")
    elsewhere = nvtx(1_000, 1_900, "step", globalTid=PROCESS | 5)
    rows = {**facts(), "NVTX_EVENTS": [*ranges, inner, elsewhere]}
    run = Run(tmp_path / "run", write(tmp_path, rows), step_range="step")
    marks = [row["name"] for row in run.rows("annotations")]
    assert [name[13:] for name in marks if name.startswith("ProfilerStep#")] == expected


def test_steps_of_kineto_have_the_stated_range(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    ranges = [span("user_annotation", f"iter {n}", 1_000 * n, 900) for n in range(2)]
    path.write_bytes(trace(span("user_annotation", "ProfilerStep#7", 0, 5_000), *ranges))
    run = Run(tmp_path / "run", path, step_range="iter")
    names = {row["name"] for row in run.rows("annotations")}
    assert names == {"ProfilerStep 7", "ProfilerStep#0", "ProfilerStep#1"}


def random_work(seed: int) -> dict[str, list[Row]]:
    """Return work of two processes on two devices, much of it simultaneous."""
    chance = random.Random(seed)
    rows: dict[str, list[Row]] = {**facts(), f"{CUPTI}KERNEL": [], f"{CUPTI}MEMCPY": []}
    for correlation in range(1, 900):
        start = 10**9 + chance.randrange(2_000_000)
        end = start + chance.randrange(5_000)
        process = chance.choice([PROCESS, OTHER])
        ids = {"deviceId": process == OTHER, "globalPid": process, "streamId": chance.randrange(3)}
        if chance.random() < 0.7:
            rows[f"{CUPTI}KERNEL"].append(kernel(start, end, correlation, **ids))
        else:
            rows[f"{CUPTI}MEMCPY"].append(work(start, end, correlation, bytes=8, copyKind=2, **ids))
    return rows


BUSY = """
SELECT min(start), max(end), sum(max(0, start - reach)) FROM (
    SELECT start, end, coalesce(max(end) OVER (
        ORDER BY start, end ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), start) AS reach
    FROM (SELECT start, end, globalPid FROM CUPTI_ACTIVITY_KIND_KERNEL
          UNION ALL SELECT start, end, globalPid FROM CUPTI_ACTIVITY_KIND_MEMCPY)
    WHERE globalPid = ?)
"""


def test_sums_are_those_of_sql(tmp_path: Path) -> None:
    path = write(tmp_path, random_work(1))
    run = Run(tmp_path / "run", path)
    names = [result.name for result in run.results if isinstance(result, Imported)]
    labels = (f"python3 {PID}", f"process {OTHER_PID}")
    assert names == [f"{label} of report.sqlite" for label in labels]
    shown = run_command(tmp_path, "show", str(run.path), "gpu-time", "--json").stdout
    traces = {trace["trace"]: trace for trace in json.loads(shown)["traces"]}
    with sqlite3.connect(path) as database:
        for name, process in zip(names, (PROCESS, OTHER), strict=True):
            number = next(r["trace"] for r in run.rows("traces") if r["name"] == name)
            for table, stored in (("KERNEL", "kernels"), ("MEMCPY", "copies")):
                query = "SELECT count(*), sum(end - start) FROM {} WHERE globalPid = ?"
                durations = [
                    row["duration_ns"] for row in run.rows(stored) if row["trace"] == number
                ]
                expected = database.execute(query.format(CUPTI + table), (process,)).fetchone()
                assert (len(durations), sum(durations)) == expected
            first, last, idle_ns = database.execute(BUSY, (process,)).fetchone()
            times = traces[name]
            assert (times["total_ns"], times["idle_ns"]) == (last - first, idle_ns)
    database.close()


def test_a_process_with_calls_alone_is_no_trace(tmp_path: Path) -> None:
    rows = training()
    rows[f"{CUPTI}RUNTIME"].append(call(10, 20, 1, globalTid=OTHER | 3))
    run = Run(tmp_path / "run", write(tmp_path, rows))
    assert len(run.results) == 1
    assert run.quality()["left_out_process"]["detail"] == f"process {OTHER_PID}"
    rows[f"{CUPTI}MEMCPY"].append(work(10, 20, 1, globalPid=OTHER))
    path = write(tmp_path, rows).rename(tmp_path / "rank3.sqlite")
    traces = Run(tmp_path / "run", path).rows("traces")  # which of them has the rank is unknown
    assert {(row["name"], row["rank"]) for row in traces} == {
        (f"python3 {PID}", None),
        (f"process {OTHER_PID}", None),
    }
    only = {f"{CUPTI}RUNTIME": rows[f"{CUPTI}RUNTIME"], "StringIds": rows["StringIds"]}
    assert len(Run(tmp_path / "run", write(tmp_path, only)).results) == 2


def test_the_device_of_a_wait_is_that_of_its_context(tmp_path: Path) -> None:
    rows = training()
    rows[f"{CUPTI}KERNEL"] = [kernel(5, 9, 1, deviceId=3, contextId=2)]
    rows[f"{CUPTI}SYNCHRONIZATION"] = [work(6, 9, 2, contextId=2, syncType=4)]
    run = Run(tmp_path / "run", write(tmp_path, rows))
    assert [(r["device"], r["name"]) for r in run.rows("synchronisations")] == [(3, "Context Sync")]


def test_a_number_of_a_device_in_its_process_is_that_of_cuda(tmp_path: Path) -> None:
    rows = training()
    rows["TARGET_INFO_GPU"].append({"id": 5, "name": "NVIDIA B", "smCount": 34})
    rows["TARGET_INFO_CUDA_DEVICE"] = [{"gpuId": 5, "cudaId": 0, "pid": PID}]
    run = Run(tmp_path / "run", write(tmp_path, rows))
    assert [(r["device"], r["name"]) for r in run.rows("devices")] == [(0, "NVIDIA B")]
    assert run.rows("kernels")[0]["blocks_per_multiprocessor"] == 1.0


REDUCED = {
    "globalPid", "contextId", "registersPerThread", "staticSharedMemory", "dynamicSharedMemory",
    "mangledName", "graphNodeId", "graphId", "eventClass", "returnValue", "srcKind", "dstKind",
}  # fmt: skip


def test_missing_columns_are_null_and_named(tmp_path: Path) -> None:
    names = ("StringIds", *(f"{CUPTI}{name}" for name in ("KERNEL", "MEMCPY", "RUNTIME")))
    rows = {name: training()[name] for name in names}
    run = Run(tmp_path / "run", write(tmp_path, rows, lacking=tuple(REDUCED)))
    (trace,) = run.rows("traces")
    assert trace["base_ns"] == 0
    kernels = run.rows("kernels")
    assert {row[name] for row in kernels for name in ("shared_memory_bytes", "graph")} == {None}
    assert {row["launch"] is None for row in kernels} == {False}
    assert {row["driver"] for row in run.rows("runtime_calls")} == {0, 1}  # by their names
    quality = run.quality()
    assert "does not state when the session started" in quality["clock_base"]["detail"]
    detail = quality["missing_column"]["detail"]
    assert detail.startswith("the export has no table TARGET_INFO_SESSION_START_TIME, ")
    assert f"{CUPTI}KERNEL.globalPid" in detail
    assert quality["missing_column"]["count"] == detail.count(",") + 2


def test_names_are_missing_without_the_table_of_texts(tmp_path: Path) -> None:
    rows = {name: rows for name, rows in training().items() if name != "StringIds"}
    run = Run(tmp_path / "run", write(tmp_path, rows))
    assert "no table StringIds" in run.quality()["missing_column"]["detail"]


def test_impossible_values(tmp_path: Path) -> None:
    """NULLs, texts, infinities, times of 0 and without an end, names that are not there."""
    rows = training()
    good = len(rows[f"{CUPTI}KERNEL"]) + len(rows[f"{CUPTI}GRAPH_TRACE"])
    rows[f"{CUPTI}KERNEL"] += [
        kernel(0, 0, 1),
        kernel(2**63 - 1, -(2**63), 1),
        {"start": None, "end": None, "globalPid": PROCESS},
        kernel("x", 2_000_000, 1),
        kernel(2_000_000, 2_000_100, 1, demangledName=77, gridX="x", blockX=float("inf")),
        kernel(2_000_000, 2_000_100, 1, demangledName=None, shortName=None, registersPerThread=b""),
    ]
    rows["NVTX_EVENTS"].append(nvtx(2_000_000, None, "open"))
    rows["NVTX_EVENTS"].append(nvtx(2_000_000, 2_000_001, "x" * 1_000_000))
    run = Run(tmp_path / "run", write(tmp_path, rows))
    kernels = run.rows("kernels")
    assert len(kernels) == good + 2
    assert {"name 77", "unnamed"} <= {row["name"] for row in kernels}
    (unknown,) = [row for row in kernels if row["name"] == "name 77"]
    assert (unknown["grid_x"], unknown["block_x"]) == (None, None)
    assert unknown["blocks_per_multiprocessor"] is None
    quality = run.quality()
    assert quality["impossible_time"]["count"] == 4
    assert (quality["unpaired"]["count"], quality["shortened_text"]["count"]) == (1, 1)
    assert max(len(row["name"]) for row in run.rows("annotations")) < 70_000


def test_changes_in_a_log_are_said(tmp_path: Path) -> None:
    path = write(tmp_path, training())
    log = tmp_path / "report.sqlite-wal"
    log.write_bytes(b"7" * 99)
    done = run_command(tmp_path, "import", str(path), "-o", "run")
    assert done.returncode == 0
    assert "report.sqlite-wal are not read" in done.stderr
    assert log.read_bytes() == b"7" * 99
    assert {item.name for item in tmp_path.iterdir()} == {path.name, log.name, "run"}


def test_rows_before_damage_count(tmp_path: Path) -> None:
    rows = {"StringIds": facts()["StringIds"]}
    rows[f"{CUPTI}KERNEL"] = [kernel(1_000 * n, 1_000 * n + 500, n) for n in range(1, 5_000)]
    content = bytearray(write(tmp_path, rows).read_bytes())
    middle = len(content) // 2 // 4096 * 4096
    content[middle : middle + 4096] = b"\xff" * 4096
    (tmp_path / "report.sqlite").write_bytes(content)
    run = Run(tmp_path / "run", tmp_path / "report.sqlite")
    (result,) = run.results
    assert isinstance(result, Imported)
    assert result.lost is not None
    assert f"the table {CUPTI}KERNEL could not be read to its end" in result.lost
    assert 1_000 < len(run.rows("kernels")) < 4_999
    assert run.quality()["truncated"]["detail"] == result.lost


@pytest.mark.parametrize("tables", [(), (f"{CUPTI}KERNEL",)])
def test_an_export_without_events_is_refused(tmp_path: Path, tables: Sequence[str]) -> None:
    rows = {**facts(), **{table: [] for table in tables}}
    (result,) = Run(tmp_path / "run", write(tmp_path, rows)).results
    assert isinstance(result, Refused)
    assert "has no kernels, copies, calls or NVTX ranges" in result.reason
    assert ". Record with `nsys profile" in result.reason


def test_views_and_virtual_tables_are_not_read(tmp_path: Path) -> None:
    path = write(tmp_path, facts())
    with sqlite3.connect(path) as database:
        database.execute(
            "CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS "
            "WITH RECURSIVE n(start) AS (SELECT 1 UNION ALL SELECT start + 1 FROM n) "
            "SELECT start, start + 1 AS end FROM n"
        )
    database.close()
    (result,) = Run(tmp_path / "run", path).results
    assert isinstance(result, Refused)


def test_a_file_of_nvprof_is_none(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    with sqlite3.connect(path) as database:
        database.execute(f"CREATE TABLE {CUPTI}KERNEL (_id_ INTEGER, start INT, end INT)")
    database.close()
    assert not NsysImporter().recognise(path.read_bytes()[:4096], path)


def test_a_trace_in_place_of_a_run(tmp_path: Path) -> None:
    path = write(tmp_path, training())
    packed = tmp_path / "a.sqlite.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    for view in ("gpu-time", "kernels", "timeline"):
        done = run_command(tmp_path, "show", str(packed), view)
        assert done.returncode == 0, done.stderr
    done = run_command(tmp_path, "diagnose", str(path))
    assert done.returncode == 0, done.stderr


class TestNsys(ImporterContract):
    importer = NsysImporter

    def write(self, directory: Path) -> Path:
        return write_export(directory / "report.sqlite", training())


class TestReducedNsys(ImporterContract):
    importer = NsysImporter

    def write(self, directory: Path) -> Path:
        rows = {**facts(), f"{CUPTI}KERNEL": training()[f"{CUPTI}KERNEL"]}
        return write_export(directory / "report.sqlite", rows, lacking=tuple(REDUCED))
