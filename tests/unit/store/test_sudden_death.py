"""kill -9 while a writer appends and merges: acknowledged rows are there, once and complete."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

from stepscope.store import open_run

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
