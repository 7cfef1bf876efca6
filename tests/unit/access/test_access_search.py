"""Search of events by name and by the part that is in a range, against filtering all rows."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stepscope
from stepscope.access import OpenRun
from stepscope.cli import root
from stepscope.errors import UsageError
from stepscope.testing.runs import EPOCH_NS
from tests.support.access_run import MS
from tests.support.kineto_files import trace, training

START, END = EPOCH_NS + 55 * MS, EPOCH_NS + 75 * MS
"""From inside a wait to inside a backward pass of rank 0."""
TESTS: dict[str, Callable[[int, int], bool]] = {
    "any": lambda start, end: start < END and (end > START or start >= START),
    "start": lambda start, end: START <= start < END,
    "end": lambda start, end: START <= end < END,
}


def key(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["process"], row["kind"], row["start_ns"], row["end_ns"]


@pytest.mark.seed("DBU-03")
@pytest.mark.parametrize("inside", ["any", "start", "end"])
def test_spans_by_the_part_in_a_range(run: OpenRun, inside: Any) -> None:
    rows = run.framework(start=START, end=END, inside=inside).rows()
    test = TESTS[inside]
    expected = [r for r in run.framework().rows() if test(r["start_ns"], r["end_ns"])]
    assert [key(row) for row in rows] == [key(row) for row in expected]
    assert rows


@pytest.mark.seed("DBU-03")
def test_the_three_kinds_of_search_differ(run: OpenRun) -> None:
    found_by = {
        part: {key(r) for r in run.framework(start=START, end=END, inside=part).rows()}
        for part in ("any", "start", "end")
    }
    assert found_by["start"] < found_by["any"]
    assert found_by["end"] < found_by["any"]
    assert found_by["start"] != found_by["end"]


@pytest.mark.seed("DBU-03")
def test_spans_by_name(tmp_path: Path) -> None:
    builder = stepscope_run(tmp_path)
    names = {row["name"] for row in builder.framework(kind="forward").rows()}
    assert names == {"Encoder", "Decoder"}
    rows = builder.framework(name=re.compile("(?i)enc.*")).rows()
    assert {(row["kind"], row["name"]) for row in rows} == {("forward", "Encoder")}
    assert len(rows) == len(builder.framework(name="Encoder")) == 20
    assert len(builder.framework(name=["Encoder", "Decoder"])) == 40
    with pytest.raises(
        UsageError, match=r"no span named 'Coder'; there are .*'Decoder', 'Encoder'"
    ):
        builder.framework(name="Coder")
    with pytest.raises(UsageError, match="no part of an event 'middle'; there are 'any', 'start'"):
        builder.framework(inside="middle")  # type: ignore[arg-type]


def stepscope_run(tmp_path: Path) -> OpenRun:
    from stepscope.testing import RunBuilder

    builder = RunBuilder(tmp_path / "run")
    step = "forward:Encoder 10 | forward:Decoder 10 | backward 20 | optimizer 5"
    builder.rank().draw(step, 20)
    return stepscope.open(builder.write())


@pytest.mark.seed("DBU-03")
def test_events_of_traces(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_bytes(trace(*training()))
    root.main(["import", str(tmp_path / "trace.json"), "-o", str(tmp_path / "run")],
              standalone_mode=False)  # fmt: skip
    run = stepscope.open(tmp_path / "run")
    rows = run.trace_events().rows()
    assert {"operators", "kernels"} <= {row["table"] for row in rows}
    assert [row["start_ns"] for row in rows] == sorted(row["start_ns"] for row in rows)
    assert all(row["end_ns"] - row["start_ns"] == row["duration_ns"] for row in rows)
    middle = rows[len(rows) // 2]["start_ns"]
    for inside, test in {
        "any": lambda r: r["end_ns"] > middle or r["start_ns"] >= middle,
        "start": lambda r: r["start_ns"] >= middle,
        "end": lambda r: r["end_ns"] >= middle,
    }.items():
        selected = run.trace_events(start=middle, inside=inside).rows()  # type: ignore[arg-type]
        assert selected == [row for row in rows if test(row)]
    kernels = run.trace_events(table="kernels").rows()
    assert kernels == [row for row in rows if row["table"] == "kernels"]
    name = kernels[0]["name"]
    by_pattern = run.trace_events(name=re.compile(re.escape(name[:4]) + ".*")).rows()
    assert by_pattern == [row for row in rows if row["name"].startswith(name[:4])]
    with pytest.raises(UsageError, match="no event named 'nothing'; there are"):
        run.trace_events(name="nothing")
    with pytest.raises(UsageError, match="no table of events 'spans'"):
        run.trace_events(table="spans")
