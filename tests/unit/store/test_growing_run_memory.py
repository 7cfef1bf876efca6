"""Memory of a reader that follows a growing run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stepscope.store import RunWriter, open_run

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


def test_files_that_were_merged_leave_no_memory(run: Path, writer: RunWriter, spans: Any) -> None:
    """DuckDB caches the footer of each file that it has read: 4 to 5 MB for these."""
    writer.append("spans", spans(range(50)))
    command = [sys.executable, "-c", FOLLOW, str(run)]
    growth = int(subprocess.run(command, check=True, capture_output=True).stdout)
    assert growth < 2_500_000


def test_footers_of_many_files_are_not_cached(
    run: Path, writer: RunWriter, spans: Any, monkeypatch: pytest.MonkeyPatch
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
