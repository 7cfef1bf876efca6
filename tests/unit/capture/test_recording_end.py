"""The end of the recording of a job's processes before the job."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import stepscope
from stepscope.capture import marks, session
from stepscope.monitor.drain import SpoolDrain
from stepscope.monitor.samplers import Sample
from stepscope.monitor.spool_files import SampleLog
from stepscope.spool import read_recording_end, write_recording_end
from tests.conftest import Spool, _nothing_stored

pytestmark = pytest.mark.seed("SMP-05")


def test_no_record_starts_after_the_end(spool: Spool) -> None:
    done = spool.run(
        """
        import os, time, stepscope
        from stepscope.spool import write_recording_end
        end_ns = time.monotonic_ns() + 1_000_000_000
        write_recording_end(os.environ["STEPSCOPE_SPOOL"], end_ns)
        count, late_count = 0, 0
        while late_count < 5:
            late_count += time.monotonic_ns() >= end_ns
            with stepscope.annotate("a"):
                stepscope.step(count)
            stepscope.scalar("loss", count)
            count += 1
            time.sleep(0.005)
        print(end_ns, count - late_count)
        """
    )
    end_ns, count = map(int, done.stdout.split())
    recorded = spool.drain()
    assert {record.table for record in recorded.records} == {"spans", "scalars", "stacks"}
    assert max(record.start for record in recorded.records) < end_ns
    numbers = [record.value for record in recorded.of("step")]
    assert numbers == list(range(len(numbers)))
    assert len(numbers) in {count - 1, count}, "the end may lie within the last iteration"


def test_the_stack_sampler_ends_the_recording_of_its_process(spool: Spool) -> None:
    spool.run(
        """
        import os, subprocess, sys, threading, time, stepscope
        from stepscope.capture import session, stacks
        from stepscope.spool import write_recording_end

        def is_sampled():
            return any(thread.name == "stepscope-stacks" for thread in threading.enumerate())

        interval = 0.005  # by default
        end_ns = time.monotonic_ns() + 200_000_000
        write_recording_end(os.environ["STEPSCOPE_SPOOL"], end_ns)
        stepscope.step(0)
        stacks.watch_this_thread(0.005)
        assert is_sampled() and sys.getswitchinterval() != interval
        while session.live or is_sampled():
            assert time.monotonic_ns() < end_ns + 10_000_000_000
        assert time.monotonic_ns() >= end_ns
        assert sys.getswitchinterval() == interval

        stepscope.start_profiling()
        stacks.watch_this_thread(0.005)
        assert not session.live and not is_sampled()
        stepscope.step(1)
        pid = os.fork()
        if not pid:
            stepscope.step(2)
            os._exit(0)
        os.waitpid(pid, 0)
        subprocess.run([sys.executable, "-c", "import stepscope; stepscope.step(3)"], check=True)
        """
    )
    recorded = spool.drain()
    assert len(recorded.processes) == 1
    assert [record.value for record in recorded.of("step")] == [0]
    assert any(record.table == "stacks" for record in recorded.records)


def test_an_interval_that_is_open_at_the_end_keeps_its_own_end(spool: Spool) -> None:
    spool.run(
        """
        import os, time, stepscope
        from stepscope.spool import write_recording_end
        end_ns = time.monotonic_ns() + 500_000_000
        write_recording_end(os.environ["STEPSCOPE_SPOOL"], end_ns)
        with stepscope.annotate("long"):
            while time.monotonic_ns() < end_ns:
                time.sleep(0.01)
        """
    )
    (long,) = spool.drain().of("annotation")
    end_ns = read_recording_end(str(spool.path))
    assert end_ns is not None
    assert long.start < end_ns <= (long.end or 0)


def test_samples_of_the_node_continue(spool: Spool) -> None:
    write_recording_end(str(spool.path), 1)
    log = SampleLog(spool.tree)
    log.write([Sample("job_cpu_cores", "", 1.5)], time.monotonic_ns())
    (record,) = spool.drain().records
    assert (record.table, record.value) == ("metrics", 1.5)


def test_late_records_do_not_keep_their_files(spool: Spool) -> None:
    spool.run("import stepscope\nfor n in range(10): stepscope.step(n)")
    write_recording_end(str(spool.path), 1)
    drain = SpoolDrain(spool.tree, node="n", epoch_offset_ns=0, stored=_nothing_stored)
    assert not any(drain.collect(final=True).values())
    assert not list(spool.path.rglob("*.log"))


def test_steps_are_counted_while_nothing_is_recorded(
    recording: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Detailed windows need the number of the step."""
    counted: list[None] = []
    monkeypatch.setattr(marks, "step_listeners", [lambda: counted.append(None)])
    stepscope.step(0)
    session.pause()
    stepscope.step(1)
    assert len(counted) == 2
    assert [record.value for record in recording.drain().of("step")] == [0]


@pytest.mark.parametrize("content", ["", "soon"])
def test_an_unreadable_end_is_none(content: str, tmp_path: Path) -> None:
    assert read_recording_end(str(tmp_path)) is None
    (tmp_path / "recording-end").write_text(content)
    assert read_recording_end(str(tmp_path)) is None
