"""kill -9 while a writer appends, merges and rounds: acknowledged rows are there, once and
complete."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

from stepscope.store import RunWriter, open_run

ROUNDER = Path(__file__).parents[2] / "support" / "rounding_writer.py"
WRITER = Path(__file__).parents[2] / "support" / "appending_writer.py"
ROWS = 7
ROUNDS = 4


def kill_writer(run: Path, name: str, *, after: int, delay_s: float) -> int:
    """Let a writer acknowledge some appends, kill it, and return the acknowledged number."""
    with subprocess.Popen(
        [sys.executable, str(WRITER), str(run), name], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
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


def test_a_killed_rounding_loses_nothing(run: Path, writer: RunWriter, spans: Any) -> None:
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
            assert process.stdout is not None
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
