"""Frames: the rows that were asked for, exact, in whatever library the caller has."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

import stepscope
from stepscope.access import Frame, OpenRun
from stepscope.access.recorded import moment_ns
from stepscope.cli import root
from stepscope.errors import NotARunError, UsageError
from stepscope.run.frames import frame_of
from stepscope.schema import TABLES
from stepscope.store import open_run
from stepscope.testing.runs import EPOCH_NS
from tests.support.access_run import MS, STEPS
from tests.support.kineto_files import trace, training

S = 10**9


# --- opening ---------------------------------------------------------------------------------


@pytest.mark.seed("DBU-02")
def test_open_loads_nothing_before_it_is_called(path: Path) -> None:
    code = f"""
import sys, stepscope
assert not {{"numpy", "duckdb", "stepscope.access"}} & set(sys.modules)
print(stepscope.open({str(path)!r}))
assert not {{"pandas", "polars", "pyarrow", "torch"}} & set(sys.modules)
from stepscope import *
print(open)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["OpenRun('drawn')", "<built-in function open>"]


def test_what_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(NotARunError, match="nowhere"):
        stepscope.open(tmp_path / "nowhere")


def test_an_attribute_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'opne'"):
        _ = stepscope.opne


def test_what_is_in_a_run(run: OpenRun) -> None:
    assert (run.nodes, run.ranks, run.info.run_id) == (["n0"], [0, 1], "drawn")
    assert run.phases == ["backward", "data_wait", "forward", "optimizer"]
    assert (run.start_ns, run.damage) == (EPOCH_NS, [])
    assert run.verdict().suspect == "data_pipeline"


def test_an_imported_recording_is_a_run_too(tmp_path: Path) -> None:
    """A job without records has no node, rank or span, and nothing is made up."""
    (tmp_path / "trace.json").write_bytes(trace(*training()))
    root.main(["import", str(tmp_path / "trace.json"), "-o", str(tmp_path / "run")],
              standalone_mode=False)  # fmt: skip
    run = stepscope.open(tmp_path / "run")
    assert (run.nodes, run.ranks, run.phases) == ([], [], [])
    (recording,) = run.table("traces").rows()
    assert (run.start_ns, run.end_ns) == (recording["start_ns"], recording["end_ns"])
    empty = (run.system(), run.framework(), run.phase_statistics(), run.python_profile(),
             run.usage())  # fmt: skip
    assert [len(frame) for frame in empty] == [0] * 5
    assert (run.step_histogram().series, run.metrics_histogram().series) == ([], [])
    assert run.job_statistics().training_ns is None
    written = run.export_timeline(tmp_path / "timeline.json")
    assert (written.recordings, written.span_count) == (["trace.json"], 0)
    with pytest.raises(UsageError, match="Pass steps, or start and end, not both"):
        run.export_timeline(tmp_path / "timeline.json", steps=(0, 1), start=timedelta(0))


# --- system ----------------------------------------------------------------------------------


@pytest.mark.seed("DBU-02", "DBU-09")
def test_system_by_metric_device_and_time(run: OpenRun) -> None:
    frame = run.system(
        metric="gpu_busy_ratio", device="0", start=timedelta(seconds=1), end=EPOCH_NS + 3 * S
    )
    assert frame.column_names == ["t_ns", "node", "metric", "device", "value"]
    assert [(row["t_ns"], row["value"]) for row in frame.rows()] == [
        (EPOCH_NS + 1 * S, 0.2),
        (EPOCH_NS + 1 * S + 500 * MS, 0.2),
        (EPOCH_NS + 2 * S, 1.0),
        (EPOCH_NS + 2 * S + 500 * MS, 1.0),
    ]


@pytest.mark.parametrize(
    ("filters", "metrics"),
    [
        ({}, {"gpu_busy_ratio", "cpu_busy_ratio", "memory_used_bytes"}),
        ({"metric": ["cpu_busy_ratio", "gpu_power_watt"]}, {"cpu_busy_ratio"}),
        ({"metric": re.compile(".*_busy_ratio")}, {"gpu_busy_ratio", "cpu_busy_ratio"}),
        ({"device": ""}, {"cpu_busy_ratio", "memory_used_bytes"}),
        ({"device": ["1"], "node": "n0"}, {"gpu_busy_ratio"}),
        ({"device": "7"}, set()),
        ({"end": EPOCH_NS}, set()),
    ],
)  # fmt: skip
def test_which_metrics(run: OpenRun, filters: dict[str, object], metrics: set[str]) -> None:
    assert {row["metric"] for row in run.system(**filters).rows()} == metrics  # type: ignore[arg-type]


def test_system_is_the_whole_table(run: OpenRun, path: Path) -> None:
    assert len(run.system()) == open_run(path).row_count("metrics")


# --- framework -------------------------------------------------------------------------------


@pytest.mark.seed("DBU-09")
def test_framework_by_step(run: OpenRun) -> None:
    frame = run.framework(kind="forward", steps=(3, 5), rank=0)
    assert [(r["step"], r["start_ns"] - EPOCH_NS, r["duration_ns"]) for r in frame.rows()] == [
        (3, 350 * MS, 12 * MS),
        (4, 450 * MS, 12 * MS),
    ]


def test_framework_by_phase_and_time(run: OpenRun) -> None:
    """The range includes spans that overlap it, also those that started before."""
    start = EPOCH_NS + 60 * MS  # in the middle of the first forward pass of rank 0
    frame = run.framework(phase=["forward", "backward"], start=start, end=start + 5 * MS)
    assert [(r["rank"], r["phase"]) for r in frame.rows()] == [(0, "forward"), (1, "forward")]
    assert not len(run.framework(phase="forward", start=EPOCH_NS, end=EPOCH_NS + 50 * MS))


def test_workers_belong_to_their_rank(run: OpenRun) -> None:
    rows = run.framework(kind="fetch", rank=1).rows()
    assert len(rows) == STEPS
    assert {(r["rank"], r["role"], r["phase"]) for r in rows} == {(1, "dataloader_worker", None)}
    # It is in the step that its rank was in: those of rank 1 last 110 ms, and it fetches for 80.
    steps = [row["step"] for row in rows[:8]]
    assert steps == [0, 0, 1, 2, 2, 3, 4, 5]


def test_every_span_is_there_once(run: OpenRun, path: Path) -> None:
    assert len(run.framework()) == open_run(path).row_count("spans")
    by_rank = [len(run.framework(rank=rank)) for rank in run.ranks]
    assert sum(by_rank) == len(run.framework())


def test_tables_and_queries(run: OpenRun) -> None:
    assert len(run.table("stacks")) > 1000
    query = "SELECT kind, count(*) AS n FROM spans WHERE depth = ? GROUP BY kind ORDER BY kind"
    assert run.sql(query, [1]).rows() == [
        {"kind": "collate", "n": 2 * STEPS},
        {"kind": "samples", "n": 2 * STEPS},
    ]


LONG_QUERY = "SELECT kind FROM spans WHERE" + 40 * " depth = 1 AND" + " nme = 2"


@pytest.mark.parametrize(
    ("query", "reason", "position"),
    [
        ("SELECT * FROM foo", "Table with name foo does not exist", "(line 1, column 15)"),
        ("SELECT kind,\n  nme\nFROM spans", 'column "nme" not found', "(line 2, column 3)"),
        (LONG_QUERY, 'column "nme" not found', f"(line 1, column {LONG_QUERY.index('nme') + 1})"),
        ("SELEC 1", 'syntax error at or near "SELEC"', "(line 1, column 1)"),
        ("SELECT ?", "Values were not provided", ""),
    ],
)
def test_a_wrong_query_names_its_position_and_the_tables(
    run: OpenRun, query: str, reason: str, position: str
) -> None:
    with pytest.raises(UsageError) as caught:
        run.sql(query).rows()
    text = str(caught.value)
    assert text.startswith("The query cannot be run: ")
    assert reason in text
    assert text.endswith(f"{position}. Tables: {', '.join(TABLES)}.")
    assert "\n" not in text


def test_an_empty_query(run: OpenRun) -> None:
    with pytest.raises(UsageError, match="The query is empty"):
        run.sql(" ").rows()


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda run: run.system(metric="gpu"), "no metric 'gpu'; there are 'cpu_busy_ratio'"),
        (lambda run: run.system(node="n7"), "no node 'n7'; there are 'n0'"),
        (lambda run: run.framework(kind="forwards"), "no kind of span 'forwards'"),
        (lambda run: run.framework(phase="loss"), "no phase 'loss'; there are 'backward'"),
        (lambda run: run.framework(rank=9), "no rank 9; the run has ranks 0, 1"),
        (lambda run: run.table("span"), "no table 'span'"),
        (lambda run: run.step_histogram(phase="wait"), "no phase 'wait'"),
        (lambda run: run.heatmap("n1"), "no node 'n1'"),
        (lambda run: run.span_statistics(by="colour"), "no column to group by 'colour'"),
        (lambda run: run.system(start=datetime(2023, 1, 1)).rows(), "names no time zone"),  # noqa: DTZ001
    ],
)  # fmt: skip
def test_a_wrong_name_is_one_sentence(run: OpenRun, ask: object, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        ask(run)  # type: ignore[operator]


# --- times -----------------------------------------------------------------------------------


@pytest.mark.seed("DBU-02")
@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        (None, None),
        (5, 5),
        (timedelta(microseconds=3), 1003000),
        (timedelta(microseconds=-1), 999000),
        (datetime(2023, 11, 14, 22, 13, 20, 123457, tzinfo=UTC), EPOCH_NS + 123457000),
    ],
)
def test_moments_are_exact(moment: object, expected: int | None) -> None:
    assert moment_ns(moment, 1_000_000) == expected  # type: ignore[arg-type]


# --- libraries -------------------------------------------------------------------------------

MIXED = {"name": str, "count": int, "share_ratio": float}
ROWS = [
    {"name": "a", "count": 1, "share_ratio": 0.5},
    {"name": None, "count": None, "share_ratio": 1.0},
    {"name": "a", "count": 3, "share_ratio": None},
]


def mixed() -> Frame:
    return frame_of(ROWS, MIXED)


def test_numpy_and_rows() -> None:
    assert mixed().rows() == ROWS
    arrays = mixed().numpy()
    assert arrays["name"].tolist() == ["a", None, "a"]
    assert arrays["count"].dtype == np.int64
    assert np.ma.getmaskarray(arrays["count"]).tolist() == [False, True, False]
    assert "3 rows: name, count, share_ratio" in repr(mixed())
    assert len(frame_of([], MIXED)) == 0


def test_arrow() -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    assert mixed().arrow().to_pylist() == ROWS


def test_polars() -> None:
    pytest.importorskip("polars", reason="polars is not installed")
    assert mixed().polars().to_dicts() == ROWS
    assert frame_of([], MIXED).polars().shape == (0, 3)


@pytest.mark.seed("DBU-09")
def test_pandas() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = mixed().pandas()
    assert [None if pandas.isna(v) else v for v in frame["name"]] == ["a", None, "a"]
    assert [None if pandas.isna(v) else v for v in frame["count"]] == [1, None, 3]
    assert str(frame["count"].dtype) == "Int64"
    assert frame_of([], MIXED).pandas().shape == (0, 3)


@pytest.mark.parametrize("library", ["pyarrow", "polars", "pandas"])
def test_a_library_that_is_absent(monkeypatch: pytest.MonkeyPatch, library: str) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    method = "arrow" if library == "pyarrow" else library
    with pytest.raises(UsageError, match=rf"{library} is not installed: pip install 'stepscope\["):
        getattr(mixed(), method)()


def test_a_frame_is_read_once() -> None:
    calls = []
    frame = Frame(lambda: calls.append(1) or {"x": np.arange(3)})
    assert not calls
    assert (len(frame), len(frame.rows())) == (3, 3)
    assert calls == [1]
