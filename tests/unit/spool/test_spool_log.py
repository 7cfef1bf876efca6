"""Writer of a log, read back as the monitor reads it."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

from stepscope.spool import (
    FIRST_SEQUENCE_WORD,
    SEGMENT_BYTES,
    SEGMENT_RECORDS,
    DropCounts,
    Flag,
    Journal,
    Kind,
    SpanLog,
    SpoolTree,
    log as log_module,
    make_meta,
    native,
)

MARK = make_meta(1, Kind.STEP, Flag.MARK)
PATHS = [None] if native is None else [None, native]
"""Python's counter of records, and the compiled one where it is built."""


class Writer:
    """The directory of a process, and its logs."""

    def __init__(self, spool: Any) -> None:
        self.tree: SpoolTree = spool.tree
        self.name, self.directory = self.tree.make_process_directory()
        self.drops = DropCounts.create(self.directory)
        journal = Journal(f"{self.directory}/journal.jsonl")
        journal.write("process", pid=os.getpid())
        journal.write("name", id=1, text="one", labels=None)
        journal.write("name", id=2, text="two", labels='{"k": 1}')

    def log(self, log_class: str = "f", **more: Any) -> SpanLog:
        thread = threading.get_native_id()
        return SpanLog(self.tree, self.directory, thread, log_class, self.drops, **more)

    def segments(self, log_class: str = "f") -> list[Path]:
        return sorted(Path(self.directory).glob(f"*{log_class}-*.log"))

    def header(self, path: Path, word: int) -> int:
        return int(np.fromfile(path, dtype=np.uint64)[word])


@pytest.fixture(params=[pytest.param(n, id="python" if n is None else "compiled") for n in PATHS])
def writer(spool: Any, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Writer:
    monkeypatch.setattr(log_module, "native", request.param)
    return Writer(spool)


def test_every_word_is_read_back_as_written(spool: Any, writer: Writer) -> None:
    log = writer.log()
    log.write(
        make_meta(2, Kind.FORWARD, Flag.NO_GRAD | Flag.NO_RESULT) | 7, 1_000, 5_000, 2**63 + 9
    )
    log.write(make_meta(0xFFFF_FFFF, Kind.STEP, Flag.MARK), 2_000, 0, 3)
    log.write(make_meta(1, Kind.BACKWARD), 3_000, 0)
    first, marked, still_open = sorted(spool.drain().records, key=lambda r: r.seq)
    assert (first.kind, first.name, first.labels, first.depth) == ("forward", "two", '{"k": 1}', 7)
    assert (first.start, first.end) == (1_000, 5_000)
    assert first.flags == Flag.NO_GRAD | Flag.NO_RESULT
    assert first.value == 2**63 + 9 - 2**64  # the table's column is signed
    assert (marked.name, marked.end, marked.flags) == ("", 2_000, 0)
    assert (still_open.kind, still_open.end) == ("backward", None)
    assert [r.seq for r in (first, marked, still_open)] == [0, 1, 2]


def test_an_open_interval_waits_for_its_end_while_the_process_runs(
    spool: Any, writer: Writer
) -> None:
    writer.log().write(make_meta(1, Kind.FORWARD), 1_000, 0)
    assert spool.drain(final=False).records == []
    assert [r.end for r in spool.drain(final=True).records] == [None]


def test_a_log_grows_over_segment_borders(spool: Any, writer: Writer) -> None:
    log = writer.log()
    total = 3 * SEGMENT_RECORDS + 5
    for i in range(total):
        log.write(MARK, i + 1, 0, i)
    records = sorted(spool.drain().records, key=lambda r: r.seq)
    assert [r.value for r in records] == list(range(total))
    assert [r.seq for r in records] == list(range(total))
    assert [writer.header(p, FIRST_SEQUENCE_WORD) for p in writer.segments()] == [
        k * SEGMENT_RECORDS for k in range(4)
    ]
    assert all(p.stat().st_size == SEGMENT_BYTES for p in writer.segments())
    assert not list(Path(writer.directory).glob("*.new"))


class TestFullSpool:
    """`--spool-limit`: behaviour when the monitor cannot keep up."""

    LIMIT = 8 * SEGMENT_BYTES

    @pytest.fixture
    def writer(self, spool: Any, monkeypatch: pytest.MonkeyPatch) -> Writer:
        monkeypatch.setattr(log_module, "RETRY_NS", 0)
        spool.tree.limit_bytes = self.LIMIT
        return Writer(spool)

    def test_coarse_records_survive_a_flood_of_fine_ones(self, spool: Any, writer: Writer) -> None:
        fine, coarse = writer.log("f"), writer.log("c")
        flood = 7 * SEGMENT_RECORDS
        for i in range(flood):
            fine.write(MARK, i + 1, 0, i)
            if i % 100 == 0:
                coarse.write(make_meta(2, Kind.STEP, Flag.MARK), i + 1, 0, i)
        recorded = spool.drain()
        steps = [r.value for r in recorded.of("step", name="two")]
        assert steps == list(range(0, flood, 100))
        stored = sorted(r.value for r in recorded.of("step", name="one"))
        assert stored == list(range(len(stored))), "records from before the flood are kept"
        assert len(stored) % SEGMENT_RECORDS == 0
        assert 0.5 * self.LIMIT < len(writer.segments("f")) * SEGMENT_BYTES <= 0.75 * self.LIMIT
        assert fine.dropped_count == flood - len(stored)
        assert recorded.dropped == flood - len(stored)
        assert coarse.dropped_count == 0

    @pytest.mark.parametrize("has_segments", [False, True])
    def test_drops_are_counted_without_any_segment(
        self, spool: Any, writer: Writer, has_segments: bool
    ) -> None:
        """Before the first one, and after the monitor has removed all of them."""
        log = writer.log("f")
        for i in range(7 * SEGMENT_RECORDS * has_segments):
            log.write(MARK, i + 1, 0)
        for path in writer.segments():
            path.unlink()
        dropped = log.dropped_count
        assert bool(dropped) == has_segments
        writer.tree.limit_bytes = 0
        for i in range(1000):
            log.write(MARK, i + 1, 0)
        (process,) = spool.drain().processes.values()
        assert process.dropped == {"spool_limit": dropped + 1000}

    def test_it_resumes_once_there_is_room_and_sequences_stay_unique(
        self, spool: Any, writer: Writer
    ) -> None:
        log = writer.log("f")
        for i in range(7 * SEGMENT_RECORDS):
            log.write(MARK, i + 1, 0, i)
        dropped = log.dropped_count
        assert dropped
        before = {r.seq for r in spool.drain().records}
        for path in writer.segments():  # the monitor has read them
            path.unlink()
        log.write(MARK, 10**9, 0, 77)
        (record,) = spool.drain().records
        assert record.value == 77
        assert record.seq not in before
        assert log.dropped_count == dropped

    def test_a_full_log_retries_only_after_a_delay(
        self, writer: Writer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        checks = []
        monkeypatch.setattr(log_module, "RETRY_NS", 3_600_000_000_000)
        monkeypatch.setattr(writer.tree, "limit_bytes", 0)
        monkeypatch.setattr(writer.tree, "used_bytes", lambda: checks.append(1) or 0)
        log = writer.log("f")
        for i in range(1000):
            log.write(MARK, i + 1, 0)
        assert log.dropped_count == 1000
        assert len(checks) == 1


def test_a_missing_directory_costs_only_records(writer: Writer) -> None:
    shutil.rmtree(writer.directory)
    log = writer.log()
    for i in range(10):
        log.write(MARK, i + 1, 0)
    assert log.dropped_count == 10


def test_a_later_thread_with_the_same_id_continues_the_log(spool: Any, writer: Writer) -> None:
    """The system reuses thread ids: records of the later thread must not replace earlier ones."""
    from itertools import count

    numbers = count()
    for value in (1, 2):
        writer.log(numbers=numbers).write(MARK, value, 0, value)
    records = spool.drain().records
    assert sorted(r.value for r in records) == [1, 2]
    assert len({r.seq for r in records}) == 2


class TestReentrancy:
    """A signal handler or garbage-collection callback may record between any two instructions."""

    def write_with_interruptions(
        self, log: SpanLog, at: int, interrupt: Callable[[], None]
    ) -> bool:
        """Write one record, interrupted before instruction *at*.

        Returns:
            False if the write has fewer instructions.
        """
        executed = 0
        interrupted = False

        def trace(frame: FrameType, event: str, argument: object) -> Any:
            nonlocal executed, interrupted
            if frame.f_code.co_filename != log_module.__file__:
                return None
            frame.f_trace_opcodes = True
            if event == "opcode":
                if executed == at and not interrupted:
                    interrupted = True
                    sys.settrace(None)
                    interrupt()
                    sys.settrace(trace)
                executed += 1
            return trace

        previous_trace = sys.gettrace()
        sys.settrace(trace)
        try:
            log.write(MARK, 10, 0, 10)
        finally:
            sys.settrace(previous_trace)
        return interrupted

    @pytest.mark.parametrize("filled", [0, 3, SEGMENT_RECORDS - 1, SEGMENT_RECORDS])
    def test_no_record_is_lost_or_overwritten(self, new_spool: Any, filled: int) -> None:
        """Interrupt before every instruction of the write path, at segment borders too."""
        at, interrupted = 0, True
        while interrupted:
            spool = new_spool(str(at))
            writer = Writer(spool)
            log = writer.log()
            for i in range(filled):
                log.write(MARK, i + 1, 0, 1000 + i)
            interrupted = self.write_with_interruptions(
                log, at, lambda log=log: [log.write(MARK, 20 + n, 0, 20 + n) for n in range(3)]
            )
            log.write(MARK, 30, 0, 30)
            expected = [10, 30, *(1000 + i for i in range(filled))]
            if interrupted:
                expected += [20, 21, 22]
            recorded = spool.drain()
            assert sorted(r.value for r in recorded.records) == sorted(expected), f"at {at}"
            assert len({r.seq for r in recorded.records}) == len(expected), f"at {at}"
            assert log.dropped_count == 0
            at += 1 if filled < 5 or at < 40 else 3
        assert at > 20
