from __future__ import annotations

import multiprocessing
import os
import shutil
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import numpy as np
import pytest

from stepscope.errors import DamagedRunError, NewerSchemaError, NotARunError, UsageError
from stepscope.schema import SCHEMA_VERSION, TABLES, JobState, JobStatus
from stepscope.store import DictColumn, LocalStore, RunReader, RunWriter, engine, open_run
from stepscope.store.engine import select
from stepscope.store.layout import Segment
from tests.support.store_rows import INFO, samples, spans


def segment_key(number: int) -> str:
    return Segment("spans", "n0", number, number).key


class TestOpening:
    def test_what_is_no_run(self, tmp_path: Path) -> None:
        (tmp_path / "trace.json").touch()
        for name in ("any", "unreadable", "pipe"):
            (tmp_path / name).mkdir()
        (tmp_path / "unreadable" / "run.json").mkdir()
        os.mkfifo(tmp_path / "pipe" / "run.json")
        for name, message in (
            ("nowhere", "does not exist"),
            ("trace.json", "is a file"),
            ("any", r"has no run\.json"),
            ("unreadable", "cannot be read: Is a directory"),
            ("pipe", r"has no run\.json"),
        ):
            with pytest.raises(NotARunError, match=message):
                open_run(tmp_path / name)

    def test_a_link_out_of_the_run(self, tmp_path: Path, run: Path) -> None:
        (tmp_path / "linked").mkdir()
        (tmp_path / "linked" / "run.json").symlink_to(run / "run.json")
        with pytest.raises(UsageError, match=r"run\.json is a symbolic link, which could lead any"):
            open_run(tmp_path / "linked")

    def test_damaged(self, tmp_path: Path) -> None:
        for content in (
            *(b"", b"{", b"[]", b"null", b"\xff\xfe", b"{}", b'{"schema_version": "1"}'),
            *(b'{"schema_version": 1}', b'{"schema_version": 0}'),
            b'{"schema_version": 1, "a": ' + b"[" * 10_000,
        ):
            (tmp_path / "run.json").write_bytes(content)
            with pytest.raises(DamagedRunError, match=r"run\.json is damaged"):
                open_run(tmp_path)

    def test_newer(self, tmp_path: Path) -> None:
        newer = {"schema_version": SCHEMA_VERSION + 6, "all": "different"}
        (tmp_path / "run.json").write_bytes(msgspec.json.encode(newer))
        with pytest.raises(
            NewerSchemaError, match=rf"version {SCHEMA_VERSION + 6};.* {SCHEMA_VERSION}\. Upgrade"
        ):
            open_run(tmp_path)

    def test_fields_of_a_later_minor_version_are_ignored(self, run: Path) -> None:
        content = msgspec.json.decode((run / "run.json").read_bytes())
        (run / "run.json").write_bytes(msgspec.json.encode({**content, "mood": "good"}))
        assert open_run(str(run)).info == INFO


class TestTable:
    def test_all_columns_as_declared(self, run: Path, writer: RunWriter) -> None:
        writer.append("spans", spans([0, 1, 2, 3]))
        columns = open_run(run).table("spans")
        assert tuple(columns) == TABLES["spans"].column_names
        kinds = {name: str(columns[name].dtype) for name in ("start_ns", "depth", "name")}
        assert kinds == {"start_ns": "int64", "depth": "int16", "name": "object"}
        assert columns["end_ns"].tolist() == [None, 6, 7, None]
        assert columns["labels"].tolist() == ['{"a": 1}', None, '{"a": 1}', None]
        assert not isinstance(columns["start_ns"], np.ma.MaskedArray)
        # A nullable column is masked even without nulls.
        end = open_run(run).table("spans", ["end_ns"], condition="seq IN (1, 2)")["end_ns"]
        assert isinstance(end, np.ma.MaskedArray)
        assert end.mask.tolist() == [False, False]

    def test_conditions_and_order(self, run: Path, writer: RunWriter) -> None:
        writer.append("spans", spans(range(10)))
        options = {"condition": "kind = ? AND seq > ?", "parameters": ["step", 2]}
        columns = open_run(run).table("spans", ["seq"], **options, order_by="seq DESC")
        assert columns["seq"].tolist() == [9, 7, 5, 3]

    def test_encoded_strings(self, run: Path, writer: RunWriter) -> None:
        nothing = open_run(run).table("spans", ["name", "seq"], encoded=("name",))
        assert nothing["name"].decode().tolist() == []
        assert nothing["seq"].dtype == np.int64
        writer.append("spans", spans(range(5)))
        writer.append("spans", spans(range(5, 9)))
        reader = open_run(run)
        plain, columns = reader.table("spans"), reader.table("spans", encoded=("name", "labels"))
        assert isinstance(columns["name"], DictColumn)
        assert list(columns["name"].values) == sorted(set(plain["name"]))
        for name in ("name", "labels"):
            assert columns[name].decode().tolist() == plain[name].tolist()
        assert columns["labels"].codes.min() == -1
        # They hold only values in use.
        used = reader.table(
            "spans", ["name", "labels"], condition="seq IN (3, 5)", encoded=("name", "labels")
        )
        assert list(used["name"].values) == used["name"].decode().tolist() == ["span 3", "span 5"]
        assert list(used["labels"].values) == []
        assert used["labels"].decode().tolist() == [None, None]

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"name": "colours"}, "no table"),
            ({"name": "spans", "columns": ["colour"]}, r"no columns \['colour'\]"),
            ({"name": "spans", "columns": []}, "no columns"),
            ({"name": "spans", "encoded": ["seq"]}, "no string columns"),
            ({"name": "spans", "columns": ["seq"], "encoded": ["name"]}, "no string columns"),
        ],
    )
    def test_mistakes(self, run: Path, arguments: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            open_run(run).table(**arguments)

    def test_several_nodes(self, run: Path) -> None:
        for node in ("b", "a"):
            with RunWriter(run, node) as writer:
                writer.append("spans", spans([0, 1], node=node))
                writer.append("spans", spans([2], node=node))
        columns = open_run(run).table("spans", ["node", "seq"])
        assert columns["node"].tolist() == ["a"] * 3 + ["b"] * 3
        assert columns["seq"].tolist() == [0, 1, 2, 0, 1, 2]


class TestSql:
    def test_views_of_all_tables(self, run: Path, writer: RunWriter) -> None:
        writer.append("spans", spans([1, 2, 3]))
        columns = open_run(run).sql(
            "SELECT kind, CAST(sum(end_ns - start_ns) AS BIGINT) AS total_ns, max(labels) AS l "
            "FROM spans LEFT JOIN metrics USING (process, log, seq) WHERE spans.seq < ? "
            "GROUP BY kind ORDER BY kind",
            [3],
        )
        assert columns["kind"].tolist() == ["fetch", "step"]
        assert columns["total_ns"].tolist() == [5, 5]
        assert columns["l"].tolist() == ['{"a": 1}', None]

    def test_an_empty_run_has_every_table(self, run: Path) -> None:
        reader = open_run(run)
        for table in TABLES.values():
            assert not reader.has(table.name)
            assert reader.row_count(table.name) == 0
            columns = reader.sql(select("*", table.name))
            assert tuple(columns) == table.column_names
            assert tuple(reader.table(table.name)) == table.column_names

    def test_a_table_without_files_is_as_one_without_rows(
        self, run: Path, writer: RunWriter
    ) -> None:
        absent = open_run(run).table("spans", encoded=["kind"])
        writer.append("spans", spans([1]))
        empty = open_run(run).table("spans", encoded=["kind"], condition="false")
        assert [*absent] == [*empty]
        for name, values in empty.items():
            assert type(absent[name]) is type(values)
            assert len(absent[name]) == len(values) == 0
            if not isinstance(values, DictColumn):
                assert absent[name].dtype == values.dtype

    def test_a_wrong_query_raises(self, run: Path, writer: RunWriter) -> None:
        writer.append("spans", spans([0]))
        reader = open_run(run)
        with pytest.raises(duckdb.Error, match="colour"):
            reader.sql("SELECT colour FROM spans")
        assert reader.damage == []
        assert reader.row_count("spans") == 1

    def test_times_of_nodes(self, run: Path, writer: RunWriter) -> None:
        reader = open_run(run)
        assert reader.times("spans") == {}
        writer.append("spans", spans([3, 1]))
        assert reader.times("spans") == {"n0": {"start_ns": (1, 3), "end_ns": (6, 6)}}
        writer.append("spans", spans([9]))  # without an end
        with RunWriter(run, "n1") as writer_n1:
            writer_n1.append("spans", spans([4], node="n1"))
        assert reader.times("spans") == {
            "n0": {"start_ns": (1, 9), "end_ns": (6, 6)},
            "n1": {"start_ns": (4, 4), "end_ns": (9, 9)},
        }
        assert reader.times("tracks") == {}

    def test_only_segments_within_the_times_are_opened(self, run: Path, writer: RunWriter) -> None:
        for time in (10, 20, 30):
            writer.append("metrics", samples([time, time + 1], ["a", "a"]))
        reader = open_run(run)
        query = "SELECT t_ns FROM metrics WHERE t_ns >= ? AND t_ns < ? ORDER BY 1"
        for start, end in ((0, 99), (11, 30), (11, 31), (21, 22), (22, 30), (31, 32)):
            times = reader.sql(query, (start, end), within=(start, end))["t_ns"].tolist()
            assert times == [t for t in (10, 11, 20, 21, 30, 31) if start <= t < end]
        first = run / Segment("metrics", "n0", 0, 0).key
        first.write_bytes(b"PAR1" + bytes(first.stat().st_size - 8) + b"PAR1")
        times = reader.sql(query, (20, 99), within=(20, 99))["t_ns"].tolist()
        assert times == [20, 21, 30, 31]
        assert reader.damage == []
        assert len(reader.sql(query, (0, 99))["t_ns"]) == 4
        assert len(reader.damage) == 1

    def test_only_segments_of_the_traces_are_opened(self, run: Path, writer: RunWriter) -> None:
        for trace in (10, 20, 30):
            row = {"trace": [trace], "count": [1], "of_count": [1], "worst_ns": [1]}
            words = {name: DictColumn.constant("x", 1) for name in ("kind", "detail")}
            writer.append(
                "quality", {name: np.array(values) for name, values in row.items()} | words
            )
        reader = open_run(run)
        assert len(reader.table("quality", traces=[20])["trace"]) == 1
        damaged = run / Segment("quality", "n0", 1, 1).key
        damaged.write_bytes(b"PAR1" + bytes(damaged.stat().st_size - 8) + b"PAR1")
        for traces in ([10], [30, 10], [30], [5], [15, 10]):
            condition = f"trace IN ({', '.join(map(str, traces))})"
            columns = reader.table("quality", ["trace"], condition=condition, traces=traces)
            assert set(columns["trace"].tolist()) == {10, 30} & set(traces)
        assert reader.damage == []

    def test_python_variables_are_invisible(self, run: Path) -> None:
        secret = {"x": np.arange(3)}
        with pytest.raises(duckdb.Error, match="secret"):
            open_run(run).sql("SELECT * FROM secret")
        assert len(secret) == 1


class TestGrowing:
    def test_every_call_sees_the_current_rows(self, run: Path, writer: RunWriter) -> None:
        reader = open_run(run)
        for number in range(20):
            writer.append("spans", spans([number]))
            writer.compact("spans")
            assert reader.has("spans")
            assert reader.row_count("spans") == number + 1
            assert reader.sql("SELECT max(seq) AS m FROM spans")["m"].tolist() == [number]

    def test_segments_merged_away_after_the_listing(self, run: Path, writer: RunWriter) -> None:
        for number in range(16):
            writer.append("spans", spans([number]))

        class Racing(LocalStore):
            raced = False

            def list(self, prefix: str) -> Any:
                keys = super().list(prefix)
                if not self.raced:
                    self.raced = True
                    assert writer.compact("spans") == 1
                return keys

        reader = RunReader(Racing(run), INFO)
        assert reader.table("spans", ["seq"])["seq"].tolist() == list(range(16))
        assert reader.damage == []

    def test_a_listing_that_misses_a_merge_is_repeated(self, run: Path, writer: RunWriter) -> None:
        for number in range(17):
            writer.append("spans", spans([number]))

        class Torn(LocalStore):
            torn = False

            def list(self, prefix: str) -> Any:
                keys = super().list(prefix)
                if not self.torn:
                    self.torn = True
                    return keys[16:]
                return keys

        reader = RunReader(Torn(run), INFO)
        assert reader.row_count("spans") == 17
        assert reader.damage == []


class TestDamage:
    @pytest.fixture
    def three(self, run: Path, writer: RunWriter) -> Path:
        for number in range(3):
            writer.append("spans", spans([number]))
        return run

    def test_a_torn_segment_is_skipped_and_reported(self, three: Path) -> None:
        for bad in range(3):
            path = three / segment_key(bad)
            content = path.read_bytes()
            for size in (0, 200, -1):
                path.write_bytes(content[:size])
                reader = open_run(three)
                assert reader.table("spans", ["seq"])["seq"].tolist() == [
                    n for n in range(3) if n != bad
                ]
                assert reader.row_count("spans") == 2
                assert reader.sql("SELECT count(*) AS n FROM spans")["n"].tolist() == [2]
                (sentence,) = reader.damage
                assert sentence.startswith(f"{segment_key(bad)} cannot be read: ")
            path.write_bytes(content)

    def test_other_damage(self, three: Path) -> None:
        """A valid footer over torn pages, a foreign file, and no file that can be read."""
        path = three / segment_key(1)
        data = path.read_bytes()
        path.write_bytes(data[:4] + bytes(1000) + data[1004:])
        for _ in range(2):
            reader = open_run(three)
            assert reader.table("spans")["seq"].tolist() == [0, 2]
            assert len(reader.damage) == 1
            duckdb.sql("SELECT 1 AS x").write_parquet(str(path))
        for number in range(3):
            (three / segment_key(number)).write_bytes(b"PAR1")
        reader = open_run(three)
        assert reader.row_count("spans") == 0
        assert len(reader.damage) == 3
        assert not reader.has("spans")

    def test_other_files_are_ignored(self, three: Path) -> None:
        folder = (three / segment_key(0)).parent
        (folder / "notes.txt").write_text("hello")
        (folder / ".00000009-00000009.parquet.1-a.tmp").write_text("half")
        reader = open_run(three)
        assert reader.row_count("spans") == 3
        assert reader.damage == []

    def test_a_segment_that_vanished(self, three: Path) -> None:
        (three / segment_key(1)).unlink()
        reader = open_run(three)
        assert reader.row_count("spans") == 2
        (sentence,) = reader.damage
        assert segment_key(1) in sentence
        assert "missing" in sentence

    def test_random_damage_never_makes_a_run_unreadable(self, three: Path) -> None:
        path = three / segment_key(1)
        intact = path.read_bytes()
        random = np.random.default_rng(1)
        for _ in range(12):
            data = bytearray(intact)
            start = int(random.integers(len(data)))
            noise = random.bytes(int(random.integers(1, 60)))
            data[start : start + len(noise)] = noise
            path.write_bytes(data)
            seqs = open_run(three).table("spans")["seq"].tolist()
            assert seqs[0] == 0
            assert seqs[-1] == 2

    def test_manifests(self, run: Path, writer: RunWriter) -> None:
        status = JobStatus(state=JobState.IN_PROGRESS, heartbeat_ns=1, started_ns=1)
        writer.put_status(status)
        (run / "processes").mkdir()
        (run / "processes" / "p.json").write_text('{"process": "p"')
        (run / "nodes" / "n1").mkdir()
        (run / "nodes" / "n1" / "status.json").write_bytes(b"\xff")
        reader = open_run(run)
        assert reader.processes() == []
        assert reader.statuses() == {"n0": status}
        assert sorted(sentence.split()[0] for sentence in reader.damage) == [
            "nodes/n1/status.json",
            "processes/p.json",
        ]
        with RunWriter(run, "n1") as writer_n1:
            writer_n1.put_status(status)
        assert len(reader.statuses()) == 2
        assert len(reader.damage) == 1


class TestProcessesAndThreads:
    def test_threads_share_a_reader(self, run: Path, writer: RunWriter) -> None:
        writer.append("spans", spans(range(100)))
        reader = open_run(run)
        with ThreadPoolExecutor(8) as pool:
            sizes = list(
                pool.map(
                    lambda n: reader.table("spans", ["seq"], condition=f"seq < {n}")["seq"].size,
                    range(50),
                )
            )
        assert sizes == list(range(50))

    @pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
    def test_a_reader_survives_a_fork(self, run: Path, writer: RunWriter) -> None:
        writer.append("spans", spans([0, 1]))
        reader = open_run(run)
        assert reader.row_count("spans") == 2
        context = multiprocessing.get_context("fork")
        answers = context.Queue()
        child = context.Process(target=lambda: answers.put(reader.row_count("spans")))
        child.start()
        assert answers.get(timeout=20) == 2
        child.join()

    def test_a_location_can_be_opened_elsewhere(self, run: Path, writer: RunWriter) -> None:
        writer.append("spans", spans([0, 1]))
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            assert pool.submit(_count, run).result() == 2
        shutil.move(run, run.with_name("moved"))
        assert open_run(run.with_name("moved")).row_count("spans") == 2


def _count(run: Path) -> int:
    return open_run(run).row_count("spans")


class TestUpgrades:
    def test_every_older_version_has_an_upgrade(self) -> None:
        assert set(engine.UPGRADES) == set(range(1, SCHEMA_VERSION))
        assert engine.upgrades_from(SCHEMA_VERSION) == ()

    def test_an_older_run_reads_as_a_newer_one(
        self, run: Path, writer: RunWriter, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        writer.append("spans", spans([1, 2]))
        upgrade = engine.Upgrade(
            run_info=lambda info: {**info, "run_id": info["run_id"] + " upgraded"},
            rows=lambda table, query: (
                select("* REPLACE (depth + 1 AS depth)", f"({query})")
                if table == "spans"
                else query
            ),
        )
        monkeypatch.setitem(engine.UPGRADES, SCHEMA_VERSION, upgrade)
        monkeypatch.setattr("stepscope.schema.SCHEMA_VERSION", SCHEMA_VERSION + 1)
        older = open_run(run)
        assert older.info.run_id == "r1 upgraded"
        assert older.table("spans", ["depth"])["depth"].tolist() == [1, 1]


def test_pipes_links_and_loops_in_a_run_are_not_read(run: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.json"
    outside.write_bytes(
        msgspec.json.encode(JobStatus(state=JobState.COMPLETED, heartbeat_ns=0, started_ns=0))
    )
    for node in ("a", "b", "c"):
        (run / "nodes" / node).mkdir(parents=True)
    os.mkfifo(run / "nodes" / "b" / "status.json")
    assert "b" not in open_run(run).statuses()
    for link, target in (("a/status.json", outside), ("c/again", run / "nodes")):
        (run / "nodes" / link).symlink_to(target)
        with pytest.raises(UsageError, match="symbolic link"):
            open_run(run).statuses()
        (run / "nodes" / link).unlink()
