"""The writer of a node's part of a run keeps it within its size."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from stepscope.monitor import node_info
from stepscope.monitor.node_writer import NodeWriter
from stepscope.schema import SCHEMA_VERSION
from stepscope.spool import DropCounts, Kind, SpanLog, SpoolTree, make_meta, process_start_ticks
from stepscope.store import create_run, open_run
from tests.support.staged_runs import INFO

LIMIT_BYTES = 1 << 26
RECORDS_PER_FLUSH = 500
FLUSH_COUNT = 17
"""One more than are merged into one file, which is rounded."""


@pytest.fixture
def location(tmp_path: Path) -> Path:
    create_run(tmp_path / "run", msgspec.structs.replace(INFO, schema_version=SCHEMA_VERSION))
    return tmp_path / "run"


def record(location: Path, spool: Path, max_bytes: int | None) -> NodeWriter:
    """Record irregular steps in several flushes."""
    tree = SpoolTree(str(spool), LIMIT_BYTES)
    directory = spool / f"p-{os.getpid()}-{process_start_ticks(os.getpid())}-0"
    directory.mkdir(parents=True)
    log = SpanLog(tree, str(directory), 7, "c", DropCounts.create(str(directory)))
    info = node_info(sample_interval_ns=0, spool=str(spool))
    writer = NodeWriter(str(location), info, tree, max_bytes=max_bytes)
    t = 1_000_000_000
    for flush in range(FLUSH_COUNT):
        for number in range(RECORDS_PER_FLUSH):
            duration = 3_000_000 + 104_729 * ((flush + number) ** 3 % 17)
            log.write(make_meta(1, Kind.BACKWARD), t, t + duration, 0)
            t += duration + 1_000_000
        writer.flush()
        writer.close()  # waits for the merge
    return writer


@pytest.mark.parametrize(("max_bytes", "is_above"), [(None, False), (1 << 30, False), (1, True)])
def test_old_records_are_rounded_at_the_limit(
    location: Path, tmp_path: Path, max_bytes: int | None, is_above: bool
) -> None:
    writer = record(location, tmp_path / "spool", max_bytes)
    assert bool(writer.notes) == is_above
    assert bool(list(location.rglob("*.coarse-2.parquet"))) == is_above
    sums = open_run(location).sql("SELECT CAST(sum(end_ns - start_ns) AS BIGINT) AS s FROM spans")
    assert sums["s"].tolist() == [
        sum(
            3_000_000 + 104_729 * ((flush + number) ** 3 % 17)
            for flush in range(FLUSH_COUNT)
            for number in range(RECORDS_PER_FLUSH)
        )
    ]
