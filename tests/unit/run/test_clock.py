"""Origin of a run's time axis."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from stepscope.run.clock import MAX_CLOCK_DIFFERENCE_NS, clock_of
from stepscope.schema import SCHEMA_VERSION, TABLES, RunInfo
from stepscope.store import DictColumn, RunWriter, create_run, open_run
from stepscope.store.reader import RunReader
from stepscope.testing.runs import EPOCH_NS, RunBuilder

INFO = RunInfo(
    schema_version=SCHEMA_VERSION,
    run_id="r",
    created_ns=0,
    command=[],
    working_directory="/",
    stepscope_version="0",
)


def with_recordings(path: Path, *recordings: tuple[int, int, int]) -> RunReader:
    """Make a run with rows of `traces`: start, end and base of each, numbered from 0."""
    if not (path / "run.json").exists():
        create_run(path, INFO)
    columns = {}
    for column in TABLES["traces"].columns:
        values = [0] * len(recordings)
        if column.type == "VARCHAR":
            columns[column.name] = DictColumn.encode(["{}"] * len(recordings))
            continue
        index = {"start_ns": 0, "end_ns": 1, "base_ns": 2}.get(column.name)
        if index is not None:
            values = [recording[index] for recording in recordings]
        elif column.name == "trace":
            values = list(range(len(recordings)))
        columns[column.name] = np.array(values, dtype=np.int64)
    with RunWriter(path, "imported") as writer:
        writer.append("traces", columns)
    return open_run(path)


def test_it_is_the_earliest_record_of_any_kind(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path / "run")
    run.rank(0).draw("forward 10 | optimizer 10", 50)
    path = run.metric("cpu_busy_ratio", 0.5).write()
    assert clock_of(open_run(path)).origin_ns == EPOCH_NS
    clock = clock_of(with_recordings(path, (EPOCH_NS - 7, EPOCH_NS + 10**12, 5)))
    assert clock.origin_ns == EPOCH_NS - 7
    assert clock.end_ns == EPOCH_NS + 10**12
    assert clock.shift_by_trace_ns == {}


def test_a_recording_without_a_base_is_moved_to_the_origin(tmp_path: Path) -> None:
    clock = clock_of(with_recordings(tmp_path / "run", (5_000, 9_000, 0), (10**18, 10**18 + 10, 1)))
    assert (clock.origin_ns, clock.end_ns) == (10**18, 10**18 + 4_000)
    assert clock.shift_ns(0) == 10**18 - 5_000
    assert clock.shift_ns(1) == 0


def test_one_that_is_near_the_others_stays(tmp_path: Path) -> None:
    near = 10**18 - MAX_CLOCK_DIFFERENCE_NS // 2
    clock = clock_of(
        with_recordings(tmp_path / "run", (near, near + 9, 0), (10**18, 10**18 + 10, 1))
    )
    assert (clock.origin_ns, clock.shift_by_trace_ns) == (near, {})


def test_where_no_recording_has_a_base_the_likeliest_clock_counts(tmp_path: Path) -> None:
    clock = clock_of(with_recordings(tmp_path / "run", (5_000, 9_000, 0), (10**18, 10**18 + 10, 0)))
    assert clock.origin_ns == 10**18
    assert clock.shift_by_trace_ns == {0: 10**18 - 5_000}


def test_an_empty_run_begins_nowhere(tmp_path: Path) -> None:
    create_run(tmp_path / "run", INFO)
    clock = clock_of(open_run(tmp_path / "run"))
    assert (clock.origin_ns, clock.end_ns) == (0, 0)
