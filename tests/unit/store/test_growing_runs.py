"""Runs that grow: repeated records, killed writers, memory, and spilled queries."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stepscope.store import RunWriter, open_run
from stepscope.store.queries import TableQueries
from tests.support.store_rows import samples, spans


def test_records_that_two_writers_stored_at_once_are_read_once(run: Path) -> None:
    """Neither found the rows of the other when it looked, as without a lock on the spool."""
    first, second = RunWriter(run, "n0"), RunWriter(run, "n0")
    first.append("spans", spans(range(1500)))
    second.append("spans", spans(range(1400, 1600)))
    first.append("spans", spans(range(1600, 1700)))
    RunWriter(run, "n1").append("spans", spans(range(3), node="n1"))
    reader = open_run(run)
    rows = reader.table("spans", ["node", "seq"])
    assert rows["seq"].tolist() == [*range(1700), *range(3)]
    assert reader.row_count("spans") == 1703
    query = "SELECT seq FROM spans WHERE start_ns >= 1450 AND start_ns < 1550 ORDER BY seq"
    assert reader.sql(query, within=(1450, 1550))["seq"].tolist() == list(range(1450, 1550))


def test_only_the_table_of_a_second_writer_is_searched_for_repeats(
    run: Path, monkeypatch: Any
) -> None:
    """A run with one monitor pays nothing, and later segments of a second one are in order."""
    searched: list[str] = []
    search = TableQueries._has_repeats

    def note(self: TableQueries, table: str, segments: Any) -> bool:
        searched.append(table)
        return search(self, table, segments)

    monkeypatch.setattr(TableQueries, "_has_repeats", note)
    writer = RunWriter(run, "n0")
    for start in range(0, 60, 20):
        writer.append("spans", spans(range(start, start + 20)))
        writer.append("metrics", samples(range(start, start + 20), ["cpu"] * 20))
    reader = open_run(run)
    assert reader.row_count("spans") == 60
    assert searched == []
    RunWriter(run, "n0").append("spans", spans(range(60, 80)))
    assert reader.table("spans", ["seq"])["seq"].tolist() == list(range(80))
    assert reader.row_count("metrics") == 60
    assert searched == ["spans"]


ROUNDER = Path(__file__).parents[2] / "support" / "rounding_writer.py"
WRITER = Path(__file__).parents[2] / "support" / "appending_writer.py"
ROWS = 7
ROUNDS = 4


def kill_writer(run: Path, name: str, *, after: int, delay_s: float) -> int:
    """Let a writer acknowledge some appends, kill it, and return the acknowledged number."""
    with subprocess.Popen(
        [sys.executable, str(WRITER), str(run), name], stdout=subprocess.PIPE, text=True
    ) as process:
        acknowledged = [process.stdout.readline() for _ in range(after)]
        try:
            process.wait(delay_s)  # a random moment, in the middle of an append or a merge
        except subprocess.TimeoutExpired:
            pass
        process.kill()
        acknowledged += process.stdout.readlines()
    assert process.returncode == -9
    return sum(line.endswith("\n") for line in acknowledged)


def test_acknowledged_rows_exist_once_and_complete(run: Path) -> None:
    chance = random.Random(7)
    for number in range(ROUNDS):
        name = f"round {number}"
        acknowledged = kill_writer(
            run, name, after=chance.randint(1, 40), delay_s=chance.uniform(0, 0.02)
        )
        reader = open_run(run)
        seqs = reader.table("scalars", ["seq"], condition="process = ?", parameters=[name])["seq"]
        appends, partial = divmod(len(seqs), ROWS)
        assert partial == 0
        # The last append may have reached the disk without its acknowledgement.
        assert acknowledged <= appends <= acknowledged + 1
        assert seqs.tolist() == list(range(appends * ROWS))
        assert reader.damage == []


@pytest.mark.extended("kills a process at each of its steps")
def test_a_killed_rounding_loses_nothing(run: Path, writer: RunWriter) -> None:
    chance = random.Random(7)
    for number in range(16):
        writer.append("spans", spans(range(1000 * number, 1000 * (number + 1))))
    writer.compact("spans")
    sums = "SELECT kind, count(*) AS n, sum(end_ns - start_ns) AS total FROM spans GROUP BY ALL"
    before = open_run(run).sql(f"{sums} ORDER BY kind")
    coarse_counts = []
    for number in range(ROUNDS):
        copy = run.with_name(f"copy {number}")
        command = [sys.executable, str(ROUNDER), str(run), str(copy)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            process.stdout.readline()
            try:
                process.wait(chance.uniform(0, 0.2))  # a random moment of the rounding
            except subprocess.TimeoutExpired:
                pass
            process.kill()
        reader = open_run(copy)
        assert reader.table("spans", ["seq"])["seq"].tolist() == list(range(16_000))
        after = reader.sql(f"{sums} ORDER BY kind")
        assert {k: v.tolist() for k, v in after.items()} == {
            k: v.tolist() for k, v in before.items()
        }
        assert reader.damage == []
        with RunWriter(copy, "n0") as successor:
            successor.compact("spans")
            successor.limit_size(0)
        coarse_counts.append(len(list(copy.rglob("*.coarse-2.parquet"))))
        assert open_run(copy).row_count("spans") == 16_000
    assert coarse_counts == [1] * ROUNDS


FOLLOW = """
import shutil, sys
from pathlib import Path
from stepscope.store import open_run

run = Path(sys.argv[1])
first = run / "tables" / "spans" / "n0" / "00000000-00000000.parquet"
reader = open_run(run)

def anonymous_bytes():
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split("RssAnon:")[1].split()[0])

def follow(start, end):
    for number in range(start, end):
        new = first.with_name(f"00000000-{number:08}.parquet")
        shutil.copy(first, new)
        reader.sql("SELECT count(*) FROM spans")
        new.unlink()

follow(1, 100)
before = anonymous_bytes()
follow(100, 350)
print(anonymous_bytes() - before)
"""


def test_files_that_were_merged_leave_no_memory(run: Path, writer: RunWriter) -> None:
    """DuckDB caches the footer of each file that it has read: 4 to 5 MB for these."""
    writer.append("spans", spans(range(50)))
    command = [sys.executable, "-c", FOLLOW, str(run)]
    growth = int(subprocess.run(command, check=True, capture_output=True).stdout)
    assert growth < 2_500_000


def test_footers_of_many_files_are_not_cached(
    run: Path, writer: RunWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a thousand files take 15 MB."""
    monkeypatch.setattr("stepscope.store.queries._MAX_CACHED_FILES", 2)
    query = "SELECT current_setting('parquet_metadata_cache') AS is_cached FROM spans LIMIT 1"
    reader = open_run(run)
    connections = []
    for is_cached in (True, True, False, False):
        writer.append("spans", spans(range(50)))
        reader.refresh()
        assert reader.sql(query)["is_cached"].tolist() == [is_cached]
        connections.append(reader._queries._connection)
    # Only the end of a connection releases the footers that it has cached.
    assert connections[0] is connections[1] is not connections[2] is connections[3]


SPILL = """
import atexit, gc, pathlib, sys
from stepscope.store.engine import connect

atexit.register(gc.freeze)  # as the commands do
cycle = [connect(threads=1, memory_limit="40MB")]
cycle.append(cycle)
query = "CREATE TEMP TABLE sorted AS SELECT hash(range) AS h FROM range(8_000_000) ORDER BY h"
cycle[0].execute(query)
(directory,) = pathlib.Path(sys.argv[1]).iterdir()
print(sum(file.stat().st_size for file in directory.iterdir()))
"""


def test_the_exit_of_a_process_removes_what_it_spilled(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SPILL, str(tmp_path)]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(command, check=True, capture_output=True, env=environment)
    assert int(done.stdout) > 0
    assert list(tmp_path.iterdir()) == []


FORKED = """
import os, pathlib, sys
from stepscope.store import prepare_database
from stepscope.store.engine import connect

def count_private():
    lines = pathlib.Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_Dirty:"))

prepare_database()
path = sys.argv[1]
for number in range(2):
    if not os.fork():
        private_kb = count_private()
        file = f"'{path}/{number}.parquet'"
        connections = connect(threads=1), connect(threads=1)
        connections[0].execute(f"COPY (SELECT {number} AS n FROM range(9)) TO {file}")
        threads = len(os.listdir("/proc/self/task"))
        sums = [c.execute(f"SELECT sum(n) FROM {file}").fetchall() for c in connections]
        print(sums == [[(9 * number,)]] * 2, threads, count_private() - private_kb, flush=True)
        os._exit(0)
    os.wait()
"""


def test_forked_processes_use_one_database(tmp_path: Path) -> None:
    """The second connection of each opens a database of its own, which takes 6 MB."""
    command = [sys.executable, "-c", FORKED, str(tmp_path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    results = [line.split() for line in done.stdout.splitlines()]
    assert [(is_right, threads) for is_right, threads, _ in results] == [("True", "1")] * 2
    assert max(int(private_kb) for *_, private_kb in results) < 11_000
