"""Watch for progress, with pages that the test writes and a clock that it sets."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from stepscope.monitor.process_logs import ProcessLogs
from stepscope.monitor.stuck_watch import FIRST_STEP_FACTOR, MIN_CALLS, StuckWatch
from stepscope.schema import JobState, RankState, StuckNode
from stepscope.spool import (
    ANSWER_WORD,
    FINISHED_STEPS_WORD,
    QUESTION_WORD,
    CollectivePage,
    process_start_ticks,
)
from tests.unit.monitor.test_collective_dumps import entry, write

LIMIT_S = 30.0


class Node:
    """Two ranks of one node, of which only the processes are real."""

    def __init__(self, tmp_path: Path, pids: list[int], *, has_begun: bool = True) -> None:
        self.now_s = 1000.0
        self.written: list[StuckNode] = []
        self.accounts: dict[str, StuckNode] = {}
        """Of all nodes, in the run."""
        self.incarnations: dict[str, int] = {}
        self.watch = StuckWatch(
            "n",
            LIMIT_S,
            0,
            write=self.store,
            read=lambda: self.accounts,
            incarnation_of=lambda process: self.incarnations.get(process.name, 1),
            now_ns=lambda: round(1e9 * self.now_s),
        )
        self.processes, self.pages = [], []
        for rank, pid in enumerate(pids):
            name = f"{pid}-{process_start_ticks(pid)}-0"
            directory = tmp_path / f"p-{name}"
            directory.mkdir()
            self.pages.append(CollectivePage.create(str(directory)))
            self.steps = int(has_begun)
            self.pages[-1].words[FINISHED_STEPS_WORD] = self.steps
            process = ProcessLogs(name, directory)
            process.description = {"rank": rank}
            self.processes.append(process)

    def store(self, account: StuckNode) -> None:
        self.written.append(account)
        self.accounts[account.node] = account

    def pass_time(self, seconds: float) -> None:
        for _ in range(round(seconds)):
            self.now_s += 1
            self.watch.poll(self.processes)

    def progress(self, rank: int, started: int, ended: int) -> None:
        now_ns = round(1e9 * self.now_s)
        self.pages[rank].put_progress(started, ended, now_ns, steps=self.steps)

    def answer(self, rank: int, line: int) -> None:
        """Answer as the reader of a rank does."""
        page = self.pages[rank].words
        question = page[QUESTION_WORD]
        stack = {"thread": "MainThread", "is_main": True, "frames": [["/job/train.py", line, "f"]]}
        entries = [entry(n, has_ended=n < 4) for n in range(5 - rank)]
        directory = self.processes[rank].directory
        write(directory, question, entries, rank=rank, question=question, stacks=[stack])
        page[ANSWER_WORD] = question


@pytest.fixture
def pids() -> Iterator[list[int]]:
    children = [
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) for _ in range(2)
    ]
    yield [child.pid for child in children]
    for child in children:
        child.kill()
        child.communicate()


@pytest.fixture
def node(tmp_path: Path, pids: list[int]) -> Node:
    return Node(tmp_path, pids)


def test_ranks_are_asked_once_nothing_has_ended_for_the_limit(node: Node) -> None:
    node.progress(0, 5, 4)
    node.progress(1, 4, 4)
    node.pass_time(LIMIT_S)
    assert [page.words[QUESTION_WORD] for page in node.pages] == [0, 0]
    node.pass_time(2)
    assert [page.words[QUESTION_WORD] for page in node.pages] == [1, 1]
    node.answer(0, 10)
    node.answer(1, 20)
    node.pass_time(1)
    (account,) = node.written
    assert [(rank.rank, rank.state, rank.frames[0].line) for rank in account.ranks] == [
        (0, RankState.ANSWERED, 10),
        (1, RankState.ANSWERED, 20),
    ]
    assert [rank.calls[-1].has_ended for rank in account.ranks] == [False, True]
    assert account.groups == {"0": [0, 1]}


def test_a_job_that_goes_on_is_not_stuck_any_more(node: Node) -> None:
    test_ranks_are_asked_once_nothing_has_ended_for_the_limit(node)
    node.progress(1, 5, 5)
    node.pass_time(1)
    assert node.written[-1].resolved_ns == round(1e9 * node.now_s)
    node.watch.finish(node.processes, JobState.COMPLETED)
    assert len(node.written) == 2


def test_the_account_of_a_job_that_is_stopped_stays(node: Node) -> None:
    test_ranks_are_asked_once_nothing_has_ended_for_the_limit(node)
    node.progress(0, 5, 5)  # it leaves its collective, because the other rank is killed
    node.pass_time(1)
    node.watch.finish(node.processes, JobState.STOPPED)
    assert (node.written[-1].resolved_ns, node.written[-1].has_ended) == (None, True)


def test_a_rank_that_does_not_answer_is_described_from_outside(node: Node, pids: list[int]) -> None:
    os.kill(pids[1], signal.SIGSTOP)
    os.waitid(os.P_PID, pids[1], os.WSTOPPED | os.WNOWAIT)
    node.progress(0, 5, 4)
    node.pass_time(LIMIT_S + 2)
    node.answer(0, 10)
    node.pass_time(6)
    states = {rank.rank: rank.state for rank in node.written[0].ranks}
    assert states == {0: RankState.ANSWERED, 1: RankState.SUSPENDED}


@pytest.fixture
def starting_node(tmp_path: Path, pids: list[int]) -> Node:
    return Node(tmp_path, pids, has_begun=False)


def ask_before_the_first_step(node: Node) -> StuckNode:
    node.progress(0, 5, 4)
    node.progress(1, 4, 4)
    node.pass_time(LIMIT_S + 2)
    node.answer(0, 10)
    node.answer(1, 20)
    node.pass_time(1)
    return node.written[-1]


def test_before_the_first_step_ranks_are_asked_long_before_the_job_counts_as_stuck(
    starting_node: Node,
) -> None:
    first = ask_before_the_first_step(starting_node)
    assert [rank.frames[0].line for rank in first.ranks] == [10, 20]
    assert first.limit_ns == FIRST_STEP_FACTOR * LIMIT_S * 1e9
    assert not first.has_reached_limit
    starting_node.pass_time(FIRST_STEP_FACTOR * LIMIT_S + 20)
    assert starting_node.written[-1].has_reached_limit


@pytest.mark.parametrize(
    ("state", "was_stuck"), [(JobState.STOPPED, True), (JobState.FAILED, False)]
)
def test_a_job_that_fails_before_its_first_step_was_not_stuck(
    starting_node: Node, state: JobState, *, was_stuck: bool
) -> None:
    ask_before_the_first_step(starting_node)
    starting_node.watch.finish(starting_node.processes, state)
    last = starting_node.written[-1]
    assert (last.has_ended, last.was_stuck) == (True, was_stuck)


def test_many_collectives_count_as_a_step(starting_node: Node) -> None:
    starting_node.progress(1, MIN_CALLS - 1, MIN_CALLS - 1)
    starting_node.pass_time(1)
    assert starting_node.watch.limit_ns == FIRST_STEP_FACTOR * LIMIT_S * 1e9
    starting_node.progress(1, MIN_CALLS, MIN_CALLS)
    starting_node.pass_time(1)
    assert starting_node.watch.limit_ns == LIMIT_S * 1e9


def test_long_steps_take_long_to_count_as_stuck(node: Node) -> None:
    for step in range(1, 6):
        node.steps = step
        node.progress(0, step + 1, step)
        node.pass_time(20)
    assert node.watch.limit_ns == 10 * 20_000_000_000
    node.pass_time(170)
    assert node.pages[0].words[QUESTION_WORD] == 0
    node.pass_time(20)
    assert node.pages[0].words[QUESTION_WORD] == 1


def test_a_job_in_which_no_rank_waits_is_not_stuck(node: Node) -> None:
    node.progress(0, 4, 4)
    node.progress(1, 4, 4)
    node.pass_time(200)
    assert [page.words[QUESTION_WORD] for page in node.pages] == [0, 0]
    assert node.written == []


def test_a_node_in_which_no_rank_waits_asks_while_another_one_is_stuck(node: Node) -> None:
    waiting = StuckNode(node="m", since_ns=0, seen_ns=1, limit_ns=1)
    for n, fields in enumerate([{}, {"resolved_ns": 1}, {"has_ended": True}]):
        node.accounts["m"] = msgspec.structs.replace(waiting, **fields)
        node.progress(0, n + 1, n + 1)
        node.pass_time(LIMIT_S - 1)
        before = len(node.written)
        question = node.pages[0].words[QUESTION_WORD]
        node.pass_time(3)
        is_asked = node.pages[0].words[QUESTION_WORD] > question
        assert is_asked is (not fields)
        if is_asked:
            node.answer(0, 10)
            node.answer(1, 20)
        node.pass_time(5)
        assert len(node.written) == before + is_asked
    assert [rank.frames[0].line for rank in node.written[0].ranks] == [10, 20]


def kill_second(node: Node, pids: list[int]) -> None:
    node.progress(0, 4, 4)
    node.pass_time(1)
    os.kill(pids[1], signal.SIGKILL)
    os.waitid(os.P_PID, pids[1], os.WEXITED | os.WNOWAIT)


def test_a_dead_rank_holds_the_others_up(node: Node, pids: list[int]) -> None:
    kill_second(node, pids)
    node.pass_time(LIMIT_S + 3)
    node.answer(0, 10)
    node.pass_time(6)
    states = {rank.rank: rank.state for rank in node.written[0].ranks}
    assert states == {0: RankState.ANSWERED, 1: RankState.KILLED}


def test_a_rank_that_died_before_a_restart_holds_nobody_up(node: Node, pids: list[int]) -> None:
    kill_second(node, pids)
    node.incarnations[node.processes[0].name] = 2
    node.pass_time(LIMIT_S + 60)
    assert node.pages[0].words[QUESTION_WORD] == 0
    node.progress(0, 5, 4)
    node.pass_time(LIMIT_S + 3)
    node.answer(0, 10)
    node.pass_time(6)
    assert [rank.rank for rank in node.written[0].ranks] == [0]


def test_slow_stacks_do_not_keep_the_monitor_from_its_work(
    node: Node, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "py-spy"
    program.write_text(f"#!/bin/sh\necho >> {tmp_path}/calls\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    read_time = node.watch._now_ns

    def pass_time_with_calls() -> int:
        calls = tmp_path / "calls"
        return read_time() + 10_000_000_000 * (len(calls.read_text()) if calls.exists() else 0)

    node.watch._now_ns = pass_time_with_calls
    node.progress(0, 5, 4)
    node.pass_time(LIMIT_S + 7)
    assert [rank.state for rank in node.written[0].ranks] == [RankState.SILENT] * 2
    assert "py-spy could not read its stack" in node.written[0].ranks[0].detail
    assert "there was no time to read its stack" in node.written[0].ranks[1].detail
    assert (tmp_path / "calls").read_text() == "\n"


def test_ranks_that_only_send_and_receive_are_asked_when_steps_do_not_end(node: Node) -> None:
    for page in node.pages:
        page.put_progress(0, 0, 0, transfers=7, steps=1)
    node.pass_time(LIMIT_S)
    assert [page.words[QUESTION_WORD] for page in node.pages] == [0, 0]
    node.pages[0].put_progress(0, 0, 0, transfers=8, steps=1)  # progress, too
    node.pass_time(LIMIT_S)
    assert [page.words[QUESTION_WORD] for page in node.pages] == [0, 0]
    node.pass_time(2)
    assert [page.words[QUESTION_WORD] for page in node.pages] == [1, 1]
    one = {"number": 8, "kind": "irecv", "peer": 1, "group": "0", "sizes": "4", "dtypes": "int64"}
    transfers = [{**one, "has_ended": False, "t_ns": 5}]
    for rank, page in enumerate(node.pages):
        directory = node.processes[rank].directory
        fields = {"rank": rank, "reason": "question", "question": 1, "transfers": transfers}
        write(directory, 1, [], **fields)
        page.words[ANSWER_WORD] = 1
    node.pass_time(1)
    (account,) = node.written
    (call,) = account.ranks[0].calls
    assert (call.peer, call.kind, call.has_ended, call.t_ns) == (1, "irecv", False, 5)
