"""Sentences on the end of a job: what ended it, its cause where evidence has one, and the place."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stepscope.diagnosis import Death, diagnose
from stepscope.run import Run
from stepscope.schema import DEATHS, JobState, NodeDeath, ProcessFailure, StackFrame
from stepscope.store import RunWriter, open_run
from stepscope.testing import RunBuilder

GIB = 1 << 30
STEPS = "forward 60 | backward 30 | optimizer 10"
PID = 1000
"""Process of the first rank of a drawn run."""
TRAIN = [
    StackFrame(file="/usr/lib/python3.11/json/decoder.py", line=9, function="decode"),
    StackFrame(file="/job/train.py", line=30, function="step"),
]
IN_WORKER = """ValueError: Caught ValueError in DataLoader worker process 2.
Original Traceback (most recent call last):
  File "/usr/lib/python3/dist-packages/torch/utils/data/_utils/worker.py", line 3, in _worker_loop
    data = fetcher.fetch(index)
  File "/work/src/stepscope/capture/frameworks/pytorch/loading.py", line 419, in __getitem__
    item = self._dataset[index]
  File "/job/data.py", line 15, in decode
    raise ValueError("broken")
ValueError: broken
"""
TORCHRUN = """ChildFailedError:
train.py FAILED
Root Cause (first observed failure):
[0]:
  rank      : 1 (local_rank: 1)
  exitcode  : -9 (pid: 1100)
"""


def failure(exception: str, message: str = "", text: str = "", **fields: Any) -> ProcessFailure:
    defaults = {"pid": PID, "t_ns": 5, "frames": TRAIN}
    return ProcessFailure(
        exception=exception, message=message, traceback=text.splitlines(), **(defaults | fields)
    )


@pytest.fixture
def die(tmp_path: Path) -> Callable[..., Death | None]:
    """Draw a job of 30 steps that ends in a way, and find out what ended it."""

    numbers = itertools.count()

    def build(
        *failures: ProcessFailure,
        state: JobState = JobState.FAILED,
        number: int | None = None,
        code: int | None = None,
        used_bytes: float = 2 * GIB,
        ranks: int = 1,
        **fields: Any,
    ) -> Death | None:
        run = RunBuilder(tmp_path / str(next(numbers)))
        for rank in range(ranks):
            process = run.rank(rank, world_size=ranks) if ranks > 1 else run.rank()
            process.draw(STEPS, 30 - rank)
        run.metric("memory_used_bytes", used_bytes)
        run.status(state, signal=number, exit_code=code, pid=PID)
        path = run.write()
        with RunWriter(path, "n0") as writer:
            death = NodeDeath(node="n0", failures=list(failures), **fields)
            writer.put_document(DEATHS, "n0", death)
        return diagnose(Run(open_run(path))).death

    return build


EXCEPTIONS = {
    "exception": (failure("ValueError", "broken"), "ValueError ended the job after 30 steps, at "
        "train.py:30 in step: broken."),
    "device_memory": (
        failure("OutOfMemoryError", "CUDA out of memory."),
        "OutOfMemoryError ended the job after 30 steps, at train.py:30 in step: CUDA out of "
        "memory.",
    ),
    "disk_full": (
        failure("OSError", "[Errno 28] No space left on device: 'model.pt'"),
        "OSError ended the job after 30 steps, at train.py:30 in step: [Errno 28] No space "
        "left on device: 'model.pt'.",
    ),
    "shared_memory": (
        failure(
            "RuntimeError",
            "unable to allocate shared memory(shm) for file </torch_9_3_4>: No space left on "
            "device (28)",
        ),
        "RuntimeError ended the job after 30 steps, at train.py:30 in step: unable to "
        "allocate shared memory(shm) for file </torch_9_3_4>: No space left on device (28).",
    ),
    "worker_killed": (
        failure("RuntimeError", "DataLoader worker (pid 7) is killed by signal: Killed. "),
        "RuntimeError ended the job after 30 steps, at train.py:30 in step: DataLoader "
        "worker (pid 7) is killed by signal: Killed.",
    ),
    "host_memory": (
        failure("MemoryError"),
        "MemoryError ended the job after 30 steps, at train.py:30 in step.",
    ),
}  # fmt: skip


@pytest.mark.parametrize("cause", EXCEPTIONS)
def test_an_exception_is_named_with_its_place_and_cause(
    die: Callable[..., Any], cause: str
) -> None:
    exception, headline = EXCEPTIONS[cause]
    death = die(exception, code=1)
    assert (death.cause, death.headline) == (cause, headline)
    assert (death.location, death.function) == ("train.py:30", "step")
    assert bool(death.advice) == (cause != "exception")


def test_an_exception_in_a_worker_is_named_by_its_own_line(die: Callable[..., Any]) -> None:
    """Not by that at which the training thread raises it again, nor by code of stepscope."""
    death = die(failure("ValueError", "Caught ValueError in", IN_WORKER), code=1)
    assert death.headline == (
        "ValueError in DataLoader worker 2 ended the job after 30 steps, at data.py:15 in "
        "decode: broken."
    )
    assert death.worker == 2


def test_an_exception_of_a_spawned_process_is_counted_in_its_steps(die: Callable[..., Any]) -> None:
    """torch.multiprocessing raises the traceback of the process as the message."""
    text = "-- Process 1 terminated with the following error:\nTraceback (most recent call last):\n"
    text += '  File "/job/data.py", line 4, in work\nKeyError: 7'
    death = die(failure("ProcessRaisedException", "", text, pid=1), code=1, ranks=2)
    assert death.headline == (
        "KeyError on rank 1 ended the job after 29 steps, at data.py:4 in work: 7."
    )


def test_the_first_rank_that_failed_is_named(die: Callable[..., Any]) -> None:
    later = failure("RuntimeError", "Connection closed by peer", t_ns=9)
    launcher = failure("ChildFailedError", "train.py FAILED", pid=999, t_ns=10, is_relayed=True)
    first = failure("ValueError", "labels", pid=PID + 100)
    death = die(first, later, launcher, code=1, ranks=2)
    assert death.headline.startswith("ValueError on rank 1 ended the job after 29 steps, at ")
    assert death.rank == 1
    lost = "Rank 0 failed afterwards with RuntimeError: Connection closed by peer"
    assert death.evidence == [lost]


def test_a_rank_that_was_killed_comes_before_those_that_lost_it(die: Callable[..., Any]) -> None:
    lost = failure("RuntimeError", "Connection closed by peer")
    launcher = failure("ChildFailedError", "", TORCHRUN, pid=999, is_relayed=True)
    for failures in ((lost, launcher), (launcher,)):
        death = die(*failures, code=1, ranks=2, killed=["1100-77-0"], group_kill_count=0)
        assert death.headline.startswith(
            "Signal 9 (SIGKILL) ended rank 1, and the job with it, after 29 steps"
        )
        assert (death.rank, death.cause) == (1, "outside_signal")


@pytest.mark.parametrize(
    ("kills", "used_bytes", "cause", "ending"),
    [
        ({"group_kill_count": 0}, 2, "outside_signal", ", sent by a process"),
        ({"machine_kill_count": 0}, 63, "outside_signal", ", sent by a process"),
        ({}, 2, "outside_signal", ", sent by a process"),
        ({}, 63, "host_memory", ", with memory at 63 GiB of 64 GiB"),
        ({"group_kill_count": 1}, 2, "host_memory", ", with memory at 2 GiB of 64 GiB"),
        ({"group_kill_count": 0, "machine_kill_count": 1}, 2, "outside_signal", "a process"),
        ({"machine_kill_count": 1}, 2, "outside_signal", ", sent by a process"),
        ({"machine_kill_count": 1}, 63, "host_memory", ", with memory at 63 GiB of 64 GiB"),
    ],
)
def test_signal_9_is_for_want_of_memory_where_evidence_says_so(
    die: Callable[..., Any], kills: dict[str, int], used_bytes: int, cause: str, ending: str
) -> None:
    """A kill elsewhere on the machine says nothing where that of the control group is known."""
    death = die(number=signal.SIGKILL, used_bytes=used_bytes * GIB, **kills)
    assert death.cause == cause
    assert death.headline.startswith("Signal 9 (SIGKILL) ended the job after 30 steps")
    assert ending in death.headline


def test_the_stack_at_a_fatal_signal_is_the_place(die: Callable[..., Any]) -> None:
    death = die(failure("", "Segmentation fault"), number=signal.SIGSEGV)
    assert death.cause == "crash"
    assert death.headline == (
        "Signal 11 (SIGSEGV) ended the job after 30 steps, at train.py:30 in step."
    )


def test_an_exception_before_an_abort_is_what_ended_the_job(die: Callable[..., Any]) -> None:
    death = die(failure("ValueError", "broken"), failure("", "Aborted"), number=signal.SIGABRT)
    assert death.headline == EXCEPTIONS["exception"][1]
    assert death.signal == signal.SIGABRT
    assert death.evidence == ["Signal 6 (SIGABRT) ended the process after the exception."]


def test_a_signal_that_was_passed_on_is_no_failure_of_the_job(die: Callable[..., Any]) -> None:
    """An interrupt at the terminal is no death at all."""
    death = die(state=JobState.STOPPED, number=signal.SIGTERM, is_forwarded=True)
    assert "stepscope received it and passed it on" in death.headline
    for fields in ({"number": signal.SIGINT, "is_forwarded": True}, {"number": signal.SIGTERM}):
        assert die(state=JobState.STOPPED, **fields) is None


def test_an_exit_status_quotes_the_last_output(die: Callable[..., Any]) -> None:
    death = die(code=3, output=["loading", "no such data set", ""])
    assert death.headline.startswith("The job exited with status 3 after 30 steps")
    assert death.evidence[-1] == "The last line of the error output: no such data set"
    assert (death.exit_code, death.cause) == (3, "exit_status")


def test_the_status_of_a_shell_is_that_of_a_signal(die: Callable[..., Any]) -> None:
    death = die(code=128 + signal.SIGKILL, group_kill_count=1)
    assert death.headline.startswith("Signal 9 (SIGKILL) ended a process of the job")
    assert (death.exit_code, death.cause) == (137, "host_memory")


def test_a_fragmented_allocator_gets_its_setting(die: Callable[..., Any]) -> None:
    sizes = "Of the allocated memory {} GiB is allocated by PyTorch, and {} GiB is reserved by "
    text = "CUDA out of memory. " + sizes + "PyTorch but unallocated."
    setting = "expandable_segments:True"
    fragmented = die(failure("OutOfMemoryError", text.format("12.00", "9.00")), code=1)
    assert any(setting in advice for advice in fragmented.advice)
