"""Queries that need more memory than they may take."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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
