"""Sentences on jobs that hang, from accounts of their processes."""

from __future__ import annotations

from typing import Any

import pytest

from stepscope.diagnosis import describe_processes, explain_stuck
from stepscope.diagnosis.hang import describe_wait
from stepscope.schema import ProcessAccount, RankState, StackFrame, StuckNode, ThreadAccount
from stepscope.watch.live import HANG_RECOMMENDATION, make_stuck_finding

S = 1_000_000_000
LIBRARY = "/usr/lib/python3.12/"
TORCH = "/usr/lib/python3.12/site-packages/torch/"
JOB = "/job/train.py"


def thread(*frames: tuple[str, int, str], state: str = "S", channel: str = "") -> ThreadAccount:
    return ThreadAccount(
        name="MainThread",
        is_main=True,
        state=state,
        wait_channel=channel,
        frames=[StackFrame(file=file, line=line, function=name) for file, line, name in frames],
    )


def process(pid: int, *threads: ThreadAccount, **fields: Any) -> ProcessAccount:
    values = {"parent_pid": 1, "role": "main", "state": RankState.ANSWERED, "has_trained": pid == 1}
    return ProcessAccount(pid=pid, threads=list(threads), **(values | fields))


def explain(*processes: ProcessAccount, **fields: Any) -> Any:
    values = {"node": "n", "since_ns": 100 * S, "seen_ns": 132 * S, "limit_ns": 8 * S}
    return explain_stuck({"n": StuckNode(processes=list(processes), **(values | fields))})


EVENT = thread(
    (LIBRARY + "threading.py", 327, "Condition.wait"),
    (LIBRARY + "threading.py", 629, "Event.wait"),
    (JOB, 10, "wait_for_batch"),
    channel="futex_do_wait",
)
FETCH = thread(
    (LIBRARY + "queue.py", 5, "Queue.get"),
    (TORCH + "utils/data/dataloader.py", 50, "_MultiProcessingDataLoaderIter._try_get_data"),
    (JOB, 22, "<module>"),
)
WORKER_START = (
    (TORCH + "utils/data/_utils/worker.py", 300, "_worker_loop"),
    (LIBRARY + "multiprocessing/process.py", 314, "BaseProcess._bootstrap"),
    (JOB, 22, "<module>"),
)


def test_the_line_at_which_the_training_waits_is_named() -> None:
    stuck = explain(process(1, EVENT, cpu_ratio=0.01))
    assert (stuck.kind, stuck.is_stuck, stuck.culprits) == ("hang", True, [])
    assert stuck.headline == (
        "The job is stuck, no step for 32 s: the training thread waits for an event in "
        "wait_for_batch (train.py:10)."
    )
    assert stuck.lines == [
        "Trainer, process 1, waits for an event in wait_for_batch (/job/train.py:10); state S, "
        "futex_do_wait; 1% of one core."
    ]
    (described,) = stuck.processes
    assert (described.location, described.function) == ("/job/train.py:10", "wait_for_batch")
    finding = make_stuck_finding(stuck)
    assert finding.recommendation == HANG_RECOMMENDATION
    assert finding.details["processes"] == [1]
    ended = explain(process(1, EVENT), has_ended=True)
    assert ended.headline.startswith("The job was stuck until it ended, no step for 32 s: ")
    assert not ended.is_stuck


def test_the_worker_that_the_training_waits_for_is_named() -> None:
    hangs = thread((JOB, 17, "Samples.__getitem__"), *WORKER_START, channel="futex_do_wait")
    idle = thread((LIBRARY + "multiprocessing/queues.py", 103, "Queue.get"), *WORKER_START)
    role = {"parent_pid": 1, "role": "dataloader_worker"}
    stuck = explain(
        process(1, FETCH), process(2, idle, worker=0, **role), process(3, hangs, worker=1, **role)
    )
    assert stuck.headline == (
        "The job is stuck, no step for 32 s: DataLoader worker 1 waits for a lock in "
        "Samples.__getitem__ (train.py:17), and the training thread waits for it."
    )
    assert [process.pid for process in stuck.processes] == [3, 1, 2]
    assert stuck.lines[1].startswith(
        "Trainer, process 1, waits for a batch of its DataLoader workers in "
    )
    assert stuck.lines[2] == "DataLoader worker 0, process 2, waits for work; state S."
    # Another node has its own process 1.
    nodes = {
        "a": StuckNode(
            node="a", since_ns=0, seen_ns=32 * S, limit_ns=S, processes=[process(1, EVENT)]
        ),
        "b": StuckNode(
            node="b", since_ns=0, seen_ns=32 * S, limit_ns=S, processes=[process(3, hangs, **role)]
        ),
    }
    elsewhere = explain_stuck(nodes)
    assert elsewhere is not None
    assert "the training thread waits for an event" in elsewhere.headline
    killed = process(2, state=RankState.KILLED, worker=0, **role)
    stuck = explain(process(1, FETCH), killed, process(3, idle, worker=1, **role))
    assert stuck.headline == (
        "The job is stuck, no step for 32 s: DataLoader worker 0 has ended, and the training "
        "waits for it."
    )


def test_a_process_without_python_is_named_by_its_command() -> None:
    waits = thread((LIBRARY + "subprocess.py", 9, "Popen.wait"), (JOB, 7, "export"))
    fields = {"role": "child", "command": "tool --serve"}
    tool = process(2, thread(channel="unix_stream_read_generic"), parent_pid=1, **fields)
    stuck = explain(process(1, waits), tool)
    assert "process 2 (tool --serve) waits for another process at a socket" in stuck.headline


@pytest.mark.parametrize(
    ("stack", "state", "channel", "wait"),
    [
        ([(LIBRARY + "threading.py", 1, "Thread.join")], "S", "", "waits for the end of a thread"),
        ([(LIBRARY + "queue.py", 1, "Queue.put")], "S", "", "waits for room in a queue"),
        ([(LIBRARY + "queue.py", 1, "Queue.get")], "S", "", "waits for a queue"),
        ([(LIBRARY + "threading.py", 1, "wait")], "S", "", "waits for an event or a condition"),
        ([(LIBRARY + "socket.py", 1, "socket.accept")], "S", "", "waits for the network"),
        ([], "S", "futex_do_wait", "waits for a lock"),
        ([], "S", "anon_pipe_write", "waits for room in a full pipe"),
        ([], "S", "anon_pipe_read", "waits for input from a pipe"),
        ([], "S", "n_tty_read", "waits for input from the terminal"),
        ([], "D", "nfs_wait_bit_killable", "waits for the network file system"),
        ([], "S", "hrtimer_nanosleep", "sleeps"),
        ([], "R", "", "runs"),
        ([], "S", "", ""),
    ],
)
def test_waits_are_told_by_the_call_or_the_kernel(
    stack: list[tuple[str, int, str]], state: str, channel: str, wait: str
) -> None:
    stuck = thread(*stack, (JOB, 3, "work"), state=state, channel=channel)
    assert describe_wait(process(1, stuck), stuck) == wait


def test_a_suspended_process_is_said_to_be_suspended() -> None:
    suspended = process(7, EVENT, state=RankState.SUSPENDED)
    assert describe_wait(suspended, EVENT) == "is suspended (kill -CONT 7 resumes it)"


def test_processes_of_a_moment_are_not_judged() -> None:
    quiet = describe_processes([process(1, EVENT, cpu_ratio=0.0, role="program")], 2 * S)
    assert quiet is not None
    assert quiet.headline == (
        "Nothing moved for 2 s: process 1 waits for an event in wait_for_batch (train.py:10)."
    )
    works = thread((JOB, 3, "work"), state="R")
    moving = describe_processes(
        [process(1, works, cpu_ratio=0.9, role="program")], 2 * S, {1}, ["a reason"]
    )
    assert moving is not None
    assert moving.headline == (
        "The job moves: in 2 s it used 0.9 cores; process 1 runs in work (train.py:3)."
    )
    assert (moving.has_moved, moving.notes) == (True, ["a reason"])
    assert describe_processes([], S) is None
