from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import msgspec
import numpy as np
import pytest

from stepscope.errors import RunExistsError, UsageError
from stepscope.schema import JobState, JobStatus, ProcessInfo
from stepscope.store import DictColumn, LocalStore, RunWriter, create_run, layout, open_run
from stepscope.store.layout import Segment
from tests.support.permissions import restricted
from tests.support.store_rows import INFO, NODE, samples, spans


def files(run: Path, table: str = "spans") -> list[str]:
    return sorted(path.name for path in (run / "tables" / table).rglob("*.parquet"))


def seqs(run: Path) -> list[int]:
    numbers: list[int] = open_run(run).table("spans", ["seq"])["seq"].tolist()
    return numbers


PROCESS = {"node": "n0", "pid": 1, "parent_pid": 0, "role": "main", "started_ns": 1}


class TestCreateRun:
    def test_where_a_run_can_be(self, run: Path, tmp_path: Path) -> None:
        with pytest.raises(RunExistsError, match="already holds a run"):
            create_run(run, INFO)
        create_run(tmp_path / "a" / "b" / "c", INFO)
        assert open_run(tmp_path / "a" / "b" / "c").info == INFO
        (tmp_path / "file").touch()
        for below in ("file", "file/run"):
            with pytest.raises(UsageError, match="is a file"):
                create_run(tmp_path / below, INFO)
        with pytest.raises(UsageError, match="is not a bucket URL"):
            create_run("s3://", INFO)
        assert (run / "run.json").read_text().count("\n") > 5, "indented"


class TestManifests:
    def test_round_trip(self, run: Path, writer: RunWriter) -> None:
        status = JobStatus(state=JobState.IN_PROGRESS, heartbeat_ns=3, started_ns=1)
        process = ProcessInfo(process="1-2-3", **PROCESS)
        writer.put_node(NODE)
        writer.put_status(status)
        writer.put_process(process)
        writer.put_document("findings", "verdict", {"answer": 42})
        reader = open_run(run)
        assert reader.nodes() == {"n0": NODE}
        assert reader.statuses() == {"n0": status}
        assert reader.processes() == [process]
        assert reader.document("verdict") == {"answer": 42}
        assert reader.document("verdict", as_type=dict[str, int]) == {"answer": 42}
        assert reader.document("absent") is None
        assert reader.damage == []
        ended = msgspec.structs.replace(status, state=JobState.COMPLETED)
        writer.put_status(ended)
        assert open_run(run).statuses() == {"n0": ended}, "a status is replaced"

    def test_arguments_that_are_not_unicode(self, run: Path, writer: RunWriter) -> None:
        argument = os.fsdecode(b"caf\xe9.py")
        texts = {"command": ["python", argument], "facts": [{"fact": argument}]}
        writer.put_process(ProcessInfo(process="p", **PROCESS, **texts))
        (process,) = open_run(run).processes()
        assert process.command == ["python", "caf?.py"]
        assert process.facts == [{"fact": "caf?.py"}]


class TestAppend:
    def test_each_append_is_one_segment(self, run: Path, writer: RunWriter) -> None:
        assert writer.append("spans", spans([])) == 0
        assert files(run) == []
        assert writer.append("spans", spans([0, 1])) == 2
        assert writer.append("spans", spans([2])) == 1
        assert files(run) == ["00000000-00000000.parquet", "00000001-00000001.parquet"]
        assert seqs(run) == [0, 1, 2]
        for call in (lambda: writer.append("colours", {}), lambda: writer.compact("colours")):
            with pytest.raises(ValueError, match="no table 'colours'"):
                call()

    def test_tables_count_for_themselves(self, run: Path, writer: RunWriter) -> None:
        writer.append("spans", spans([0]))
        scalar = {
            **{name: DictColumn.constant(name, 2) for name in ("node", "process", "log", "name")},
            "seq": np.arange(2),
            "t_ns": np.arange(2),
            "step": np.arange(2),
            "value": np.array([1.5, np.nan]),
        }
        writer.append("scalars", scalar)
        assert files(run, "scalars") == ["00000000-00000000.parquet"]
        values = open_run(run).table("scalars", ["value"])["value"]
        assert values[0] == 1.5
        assert np.isnan(values[1])

    def test_a_second_monitor_counts_on(self, run: Path) -> None:
        for number in range(17):
            with RunWriter(run, "n0") as writer:
                writer.append("spans", spans([number]))
                writer.compact("spans")
        assert seqs(run) == list(range(17))

    def test_a_number_in_use_is_skipped(self, run: Path) -> None:
        with RunWriter(run, "n0") as first, RunWriter(run, "n0") as second:
            first.append("spans", spans([0]))
            second.append("spans", spans([1]))
            first.append("spans", spans([2]))
            second.append("spans", spans([3]))
        assert seqs(run) == [0, 1, 2, 3]

    @pytest.mark.parametrize("node", ["a'b\"c", "ü/../x", ".hidden", "a=b", "[x]*?"])
    def test_unusual_node_names(self, run: Path, node: str) -> None:
        with RunWriter(run, node) as writer:
            for number in range(16):
                writer.append("spans", spans([number], node=node))
            assert writer.compact("spans") == 1
            writer.put_status(JobStatus(state=JobState.FAILED, heartbeat_ns=3, started_ns=1))
        reader = open_run(run)
        assert set(reader.table("spans", ["node"])["node"]) == {node}
        assert reader.row_count("spans") == 16
        assert set(reader.statuses()) == {node}

    @pytest.mark.parametrize("name", ["it's", 'a "b"', "ünï", "run*", "[ab]", "a=b", "~x", "a\nb"])
    def test_unusual_run_names(
        self, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(layout, "FAN_IN", 2)
        # Paths that the name would match if it were a pattern must not be read.
        for path in (tmp_path / name, tmp_path / "run1", tmp_path / "a"):
            create_run(path, INFO)
            with RunWriter(path, "n0") as writer:
                for number in range(3):
                    writer.append("spans", spans([number]))
                assert writer.compact("spans") == 1
        assert seqs(tmp_path / name) == [0, 1, 2]
        assert set(open_run(tmp_path / name).sql("SELECT * FROM spans")) == set(spans([0]))

    def test_unusual_strings(self, run: Path, writer: RunWriter) -> None:
        names = ["", "null", "a'b\"c\\", "nul \0 inside", "\u2028", "é😀", "x" * 100_000]
        writer.append("spans", spans(range(8), names=[*names, os.fsdecode(b"caf\xe9")]))
        reader = open_run(run)
        names.append("caf?")  # is not Unicode
        assert reader.table("spans", ["name"])["name"].tolist() == names
        assert reader.table("spans", encoded=["name"])["name"].decode().tolist() == names

    def test_a_clone_writes_other_tables_concurrently(self, run: Path, writer: RunWriter) -> None:
        with writer.clone() as clone, ThreadPoolExecutor(2) as pool:
            span_counts = pool.submit(
                lambda: [writer.append("spans", spans([n])) for n in range(9)]
            )
            sample_counts = pool.submit(
                lambda: [clone.append("metrics", samples([n], ["a"])) for n in range(9)]
            )
            assert span_counts.result() == sample_counts.result() == [1] * 9
        assert seqs(run) == list(range(9))
        assert open_run(run).table("metrics", ["t_ns"])["t_ns"].tolist() == list(range(9))

    def test_imports_are_light(self, run: Path) -> None:
        code = (
            "import sys; from stepscope.store import RunWriter; RunWriter(sys.argv[1], 'n');"
            "print(*{m.split('.')[0] for m in sys.modules})"
        )
        output = subprocess.run(
            [sys.executable, "-c", code, str(run)], capture_output=True, text=True, check=True
        )
        assert not {"pandas", "pyarrow", "polars", "torch"} & set(output.stdout.split())


class TestEnvironmentErrors:
    def test_full_disk(self, run: Path, writer: RunWriter) -> None:
        writer.append("spans", spans([0]))
        incompressible = [
            f"{value:x}" for value in np.random.default_rng(0).integers(2**60, size=999)
        ]
        with file_size_limit(4096), pytest.raises(OSError, match="Input/output error"):
            writer.append("spans", spans(range(1, 1000), names=incompressible))
        assert seqs(run) == [0]
        writer.append("spans", spans(range(1, 1000), names=incompressible))
        assert seqs(run) == list(range(1000))
        assert not list(run.rglob(".*"))

    def test_read_only_directory(self) -> None:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
            run = Path(directory)
            create_run(run, INFO)
            with RunWriter(run, "n0") as writer:
                writer.append("spans", spans([0]))
                folders = [run, *(path for path in run.rglob("*") if path.is_dir())]
                with restricted(folders, 0o555), pytest.raises(PermissionError, match="spans"):
                    writer.append("spans", spans([1]))
                writer.append("spans", spans([1]))
            assert seqs(run) == [0, 1]

    def test_a_file_where_a_directory_should_be(self, run: Path, writer: RunWriter) -> None:
        (run / "tables").write_text("in the way")
        with pytest.raises(OSError, match="tables"):
            writer.append("spans", spans([0]))


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class DyingStore(LocalStore):
    """Store that is interrupted at the n-th deletion."""

    def __init__(self, root: Path, deletes: int) -> None:
        super().__init__(root)
        self.deletes = deletes

    def delete(self, key: str) -> None:
        if self.deletes == 0:
            raise KeyboardInterrupt
        self.deletes -= 1
        super().delete(key)


class TestCompact:
    def test_sixteen_become_one_in_order(self, run: Path, writer: RunWriter) -> None:
        for number in range(18):
            writer.append("spans", spans([100 - number, number]))
        before = open_run(run).table("spans")
        assert writer.compact("spans") == 1
        assert files(run) == [
            "00000000-00000015.parquet",
            "00000016-00000016.parquet",
            "00000017-00000017.parquet",
        ]
        after = open_run(run).table("spans")
        for name in ("seq", "labels", "end_ns"):  # nulls survive
            assert after[name].tolist() == before[name].tolist()
        assert writer.compact("spans") == 0

    def test_levels(self, run: Path, writer: RunWriter, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(layout, "FAN_IN", 3)
        for number in range(13):
            writer.append("spans", spans([number]))
            writer.compact("spans")
        assert files(run) == [
            "00000000-00000008.parquet",
            "00000009-00000011.parquet",
            "00000012-00000012.parquet",
        ]
        assert seqs(run) == list(range(13))

    def test_wide_segments_are_clustered_by_metric(
        self, run: Path, writer: RunWriter, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(layout, "FAN_IN", 2)
        for number in range(4):
            writer.append("metrics", samples([number, number, number], ["b", "it's", "a"]))
        writer.compact("metrics")
        assert files(run, "metrics") == ["00000000-00000003.parquet"]
        columns = open_run(run).table("metrics", ["metric", "t_ns"])
        assert columns["metric"].tolist() == ["a"] * 4 + ["b"] * 4 + ["it's"] * 4
        assert columns["t_ns"].tolist() == [0, 1, 2, 3] * 3

    @pytest.mark.parametrize("deletes", [0, 1, 15])
    def test_death_between_merge_and_delete(
        self, run: Path, writer: RunWriter, deletes: int
    ) -> None:
        for number in range(17):
            writer.append("spans", spans([number]))
        dying = RunWriter(run, "n0")
        dying._store = DyingStore(run, deletes)
        with pytest.raises(KeyboardInterrupt):
            dying.compact("spans")
        assert len(files(run)) == 18 - deletes  # the merged file and what it covers
        assert seqs(run) == list(range(17))
        with RunWriter(run, "n0") as next_monitor:
            next_monitor.append("spans", spans([17]))
            next_monitor.compact("spans")
        assert files(run)[0] == "00000000-00000015.parquet"
        assert len(files(run)) == 3
        assert seqs(run) == list(range(18))

    def test_a_torn_segment_stays_and_its_neighbors_merge(
        self, run: Path, writer: RunWriter
    ) -> None:
        for number in range(33):
            writer.append("spans", spans([number]))
        torn = run / Segment("spans", "n0", 3, 3).key
        torn.write_bytes(torn.read_bytes()[:-20])
        assert writer.compact("spans") == 1
        assert writer.compact("spans") == 0
        assert len(files(run)) == 18
        reader = open_run(run)
        assert reader.table("spans", ["seq"])["seq"].tolist() == [n for n in range(33) if n != 3]
        assert len(reader.damage) == 1

    def test_another_writer_may_compact_meanwhile(self, run: Path) -> None:
        with RunWriter(run, "n0") as monitor, RunWriter(run, "n0") as merger:
            for number in range(40):
                monitor.append("spans", spans([number]))
                merger.compact("spans")
        assert len(files(run)) == 2 + 8
        assert seqs(run) == list(range(40))
