"""Dumps of the recorder of collectives become rows, each call once."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given, settings, strategies as st

from stepscope.monitor.process_logs import CollectiveDumps, NewCalls, join_columns
from stepscope.spool import SpoolTree, write_dump

OFFSET_NS = 1_000_000


class Store:
    """Sequence numbers that are stored, and the states of their rows."""

    def __init__(self) -> None:
        self.states: dict[int, str] = {}

    def __call__(self, table: str, process: str, log: str, first: int, count: int) -> Any:
        assert (table, process, log) == ("collective_calls", "1-2-0", "fr")
        return np.array([n for n in self.states if first <= n < first + count], dtype=np.int64)

    def keep(self, chunks: list[NewCalls]) -> None:
        for chunk in chunks:
            columns = chunk.make_columns("n", OFFSET_NS)
            states = columns["state"]
            for row, number in enumerate(columns["seq"].tolist()):
                assert number not in self.states
                self.states[number] = states.values[states.codes[row]]
            chunk.commit()


def entry(number: int, *, has_ended: bool) -> dict[str, Any]:
    return {
        "record_id": number,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": number + 1,
        "profiling_name": "gloo:all_reduce",
        "time_created_ns": 5_000_000 + number,
        "input_sizes": [[4]],
        "input_dtypes": ["Float"],
        "output_sizes": [[4]],
        "output_dtypes": ["Float"],
        "state": "scheduled",
        "retired": has_ended,
        "is_p2p": False,
    }


def write(directory: Path, number: int, entries: list[dict[str, Any]], **fields: Any) -> None:
    content = pickle.dumps({"version": "2.10", "pg_config": {}, "entries": entries}, 2)
    header = {
        "recorder": "fr", "reason": "time", "t_ns": 1, "clock_ns": -4_000_000, "rank": 1,
        "groups": {"0": [0, 1]}, **fields,
    }  # fmt: skip
    tree = SpoolTree(str(directory.parent), 1 << 30)
    write_dump(tree, str(directory), number, content, **header)


def make_directory(tmp_path: Path) -> Path:
    directory = tmp_path / "p-1-2-0"
    directory.mkdir(parents=True)
    return directory


def test_overlapping_dumps_give_each_call_once(tmp_path: Path) -> None:
    directory, store, dumps = make_directory(tmp_path), Store(), CollectiveDumps("1-2-0")
    write(directory, 0, [entry(n, has_ended=n < 3) for n in range(4)])
    write(directory, 1, [entry(n, has_ended=True) for n in range(2, 6)])
    assert dumps.read(directory.iterdir()) == []
    store.keep(dumps.collect(store, has_ended=False))
    assert store.states == dict.fromkeys(range(6), "ended")
    assert list(directory.iterdir()) == []
    assert not dumps.has_new


def test_times_are_those_of_the_node(tmp_path: Path) -> None:
    directory, dumps = make_directory(tmp_path), CollectiveDumps("1-2-0")
    write(directory, 0, [entry(0, has_ended=True)])
    dumps.read(directory.iterdir())
    (chunk,) = dumps.collect(Store(), has_ended=False)
    columns = join_columns([chunk.make_columns("n", OFFSET_NS)] * 2)
    # Wall clock 5 ms is monotonic 1 ms, and the epoch time of the node is 1 ms later.
    assert columns["t_ns"].tolist() == [2_000_000, 2_000_000]
    assert columns["rank"].tolist() == [1, 1]
    assert columns["group_ranks"].values == ["0,1"]


def test_a_call_that_never_ends_is_stored_when_its_process_has_ended(tmp_path: Path) -> None:
    directory, store, dumps = make_directory(tmp_path), Store(), CollectiveDumps("1-2-0")
    write(directory, 0, [entry(0, has_ended=True), entry(1, has_ended=False)])
    dumps.read(directory.iterdir())
    store.keep(dumps.collect(store, has_ended=False))
    assert store.states == {0: "ended"}
    assert len(list(directory.iterdir())) == 1  # for a monitor that starts again
    store.keep(dumps.collect(store, has_ended=True))
    assert store.states == {0: "ended", 1: "scheduled"}
    assert list(directory.iterdir()) == []
    assert not dumps.has_new


def test_an_overwritten_call_is_stored_as_it_was_seen_last(tmp_path: Path) -> None:
    directory, store, dumps = make_directory(tmp_path), Store(), CollectiveDumps("1-2-0")
    write(directory, 0, [entry(0, has_ended=False)])
    dumps.read(directory.iterdir())
    store.keep(dumps.collect(store, has_ended=False))
    write(directory, 1, [entry(n, has_ended=True) for n in range(7, 9)])
    dumps.read(directory.iterdir())
    store.keep(dumps.collect(store, has_ended=False))
    assert store.states == {0: "scheduled", 7: "ended", 8: "ended"}  # 1 to 6 were not read


def test_damaged_dumps_are_named_once(tmp_path: Path) -> None:
    directory, dumps = make_directory(tmp_path), CollectiveDumps("1-2-0")
    (directory / "collectives-0.dump").write_bytes(json.dumps({}).encode() + b"\nx")
    write(directory, 1, [])
    path = directory / "collectives-1.dump"
    path.write_bytes(path.read_bytes()[:-20])
    notes = sorted(dumps.read(directory.iterdir()))
    assert len(notes) == 2
    assert all("the collectives in collectives-" in note for note in notes)
    assert "cannot be read: it is cut or damaged" in notes[1]
    assert dumps.read(directory.iterdir()) == []


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), max_size=8), st.data())
def test_every_call_is_stored_once_however_dumps_and_restarts_follow(
    tmp_path_factory: Any, steps: list[tuple[int, int]], data: st.DataObject
) -> None:
    """Dumps of a ring of six calls; the monitor stores, fails to store, or starts again."""
    directory = make_directory(tmp_path_factory.mktemp("dumps"))
    store, dumps, total, ended = Store(), CollectiveDumps("1-2-0"), 0, 0
    visible = set()
    for number, (new, more_ended) in enumerate(steps):
        total, ended = total + new, min(total + new, ended + more_ended)
        ring = range(max(0, total - 6), total)
        visible |= set(ring)
        write(directory, number, [entry(n, has_ended=n < ended) for n in ring])
        event = data.draw(st.sampled_from(["store", "fail", "restart", "wait"]))
        if event == "restart":
            dumps = CollectiveDumps("1-2-0")
        if event in {"store", "restart"}:
            dumps.read(directory.iterdir())
            store.keep(dumps.collect(store, has_ended=False))
        elif event == "fail":
            dumps.read(directory.iterdir())
            dumps.collect(store, has_ended=False)
    dumps.read(directory.iterdir())
    store.keep(dumps.collect(store, has_ended=True))
    assert set(store.states) == visible
    assert list(directory.iterdir()) == []


def test_calls_of_a_group_that_was_made_again_are_told_from_those_of_the_first(
    tmp_path: Path,
) -> None:
    directory, dumps = make_directory(tmp_path), CollectiveDumps("1-2-0")
    first = [entry(n, has_ended=True) for n in range(5)]
    second = [entry(n, has_ended=n < 7) | {"collective_seq_id": n - 4} for n in range(5, 8)]
    write(directory, 0, first + second)
    dumps.read(directory.iterdir())
    _, latest = dumps.latest["fr"]
    assert [(call.record_id, call.number) for call in latest] == [(5, 1), (6, 2), (7, 3)]
