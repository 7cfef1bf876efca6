"""Marks of the user where nothing is recorded, and where something interrupts them."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import stepscope
from stepscope.capture import session
from stepscope.spool import SEGMENT_RECORDS


class TestNothingRecorded:
    @pytest.mark.seed("DBP-11")
    def test_no_spool_no_trace(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.delenv(session.SPOOL_VARIABLE, raising=False)
        use_every_mark()
        assert list(tmp_path.iterdir()) == []
        assert session.live == 0, "marks are disabled from the second call on"

    def test_a_missing_spool_is_reported_once(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        session.attach(str(tmp_path / "no" / "such"))
        try:
            use_every_mark()
            use_every_mark()
        finally:
            session.detach()
        errors = capsys.readouterr().err
        assert errors.count(f"stepscope: process {os.getpid()} is not recorded: ") == 1
        assert errors.count("\n") == 1

    def test_a_limit_that_is_not_a_number(self, spool: Any, capsys: Any) -> None:
        session.attach(str(spool.path))
        os.environ[session.LIMIT_VARIABLE] = "lots"
        try:
            use_every_mark()
        finally:
            session.detach()
        assert "is not recorded: " in capsys.readouterr().err

    def test_a_pause_leaves_a_gap_and_no_loose_ends(self, recording: Any) -> None:
        around = stepscope.annotation_begin("around")
        session.pause()
        use_every_mark()
        inside_pause = stepscope.annotation_begin("unseen")
        session.resume()
        inside_pause.end()
        with stepscope.annotate("after"):
            pass
        around.end()
        with stepscope.annotate("last"):
            pass
        records = recording.drain().records
        assert sorted((r.name, r.depth) for r in records) == [
            ("after", 1), ("around", 0), ("last", 0),
        ]  # fmt: skip
        assert all(r.end for r in records)

    def test_threads_follow_to_another_spool(self, new_spool: Any) -> None:
        spools = [new_spool("0"), new_spool("1")]
        start, end = threading.Semaphore(0), threading.Semaphore(0)

        def work() -> None:
            for n in range(2):
                start.acquire()
                with stepscope.annotate(f"in {n}"):
                    pass
                end.release()

        thread = threading.Thread(target=work)
        thread.start()
        for spool in spools:
            session.attach(str(spool.path))
            start.release()
            end.acquire()
        thread.join()
        session.detach()
        assert [s.drain().count("annotation") for s in spools] == [{"in 0": 1}, {"in 1": 1}]

    def test_a_thread_that_loses_its_state_continues_its_log(self, recording: Any) -> None:
        """A thread that was not started by Python has a new state in each call of Python."""

        def count_segments() -> int:
            return len(list(recording.path.glob("p-*/*.log")))

        counts = []
        for n in range(8):
            session.local.__dict__.clear()
            with stepscope.annotate(f"call {n}"):
                pass
            counts.append(count_segments())
        assert counts[-1] == counts[1]
        records = recording.drain().of("annotation")
        assert [(r.name, r.depth) for r in records] == [(f"call {n}", 0) for n in range(8)]
        assert all(r.end for r in records)


def use_every_mark() -> None:
    """Use every kind of mark once; none may fail or print a message."""
    with stepscope.annotate("a", label=1), stepscope.mode("TRAIN"):
        stepscope.step(3)
        stepscope.scalar("s", 1.0)
    stepscope.annotation_end(stepscope.annotation_begin("b"))
    assert list(stepscope.steps([1, 2])) == [1, 2]

    async def asynchronous() -> None:
        async with stepscope.annotate("c"):
            pass

    asyncio.run(asynchronous())


class TestInterruptions:
    """Signal handlers and garbage collections that record while a record is being written."""

    def test_between_any_two_instructions_of_an_annotation(self, recording: Any) -> None:
        """Record another interval before instruction *at* of stepscope's code, by tracing."""
        files = {sys.modules[m].__file__ for m in sys.modules if m.startswith("stepscope.capture.")}
        files |= {sys.modules[m].__file__ for m in sys.modules if m.startswith("stepscope.spool.")}
        at, interrupted, total = 0, True, 0
        while interrupted:
            executed, interrupted = 0, False
            key = f"name {at}"

            def trace(frame: FrameType, event: str, argument: object) -> Any:
                nonlocal executed, interrupted
                if frame.f_code.co_filename not in files:
                    return None
                frame.f_trace_opcodes = True
                if event == "opcode":
                    if executed == at:  # noqa: B023 - used within this iteration
                        interrupted = True
                        sys.settrace(None)
                        with stepscope.annotate("interrupts", n=at % 7):  # noqa: B023
                            pass
                        sys.settrace(trace)
                    executed += 1
                return trace

            sys.settrace(trace)
            try:
                with stepscope.annotate(key), stepscope.annotate("inner"):
                    stepscope.scalar("s", at)
            finally:
                sys.settrace(None)
            total += interrupted
            at += 1
        assert total > 100
        recorded = recording.drain()
        assert recorded.count("annotation") == {
            "inner": at, "interrupts": total, **{f"name {n}": 1 for n in range(at)},
        }  # fmt: skip
        assert [r.value for r in recorded.of("scalars")] == list(range(at))
        assert all(r.end is not None for r in recorded.of("annotation"))
        logs = session.thread_logs()
        assert logs is not None
        assert logs.depth == 0

    def test_thousands_of_signals_and_collections(self, recording: Any) -> None:
        """Real signals and collections over several segments: no record is lost or torn."""
        counts = {"signal": 0, "gc": 0}

        def on_signal(*_: object) -> None:
            n = counts["signal"] = counts["signal"] + 1
            with stepscope.annotate("signal", n=n % 50):
                stepscope.step(n)

        def on_collection(phase: str, info: object) -> None:
            if phase == "start":
                counts["gc"] += 1
                with stepscope.annotate("gc"):
                    pass

        with stepscope.annotate("first"):  # the first record of each log; see MAX_PREPARING
            stepscope.step(0)
        loops = 4 * SEGMENT_RECORDS
        original_handler = signal.signal(signal.SIGALRM, on_signal)
        threshold = gc.get_threshold()
        gc.callbacks.append(on_collection)
        gc.set_threshold(20)
        signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0002)
        try:
            for n in range(loops):
                with stepscope.annotate("loop"):
                    garbage: list[object] = []
                    garbage.append(garbage)  # only a collection frees it
                if n % 16 == 0:
                    with stepscope.annotate(f"fresh {n}"):
                        pass
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, original_handler)
            gc.set_threshold(*threshold)
            gc.callbacks.remove(on_collection)
        recorded = recording.drain()
        counted = recorded.count("annotation")
        assert counted["loop"] == loops
        assert counted["signal"] == counts["signal"] > 10
        assert counted["gc"] == counts["gc"] > 10
        fresh = sum(n for name, n in counted.items() if name.startswith("fresh"))
        assert fresh == len(range(0, loops, 16))
        assert sorted(r.value for r in recorded.of("step")) == list(range(counts["signal"] + 1))
        assert all(r.end is not None and r.end >= r.start for r in recorded.of("annotation"))
        assert recorded.dropped == 0

    def test_a_first_record_within_a_first_record_does_not_wait_for_itself(
        self, spool: Any
    ) -> None:
        """The session opens under a lock; a signal handler that records must not wait for it."""
        done = spool.run(
            """
            import signal, faulthandler
            import stepscope
            from stepscope.capture import session
            faulthandler.dump_traceback_later(20, exit=True)
            def record(*_):
                with stepscope.annotate("from a handler"):
                    pass
            signal.signal(signal.SIGUSR1, record)
            describe = session._describe_process
            def interrupted():
                signal.raise_signal(signal.SIGUSR1)
                return describe()
            session._describe_process = interrupted
            with stepscope.annotate("outer"):
                pass
            record()
            """
        )
        assert done.stderr == ""
        recorded = spool.drain()
        assert len(recorded.processes) == 1
        assert recorded.count("annotation")["outer"] == 1
