"""Readers return exactly the appended rows in order, however segments merge."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import numpy as np
from hypothesis import given, settings, strategies as st

from stepscope.schema import SCHEMA_VERSION, RunInfo
from stepscope.store import DictColumn, RunWriter, create_run, layout, open_run
from stepscope.store.layout import Segment

INT64 = st.integers(-(2**63), 2**63 - 1)
ROW = st.tuples(
    st.text(max_size=8),  # name
    st.none() | st.text(max_size=8),  # labels
    st.none() | INT64,  # end_ns
    INT64,  # value
    st.integers(-(2**15), 2**15 - 1),  # flags
)
Row = tuple[str, str | None, int | None, int, int]


@contextmanager
def new_run() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        create_run(
            run,
            RunInfo(
                schema_version=SCHEMA_VERSION,
                run_id="r",
                created_ns=0,
                command=[],
                working_directory="/",
                stepscope_version="0",
            ),
        )
        yield run


def append(writer: RunWriter, rows: list[Row], *, first: int = 0) -> None:
    count = len(rows)
    names, labels, ends, values, flags = zip(*rows, strict=True) if rows else ((),) * 5
    masked = [end is None for end in ends]
    writer.append(
        "spans",
        {
            **{
                name: DictColumn.constant("x", count) for name in ("node", "process", "log", "kind")
            },
            "seq": np.arange(first, first + count),
            "name": DictColumn.encode(names),
            "labels": DictColumn.encode(labels),
            "start_ns": np.zeros(count, np.int64),
            "end_ns": np.ma.MaskedArray(np.array([e or 0 for e in ends], np.int64), mask=masked),
            "depth": np.zeros(count, np.int64),
            "flags": np.array(flags, np.int64),
            "value": np.array(values, np.int64),
        },
    )


@given(rows=st.lists(ROW, max_size=40))
@settings(max_examples=25)
def test_rows_round_trip(rows: list[Row]) -> None:
    columns = ["name", "labels", "end_ns", "value", "flags"]
    with new_run() as run, RunWriter(run, "n") as writer:
        append(writer, rows)
        plain = open_run(run).table("spans", columns)
        coded = open_run(run).table("spans", columns, encoded=("name", "labels"))
    assert list(zip(*(plain[name].tolist() for name in columns), strict=True)) == rows
    for name in ("name", "labels"):
        assert coded[name].decode().tolist() == plain[name].tolist()
        assert list(coded[name].values) == sorted({s for s in plain[name] if s is not None})


ACTIONS = st.lists(
    st.integers(0, 5) | st.sampled_from(["compact", "reopen", "crash while merging"]), max_size=25
)


@given(actions=ACTIONS, fan_in=st.integers(2, 3))
@settings(max_examples=15)
def test_any_order_of_appends_and_merges(actions: list[int | str], fan_in: int) -> None:
    expected: list[int] = []
    with mock.patch.object(layout, "FAN_IN", fan_in), new_run() as run:
        writer = RunWriter(run, "n")
        for action in actions:
            if isinstance(action, int):
                rows = range(len(expected), len(expected) + action)
                append(writer, [("x", None, None, value, 0) for value in rows], first=rows.start)
                expected += rows
            elif action == "compact":
                writer.compact("spans")
            elif action == "reopen":
                writer = RunWriter(run, "n")
            else:
                merge_without_deleting(writer)
        values = open_run(run).table("spans", ["value"])["value"].tolist()
    assert values == expected


def merge_without_deleting(writer: RunWriter) -> None:
    with mock.patch.object(writer._store, "delete", side_effect=KeyboardInterrupt):
        try:
            writer.compact("spans")
        except KeyboardInterrupt:
            pass


@given(
    count=st.integers(0, 300), lost=st.sets(st.integers(0, 299), max_size=5), fan=st.integers(2, 4)
)
def test_merging_never_covers_unmerged_segments(count: int, lost: set[int], fan: int) -> None:
    segments = {Segment("t", "n", i, i) for i in range(count) if i not in lost}
    present = {segment.first for segment in segments}
    with mock.patch.object(layout, "FAN_IN", fan):
        while merges := layout.plan_merges(segments):
            for merge in merges:
                segments.difference_update(merge.sources)
                segments.add(merge.target)
    read = [n for s in layout.select_visible(segments) for n in range(s.first, s.last + 1)]
    assert read == sorted(present)
