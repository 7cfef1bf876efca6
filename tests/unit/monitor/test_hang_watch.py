"""Watch for hangs, with a real process, records that the test writes, and a clock that it sets."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from stepscope.monitor.hang_watch import FIRST_STEP_FACTOR, LINES_FACTOR, PAUSE_FACTOR, HangWatch
from stepscope.monitor.process_accounts import count_waits
from stepscope.monitor.process_logs import ProcessLogs
from stepscope.monitor.samplers.processes import JobProcess
from stepscope.schema import ProcessAccount, StuckNode
from stepscope.spool import (
    DropCounts,
    Flag,
    Kind,
    SpanLog,
    SpoolTree,
    make_meta,
    process_directory,
    process_start_ticks,
    read_question,
    write_answer,
)

LIMIT_S = 30
JOB = "/job/train.py"


@dataclass
class FakeJob:
    """CPU time that the test sets, of processes that run."""

    processes: dict[int, JobProcess] = field(default_factory=dict)
    cpu_seconds: float = 0.0


class Hanging:
    """A job of one process, which answers the questions of the watch."""

    def __init__(self, root: Path, pid: int) -> None:
        ticks = process_start_ticks(pid)
        assert ticks is not None
        self.now_s = 1000.0
        self.job = FakeJob({pid: JobProcess(pid, 1, ticks, 0, 0, 0, None, ended=False)})
        self.watch = HangWatch(
            "n",
            LIMIT_S,
            0,
            job=self.job,
            read_names=lambda process: process.names.update(self.names),
            now_ns=lambda: round(1e9 * self.now_s),
        )
        self.directory = process_directory(str(root), pid, ticks)
        Path(self.directory).mkdir()
        self.process = ProcessLogs(f"{pid}-{ticks}-0", Path(self.directory))
        self.process.description = {"parent_pid": 1}
        drops = DropCounts.create(self.directory)
        self.log = SpanLog(SpoolTree(str(root), 1 << 24), self.directory, 7, "f", drops)
        self.names: dict[int, tuple[str, str | None]] = {}
        self.accounts: list[tuple[float, StuckNode]] = []

    @property
    def now_ns(self) -> int:
        return round(1e9 * self.now_s)

    def record(self, kind: int = Kind.OPTIMIZER) -> None:
        """Record a span of the job, which the watch reads at once."""
        self.log.write(make_meta(0, kind), self.now_ns, self.now_ns + 1)
        self.watch.look([self.process], has_progress=False)

    def train(self, step_count: int = 10) -> None:
        for _ in range(step_count):
            self.record()
            self.pass_time(1)
        self.record()

    def pass_time(self, seconds: float, *stacks: str, cores: float = 0.0) -> None:
        """Let the job be at each stack in turn, one per second."""
        for second in range(round(seconds)):
            self.now_s += 1
            self.job.cpu_seconds += cores
            if stacks:
                self.sample(stacks[second % len(stacks)])
            self.watch.look([self.process], has_progress=False)
            account = self.watch.describe()
            if account is not None:
                self.accounts.append((self.now_s, account))
            number = read_question(self.directory)
            if number is not None:
                thread = {"thread": "MainThread", "is_main": True, "native_id": None}
                write_answer(self.directory, number, [{**thread, "frames": [[JOB, 5, "wait"]]}])

    def sample(self, stack: str) -> None:
        """Write a sample as the sampler of the process does."""
        number = next((n for n, (text, _) in self.names.items() if text == stack), None)
        if number is None:
            number = len(self.names) + 1
            self.names[number] = (stack, None)
        meta = make_meta(number, Kind.STACK, Flag.MARK)
        self.log.write(meta, self.now_ns, 0, 5 << 32 | 5)

    def find_delay_s(self, seconds: float, *stacks: str, cores: float = 0.0) -> float | None:
        """Let time pass without progress; return that after which the job is called stuck."""
        start_s = self.now_s
        self.pass_time(seconds, *stacks, cores=cores)
        return self.accounts[0][0] - start_s if self.accounts else None


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[Hanging]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        yield Hanging(tmp_path, child.pid)
        child.kill()


def frame(name: str) -> str:
    return f"<module>|{JOB}|;{name}|{JOB}|"


WAITS = frame("wait_for_batch")


def test_a_job_that_waits_is_stuck_from_the_limit_on(hanging: Hanging) -> None:
    hanging.train()
    assert hanging.find_delay_s(LIMIT_S + 5, WAITS) == LIMIT_S
    account = hanging.accounts[0][1]
    assert (account.has_reached_limit, account.resolved_ns) == (True, None)
    (process,) = account.processes
    assert isinstance(process, ProcessAccount)
    assert process.has_trained
    assert [frame.line for frame in process.threads[0].frames] == [5]


@pytest.mark.parametrize(
    ("stacks", "cores", "factor"),
    [
        ([frame("evaluate")], 0.0, PAUSE_FACTOR),
        ([frame("Trainer.save_checkpoint")], 0.0, PAUSE_FACTOR),
        ([WAITS + ";compile|/lib/python3.12/site-packages/torch/_dynamo/a.py|torch"], 0.0, 4),
        ([frame("wait_until"), frame("is_set")], 1.0, PAUSE_FACTOR),  # a loop that waits
        ([frame("wait_until")], 1.0, PAUSE_FACTOR),  # the same in one line
        (
            [f"{frame(user)};{n}|/lib/a.py|numpy" for n in range(20) for user in "ab"],
            1.0,
            LINES_FACTOR,
        ),
        ([f"{frame(u)};{n}|/lib/a.py|numpy" for n in range(20) for u in ("eval", "b")], 1.0, None),
        ([f"{frame('a')};{n}|/lib/a.py|numpy" for n in range(40)], 1.0, None),  # in one line
        ([frame("measure<call 1>")], 1.0, None),  # a call that has not returned
        ([frame(f"function_{n}") for n in range(200)], 1.0, None),
        ([frame(f"function_{n}") for n in range(200)], 0.0, None),  # it reads slowly
        (["serve_forever|/lib/python3.12/socketserver.py|python"], 0.0, None),
    ],
)
def test_what_takes_long_and_ends_is_not_stuck(
    hanging: Hanging, stacks: list[str], cores: float, factor: int | None
) -> None:
    hanging.train()
    delay_s = hanging.find_delay_s(LINES_FACTOR * LIMIT_S + 5, *stacks, cores=cores)
    assert delay_s == (None if factor is None else factor * LIMIT_S)


def test_a_process_that_sleeps_again_and_again_does_a_little_in_between(tmp_path: Path) -> None:
    polling = "import time\nprint(flush=True)\nwhile True: time.sleep(0.005)"
    with subprocess.Popen([sys.executable, "-c", polling], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        hanging = Hanging(tmp_path, child.pid)
        hanging.train()
        start_s = hanging.now_s
        for _ in range(PAUSE_FACTOR * LIMIT_S + 5):
            # A busy machine delays the child between its sleeps, so each look is made in one.
            waits = count_waits(child.pid)
            while count_waits(child.pid) == waits:
                os.sched_yield()
            hanging.pass_time(1, WAITS)
        child.kill()
    assert hanging.accounts[0][0] - start_s == PAUSE_FACTOR * LIMIT_S


@pytest.mark.parametrize("kind", [Kind.FORWARD, Kind.CHECKPOINT, Kind.COMPILE, Kind.FETCH])
def test_every_record_of_the_job_is_progress(hanging: Hanging, kind: int) -> None:
    hanging.train()
    for _ in range(5):
        hanging.pass_time(LIMIT_S - 5, WAITS)
        hanging.record(kind)
    assert not hanging.accounts


def test_a_longer_pause_that_has_ended_is_usual(hanging: Hanging) -> None:
    hanging.train()
    hanging.pass_time(LIMIT_S - 2, WAITS)
    hanging.train()
    assert hanging.find_delay_s(3 * LIMIT_S, WAITS) == 2 * (LIMIT_S - 2)


def test_long_steps_raise_the_limit(hanging: Hanging) -> None:
    for _ in range(8):
        hanging.record()
        hanging.pass_time(9, WAITS)
    hanging.record()
    assert hanging.find_delay_s(100, WAITS) == 90


def test_the_first_step_may_take_long(hanging: Hanging) -> None:
    hanging.record(Kind.LOADER_START)
    assert hanging.find_delay_s(FIRST_STEP_FACTOR * LIMIT_S + 5, WAITS) == (
        FIRST_STEP_FACTOR * LIMIT_S
    )


def test_time_in_which_the_monitor_did_not_run_does_not_count(hanging: Hanging) -> None:
    hanging.train()
    hanging.pass_time(5, WAITS)
    hanging.now_s += 3600
    hanging.pass_time(LIMIT_S - 6, WAITS)
    assert not hanging.accounts
