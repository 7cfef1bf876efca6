"""Memory of a reader that follows a growing run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from stepscope.store import RunWriter

FUNCTIONS = """
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

def read(start, end):
    for number in range(start, end):
        shutil.copy(first, first.with_name(f"{number:08}-{number:08}.parquet"))
    reader.sql("SELECT sum(seq) FROM spans")

"""


def measure_growth(run: Path, before: str, after: str) -> int:
    """Measure the bytes that a call leaves in memory, after another one."""
    code = f"{FUNCTIONS}{before}\nstart = anonymous_bytes()\n{after}\n"
    command = [sys.executable, "-c", f"{code}print(anonymous_bytes() - start)", str(run)]
    return int(subprocess.run(command, check=True, capture_output=True).stdout)


def test_files_that_were_merged_leave_no_memory(run: Path, writer: RunWriter, spans: Any) -> None:
    """DuckDB caches the footer of each file that it has read: 4 to 5 MB for these."""
    writer.append("spans", spans(range(50)))
    assert measure_growth(run, "follow(1, 100)", "follow(100, 350)") < 2_500_000


def test_thousands_of_files_leave_little_memory(run: Path, writer: RunWriter, spans: Any) -> None:
    """With the footers of a thousand files they leave 28 MB, without 13."""
    writer.append("spans", spans(range(50)))
    assert measure_growth(run, "read(1, 600)", "read(600, 1600)") < 20_000_000
