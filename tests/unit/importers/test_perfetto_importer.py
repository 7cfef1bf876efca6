"""Import of Perfetto traces: files made with the official descriptors, and exported ones."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepscope import exporters
from stepscope.exporters import ExportOptions
from stepscope.importers import Refused, import_files, installed_importers, read_head
from stepscope.importers.perfetto import PerfettoImporter
from stepscope.run import Run
from stepscope.schema import TRACE_TABLES
from stepscope.store import open_run
from stepscope.testing.importer_contract import ImporterContract
from tests.support.chrome_files import import_into
from tests.support.kineto_files import BASE_NS, MANY_KINDS_HEADER, kernel, many_kinds, op, trace
from tests.support.perfetto_files import BOOT_NS, EVENT, PerfettoRecorder, recording

Rows = list[dict[str, Any]]


def rows(run: Path, table: str) -> Rows:
    columns = open_run(run).table(table)
    values = [np.ma.asarray(column).tolist() for column in columns.values()]
    return [dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True)]


class TestPerfetto(ImporterContract):
    importer = PerfettoImporter

    def write(self, directory: Path) -> Path:
        return recording().write(directory / "trace.pftrace")


def test_tracks_slices_counters_and_flows(tmp_path: Path) -> None:
    run = import_into(tmp_path / "run", recording().write(tmp_path / "trace.pftrace"))
    (step,) = rows(run, "annotations")
    assert (step["name"], step["start_ns"], step["duration_ns"]) == ("step", BASE_NS, 9_000)
    (operator,) = rows(run, "operators")
    assert operator["name"] == "aten::mm"
    assert operator["start_ns"] == BASE_NS + 1_000
    assert json.loads(operator["input_dims"]) == [[8], [4]]
    (call,) = rows(run, "runtime_calls")
    (work,) = rows(run, "kernels")
    assert work["launch"] == call["id"]
    assert work["operator"] == operator["id"]
    assert (work["start_ns"], work["duration_ns"]) == (BASE_NS + 1_500, 3_000)
    values = [(row["name"], row["t_ns"] - BASE_NS, row["value"]) for row in rows(run, "counters")]
    assert sorted(values) == [("queue", 3_500, -20.0), ("queue", 3_600, 40.0)]
    (mark,) = rows(run, "other_events")
    assert (mark["name"], json.loads(mark["args"])) == ("mark", {"why": "because"})
    (flow,) = rows(run, "flows")
    assert (flow["source_ns"], flow["target_ns"]) == (call["start_ns"], work["start_ns"])
    tracks = {(row["pid"], row["tid"]): row for row in rows(run, "tracks")}
    assert tracks["10", "11"]["process_name"] == "python"
    assert tracks["10", "11"]["thread_name"] == "main"
    assert tracks["requests", "4"]["thread_name"] == "requests"


def test_names_of_planes_do_not_make_it_one_of_xplane(tmp_path: Path) -> None:
    recorder = recording()
    recorder.slice(0, 1, 2, "/host:CPU /device:GPU:0")
    head = read_head(recorder.write(tmp_path / "trace"))
    assert b"/host:" in head
    recognising = [one for one in installed_importers() if one.recognise(head, tmp_path / "trace")]
    assert [type(importer) for importer in recognising] == [PerfettoImporter]


def test_slices_that_do_not_end(tmp_path: Path) -> None:
    recorder = recording()
    recorder.event(8_000, EVENT.TYPE_SLICE_BEGIN, 2, "open")
    recorder.event(8_500, EVENT.TYPE_SLICE_END, 4)
    run = import_into(tmp_path / "run", recorder.write(tmp_path / "trace.pftrace"))
    (check,) = [row for row in rows(run, "quality") if row["kind"] == "unpaired"]
    assert check["count"] == 2


def test_packets_that_are_compressed_and_clocks_of_a_sequence(tmp_path: Path) -> None:
    inner = PerfettoRecorder()
    inner.slice(100, 200, 9, "inside", "user_annotation")
    recorder = PerfettoRecorder()
    clocks = recorder.packet().clock_snapshot.clocks
    clocks.add(clock_id=1, timestamp=BASE_NS)
    clocks.add(clock_id=6, timestamp=BOOT_NS)
    clocks.add(clock_id=64, timestamp=BOOT_NS // 1000, unit_multiplier_ns=1000, is_incremental=True)
    recorder.packet(compressed_packets=zlib.compress(inner.trace.SerializeToString()))
    for delta, kind in ((5, EVENT.TYPE_SLICE_BEGIN), (2, EVENT.TYPE_SLICE_END)):
        packet = recorder.packet(timestamp=delta, timestamp_clock_id=64)
        packet.track_event.type, packet.track_event.track_uuid = kind, 9
        packet.track_event.name = "incremental"
        packet.track_event.categories.append("user_annotation")
    run = import_into(tmp_path / "run", recorder.write(tmp_path / "trace.pftrace"))
    ranges = {row["name"]: row for row in rows(run, "annotations")}
    assert ranges["inside"]["start_ns"] == BASE_NS + 100
    assert ranges["incremental"]["start_ns"] == BASE_NS + 5_000
    assert ranges["incremental"]["duration_ns"] == 2_000


def test_a_trace_of_the_kernel_alone_is_refused(tmp_path: Path) -> None:
    recorder = PerfettoRecorder()
    for number in range(5):
        recorder.packet(timestamp=number).ftrace_events.cpu = number
    path = recorder.write(tmp_path / "trace.pftrace")
    run = import_into(tmp_path / "run", recording().write(tmp_path / "good.pftrace"))
    (result,) = import_files([path], run, "node")
    assert isinstance(result, Refused)
    assert "without readable track events (slices, instants or counters)" in result.reason


_LINKS = {"id", "parent", "python", "forward", "module", "launch", "operator", "host"}
_LINKS |= {"source", "target"}
_TRACKS = {"track", "source_track", "target_track"}
_LEFT_OUT = {"trace", "base_ns", "event_count", "name_of_file", "flow", "process_labels"}


def comparable(run: Path) -> dict[str, list[str]]:
    """Return the rows of all tables, with events by their place in time and tracks by their
    names: both are numbered in another order."""
    track_names = {
        row["track"]: f"{row['pid']}/{row['tid']}/{row['thread_name']}/{row['process_name']}"
        for row in rows(run, "tracks")
    }
    events = {}
    for table in TRACE_TABLES:
        if table.key[:2] == ("trace", "id") and "track" in table.column_names:
            for row in rows(run, table.name):
                time = row.get("start_ns", row.get("t_ns"))
                events[row["id"]] = (
                    f"{row.get('name')}@{track_names[row['track']]}@{time}+{row.get('duration_ns')}"
                )
    tables = {}
    for table in TRACE_TABLES:
        if table.name in {"quality", "timeline", "traces"}:
            continue
        comparable_rows = []
        for row in rows(run, table.name):
            for name, value in row.items():
                if name in _LINKS and value is not None:
                    row[name] = events[value]
                elif name in _TRACKS and value is not None:
                    row[name] = track_names[value]
                elif name == "args" and value:
                    row[name] = sorted(json.loads(value).items(), key=str)
            comparable_rows.append(repr([v for k, v in row.items() if k not in _LEFT_OUT]))
        tables[table.name] = sorted(comparable_rows)
    (row,) = rows(run, "traces")
    tables["traces"] = [repr({k: v for k, v in row.items() if k not in {*_LEFT_OUT, "name"}})]
    return tables


def ascend() -> list[Any]:
    """Return work of an NPU that arrows tie to its call and operator, and an arrow of no event."""
    names = [
        {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}}
        for pid, name in ((10, "Python"), (500, "CANN"), (800, "Ascend Hardware"))
    ]
    slices = [
        {"ph": "X", "name": name, "pid": pid, "tid": 3, "ts": at, "dur": 2, "args": args}
        for name, pid, at, args in (
            ("AscendCL@aclnnMm", 500, 10, {"id": 4}),
            ("MatMul", 800, 9, {"Task Id": 1}),
        )
    ]
    arrows = [
        {"ph": ph, "cat": kind, "name": kind, "id": 7, "pid": pid, "tid": 3, "ts": at}
        for kind, ends in (
            ("HostToDevice", (("s", 500, 10.5), ("f", 800, 9))),
            ("async_npu", (("s", 10, 1), ("f", 800, 9))),
            ("queue", (("s", 10, 4), ("f", 500, 8))),
        )
        for ph, pid, at in ends
    ]
    operator = op("aten::mm", 1_000, 2_000, pid=10, tid=3)
    return [*names, operator, *slices, *arrows]


@pytest.mark.parametrize(
    "events",
    [many_kinds, lambda: [kernel(10 * n, 25, None, name=f"k{n}") for n in range(9)], ascend],
    ids=["every kind", "overlapping", "arrows of Ascend"],
)
@pytest.mark.parametrize("form", ["perfetto", "chrome"])
def test_an_exported_trace_is_the_same(
    tmp_path: Path, events: Callable[[], Sequence[Any]], form: str
) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(trace(*events(), **MANY_KINDS_HEADER))
    first = import_into(tmp_path / "first", path)
    exported = tmp_path / {"perfetto": "trace.pftrace", "chrome": "again.json"}[form]
    exporters.export(Run(open_run(first)), form, str(exported), ExportOptions())
    second = import_into(tmp_path / "second", exported)
    again = comparable(second)
    for table, expected in comparable(first).items():
        assert again[table] == expected, table
