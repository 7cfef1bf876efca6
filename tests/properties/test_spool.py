"""Round trips: every record written into a spool is read from it exactly once."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given, settings, strategies as st

from stepscope.monitor.drain import KIND_NAMES, TABLE_OF_KIND, SpoolDrain
from stepscope.spool import (
    SEGMENT_RECORDS,
    DropCounts,
    Flag,
    Journal,
    Kind,
    LogName,
    SpanLog,
    SpoolTree,
    make_meta,
    read_journal,
)
from stepscope.store import DictColumn

WORD = st.integers(0, 2**64 - 1)
TIME = st.integers(1, 2**62)
SPAN_KINDS = [kind for kind in KIND_NAMES if kind not in TABLE_OF_KIND]
TEXT = st.text(max_size=12)


class Process:
    """The directory of this process in a spool, and a monitor that drains it."""

    def __init__(self, root: str) -> None:
        tree = SpoolTree(root, 1 << 30)
        self.name, self.directory = tree.make_process_directory()
        self.tree = tree
        self.journal = Journal(f"{self.directory}/journal.jsonl")
        drops = DropCounts.create(self.directory)
        self.logs = [SpanLog(tree, self.directory, 7, log_class, drops) for log_class in "cf"]
        self.stored: list[tuple[str, int]] = []
        self.rows: list[dict[str, Any]] = []
        self.start_monitor()

    def start_monitor(self) -> None:
        self.drain = SpoolDrain(
            self.tree, node="n", epoch_offset_ns=0, stored=self.stored_sequences
        )

    def stored_sequences(self, table: str, process: str, log: str, first: int, count: int) -> Any:
        stored = [
            s for stored_log, s in self.stored if stored_log == log and first <= s < first + count
        ]
        return np.array(stored if table == "spans" else [], dtype=np.int64)

    def flush(self, *, final: bool = False, die_before_commit: bool = False) -> None:
        """Store new records; with `die_before_commit` the monitor is killed before the commit."""
        rows = self.drain.collect(final=final)["spans"]
        if rows:
            columns = {
                name: (c.decode() if isinstance(c, DictColumn) else c).tolist()
                for name, c in self.drain.columns("spans", rows).items()
            }
            for i in range(len(columns["seq"])):
                self.rows.append({name: values[i] for name, values in columns.items()})
                self.stored.append((columns["log"][i], columns["seq"][i]))
        if die_before_commit:
            self.start_monitor()
        else:
            self.drain.commit(rows)

    def files(self) -> list[Path]:
        return list(Path(self.directory).glob("*.log"))


RECORD = st.tuples(
    st.integers(0, 1),  # log
    st.sampled_from(SPAN_KINDS),
    st.integers(0, 0xF).map(lambda bits: bits & ~Flag.MARK),  # flags
    st.integers(0, 2**15 - 1),  # depth
    st.integers(0, 2**32 - 1),  # name
    TIME,
    TIME,
    WORD,
)


@given(st.lists(RECORD, max_size=30))
@settings(max_examples=40)
def test_records_round_trip(records: list[tuple[int, ...]]) -> None:
    with tempfile.TemporaryDirectory() as root:
        process = Process(root)
        for log, kind, flags, depth, name, start, end, value in records:
            meta = make_meta(name, kind, flags) | depth
            process.logs[log].write(meta, start, end, value)
        process.flush(final=True)
        rows = sorted(process.rows, key=lambda row: (row["log"], row["seq"]))
        expected = sorted(enumerate(records), key=lambda pair: (pair[1][0], pair[0]))
        assert len(rows) == len(records)
        for row, (_, (log, kind, flags, depth, _, start, end, value)) in zip(
            rows, expected, strict=True
        ):
            assert row["log"] == f"7{'cf'[log]}"
            assert row["kind"] == KIND_NAMES[kind]
            assert (row["flags"], row["depth"]) == (flags, depth)
            assert (row["start_ns"], row["end_ns"]) == (start, end)
            assert row["value"] % 2**64 == value


ACTION = st.one_of(
    st.tuples(st.just("write"), st.integers(1, 3 * SEGMENT_RECORDS)),
    st.tuples(st.just("begin"), st.integers(0, 1)),
    st.tuples(st.just("end"), st.integers(0, 20)),
    st.tuples(st.just("flush"), st.just(0)),
    st.tuples(st.just("die"), st.just(0)),
    st.tuples(st.just("restart"), st.just(0)),
)


@given(st.lists(ACTION, max_size=14))
@settings(max_examples=30)
def test_each_record_reaches_the_store_once(actions: list[tuple[str, int]]) -> None:
    """For any interleaving of writes, interval ends, flushes and monitor kills."""
    with tempfile.TemporaryDirectory() as root:
        process = Process(root)
        written, intervals = 0, []
        for clock, (action, argument) in enumerate(actions, 1):
            if action == "write":
                for _ in range(argument):
                    written += 1
                    process.logs[written % 2].write(
                        make_meta(0, Kind.STEP, Flag.MARK), clock, 0, written
                    )
            elif action == "begin":
                log = process.logs[argument]
                next_index, words = log.cursor
                i = next_index()
                words, i = log.roll(words, i)
                words[i + 2] = make_meta(0, Kind.ANNOTATION)
                words[i + 3] = len(intervals)
                words[i] = clock
                intervals.append([words, i, None])
            elif action == "end" and intervals:
                open_interval = intervals[argument % len(intervals)]
                if open_interval[2] is None:
                    open_interval[0][open_interval[1] + 1] = open_interval[2] = clock
            elif action == "flush":
                process.flush()
            elif action == "die":
                process.flush(die_before_commit=True)
            elif action == "restart":
                process.start_monitor()
        process.flush(final=True)
        steps = [row["value"] for row in process.rows if row["kind"] == "step"]
        assert sorted(steps) == list(range(1, written + 1))
        ends = {row["value"]: row["end_ns"] for row in process.rows if row["kind"] == "annotation"}
        assert ends == {n: interval[2] for n, interval in enumerate(intervals)}
        assert len(process.rows) == written + len(intervals)
        assert process.files() == [], "files are removed once all their records are stored"


@given(st.integers(0, 2**40), st.sampled_from("cf"), st.integers(0, 10**9))
def test_segment_names_round_trip(thread: int, log_class: str, segment: int) -> None:
    name = LogName(thread, log_class, segment)
    assert LogName.parse(name.file_name) == name


@given(st.text(max_size=30))
def test_parsing_accepts_any_file_name(name: str) -> None:
    parsed = LogName.parse(name)
    assert parsed is None or parsed.log_class in "cf"


@given(st.lists(st.tuples(TEXT, TEXT | st.integers() | st.none()), max_size=8), st.integers(0, 400))
@settings(max_examples=60)
def test_a_journal_cut_anywhere_gives_its_complete_lines(
    lines: list[tuple[str, Any]], cut: int
) -> None:
    with tempfile.TemporaryDirectory() as root:
        journal = Journal(f"{root}/journal.jsonl")
        for text, value in lines:
            journal.write("note", text=text, value=value)
        path = Path(journal.path)
        content = path.read_bytes() if lines else b""
        path.write_bytes(content[:cut])
        first, offset = read_journal(journal.path)
        path.write_bytes(content)
        rest, end = read_journal(journal.path, offset)
        assert [(line["text"], line["value"]) for line in first + rest] == lines
        assert end == len(content)
