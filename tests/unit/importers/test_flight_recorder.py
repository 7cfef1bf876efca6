"""Dumps of PyTorch's flight recorder: pickles of plain data only, complete and of this version."""

from __future__ import annotations

import json
import os
import pickle
import struct
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from stepscope.diagnosis import find_stuck
from stepscope.importers import (
    Recorded,
    RecordedCall,
    Refused,
    import_files,
    make_called_collective,
)
from stepscope.importers.flight_recorder.importer import FlightRecorderImporter
from stepscope.importers.plain_pickle import NotPlainError, check_expanded, check_plain, load_plain
from stepscope.run import Run
from stepscope.store import open_run
from stepscope.testing import RunBuilder
from stepscope.testing.importer_contract import ImporterContract


def make_dump(numbers: int, *, ended: int, version: str = "2.10") -> dict[str, Any]:
    """Make a dump of all-reduces of ranks 0 and 1, of which the first *ended* have ended."""
    return {
        "version": version,
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
        "entries": [
            {
                "frames": [{"name": "main", "filename": "/job/train.py", "line": 10 + number}],
                "record_id": number,
                "process_group": ("0", "default_pg"),
                "collective_seq_id": number + 1,
                "p2p_seq_id": 0,
                "profiling_name": "nccl:all_reduce",
                "time_created_ns": 1_000_000 * (number + 1),
                "time_discovered_started_ns": None,
                "time_discovered_completed_ns": 1_000_005 + 1_000_000 * number
                if number < ended
                else None,
                "input_sizes": [[4, 2]],
                "input_dtypes": ["Float"],
                "output_sizes": [[4, 2]],
                "output_dtypes": ["Float"],
                "state": "completed" if number < ended else "started",
                "retired": number < ended,
                "is_p2p": False,
            }
            for number in range(numbers)
        ],
    }  # fmt: skip


def import_dumps(tmp_path: Path, files: dict[str, bytes]) -> tuple[Path, list[Any]]:
    run = RunBuilder(tmp_path / "run").write()
    paths = []
    for name, content in files.items():
        paths.append(tmp_path / name)
        paths[-1].write_bytes(content)
    return run, import_files(paths, run, "imported")


@pytest.mark.parametrize(
    "encode", [lambda dump: pickle.dumps(dump, 2), lambda dump: json.dumps(dump).encode()]
)
def test_calls_become_rows(tmp_path: Path, encode: Any) -> None:
    content = encode(make_dump(3, ended=2))
    run, results = import_dumps(tmp_path, {"nccl_trace_rank_1": content})
    assert [(type(r), r.form, r.event_count) for r in results] == [(Recorded, "flight recorder", 3)]
    rows = open_run(run).table("collective_calls", order_by="seq")
    assert rows["number"].tolist() == [1, 2, 3]
    assert rows["rank"].tolist() == [1, 1, 1]
    assert rows["t_ns"].tolist() == [1_000_000, 2_000_000, 3_000_000]
    assert rows["ended_ns"].tolist() == [1_000_005, 2_000_005, None]
    assert rows["state"].tolist() == ["ended", "ended", "started"]
    assert set(rows["input_sizes"]) == {"4x2"}
    assert set(rows["group_ranks"]) == {"0,1"}


def test_dumps_of_a_stuck_job_name_the_rank_that_has_not_arrived(tmp_path: Path) -> None:
    files = {
        "nccl_trace_rank_0": pickle.dumps(make_dump(5, ended=4), 2),
        "nccl_trace_rank_1": pickle.dumps(make_dump(4, ended=4), 2),
    }
    run, _ = import_dumps(tmp_path, files)
    stuck = find_stuck(Run(open_run(run)))
    assert stuck is not None
    assert (stuck.culprits, stuck.number, stuck.group) == ([1], 5, "default_pg")
    assert "rank 1 has not called it" in stuck.headline


class _Harmful:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("protocol", range(2, 6))
def test_a_pickle_that_builds_objects_is_refused_and_not_run(tmp_path: Path, protocol: int) -> None:
    content = pickle.dumps({"version": "2.10", "entries": _Harmful(tmp_path / "made")}, protocol)
    _, results = import_dumps(tmp_path, {"evil_rank_0": content})
    assert isinstance(results[0], Refused)
    assert "was not imported: it builds objects (opcode " in results[0].reason
    assert not (tmp_path / "made").exists()
    with pytest.raises(NotPlainError, match="it builds an object of "):
        load_plain(content)
    assert not (tmp_path / "made").exists()


def test_other_versions_and_other_pickles_are_refused(tmp_path: Path) -> None:
    files = {
        "new_rank_0": pickle.dumps(make_dump(1, ended=1, version="3.0"), 2),
        "other_rank_0": pickle.dumps({"steps": []}, 2),
        "list_rank_0": pickle.dumps([1, 2], 2),
    }
    _, results = import_dumps(tmp_path, files)
    reasons = [result.reason for result in results]
    assert "it has version 3.0; this version reads 2.x" in reasons[0]
    assert "it has no version, so it is no dump of PyTorch's flight recorder" in reasons[1]
    assert "it has no version" in reasons[2]


def test_a_small_pickle_cannot_ask_for_much_memory(tmp_path: Path) -> None:
    call = make_dump(1, ended=1)["entries"][0]
    call["frames"] = [{"name": "f", "filename": "a.py", "line": 1}] * 10_000
    nested: list[Any] = []
    for _ in range(60):
        nested = [nested] * 10
    circle: list[Any] = []
    circle.append(circle)
    dump = {"version": "2.10"}
    put = pickle.PROTO + b"\x02" + pickle.NONE + pickle.LONG_BINPUT
    files = {
        "calls_rank_0": pickle.dumps({**dump, "entries": [call] * 10_000}, 2),
        "groups_rank_0": pickle.dumps({**dump, "pg_config": {"0": nested}}, 2),
        "circle_rank_0": pickle.dumps({**dump, "pg_config": {"0": circle}}, 2),
        "memo_rank_0": put + struct.pack("<I", 1 << 25) + pickle.STOP,
    }
    _, results = import_dumps(tmp_path, files)
    reasons = [result.reason for result in results if isinstance(result, Refused)]
    for reason, part in zip(
        reasons,
        (
            "with its repetitions it has more than 10,000,000 values",
            "with its repetitions it has more than 10,000,000 values",
            "a part of it contains itself",
            "the number 33554432 in its memo is out of range",
        ),
        strict=True,
    ):
        assert part in reason
    content = pickle.PROTO + b"\x02" + pickle.EMPTY_DICT * 10
    with pytest.raises(ValueError, match="it has more than 10 values"):
        check_plain(content, max_values=10)


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
    max_leaves=20,
)


@given(plain, st.integers(2, 5))
def test_repetitions_count_as_often_as_they_are(value: Any, times: int) -> None:
    def count(part: Any) -> int:
        items = part.values() if isinstance(part, dict) else part
        if not isinstance(part, list | tuple | dict):
            return 0
        return len(part) + sum(map(count, items))

    repeated = [value] * times
    check_expanded(repeated, count(repeated))
    with pytest.raises(ValueError, match="values"):
        check_expanded(repeated, count(repeated) - 1)


@given(st.data())
def test_a_cut_pickle_is_refused(data: st.DataObject) -> None:
    content = pickle.dumps(make_dump(4, ended=2), 2)
    length = data.draw(st.integers(0, len(content) - 1))
    with pytest.raises(ValueError, match="it is cut or damaged"):
        check_plain(content[:length])


@given(plain, st.integers(2, 5))
def test_plain_data_are_read_as_pickle_reads_them(value: Any, protocol: int) -> None:
    content = pickle.dumps(value, protocol)
    check_plain(content)
    assert load_plain(content) == value


@pytest.mark.parametrize(
    ("name", "kind", "peer"),
    [
        ("nccl:recv 0<-1", "recv", 5),
        ("nccl:send 1->0", "send", 4),
        ("nccl:all_reduce", "all_reduce", None),
        ("nccl:recv 0<-anysource", "recv 0<-anysource", None),
    ],
)
def test_a_transfer_names_the_other_rank_of_the_job(name: str, kind: str, peer: int | None) -> None:
    entry = make_dump(1, ended=0)["entries"][0]
    call = msgspec.convert({**entry, "profiling_name": name}, RecordedCall)
    called = make_called_collective(call, {call.process_group[0]: [4, 5]})
    assert (called.kind, called.peer) == (kind, peer)


class TestFlightRecorder(ImporterContract):
    importer = FlightRecorderImporter

    def write(self, directory: Path) -> Path:
        path = directory / "nccl_trace_rank_1"
        path.write_bytes(pickle.dumps(make_dump(3, ended=2), 2))
        return path


class TestFlightRecorderInJson(TestFlightRecorder):
    def write(self, directory: Path) -> Path:
        path = directory / "nccl_trace_rank_1.json"
        path.write_bytes(json.dumps(make_dump(3, ended=2)).encode())
        return path
