"""Records of the end of a job that the monitor keeps."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from stepscope.monitor.config import ErrorOutput, JobExit, MonitorConfig, StopSignal
from stepscope.monitor.deaths import MAX_OUTPUT_LINES, NO_FILE, DeathRecorder
from stepscope.monitor.host import node_info
from stepscope.monitor.process_logs import ProcessLogs
from stepscope.schema import NodeDeath
from stepscope.spool import OutputRing, note_failure

FAILED = JobExit(exit_code=1, signal=None)
CRASH = """Fatal Python error: Bus error

Thread 0x00007f0000000001 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 324 in wait

Current thread 0x00007f0000000002 (most recent call first):
  File "/job/train.py", line 7 in step
  File "/job/train.py", line 12 in <module>

Extension modules: numpy.core._multiarray_umath (total: 1)
"""


class Ending:
    """The end of a job with a spool."""

    def __init__(self, directory: Path) -> None:
        self.spool = directory / "spool"
        self.spool.mkdir()
        self.info = node_info(sample_interval_ns=1, spool=str(self.spool))
        self.processes: list[ProcessLogs] = []

    def describe(
        self,
        output: Path | None = None,
        *,
        start: int = 0,
        keeps_output: bool = True,
        job_exit: JobExit = FAILED,
        stop: StopSignal | None = None,
    ) -> NodeDeath:
        config = MonitorConfig(
            run="run",
            spool=str(self.spool),
            job_pid=1,
            launcher_pid=None,
            error_output=None
            if output is None
            else ErrorOutput(path=str(output), inode=output.stat().st_ino, start=start),
        )
        recorder = DeathRecorder(config, keeps_output=keeps_output)
        return recorder.describe(self.info, str(self.spool), self.processes, job_exit, stop)


@pytest.fixture
def ending(tmp_path: Path) -> Ending:
    return Ending(tmp_path)


def test_the_end_of_the_file_of_the_error_output_is_kept(ending: Ending, tmp_path: Path) -> None:
    """Lines before the job are not; secrets are masked, a progress bar is its last state, and lines
    of stepscope are left out."""
    output = tmp_path / "log"
    output.write_text("before\n")
    start = output.stat().st_size
    with output.open("a") as file:
        file.writelines(f"line {number}\n" for number in range(300))
        file.write("10%\r20%\rstep 30\nstepscope: a message\napi_key=sk-abcdefghijklmnopqrst\n\n")
    lines = ending.describe(output, start=start).output
    assert lines[-2:] == ["step 30", "api_key=****"]
    assert len(lines) <= MAX_OUTPUT_LINES
    assert lines[0].startswith("line ")
    assert ending.describe(output, start=output.stat().st_size).output == []
    assert ending.describe(output, keeps_output=False).output == []


def test_a_file_that_was_replaced_is_not_read(ending: Ending, tmp_path: Path) -> None:
    output = tmp_path / "log"
    output.write_text("of another job")
    recorded = ErrorOutput(path=str(output), inode=output.stat().st_ino + 1, start=0)
    config = MonitorConfig(
        run="run", spool=str(ending.spool), job_pid=1, launcher_pid=None, error_output=recorded
    )
    death = DeathRecorder(config).describe(ending.info, str(ending.spool), [], FAILED, None)
    assert death.output == []


def test_without_a_file_the_tracebacks_are_kept(ending: Ending) -> None:
    note_failure(
        str(ending.spool),
        "ValueError",
        "token: ghp_abcdefghijklmnopqrstuvwxyz0123\nmore",
        frames=[("/job/train.py", 3, "load")],
        traceback=["Traceback", "ValueError: token: ghp_abcdefghijklmnopqrstuvwxyz0123"],
    )
    death = ending.describe()
    (failure,) = death.failures
    assert (failure.exception, failure.message) == ("ValueError", "token: ****")
    assert (failure.frames[0].file, failure.frames[0].line) == ("/job/train.py", 3)
    assert abs(failure.t_ns - time.time_ns()) < 60_000_000_000
    assert death.output == ["Traceback", "ValueError: token: ****"]
    assert death.output_missing == NO_FILE
    hidden = ending.describe(keeps_output=False)
    assert hidden.output == hidden.failures[0].traceback == []
    assert "--no-output" in (hidden.output_missing or "")


def test_without_a_file_the_ring_of_the_process_that_failed_first_is_kept(ending: Ending) -> None:
    for pid, lines in ((1, 20_000), (2, 5)):
        directory = ending.spool / f"p-{pid}-7-0"
        directory.mkdir()
        ring = OutputRing(str(directory / "output"))
        for number in range(lines):
            ring.write(f"{pid}: line {number}\n")
        for percent in range(100):  # of each line, the last state
            ring.write(f"\r{percent}% done" + 1000 * " ")
        ring.write("\n")
        process = ProcessLogs(directory.name[2:], directory)
        process.read_last_words()
        ending.processes.append(process)
    second = [f"2: line {number}" for number in range(5)]
    assert [line.strip() for line in ending.describe().output[-7:]] == [
        "99% done",
        *second,
        "99% done",
    ]
    note_failure(str(ending.spool), "ValueError", "", frames=[], traceback=[])
    failures = ending.spool / "failures"
    for pid, first in ((2, second), (1, [f"1: line {20_000 - MAX_OUTPUT_LINES + 1}"])):
        content = re.sub(r'"pid": \d+', f'"pid": {pid}', failures.read_text())
        failures.write_text(content)
        lines = ending.describe().output
        assert lines[: len(first)] == first
        assert lines[-1].strip() == "99% done"


def test_a_failure_long_before_the_end_is_not_its_cause(ending: Ending) -> None:
    note_failure(str(ending.spool), "ValueError", "")
    late_ns = time.monotonic_ns() + 61_000_000_000
    later = JobExit(exit_code=1, signal=None, ended_monotonic_ns=late_ns)
    assert ending.describe(job_exit=later).failures == []


def test_the_stack_of_the_thread_that_crashed_is_read(ending: Ending) -> None:
    directory = ending.spool / "p-4711-99-0"
    directory.mkdir()
    (directory / "crash").write_text(CRASH)
    process = ProcessLogs("4711-99-0", directory, ended=True)
    process.read_last_words()
    ending.processes.append(process)
    death = ending.describe()
    (failure,) = death.failures
    assert (failure.pid, failure.exception, failure.message) == (4711, "", "Bus error")
    assert [(frame.line, frame.function) for frame in failure.frames] == [
        (7, "step"),
        (12, "<module>"),
    ]
    assert failure.t_ns == (directory / "crash").stat().st_mtime_ns
    assert death.killed == ["4711-99-0"]


def test_a_signal_that_was_passed_on_is_told_from_a_request(ending: Ending) -> None:
    assert ending.describe(stop=StopSignal(signal=15)).is_forwarded
    assert not ending.describe(stop=StopSignal(signal=15, rule="LowGPUUtilization")).is_forwarded
    assert not ending.describe().is_forwarded
